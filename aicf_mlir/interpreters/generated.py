"""The results of every op that is one generated kernel: its body, on its arguments repeated to its domain."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aicf_mlir.interpreters.arithmetic import ROUNDED, Arithmetic
from aicf_mlir.interpreters.body import evaluate
from aicf_mlir.interpreters.numerics import Array
from aicf_mlir.interpreters.runner import Operands
from aicf_mlir.ir.generated import GeneratedInterface
from aicf_mlir.ir.tensor_op import shape_of


def generated(
    op: GeneratedInterface, operands: Operands, arithmetic: Arithmetic = ROUNDED
) -> tuple[Array, ...]:
    """Each result in its shape, before it is rounded."""
    domain, reduced = op.domain, op.reduced_dims
    kept = tuple(size for dim, size in enumerate(domain) if dim not in reduced)
    shapes = [shape_of(result) for result in op.results]
    walked = [domain if whole else kept for whole in op.whole_results]
    given, picked = dict(zip(op.operands, operands, strict=True)), op.picked
    wide = [
        given[value] if dims is None else placed(_element(given[value], picked.get(number)), dims, domain)
        for number, (value, dims) in enumerate(op.arguments)
    ]
    results = evaluate(op.body(), wide, domain, reduced, walked, arithmetic)
    return tuple(np.reshape(result, shape) for result, shape in zip(results, shapes, strict=True))


def _element(vector: Array, index: int | None) -> Array:
    """One of a vector; without an index, all."""
    return vector if index is None else np.asarray(vector[index])


def placed(x: Array, dims: Sequence[int], domain: Sequence[int]) -> Array:
    """`x` at each point of the domain, whose dimensions `dims` are its own."""
    shape = [1] * len(domain)
    for size, dim in zip(x.shape, dims, strict=True):
        shape[dim] = size
    order = sorted(range(x.ndim), key=lambda own: dims[own])
    return np.broadcast_to(np.transpose(x, order).reshape(shape), domain)
