"""Ops whose elements are elements of x at other places: pad, flip, roll; and band, which keeps some diagonals."""

from __future__ import annotations

import abc
from collections.abc import Sequence

from xdsl.builder import Builder
from xdsl.dialects.builtin import DenseArrayBase, FloatAttr, IntegerAttr, TensorType, f64, i64
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, prop_def
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.dialects.nn.common import ValueOp
from aicf_mlir.dialects.nn.shape import ConstantOp
from aicf_mlir.ir.body import Body
from aicf_mlir.ir.expect import Value, expect_rank, with_shape
from aicf_mlir.ir.formula import Scalar, select, trace
from aicf_mlir.ir.generated import Argument, GeneratedInterface
from aicf_mlir.ir.interfaces import DifferentiableInterface
from aicf_mlir.ir.properties import float_attr, ints_attr
from aicf_mlir.ir.tensor_op import AnyTensor, shape_of, tensor_type

__all__ = ["BandOp", "FlipOp", "PadOp", "RollOp"]


class RearrangingOp(ValueOp, DifferentiableInterface, GeneratedInterface, abc.ABC):
    """Each element of the result is one of x, at a place that follows from its own."""

    @property
    def table(self) -> SSAValue:
        """x, which has elements unless the result has none."""
        return self.operands[0]

    @property
    def domain(self) -> tuple[int, ...]:
        """The shape of the result."""
        return shape_of(self.results[0])

    @property
    def arguments(self) -> Sequence[Argument]:
        return [(self.table, None)]

    @abc.abstractmethod
    def element(self, x: Scalar) -> Scalar:
        """The element at the index that the builder of x counts."""

    def body(self) -> Body:
        return trace(self.compute_types, self.element)

    def expect_elements(self) -> None:
        """Refuse a number, and an x of no elements for a result that has some."""
        expect_rank("x", self.table, at_least=1)
        if 0 in shape_of(self.table) and 0 not in self.domain:
            raise VerifyException(f"expected x with elements, got {tensor_type(self.table)}")


def expect_each(name: str, values: Sequence[int], x: Value) -> None:
    """Refuse an attribute that has not one number for each dimension of x."""
    if len(values) != len(shape_of(x)):
        raise VerifyException(
            f"expected {name} with a number for each dimension of {tensor_type(x)}, got {values}"
        )


