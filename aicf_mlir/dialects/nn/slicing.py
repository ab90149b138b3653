"""Parts of a tensor along one dimension: split and concat, each the other's vector-Jacobian product."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence

from xdsl.builder import Builder
from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, IntegerType, TensorType, i64
from xdsl.ir import Operation, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, var_operand_def, var_result_def
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.dialects.nn.common import Canonicalized, NNOp, ValueOp
from aicf_mlir.dialects.nn.shape import ConstantOp
from aicf_mlir.ir.expect import Value, expect_rank, with_shape
from aicf_mlir.ir.interfaces import DifferentiableInPartsInterface, DifferentiableInterface
from aicf_mlir.ir.layouts import Layout, dense_strides
from aicf_mlir.ir.properties import ints_attr
from aicf_mlir.ir.tensor_op import AnyTensor, element_type, shape_of, tensor_type

__all__ = ["ConcatOp", "DisjointParts", "SplitOp"]


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


class DisjointParts:
    """A sum of gradients of one value: each has parts along a dimension, and zeros where another has a part, as those of slices.

    It is written once, as the parts one after the other: the gradients of all steps of a sequence are not added as often as there
    are steps. The sign of a zero may be another than that of the sum.
    """

    def __init__(self, gradient: ConcatOp):
        self.last = gradient
        """The one that was added last."""
        self._found = list(_parts(gradient))
        """The parts with the places where they start, in order."""

    @property
    def _dim(self) -> int:
        return self.last.dim.value.data

    def add(self, gradient: SSAValue) -> bool:
        """Add a gradient and return True; return False, and change nothing, if a part of it meets another, or there is none."""
        op = gradient.owner
        if not isinstance(op, ConcatOp) or op.dim != self.last.dim:
            return False
        added = list(_parts(op))
        if not (added or self._found) or not all(self._is_free(*each) for each in added):
            return False
        for each in added:
            insort(self._found, each, key=_start)
        self.last = op
        return True

    def _is_free(self, start: int, part: SSAValue) -> bool:
        at = bisect_left(self._found, start, key=_start)
        end = start + shape_of(part)[self._dim]
        return (at == 0 or self._end(at - 1) <= start) and (
            at == len(self._found) or end <= _start(self._found[at])
        )

    def _end(self, number: int) -> int:
        start, part = self._found[number]
        return start + shape_of(part)[self._dim]

    def write(self, builder: Builder) -> SSAValue:
        """Write the sum, at the location of the gradient that was added last."""
        inputs, end, made = list[SSAValue](), 0, list[Operation]()
        for number, (start, part) in enumerate(self._found):
            inputs += [*self._zeros(start - end, made), part]
            end = self._end(number)
        inputs += self._zeros(shape_of(self.last.result)[self._dim] - end, made)
        made.append(ConcatOp(inputs, self._dim))
        for op in made:
            op.location = self.last.location
            builder.insert(op)
        return made[-1].results[0]

    def _zeros(self, size: int, made: list[Operation]) -> list[SSAValue]:
        """Zeros for a gap of this size, if there is one."""
        shape, dim = shape_of(self.last.result), self._dim
        if not size:
            return []
        made.append(ConstantOp(0.0, with_shape(self.last.result, (*shape[:dim], size, *shape[dim + 1 :]))))
        return [made[-1].results[0]]


def _start(each: tuple[int, SSAValue]) -> int:
    return each[0]


def _parts(op: ConcatOp) -> Iterator[tuple[int, SSAValue]]:
    """The operands that are not zero, and have elements, each with its place."""
    start, dim = 0, op.dim.value.data
    for part in op.inputs:
        size = shape_of(part)[dim]
        zero = isinstance(part.owner, ConstantOp) and part.owner.value.value.data == 0.0
        if size and not zero:
            yield start, part
        start += size
