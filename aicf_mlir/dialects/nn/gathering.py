"""Elements and rows that an index names: read by gather and take, added to by scatter_add, replaced by scatter and
scatter_rows.

An index outside of its dimension is the nearest one inside in a read, and adds nothing in a write. nn.check_index ensures that a
step with such an index updates nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from xdsl.builder import Builder
from xdsl.dialects.builtin import IntegerAttr, TensorType, i64
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_operand_def, prop_def
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.dialects.nn.broadcasting import BroadcastToOp
from aicf_mlir.dialects.nn.common import ValueOp
from aicf_mlir.dialects.nn.extremes import AtIndexOp
from aicf_mlir.dialects.nn.indices import (
    INDICES,
    ElementNumberOp,
    at,
    expect_beside,
    expect_index_of,
    reshaped,
)
from aicf_mlir.dialects.nn.pointwise import LtOp, WhereOp
from aicf_mlir.dialects.nn.ranking import expect_short, is_short, names_each_once
from aicf_mlir.dialects.nn.running import sums_at_extremes
from aicf_mlir.dialects.nn.shape import ConstantOp, ReshapeOp
from aicf_mlir.ir.body import Body
from aicf_mlir.ir.expect import Value, expect_element, expect_float, expect_type, with_shape
from aicf_mlir.ir.formula import Scalar, row_max, select, trace
from aicf_mlir.ir.generated import Argument, GeneratedInterface
from aicf_mlir.ir.interfaces import DifferentiableInterface
from aicf_mlir.ir.tensor_op import AnyTensor, shape_of, tensor_type

__all__ = ["GatherOp", "ScatterAddOp", "ScatterOp", "ScatterRowsOp", "TakeOp", "replaced"]


@irdl_op_definition
class GatherOp(ValueOp, DifferentiableInterface, GeneratedInterface):
    """For each element of `index` the element of x at its place, with the element of `index` as the position in `dim`."""

    name = "nn.gather"

    x = operand_def(TensorType)
    index = operand_def(TensorType)
    dim = prop_def(IntegerAttr.constr(i64))

    def __init__(self, x: Value, index: Value, dim: int):
        super().__init__(
            operands=[x, index],
            properties={"dim": IntegerAttr(dim, i64)},
            result_types=[with_shape(x, shape_of(index))],
        )

    def inferred_type(self) -> AnyTensor:
        dim = self.dim.value.data
        expect_index_of(self.index, self.x, dim)
        expect_beside(self.index, shape_of(self.x), dim)
        return with_shape(self.x, shape_of(self.index))

    @property
    def domain(self) -> tuple[int, ...]:
        """The shape of the index."""
        return shape_of(self.index)

    @property
    def arguments(self) -> Sequence[Argument]:
        return [(self.x, None), (self.index, range(len(self.domain)))]

    def body(self) -> Body:
        def formula(x: Scalar, index: Scalar) -> Scalar:
            return x.load(*at(index, len(self.domain), self.dim.value.data))

        return trace(self.compute_types, formula)

    def vjp(self, builder: Builder, cotangents: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        """A selection if `dim` is indexed once a map, no sum if the index names each place once, sums of neighbours if it is
        of running extremes; else a sum by the number of the element, in the order of the index.
        """
        (g,) = cotangents
        dim, shape, wide = self.dim.value.data, shape_of(self.x), shape_of(self.index)
        if shape_of(self.index) == (*shape[:dim], 1, *shape[dim + 1 :]):
            return [builder.insert(AtIndexOp(g, self.index, dim, shape[dim])).result, None]
        if names_each_once(self.index, dim) and shape == (*wide[:dim], shape[dim], *wide[dim + 1 :]):
            zeros = builder.insert(ConstantOp(0.0, tensor_type(self.x))).result
            return [replaced(lambda op: builder.insert(op).result, zeros, self.index, g, dim), None]
        if shape == wide and (sums := sums_at_extremes(builder, g, self.index, dim)) is not None:
            return [sums, None]
        numbers = builder.insert(ElementNumberOp(self.index, shape, dim)).result
        return [added_to_zeros(builder, numbers, g, shape, 1), None]


def added_to_zeros(
    builder: Builder, numbers: SSAValue, g: SSAValue, shape: Sequence[int], columns: int
) -> SSAValue:
    """A tensor of `shape`, as rows of `columns` elements: the sum of the rows of `g` with its number, or 0."""
    count, sources = math.prod(shape) // max(columns, 1), math.prod(shape_of(numbers))
    zeros = builder.insert(ConstantOp(0.0, with_shape(g, (count, columns)))).result
    source, index = reshaped(builder, g, (sources, columns)), reshaped(builder, numbers, (sources,))
    return reshaped(builder, builder.insert(ScatterAddOp(zeros, index, source)).result, shape)


@irdl_op_definition
class TakeOp(ValueOp, DifferentiableInterface, GeneratedInterface):
    """x with the dimensions of `index` in the place of `dim`: its slices along `dim` that the index names.

    `inverse`, of an index that names no slice twice: for each slice of x the number of the element that names it, or -1. With it
    the gradient is a take too, and no sum.
    """

    name = "nn.take"

    x = operand_def(TensorType)
    index = operand_def(TensorType)
    inverse = opt_operand_def(TensorType)
    dim = prop_def(IntegerAttr.constr(i64))

    def __init__(self, x: Value, index: Value, dim: int, inverse: Value | None = None):
        shape = shape_of(x)
        super().__init__(
            operands=[x, index, inverse],
            properties={"dim": IntegerAttr(dim, i64)},
            result_types=[with_shape(x, (*shape[:dim], *shape_of(index), *shape[dim + 1 :]))],
        )

    def inferred_type(self) -> AnyTensor:
        dim, shape = self.dim.value.data, shape_of(self.x)
        expect_index_of(self.index, self.x, dim)
        if self.inverse is not None:
            expect_type("inverse", self.inverse, with_shape(self.index, shape[dim : dim + 1]))
        return with_shape(self.x, (*shape[:dim], *shape_of(self.index), *shape[dim + 1 :]))

    @property
    def domain(self) -> tuple[int, ...]:
        """The shape of the result."""
        return shape_of(self.result)

    @property
    def arguments(self) -> Sequence[Argument]:
        dim = self.dim.value.data
        return [(self.x, None), (self.index, range(dim, dim + len(shape_of(self.index))))]

    def body(self) -> Body:
        dim, rank = self.dim.value.data, len(shape_of(self.x))
        behind = len(self.domain) - rank + 1

        def formula(x: Scalar, index: Scalar) -> Scalar:
            before = [index.builder.index(d) for d in range(dim)]
            after = [index.builder.index(d + behind - 1) for d in range(dim + 1, rank)]
            return x.load(*before, index, *after)

        return trace(self.compute_types, formula)

    def vjp(self, builder: Builder, cotangents: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        """The gradient as rows of the dimensions after `dim`, each added to its own in the order of the index; a selection if
        none has more than one.
        """
        (g,) = cotangents
        dim, shape = self.dim.value.data, shape_of(self.x)
        outer, count = math.prod(shape[:dim]), math.prod(shape_of(self.index))
        if self.inverse is not None:
            flat = reshaped(builder, g, (*shape[:dim], count, *shape[dim + 1 :]))
            index = reshaped(builder, self.index, (count,))
            taken = builder.insert(TakeOp(flat, self.inverse, dim, index)).result
            none = builder.insert(ConstantOp(0.0, TensorType(i64, ()))).result
            zero = builder.insert(ConstantOp(0.0, with_shape(g, ()))).result
            unnamed = builder.insert(LtOp(self.inverse, none)).result
            unnamed = reshaped(builder, unnamed, (shape[dim], *[1] * len(shape[dim + 1 :])))
            return [builder.insert(WhereOp(unnamed, zero, taken)).result, None, None]
        numbers: SSAValue = self.index
        if outer != 1:
            flat = reshaped(builder, self.index, (1, count))
            wide = builder.insert(BroadcastToOp(flat, (outer, count))).result
            numbers = builder.insert(ElementNumberOp(wide, (outer, shape[dim]), 1)).result
        return [added_to_zeros(builder, numbers, g, shape, math.prod(shape[dim + 1 :])), None]


@irdl_op_definition
class ScatterAddOp(ValueOp, DifferentiableInterface):
    """The matrix x, and each row of `src` added to the row of x that its `index` names, in the order of src."""

    name = "nn.scatter_add"

    x = operand_def(TensorType)
    index = operand_def(TensorType)
    src = operand_def(TensorType)

    def __init__(self, x: Value, index: Value, src: Value):
        super().__init__(operands=[x, index, src], result_types=[tensor_type(x)])

    def inferred_type(self) -> AnyTensor:
        expect_float("x", self.x)
        expect_rows(self.x, self.index, self.src)
        return tensor_type(self.x)

    def vjp(self, builder: Builder, cotangents: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        (g,) = cotangents
        return [g, None, taken(builder, g, self.index)]


@irdl_op_definition
class ScatterRowsOp(ValueOp, DifferentiableInterface):
    """The matrix x, and each row of `src` in place of the row of x that its `index` names; the last one of several."""

    name = "nn.scatter_rows"

    x = operand_def(TensorType)
    index = operand_def(TensorType)
    src = operand_def(TensorType)

    def __init__(self, x: Value, index: Value, src: Value):
        super().__init__(operands=[x, index, src], result_types=[tensor_type(x)])

    def inferred_type(self) -> AnyTensor:
        expect_rows(self.x, self.index, self.src)
        return tensor_type(self.x)

    def vjp(self, builder: Builder, cotangents: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        """The gradients as in torch: right if no two rows have one place."""
        (g,) = cotangents
        zeros = builder.insert(ConstantOp(0.0, tensor_type(self.src))).result
        dx = builder.insert(ScatterRowsOp(g, self.index, zeros)).result
        return [dx, None, taken(builder, g, self.index)]


def expect_rows(x: Value, index: Value, src: Value) -> None:
    """Refuse operands that are not a matrix, a vector of its rows, and a row of it for each of these."""
    shape, rows = shape_of(x), shape_of(index)
    expect_element("index", index, INDICES)
    if len(shape) != 2 or len(rows) != 1:
        raise VerifyException(
            f"expected x of rank 2 and index of rank 1, got {tensor_type(x)} and {tensor_type(index)}"
        )
    expect_type("src", src, with_shape(x, (*rows, shape[1])))


def taken(builder: Builder, x: SSAValue, index: SSAValue) -> SSAValue:
    """The rows of the matrix x that `index` names; zeros where x has none."""
    if not shape_of(x)[0]:
        shape = (*shape_of(index), shape_of(x)[1])
        return builder.insert(ConstantOp(0.0, with_shape(x, shape))).result
    return builder.insert(TakeOp(x, index, 0)).result


def replaced(
    insert: Callable[[ValueOp], SSAValue], x: SSAValue, index: SSAValue, src: SSAValue, dim: int
) -> SSAValue:
    """X with the elements of `src` at the places of a gather by `index`; the last one if several have one place.

    Many of them are rows of one element.
    """
    shape, count = shape_of(x), math.prod(shape_of(index))
    if is_short(shape_of(index)[dim]):
        return insert(ScatterOp(x, index, src, dim))
    flat, source = insert(ReshapeOp(x, (math.prod(shape), 1))), insert(ReshapeOp(src, (count, 1)))
    numbers = insert(ReshapeOp(insert(ElementNumberOp(index, shape, dim)), (count,)))
    return insert(ReshapeOp(insert(ScatterRowsOp(flat, numbers, source)), shape))


@irdl_op_definition
class ScatterOp(ValueOp, DifferentiableInterface, GeneratedInterface):
    """x with the elements of `src` at the places of a gather by `index`; the last one if several have one place.

    Each place looks at every element of the index along `dim`, of which there are few; more are nn.scatter_rows.
    """

    name = "nn.scatter"

    x = operand_def(TensorType)
    index = operand_def(TensorType)
    src = operand_def(TensorType)
    dim = prop_def(IntegerAttr.constr(i64))

    def __init__(self, x: Value, index: Value, src: Value, dim: int):
        super().__init__(
            operands=[x, index, src],
            properties={"dim": IntegerAttr(dim, i64)},
            result_types=[tensor_type(x)],
        )

    def inferred_type(self) -> AnyTensor:
        dim, shape = self.dim.value.data, shape_of(self.x)
        expect_index_of(self.index, self.x, dim)
        count = shape_of(self.index)[dim : dim + 1]
        wanted = (*shape[:dim], *count, *shape[dim + 1 :])
        expect_type("index", self.index, with_shape(self.index, wanted))
        expect_type("src", self.src, with_shape(self.x, wanted))
        expect_short(self.index, dim, "nn.scatter_rows")
        if not count[0]:
            raise VerifyException(f"expected an index with elements, got {tensor_type(self.index)}")
        return tensor_type(self.x)

    @property
    def domain(self) -> tuple[int, ...]:
        """The elements of the index along `dim`, then the dimensions of x."""
        return (shape_of(self.index)[self.dim.value.data], *shape_of(self.x))

    @property
    def reduced_dims(self) -> tuple[int, ...]:
        return (0,)

    @property
    def whole_results(self) -> tuple[bool, ...]:
        return (False,)

    @property
    def arguments(self) -> Sequence[Argument]:
        rank, dim = len(shape_of(self.x)), self.dim.value.data
        own = range(1, rank + 1)
        return [(self.x, own), (self.index, [0 if d == dim + 1 else d for d in own]), (self.src, None)]

    def body(self) -> Body:
        rank, dim = len(shape_of(self.x)), self.dim.value.data

        def formula(x: Scalar, index: Scalar, src: Scalar) -> Scalar:
            here = [index.builder.index(d + 1) for d in range(rank)]
            last = row_max(select(index.equal(here[dim]), index.builder.index(0), -1))
            written = src.load(*(last if d == dim else place for d, place in enumerate(here)))
            return select(last < 0, x, written)

        return trace(self.compute_types, formula)

    def vjp(self, builder: Builder, cotangents: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        """The gradients as in torch: right if no two elements have one place."""
        (g,) = cotangents
        dim = self.dim.value.data
        zeros = builder.insert(ConstantOp(0.0, tensor_type(self.src))).result
        dx = builder.insert(ScatterOp(g, self.index, zeros, dim)).result
        return [dx, None, builder.insert(GatherOp(g, self.index, dim)).result]