@irdl_op_definition
class PadOp(RearrangingOp):
    """`low` elements of `value` before x and `high` after it, in each dimension; negative numbers cut off."""

    name = "nn.pad"

    x = operand_def(TensorType)
    low = prop_def(DenseArrayBase.constr(i64))
    high = prop_def(DenseArrayBase.constr(i64))
    value = prop_def(FloatAttr.constr(f64), default_value=float_attr(0.0))

    def __init__(self, x: Value, low: Sequence[int], high: Sequence[int], value: float = 0.0):
        super().__init__(
            operands=[x],
            properties={"low": ints_attr(low), "high": ints_attr(high), "value": float_attr(value)},
            result_types=[padded_type(x, low, high)],
        )

    def inferred_type(self) -> AnyTensor:
        type_ = padded_type(self.x, self.low.get_values(), self.high.get_values())
        self.expect_elements()
        return type_

    def element(self, x: Scalar) -> Scalar:
        builder = x.builder
        places: list[Scalar] = []
        inside: Scalar | None = None
        sizes = zip(shape_of(self.x), self.low.get_values(), self.high.get_values(), strict=True)
        for dim, (size, low, high) in enumerate(sizes):
            at = builder.index(dim)
            places.append(at - low if low else at)
            for wanted, holds in ((low, places[-1] >= 0), (high, places[-1] < size)):
                if wanted > 0:
                    inside = holds if inside is None else inside & holds
        element = x.load(*places)
        if inside is None:
            return element
        value = self.value.value.data
        return select(inside, element, value if element.is_float else int(value))

    def vjp(self, builder: Builder, cotangents: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        """The gradient: padding is cut off, and cut-off elements are 0."""
        if 0 in self.domain:
            return [builder.insert(ConstantOp(0.0, tensor_type(self.x))).result]
        low, high = ([-n for n in each.get_values()] for each in (self.low, self.high))
        return [builder.insert(PadOp(cotangents[0], low, high)).result]


def padded_type(x: Value, low: Sequence[int], high: Sequence[int]) -> AnyTensor:
    """The type of `x` with `low` and `high` further elements in each dimension."""
    expect_each("low", low, x)
    expect_each("high", high, x)
    shape = [size + a + b for size, a, b in zip(shape_of(x), low, high, strict=True)]
    cut = any(size + min(a, 0) + min(b, 0) < 0 for size, a, b in zip(shape_of(x), low, high, strict=True))
    if cut or min(shape, default=0) < 0:
        raise VerifyException(
            f"expected to cut off no more than there is of {tensor_type(x)}, got low {list(low)} and high {list(high)}"
        )
    return with_shape(x, shape)


@irdl_op_definition
class FlipOp(RearrangingOp):
    """x in reverse order along `dims`, which are sorted and unique."""

    name = "nn.flip"

    x = operand_def(TensorType)
    dims = prop_def(DenseArrayBase.constr(i64))

    def __init__(self, x: Value, dims: Sequence[int]):
        super().__init__(operands=[x], properties={"dims": ints_attr(dims)}, result_types=[tensor_type(x)])

    def inferred_type(self) -> AnyTensor:
        dims = self.dims.get_values()
        rank = len(expect_rank("x", self.x, at_least=1))
        if list(dims) != sorted({dim for dim in dims if 0 <= dim < rank}):
            raise VerifyException(f"expected dims sorted, unique and in 0..{rank - 1}, got {list(dims)}")
        return tensor_type(self.x)

    def element(self, x: Scalar) -> Scalar:
        dims = self.dims.get_values()
        places = (x.builder.index(dim) for dim in range(len(self.domain)))
        return x.load(*(self.domain[dim] - 1 - at if dim in dims else at for dim, at in enumerate(places)))

    def vjp(self, builder: Builder, cotangents: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        return [builder.insert(FlipOp(cotangents[0], self.dims.get_values())).result]


@irdl_op_definition
class RollOp(RearrangingOp):
    """Each element `shifts` places further in each dimension; elements that leave it at the end enter at the front."""

    name = "nn.roll"

    x = operand_def(TensorType)
    shifts = prop_def(DenseArrayBase.constr(i64))

    def __init__(self, x: Value, shifts: Sequence[int]):
        """Any whole numbers; the dialect has them from 0 on and below the sizes."""
        shape = shape_of(x)
        normal = [shift % max(size, 1) for shift, size in zip(shifts, shape, strict=False)]
        super().__init__(
            operands=[x], properties={"shifts": ints_attr(normal)}, result_types=[tensor_type(x)]
        )

    def inferred_type(self) -> AnyTensor:
        shifts = self.shifts.get_values()
        expect_rank("x", self.x, at_least=1)
        expect_each("shifts", shifts, self.x)
        if any(not 0 <= shift < max(size, 1) for shift, size in zip(shifts, shape_of(self.x), strict=True)):
            raise VerifyException(
                f"expected shifts from 0 on and below the sizes of {self.x.type}, got {list(shifts)}"
            )
        return tensor_type(self.x)

    def element(self, x: Scalar) -> Scalar:
        places: list[Scalar] = []
        for dim, shift in enumerate(self.shifts.get_values()):
            at = x.builder.index(dim)
            before = at - shift
            places.append(select(before < 0, before + self.domain[dim], before) if shift else at)
        return x.load(*places)

    def vjp(self, builder: Builder, cotangents: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        back = [-shift for shift in self.shifts.get_values()]
        return [builder.insert(RollOp(cotangents[0], back)).result]


@irdl_op_definition
class BandOp(ValueOp, DifferentiableInterface, GeneratedInterface):
    """x[.., i, j] where `lower` <= j - i <= `upper`, elsewhere `fill`; a bound that is absent holds everywhere."""

    name = "nn.band"

    x = operand_def(TensorType)
    lower = opt_prop_def(IntegerAttr.constr(i64))
    upper = opt_prop_def(IntegerAttr.constr(i64))
    fill = prop_def(FloatAttr.constr(f64), default_value=float_attr(0.0))

    def __init__(self, x: Value, lower: int | None, upper: int | None, fill: float = 0.0):
        super().__init__(
            operands=[x],
            properties={
                "lower": None if lower is None else IntegerAttr(lower, i64),
                "upper": None if upper is None else IntegerAttr(upper, i64),
                "fill": float_attr(fill),
            },
            result_types=[tensor_type(x)],
        )

    def inferred_type(self) -> AnyTensor:
        expect_rank("x", self.x, at_least=2)
        return tensor_type(self.x)

    @property
    def bounds(self) -> tuple[int | None, int | None]:
        """The first and the last diagonal that is kept."""
        lower, upper = (None if each is None else each.value.data for each in (self.lower, self.upper))
        return lower, upper

    def body(self) -> Body:
        rank, (lower, upper) = len(self.domain), self.bounds

        def formula(x: Scalar) -> Scalar:
            diagonal = x.builder.index(rank - 1) - x.builder.index(rank - 2)
            fill = self.fill.value.data if x.is_float else int(self.fill.value.data)
            if lower is not None:
                x = select(diagonal >= lower, x, fill)
            return x if upper is None else select(diagonal <= upper, x, fill)

        return trace(self.compute_types, formula)

    def vjp(self, builder: Builder, cotangents: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        return [builder.insert(BandOp(cotangents[0], *self.bounds)).result]
