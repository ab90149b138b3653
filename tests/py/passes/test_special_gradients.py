"""Gradients at NaN, infinities and zeros, of operands and of cotangents: those of torch's autograd, in float64.

A loss that masks what it must not see has such operands with a cotangent of 0, and a NaN that comes from there, or that
does not, decides whether a model trains.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pytest
import torch
from programs import run_by_name, run_pipeline
from samples import Sample, sweep
from samples.pointwise import CASES, forward
from test_nn_gradients import CHECKED, carrying, weighted_loss
from xdsl.dialects.builtin import ModuleOp

from aicf_mlir.dialects import nn
from aicf_mlir.dialects.nn.attention import AttentionBase
from aicf_mlir.dialects.nn.pointwise import CLASSES
from aicf_mlir.dialects.nn.rows import ROWS
from aicf_mlir.interpreters import run_function
from aicf_mlir.interpreters.numerics import Array
from aicf_mlir.ir.properties import is_true
from aicf_mlir.ir.tensor_op import shape_of

COTANGENTS = (1.0, 0.0, math.nan, math.inf)
OPERANDS = (math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0, 0.25, -1.5, 3.0, -3.0, 25.0, 1e-40, -1e30)
PROBABILITIES = (0.0, 1.0, 0.25, 1e-40)
"""What torch takes of a binary cross entropy."""

ROUNDING = 1e-8
"""Of float64; torch has some numbers of its formulas in float32."""

DERIVED = [
    (name, number)
    for name, cases in CASES.items()
    if ROWS[name].differentiable and name != "floor_divide"  # torch refuses to differentiate this one
    for number in range(len(cases))
]


@pytest.mark.parametrize(("name", "number"), DERIVED)
def test_pointwise(name: str, number: int) -> None:
    row, case = ROWS[name], CASES[name][number]
    numbers = PROBABILITIES if name == "binary_cross_entropy" else OPERANDS
    columns = [
        *((True, False) for _ in row.masks),
        *(numbers for _ in range(len(row.operands) - len(row.masks))),
        COTANGENTS,
    ]
    *operands, cotangent = (np.array(column) for column in zip(*itertools.product(*columns), strict=True))
    sample = forward(row, case, "f64", name, [str(cotangent.size)] * len(operands))
    known = np.full(cotangent.shape, True)
    if not case.clear_at_nan:
        known = ~np.any([np.isnan(operand) for operand in operands], axis=0)
    wrong = [
        f"{what}: {fault}"
        for what, ours, theirs in gradients(sample, differentiated(sample), operands, {0: cotangent})
        if (fault := difference(ours, theirs, known, [*operands, cotangent]))
    ]
    assert not wrong, "\n".join(wrong)


def is_causal(sample: Sample) -> bool:
    """Of attention: about what that hides torch's own kernels disagree; test_huge_scores_in_models.py has it."""
    op = sample.build(*sample.block().args)
    return isinstance(op, AttentionBase) and is_true(op.causal)


def is_convolution(sample: Sample) -> bool:
    """True of a convolution: torch multiplies padding by weights, and 0 by an infinity is a NaN; windows here have no padding."""
    return issubclass(sample.op_type(), nn.ConvolvingOp)


OTHERS = [
    sample
    for sample in CHECKED
    if sample.op_type() not in CLASSES.values() and not is_causal(sample) and not is_convolution(sample)
]

Place = tuple[float, bool, float]
"""How many elements are special, whether these are of cotangents or of operands, and what they are."""

PLACES: tuple[Place, ...] = tuple(
    (share, of_cotangent, number)
    for share in (0.12, 0.5)
    for of_cotangent in (False, True)
    for number in (math.nan, math.inf, -math.inf, 0.0)
)

OTHERWISE: Mapping[str, str] = {
    "nn.var_mean result 1": "torch's mean beside a variance moves by differences: of infinities it is NaN",
    "nn.layer_norm result 1": "as the mean of var_mean",
    "nn.prod gradient 0": "over several dimensions torch multiplies one after the other: infinity times 0",
    "nn.cross_entropy gradient 0": "torch takes an infinite cotangent apart: infinity minus infinity",
}
"""Where one gives an infinity and the other a NaN, and why."""


def known_of_logarithms(place: Place, ours: Array, theirs: Array) -> Array:
    """Torch takes it by logarithms of the cotangent, here it is a running sum of quotients. So an infinite operand makes some
    more NaN in torch, and a cotangent that is NaN some more here.
    """
    _, of_cotangent, number = place
    if of_cotangent and math.isnan(number):
        return ~np.isnan(ours)
    if not of_cotangent and math.isinf(number):
        return ~np.isnan(theirs)
    return np.full(ours.shape, True)


def known_of_products(place: Place, ours: Array, theirs: Array) -> Array:
    """Torch divides the running product by each element, here the others are multiplied: NaN over NaN, infinity over infinity."""
    _, of_cotangent, number = place
    return np.full(ours.shape, True) if of_cotangent or number == 0 else ~np.isnan(theirs)


def known_of_first_factors(place: Place, ours: Array, theirs: Array) -> Array:
    """The first factor is multiplied by the 0 that is in front of a row, which is NaN where the other number is no finite one."""
    del place
    return ~(np.isnan(ours) & (theirs == 0))


