"""Inputs for every kernel op: ragged shapes, normals, special values, and integers (sums exact in any order).

`cases(op, dtype)` is the table that the kernel tests of every device read: what the samples of nn lower to, and for
what they do not reach a row of `GENERATORS`. An op with neither fails the tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from kernel_cases.case import FLOATS, Array, Case, Generator, Maker, Spec
from kernel_cases.checks import check_finite, check_index
from kernel_cases.elementwise import ACTIVATIONS, backward, bias_add, binary, unary
from kernel_cases.from_samples import of_samples
from kernel_cases.movement import copy
from kernel_cases.products import TRANSPOSES, gemm, gemm_epilogue
from kernel_cases.scatter import scatter_add
from kernel_cases.shifted_heads import attention, attention_grad
from kernel_cases.sums import cross_entropy, cross_entropy_grad, mse_grad, mse_loss, reduce_sum
from kernel_cases.updates import adam_step, advance, sgd_step

__all__ = [
    "FLOATS",
    "GENERATORS",
    "TRANSPOSES",
    "Array",
    "Case",
    "Generator",
    "Maker",
    "Spec",
    "cases",
    "generated",
]

GENERATORS: dict[str, Generator] = {
    **dict.fromkeys(("neg", *ACTIVATIONS), unary),
    **dict.fromkeys(("add", "sub", "mul", "div"), binary),
    **dict.fromkeys((f"{name}_bwd" for name in ACTIVATIONS), backward),
    "bias_add": bias_add,
    "gemm": gemm,
    "gemm_epilogue": gemm_epilogue,
    "reduce_sum": reduce_sum,
    "mse_loss": mse_loss,
    "mse_grad": mse_grad,
    "cross_entropy": cross_entropy,
    "cross_entropy_grad": cross_entropy_grad,
    "check_index": check_index,
    "check_finite": check_finite,
    "copy": copy,
    "scatter_add": scatter_add,
    "attention": attention,
    "attention_grad": attention_grad,
    "advance": advance,
    "sgd_step": sgd_step,
    "adam_step": adam_step,
}
"""By op name without the dialect: cases beside its samples."""


def generated(op: str, make: Maker) -> Iterator[Case]:
    """Every case of the op for operands of `make.dtype`."""
    yield from of_samples(make, op)
    yield from GENERATORS.get(op, lambda _: ())(make)


@lru_cache(maxsize=len(FLOATS))  # the variants of an op are tested one after the other
def cases(op: str, dtype: str) -> tuple[Case, ...]:
    """Every case of the op for operands of `dtype`."""
    return tuple(generated(op, Maker(dtype)))
