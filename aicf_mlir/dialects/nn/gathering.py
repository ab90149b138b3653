"""Elements and rows that an index names: read by gather and take, added to by scatter_add, replaced by scatter.

An index outside of its dimension is the nearest one inside in a read, and adds nothing in a write. nn.check_index ensures that a
step with such an index updates nothing.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Sequence

from xdsl.builder import Builder
from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, TensorType, i64
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, traits_def
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.dialects.nn.broadcasting import BroadcastToOp
from aicf_mlir.dialects.nn.common import ValueOp
from aicf_mlir.dialects.nn.extremes import AtIndexOp
from aicf_mlir.dialects.nn.shape import ConstantOp, ReshapeOp
from aicf_mlir.ir.body import Body
from aicf_mlir.ir.expect import Value, expect_element, expect_float, expect_rank, expect_type, with_shape
from aicf_mlir.ir.formula import Scalar, row_max, select, trace
from aicf_mlir.ir.generated import Argument, GeneratedInterface
from aicf_mlir.ir.interfaces import DifferentiableInterface, NotDifferentiable
from aicf_mlir.ir.layouts import dense_strides
from aicf_mlir.ir.properties import ints_attr
from aicf_mlir.ir.tensor_op import AnyTensor, shape_of, tensor_type

__all__ = ["ElementNumberOp", "GatherOp", "ScatterAddOp", "ScatterOp", "TakeOp"]

INDICES = frozenset({"i64"})


def expect_index_of(index: Value, x: Value, dim: int) -> None:
    """Refuse an index that is not of i64, and a dimension that x does not have or that is empty."""
    expect_element("index", index, INDICES)
    shape = expect_rank("x", x, at_least=1)
    if not 0 <= dim < len(shape):
        raise VerifyException(f"expected dim in 0..{len(shape) - 1}, got {dim}")
    if not shape[dim] and math.prod(shape_of(index)):
        raise VerifyException(f"expected a dimension that is not empty, got dim {dim} of {tensor_type(x)}")


def expect_beside(index: Value, shape: Sequence[int], dim: int) -> None:
    """Refuse an index that is larger than `shape` in a dimension other than `dim`."""
    own = shape_of(index)
    pairs = zip(own, shape, strict=False)
    if len(own) != len(shape) or any(d != dim and a > b for d, (a, b) in enumerate(pairs)):
        raise VerifyException(
            f"expected an index of rank {len(shape)}, beside dimension {dim} within {list(shape)}, got"
            f" {tensor_type(index)}"
        )


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
        """A selection if `dim` is indexed once a map; else a sum by the number of the element, in the order of the index."""
        (g,) = cotangents
        dim, shape = self.dim.value.data, shape_of(self.x)
        if shape_of(self.index) == (*shape[:dim], 1, *shape[dim + 1 :]):
            return [builder.insert(AtIndexOp(g, self.index, dim, shape[dim])).result, None]
        numbers = builder.insert(ElementNumberOp(self.index, shape, dim)).result
        return [added_to_zeros(builder, numbers, g, shape, 1), None]


def at(index: Scalar, rank: int, dim: int) -> list[Scalar]:
    """The place in the domain, with `index` in the dimension `dim`."""
    return [index if d == dim else index.builder.index(d) for d in range(rank)]


def added_to_zeros(
    builder: Builder, numbers: SSAValue, g: SSAValue, shape: Sequence[int], columns: int
) -> SSAValue:
    """A tensor of `shape`, as rows of `columns` elements: the sum of the rows of `g` with its number, or 0."""
    count, sources = math.prod(shape) // max(columns, 1), math.prod(shape_of(numbers))
    zeros = builder.insert(ConstantOp(0.0, with_shape(g, (count, columns)))).result
    source, index = reshaped(builder, g, (sources, columns)), reshaped(builder, numbers, (sources,))
    return reshaped(builder, builder.insert(ScatterAddOp(zeros, index, source)).result, shape)


def reshaped(builder: Builder, value: SSAValue, shape: Sequence[int]) -> SSAValue:
    """`value` in another shape of as many elements."""
    return value if shape_of(value) == tuple(shape) else builder.insert(ReshapeOp(value, shape)).result


@irdl_op_definition
class ElementNumberOp(ValueOp, GeneratedInterface):
    """The number in row-major order that each element of a gather has in a tensor of `shape`.

    For an index outside of `dim` the number is -1, which is the index of no element.
    """

    name = "nn.element_number"

    index = operand_def(TensorType)
    shape = prop_def(DenseArrayBase.constr(i64))
    dim = prop_def(IntegerAttr.constr(i64))

    traits = traits_def(NotDifferentiable("its result is an index"))

    def __init__(self, index: Value, shape: Sequence[int], dim: int):
        super().__init__(
            operands=[index],
            properties={"shape": ints_attr(shape), "dim": IntegerAttr(dim, i64)},
            result_types=[tensor_type(index)],
        )

    def inferred_type(self) -> AnyTensor:
        shape, dim = self.shape.get_values(), self.dim.value.data
        expect_element("index", self.index, INDICES)
        if not 0 <= dim < len(shape):
            raise VerifyException(f"expected dim in 0..{len(shape) - 1}, got {dim}")
        expect_beside(self.index, shape, dim)
        return tensor_type(self.index)

    def body(self) -> Body:
        shape, dim = self.shape.get_values(), self.dim.value.data
        strides = dense_strides(shape)

        def formula(index: Scalar) -> Scalar:
            total = index * strides[dim]
            for d, place in enumerate(at(index, len(shape), dim)):
                if d != dim and shape[d] > 1:
                    total = total + place * strides[d]
            return select((index >= 0) & (index < shape[dim]), total, -1)

        return trace(self.compute_types, formula)


@irdl_op_definition
class TakeOp(ValueOp, DifferentiableInterface, GeneratedInterface):
    """x with the dimensions of `index` in the place of `dim`: its slices along `dim` that the index names."""

    name = "nn.take"

    x = operand_def(TensorType)
    index = operand_def(TensorType)
    dim = prop_def(IntegerAttr.constr(i64))

    def __init__(self, x: Value, index: Value, dim: int):
        shape = shape_of(x)
        super().__init__(
            operands=[x, index],
            properties={"dim": IntegerAttr(dim, i64)},
            result_types=[with_shape(x, (*shape[:dim], *shape_of(index), *shape[dim + 1 :]))],
        )

    def inferred_type(self) -> AnyTensor:
        dim, shape = self.dim.value.data, shape_of(self.x)
        expect_index_of(self.index, self.x, dim)
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
        """The gradient as rows of the dimensions after `dim`, each added to its own in the order of the index."""
        (g,) = cotangents
        dim, shape = self.dim.value.data, shape_of(self.x)
        outer, count = math.prod(shape[:dim]), math.prod(shape_of(self.index))
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
        shape, index = shape_of(self.x), shape_of(self.index)
        expect_element("index", self.index, INDICES)
        if len(shape) != 2 or len(index) != 1:
            raise VerifyException(
                f"expected x of rank 2 and index of rank 1, got {tensor_type(self.x)} and {tensor_type(self.index)}"
            )
        expect_type("src", self.src, with_shape(self.x, (*index, shape[1])))
        return tensor_type(self.x)

    def vjp(self, builder: Builder, cotangents: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        (g,) = cotangents
        if not shape_of(g)[0]:
            return [g, None, builder.insert(ConstantOp(0.0, tensor_type(self.src))).result]
        return [g, None, builder.insert(TakeOp(g, self.index, 0)).result]


class ScatterBase(ValueOp, DifferentiableInterface, GeneratedInterface, abc.ABC):
    """x, where each element looks at all elements of `index` along `dim` for those that name its place."""

    x = operand_def(TensorType)
    index = operand_def(TensorType)
    src = operand_def(TensorType)
    dim = prop_def(IntegerAttr.constr(i64))

    def inferred_type(self) -> AnyTensor:
        dim, shape = self.dim.value.data, shape_of(self.x)
        expect_index_of(self.index, self.x, dim)
        count = shape_of(self.index)[dim : dim + 1]
        wanted = (*shape[:dim], *count, *shape[dim + 1 :])
        expect_type("index", self.index, with_shape(self.index, wanted))
        expect_type("src", self.src, with_shape(self.x, wanted))
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


@irdl_op_definition
class ScatterOp(ScatterBase):
    """x with the elements of `src` at the places of a gather by `index`; the last one if several have one place."""

    name = "nn.scatter"

    def __init__(self, x: Value, index: Value, src: Value, dim: int):
        super().__init__(
            operands=[x, index, src],
            properties={"dim": IntegerAttr(dim, i64)},
            result_types=[tensor_type(x)],
        )

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