ALONG_A_ROW = {
    "nn.scan-logaddexp gradient 0": known_of_logarithms,
    "nn.scan-prod gradient 0": known_of_products,
    "nn.scan-exp_linear gradient 1": known_of_first_factors,
}
"""Where gradients along a row must be torch's, and why not everywhere."""


@sweep(OTHERS)
def test_reductions_and_others(sample: Sample) -> None:
    wrong: list[str] = []
    for place, what, ours, theirs in at_special_places(sample):
        known = np.full(ours.shape, True)
        for name, known_along in ALONG_A_ROW.items():
            op, _, gradient = name.partition(" ")
            if f"{sample.op_type().name}-{sample.name}".startswith(op) and what == gradient:
                known = known_along(place, ours, theirs)
        if f"{sample.op_type().name} {what}" in OTHERWISE:
            known = np.isfinite(ours) | np.isfinite(theirs)
        if fault := difference(ours, theirs, known, []):
            wrong.append(f"{place}, {what}: {fault}")
    assert not wrong, "\n".join(wrong)


def test_what_is_otherwise_differs() -> None:
    different = {
        f"{name} {what}"
        for sample in OTHERS
        if any(key.startswith(f"{(name := sample.op_type().name)} ") for key in OTHERWISE)
        for _, what, ours, theirs in at_special_places(sample)
        if difference(ours, theirs, np.full(ours.shape, True), [])
    }
    assert different == OTHERWISE.keys()


def at_special_places(sample: Sample) -> Iterator[tuple[Place, str, Array, Array]]:
    """Where, what, ours, torch's: results and gradients with some numbers replaced by special ones."""
    op = sample.build(*sample.block("f64").args)
    module = differentiated(sample)
    for seed, place in enumerate(PLACES):
        share, of_cotangent, number = place
        rng = np.random.default_rng(seed)

        def sprinkled(
            values: Array,
            is_special: bool,
            rng: np.random.Generator = rng,
            share: float = share,
            number: float = number,
        ) -> Array:
            if not is_special or values.dtype != np.float64:
                return values
            return np.where(rng.random(values.shape) < share, number, values)

        operands = [sprinkled(each, not of_cotangent) for each in sample.values("f64", seed=1)]
        cotangents = {
            index: sprinkled(rng.uniform(0.5, 1.5, shape_of(op.results[index])), of_cotangent)
            for index in carrying(op)
        }
        for what, mine, others in gradients(sample, module, operands, cotangents):
            yield place, what, mine, others
        if not of_cotangent:
            with np.errstate(all="ignore"):
                ours = run_function(sample.module("f64"), operands)
            for result, (mine, theirs) in enumerate(zip(ours, by_torch(sample, operands), strict=True)):
                yield place, f"result {result}", mine, theirs.numpy()


def gradients(
    sample: Sample, module: ModuleOp, operands: Sequence[Array], cotangents: Mapping[int, Array]
) -> Iterator[tuple[str, Array, Array]]:
    """What, ours, torch's, of each operand; the cotangents by the number of the result; `module` is `differentiated`."""
    values = {f"p{number}": operand for number, operand in enumerate(operands)}
    values |= {f"weights{number}": cotangent for number, cotangent in cotangents.items()}
    with np.errstate(all="ignore"):
        found = run_by_name(module, values)
    leaves = [torch.from_numpy(operand.copy()) for operand in operands]
    floats = {number: leaf for number, leaf in enumerate(leaves) if leaf.is_floating_point()}
    for leaf in floats.values():
        leaf.requires_grad_()
    results = sample.torch(*leaves)
    results = results if isinstance(results, tuple) else (results,)
    flowing = [number for number in cotangents if results[number].requires_grad]
    given = [torch.from_numpy(cotangents[number]) for number in flowing]
    expected: Sequence[torch.Tensor | None] = [None] * len(floats)
    if flowing:
        expected = torch.autograd.grad(
            [results[number] for number in flowing], list(floats.values()), given, allow_unused=True
        )
    for number, theirs in zip(floats, expected, strict=True):
        ours = found["grad", f"p{number}"]
        yield f"gradient {number}", ours, np.zeros_like(ours) if theirs is None else theirs.numpy()


def differentiated(sample: Sample) -> ModuleOp:
    """A loss of the sample, and its gradients."""
    return run_pipeline(weighted_loss(sample), "autodiff")


def by_torch(sample: Sample, operands: Sequence[Array]) -> tuple[torch.Tensor, ...]:
    """The results."""
    results = sample.torch(*(torch.from_numpy(operand) for operand in operands))
    return results if isinstance(results, tuple) else (results,)


def difference(ours: Array, theirs: Array, known: Array, beside: Sequence[Array]) -> str | None:
    """The first of the elements in `known` that is more than a rounding apart, with those of `beside`."""
    with np.errstate(all="ignore"):
        near = np.abs(ours - theirs) <= ROUNDING * np.maximum(1.0, np.abs(theirs))
    same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs)) | (near & np.isfinite(theirs))
    places = np.argwhere(known & ~same)
    if not len(places):
        return None
    place = tuple(places[0])
    at = ", ".join(f"{float(each[place])}" for each in beside)
    return f"{ours[place]} at {at or place}, torch has {theirs[place]}; {len(places)} of {ours.size}"
