"""Rounding between the ops of a body: a value of f16 or bf16 is rounded, as if there were a tensor between them.

This is torch eager's meaning of each op and ours of each stage, so a fused function has the bits of its ops. The rule depends on
the type of the value. Internal values of a launch or an op, the sums of a product or the terms of a norm, have type f32 and keep
it. The bias of a product is added to its sums, as in torch: both are one op of nn, and its value is their sum.
"""

from __future__ import annotations

from xdsl.ir import Operation, SSAValue

from aicf_mlir.dialects import kernel
from aicf_mlir.ir.dtypes import element_name
from aicf_mlir.ir.element_types import NARROW
from aicf_mlir.ir.formula import Builder, Scalar
from aicf_mlir.ir.tensor_op import element_type


def read_type(value: SSAValue, reader: Operation) -> str | None:
    """The element type that `reader` reads `value` rounded to, if the same body computes it; None if it is not rounded."""
    is_sum_with_bias = isinstance(reader, kernel.BiasAddOp) and isinstance(value.owner, kernel.GemmOp)
    if is_sum_with_bias and is_read_once(value):
        return None
    return element if (element := element_of(value)) in NARROW else None


def as_read(builder: Builder, value: SSAValue, at: int, reader: Operation) -> int:
    """The number of `value` as `reader` reads it, if the same body computes it as `at`."""
    element = read_type(value, reader)
    return at if element is None else builder.scalar(at).rounded(element).value


def as_tensor(x: Scalar, element: str) -> Scalar:
    """The value of x that the next op reads if x has this element type."""
    return x.rounded(element) if element in NARROW else x


def is_read_once(value: SSAValue) -> bool:
    """True if a value has one reader, through ops that move no memory."""
    uses = list(value.uses)
    if len(uses) != 1:
        return False
    op = uses[0].operation
    return not isinstance(op, kernel.VIEWS) or is_read_once(op.results[0])


def element_of(value: SSAValue) -> str:
    """The element type of the value."""
    return element_name(element_type(value))
