"""Which op a random graph gets next: any that has a sample, in any sizes in which it is defined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from random_graph import Graph
from random_operands import laid_out, operand
from samples import NN_SAMPLES, Sample
from samples.collectives import is_tried_apart
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Block
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.dialects.nn.pointwise import CLASSES
from aicf_mlir.dialects.nn.rows import ROWS
from aicf_mlir.interpreters.numerics import FLOATS
from aicf_mlir.ir.dtypes import element_name
from aicf_mlir.ir.interfaces import DifferentiableInterface

SIZES = (1, 2, 3, 5, 7, 8, 15, 16, 17, 31, 33, 40, 65)
"""One below, at and above what kernels are vectorised by."""

LARGEST = 3000
"""Elements of an operand."""

STEPS = frozenset(CLASSES[name] for name, row in ROWS.items() if not row.differentiable)
"""Pointwise ops that are defined everywhere, though they have no gradient."""


def is_free(sample: Sample) -> bool:
    """Whether the op means something for any operands in their ranges."""
    kind = sample.op_type()
    if sample.follow is not None:
        return False
    return kind in STEPS or (sample.smooth and issubclass(kind, DifferentiableInterface))


def in_reach(sample: Sample) -> bool:
    """Whether its floats are numbers of ordinary size."""
    floats = [array for array in sample.values("f64") if array.dtype == np.float64]
    return all(bool((np.abs(array) < 100).all()) for array in floats)


def by_op(free: bool) -> Mapping[str, Sequence[Sample]]:
    """The samples of every op but checks and collectives, which have tests of their own."""
    found: dict[str, list[Sample]] = {}
    for sample in NN_SAMPLES:
        name = sample.op_type().name
        if not is_tried_apart(name) and is_free(sample) == free and in_reach(sample):
            found.setdefault(name, []).append(sample)
    return found


FREE, PLANTED = by_op(True), by_op(False)
"""Ops that take any operands, and those whose operands depend on each other, mostly gradients."""

PLANTS = 0.2
"""How often one of these is drawn."""


def draw(graph: Graph) -> str:
    """Append one random op, with what brings its operands into shape, and return its name.

    Raises `Rejected` where it does not fit in here.
    """
    rng = graph.rng
    table = PLANTED if rng.random() < PLANTS else FREE
    samples = table[sorted(table)[int(rng.integers(len(table)))]]
    sample = samples[int(rng.integers(len(samples)))]
    element = graph.element if rng.random() < 0.85 else str(rng.choice(sorted(FLOATS)))
    if table is PLANTED:
        planted(graph, sample, element)
        return sample.op_type().name
    types = sample.types(element)
    elements = [element_name(each.get_element_type()) for each in types]
    shapes = resized(rng, sample, element)
    operands = [
        operand(graph, shape, each, sample.fills.get(number))
        for number, (shape, each) in enumerate(zip(shapes, elements, strict=True))
    ]
    graph.emit(sample.build, sample.torch, operands)
    return sample.op_type().name


def planted(graph: Graph, sample: Sample, element: str) -> None:
    """The sample with its own values, wherever these lie."""
    elements = [element_name(each.get_element_type()) for each in sample.types(element)]
    operands = [
        laid_out(graph, array, each) for array, each in zip(sample.values(element), elements, strict=True)
    ]
    graph.plants_halves |= any(value.element in ("f16", "bf16") for value in operands)
    graph.emit(sample.build, sample.torch, operands)


def resized(rng: np.random.Generator, sample: Sample, element: str) -> list[tuple[int, ...]]:
    """The operand shapes with each size replaced by another wherever it stands; some of 1 where they broadcast."""
    types = sample.types(element)
    shapes = [each.get_shape() for each in types]
    if rng.random() < 0.3:
        return shapes
    sizes = sorted({size for shape in shapes for size in shape if size > 1})
    new = {size: int(rng.choice([each for each in SIZES if each >= size] or [size])) for size in sizes}
    found = [tuple(new.get(size, size) for size in shape) for shape in shapes]
    if sample.op_type() in CLASSES.values():
        found = [tuple(1 if size > 1 and rng.random() < 0.1 else size for size in shape) for shape in found]
    if any(np.prod(shape) > LARGEST for shape in found):
        return shapes
    block = Block(
        arg_types=[
            TensorType(each.get_element_type(), shape) for each, shape in zip(types, found, strict=True)
        ]
    )
    try:
        sample.build(*block.args).verify()
    except VerifyException:
        return shapes
    return found
