"""Where a body rounds what an op gives it: where another op of it reads an f16, and what there is once a row.

An f16 above 65504 is infinite, and whether a step has such a value decides what it is: its loss, whether it is skipped, how its
loss scale goes on. So an f16 is read as if a tensor lay between, whatever is fused; a bf16, of the range of f32, with the digits
that it has. The bias of a product is added to its sums, as torch adds it.
"""

from __future__ import annotations

from xdsl.ir import Operation, SSAValue

from aicf_mlir.dialects import kernel
from aicf_mlir.dtypes import NARROW, OVERFLOWING
from aicf_mlir.ir.dtypes import element_name
from aicf_mlir.ir.formula import Builder, Scalar
from aicf_mlir.ir.tensor_op import element_type


def as_read(builder: Builder, value: SSAValue, at: int, reader: Operation) -> int:
    """What `reader` takes of `value`, which the same body computes as `at`."""
    if isinstance(reader, kernel.BiasAddOp) and isinstance(value.owner, kernel.GemmOp):
        return at
    return as_tensor(builder.scalar(at), element_of(value)).value


def as_tensor(x: Scalar, element: str) -> Scalar:
    """What the next op takes of a value of this element type."""
    return x.rounded(element) if element in OVERFLOWING else x


def as_written(builder: Builder, value: SSAValue, at: int) -> int:
    """`at`, without roundings that have no bits left where the launch writes `value`."""
    element = element_of(value)
    return builder.unrounded(at, element) if element in OVERFLOWING else at


def once_rounded(builder: Builder, value: SSAValue, at: int) -> int:
    """What there is once a row, as a tensor of its type: all elements depend on it, and it costs nothing."""
    element = element_of(value)
    return builder.scalar(at).rounded(element).value if element in NARROW else at


def element_of(value: SSAValue) -> str:
    """Its element type."""
    return element_name(element_type(value))
