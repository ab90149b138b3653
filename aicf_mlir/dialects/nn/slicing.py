"""Parts of a tensor along one dimension: split and concat, each the other's vector-Jacobian product."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xdsl.builder import Builder
from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, IntegerType, TensorType, i64
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, var_operand_def, var_result_def
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.dialects.nn.common import Canonicalized, NNOp, ValueOp
from aicf_mlir.dialects.nn.pointwise import AddOp
from aicf_mlir.dialects.nn.shape import ConstantOp
from aicf_mlir.ir.expect import Value, expect_rank, with_shape
from aicf_mlir.ir.interfaces import DifferentiableInPartsInterface, DifferentiableInterface
from aicf_mlir.ir.layouts import Layout, dense_strides
from aicf_mlir.ir.properties import ints_attr
from aicf_mlir.ir.tensor_op import AnyTensor, element_type, shape_of, tensor_type

__all__ = ["ConcatOp", "SplitOp", "sum_of_parts"]


def layouts_along(shape: Sequence[int], dim: int, sizes: Sequence[int]) -> Iterator[Layout]:
    """The layouts of parts of `sizes` along `dim` in a tensor of `shape`."""
    strides = dense_strides(shape)
    start = 0
    for size in sizes:
        part = (*shape[:dim], size, *shape[dim + 1 :])
        yield Layout(part, strides, start * strides[dim]).normal()
        start += size


def expect_dim(dim: int, rank: int) -> None:
    """Refuse a dimension that a tensor of `rank` does not have."""
    if not 0 <= dim < rank:
        raise VerifyException(f"expected dim in 0..{rank - 1}, got {dim}")


@irdl_op_definition
class SplitOp(NNOp, DifferentiableInPartsInterface, Canonicalized):
    """x cut along `dim` into parts of `sizes`, one result each."""

    name = "nn.split"

    x = operand_def(TensorType)
    dim = prop_def(IntegerAttr[IntegerType])
    sizes = prop_def(DenseArrayBase.constr(i64))
    parts = var_result_def(TensorType)

    def __init__(self, x: Value, dim: int, sizes: Sequence[int]):
        super().__init__(
            operands=[x],
            properties={"dim": IntegerAttr(dim, i64), "sizes": ints_attr(sizes)},
            result_types=[split_types(x, dim, sizes)],
        )

    def inferred_types(self) -> Sequence[AnyTensor]:
        wanted = split_types(self.x, self.dim.value.data, self.sizes.get_values())
        if len(wanted) != len(self.parts):
            raise VerifyException(f"expected a result for each of {len(wanted)} sizes, got {len(self.parts)}")
        return wanted

    def layouts(self) -> Sequence[Layout]:
        """The layouts of the parts in x."""
        return list(layouts_along(shape_of(self.x), self.dim.value.data, self.sizes.get_values()))

    def vjp_in_parts(
        self, builder: Builder, cotangents: Sequence[SSAValue | None]
    ) -> Sequence[SSAValue | None]:
        """The gradients joined along the dimension; zeros for a part that does not reach the loss."""
        parts = [
            builder.insert(ConstantOp(0.0, tensor_type(part))).result if g is None else g
            for part, g in zip(self.parts, cotangents, strict=True)
        ]
        return [builder.insert(ConcatOp(parts, self.dim.value.data)).result]


def split_types(x: Value, dim: int, sizes: Sequence[int]) -> list[AnyTensor]:
    """The types of the parts of `x`."""
    shape = expect_rank("x", x, at_least=1)
    expect_dim(dim, len(shape))
    if not sizes or min(sizes) < 0 or sum(sizes) != shape[dim]:
        raise VerifyException(
            f"expected sizes from 0 on that add up to {shape[dim]}, dimension {dim} of {tensor_type(x)}, got"
            f" {list(sizes)}"
        )
    return [with_shape(x, (*shape[:dim], size, *shape[dim + 1 :])) for size in sizes]


@irdl_op_definition
class ConcatOp(ValueOp, DifferentiableInterface, Canonicalized):
    """The operands one after the other along `dim`; their other dimensions are equal."""

    name = "nn.concat"

    inputs = var_operand_def(TensorType)
    dim = prop_def(IntegerAttr[IntegerType])

    def __init__(self, inputs: Sequence[Value], dim: int):
        super().__init__(
            operands=[inputs],
            properties={"dim": IntegerAttr(dim, i64)},
            result_types=[concat_type(inputs, dim)],
        )

    def inferred_type(self) -> AnyTensor:
        return concat_type(self.inputs, self.dim.value.data)

    def sizes(self) -> list[int]:
        """The size of each operand in `dim`."""
        return [shape_of(value)[self.dim.value.data] for value in self.inputs]

    def layouts(self) -> Sequence[Layout]:
        """The layouts of the operands in the result."""
        return list(layouts_along(shape_of(self.result), self.dim.value.data, self.sizes()))

    def vjp(self, builder: Builder, cotangents: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        (g,) = cotangents
        return list(builder.insert(SplitOp(g, self.dim.value.data, self.sizes())).parts)


def concat_type(inputs: Sequence[Value], dim: int) -> AnyTensor:
    """The type of the operands one after the other."""
    if not inputs:
        raise VerifyException("expected one operand or more, got none")
    shape = expect_rank("every operand", inputs[0], at_least=1)
    expect_dim(dim, len(shape))
    size = 0
    for value in inputs:
        own = shape_of(value)
        if element_type(value) != element_type(inputs[0]) or len(own) != len(shape):
            raise VerifyException(
                f"expected operands of one element type and rank, got {tensor_type(inputs[0])} and {tensor_type(value)}"
            )
        if (*own[:dim], *own[dim + 1 :]) != (*shape[:dim], *shape[dim + 1 :]):
            raise VerifyException(
                f"expected operands that differ in dimension {dim} only, got {tensor_type(inputs[0])} and"
                f" {tensor_type(value)}"
            )
        size += own[dim]
    return with_shape(inputs[0], (*shape[:dim], size, *shape[dim + 1 :]))


def sum_of_parts(builder: Builder, left: SSAValue, right: SSAValue) -> SSAValue:
    """The sum of two gradients of one value: joined where each has zeros where the other has parts, as those of slices have.

    So the gradients of all steps of a sequence are written once each, and not as often as there are steps. The sign of a zero may
    be another than that of the sum.
    """
    a, b = left.owner, right.owner
    if not isinstance(a, ConcatOp) or not isinstance(b, ConcatOp) or a.dim != b.dim:
        return builder.insert(AddOp(left, right)).result
    dim = a.dim.value.data
    found = sorted((*_parts(a), *_parts(b)), key=lambda each: each[0])
    ends = [0, *(start + shape_of(part)[dim] for start, part in found)]
    starts = [*(start for start, _ in found), shape_of(left)[dim]]
    if not found or any(start < end for start, end in zip(starts, ends, strict=True)):
        return builder.insert(AddOp(left, right)).result
    inputs: list[SSAValue] = []
    for (_, part), start, end in zip(found, starts, ends, strict=False):
        inputs += [*_zeros(builder, part, dim, start - end), part]
    inputs += _zeros(builder, left, dim, starts[-1] - ends[-1])
    return builder.insert(ConcatOp(inputs, dim)).result


def _parts(op: ConcatOp) -> Iterator[tuple[int, SSAValue]]:
    """The operands that are not zero, and have elements, each with its place."""
    start, dim = 0, op.dim.value.data
    for part in op.inputs:
        size = shape_of(part)[dim]
        zero = isinstance(part.owner, ConstantOp) and part.owner.value.value.data == 0.0
        if size and not zero:
            yield start, part
        start += size


def _zeros(builder: Builder, like: SSAValue, dim: int, size: int) -> list[SSAValue]:
    """Zeros for a gap of this size, if there is one."""
    shape = shape_of(like)
    type_ = with_shape(like, (*shape[:dim], size, *shape[dim + 1 :]))
    return [builder.insert(ConstantOp(0.0, type_)).result] if size else []
