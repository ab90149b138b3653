"""The order that sorting needs.

A short row is compared, each element with each other: n * n steps without memory, in a kernel that is generated together with
its neighbours. `SHORT` says for all ops that work like this what is short; longer rows have a launch of their own, whose time
grows with their elements.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence

from xdsl.builder import Builder
from xdsl.dialects.builtin import BoolAttr, IntegerAttr, TensorType, i64
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, traits_def
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.dialects.nn.common import ValueOp
from aicf_mlir.dialects.nn.rows.row import ALL, NUMBERS
from aicf_mlir.ir.body import Body
from aicf_mlir.ir.expect import Value, expect_element, expect_rank, with_shape
from aicf_mlir.ir.formula import Scalar, row_max, row_sum, select, trace
from aicf_mlir.ir.generated import Argument, GeneratedInterface
from aicf_mlir.ir.interfaces import DifferentiableInterface, NotDifferentiable
from aicf_mlir.ir.properties import bool_attr, is_true
from aicf_mlir.ir.tensor_op import AnyTensor, shape_of, tensor_type

__all__ = ["ArgsortOp", "CumsumOp", "InversePermutationOp", "RankOp", "is_short", "order"]

SHORT = 16
"""Elements of a row. On a CPU the launches are as fast from 8 on, and faster from 32 on; on a GPU they cost a launch."""


def is_short(size: int) -> bool:
    """True for a row of which each element may look at each other."""
    return size <= SHORT


def expect_short(x: Value, dim: int, other: str) -> None:
    """Refuse rows of x along `dim` that are not short; `other` is the op that takes them."""
    if not is_short(size := shape_of(x)[dim]):
        raise VerifyException(
            f"expected {SHORT} elements at most along dim {dim}, each of which is compared with each, got {size}; {other} has"
            " no limit"
        )


class BesideOp(ValueOp, GeneratedInterface, abc.ABC):
    """The base of ops whose result elements are each reduced from the whole row of x along `dim` that contains them."""

    @property
    def source(self) -> SSAValue:
        """The operand."""
        return self.operands[0]

    @property
    def along(self) -> int:
        """`dim`."""
        dim = self.properties["dim"]
        assert isinstance(dim, IntegerAttr)
        return dim.value.data

    @property
    def domain(self) -> tuple[int, ...]:
        """The shape of the result with the row of x as one more dimension: last if x has its row last, else first."""
        row, own = shape_of(self.source)[self.along], shape_of(self.results[0])
        return (*own, row) if self.row else (row, *own)

    @property
    def row(self) -> int:
        """The dimension of the domain that is the row."""
        rank = len(shape_of(self.source))
        return rank if self.along == rank - 1 else 0

    @property
    def own(self) -> range:
        """The dimensions of the domain that the result has."""
        first = 0 if self.row else 1
        return range(first, first + len(shape_of(self.source)))

    @property
    def reduced_dims(self) -> tuple[int, ...]:
        return (self.row,)

    @property
    def whole_results(self) -> tuple[bool, ...]:
        return (False,)

    @property
    def arguments(self) -> Sequence[Argument]:
        return [(self.source, [self.row if d == self.own[self.along] else d for d in self.own])]

    def place(self, x: Scalar) -> tuple[Scalar, Scalar]:
        """The index of an element in its row, and that of the result in its own."""
        return x.builder.index(self.row), x.builder.index(self.own[self.along])


def expect_dim(x: Value, dim: int) -> None:
    """Refuse a dimension that x does not have."""
    shape = expect_rank("x", x, at_least=1)
    if not 0 <= dim < len(shape):
        raise VerifyException(f"expected dim in 0..{len(shape) - 1}, got {dim}")


def expect_row(x: Value, dim: int, other: str) -> None:
    """Refuse a dimension that x does not have, and rows that are too long."""
    expect_dim(x, dim)
    expect_short(x, dim, other)


@irdl_op_definition
class CumsumOp(BesideOp, DifferentiableInterface):
    """The sum of the elements of x up to each along `dim`; with `reverse` from each on. Its own included."""

    name = "nn.cumsum"

    x = operand_def(TensorType)
    dim = prop_def(IntegerAttr.constr(i64))
    reverse = prop_def(BoolAttr, default_value=bool_attr(False))

    def __init__(self, x: Value, dim: int, reverse: bool = False):
        super().__init__(
            operands=[x],
            properties={"dim": IntegerAttr(dim, i64), "reverse": bool_attr(reverse)},
            result_types=[tensor_type(x)],
        )

    def inferred_type(self) -> AnyTensor:
        expect_element("x", self.x, NUMBERS)
        expect_row(self.x, self.dim.value.data, "nn.scan")
        return tensor_type(self.x)

    def body(self) -> Body:
        def formula(x: Scalar) -> Scalar:
            element, own = self.place(x)
            counts = element >= own if is_true(self.reverse) else element <= own
            return row_sum(select(counts, x, 0))

        return trace(self.compute_types, formula)

    def vjp(self, builder: Builder, cotangents: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        back = CumsumOp(cotangents[0], self.dim.value.data, not is_true(self.reverse))
        return [builder.insert(back).result]


@irdl_op_definition
class RankOp(BesideOp):
    """The number of elements of its row that precede each element when the row is sorted; equal elements keep their order.

    A NaN is the largest.
    """

    name = "nn.rank"

    x = operand_def(TensorType)
    dim = prop_def(IntegerAttr.constr(i64))
    descending = prop_def(BoolAttr, default_value=bool_attr(False))

    traits = traits_def(NotDifferentiable("it is a step function"))

    def __init__(self, x: Value, dim: int, descending: bool = False):
        super().__init__(
            operands=[x],
            properties={"dim": IntegerAttr(dim, i64), "descending": bool_attr(descending)},
            result_types=[TensorType(i64, shape_of(x))],
        )

    def inferred_type(self) -> AnyTensor:
        expect_element("x", self.x, ALL)
        expect_row(self.x, self.dim.value.data, "nn.argsort")
        return TensorType(i64, shape_of(self.x))

    @property
    def arguments(self) -> Sequence[Argument]:
        """The element that is compared, and the one whose rank it is."""
        return [*super().arguments, (self.x, self.own)]

    def body(self) -> Body:
        def formula(other: Scalar, x: Scalar) -> Scalar:
            low, high = (x, other) if is_true(self.descending) else (other, x)
            before, same = low < high, low.equal(high)
            if x.is_float:
                before = before | (high.is_nan() & low.equal(low))
                same = same | (low.is_nan() & high.is_nan())
            element, own = self.place(x)
            return row_sum((before | (same & (element < own))).cast("i64"))

        return trace(self.compute_types, formula)


@irdl_op_definition
class InversePermutationOp(BesideOp):
    """The index along `dim` at which `ranks` has 0, 1, 2, …, `size` of them; every row of ranks has each once."""

    name = "nn.inverse_permutation"

    ranks = operand_def(TensorType)
    dim = prop_def(IntegerAttr.constr(i64))
    size = prop_def(IntegerAttr.constr(i64))

    traits = traits_def(NotDifferentiable("its result is an index"))

    def __init__(self, ranks: Value, dim: int, size: int):
        super().__init__(
            operands=[ranks],
            properties={"dim": IntegerAttr(dim, i64), "size": IntegerAttr(size, i64)},
            result_types=[with_shape(ranks, resized(shape_of(ranks), dim, size))],
        )

    def inferred_type(self) -> AnyTensor:
        dim, size = self.dim.value.data, self.size.value.data
        expect_element("ranks", self.ranks, frozenset({"i64"}))
        expect_row(self.ranks, dim, "nn.argsort")
        shape = shape_of(self.ranks)
        if not 0 <= size <= shape[dim]:
            raise VerifyException(f"expected size in 0..{shape[dim]}, got {size}")
        return with_shape(self.ranks, resized(shape, dim, size))

    def body(self) -> Body:
        def formula(rank: Scalar) -> Scalar:
            element, own = self.place(rank)
            return row_max(select(rank.equal(own), element, -1))

        return trace(self.compute_types, formula)


def resized(shape: Sequence[int], dim: int, size: int) -> tuple[int, ...]:
    """`shape` with another size of `dim`."""
    return (*shape[:dim], size, *shape[dim + 1 :])


@irdl_op_definition
class ArgsortOp(ValueOp):
    """The places of `count` elements of each sorted row from the one at `first` on, along the last dimension.

    Equal elements keep their order. A NaN is the largest.
    """

    name = "nn.argsort"

    x = operand_def(TensorType)
    count = prop_def(IntegerAttr.constr(i64))
    descending = prop_def(BoolAttr, default_value=bool_attr(False))
    first = prop_def(IntegerAttr.constr(i64), default_value=IntegerAttr(0, i64))

    traits = traits_def(NotDifferentiable("its result is an index"))

    def __init__(self, x: Value, count: int, descending: bool = False, first: int = 0):
        super().__init__(
            operands=[x],
            properties={
                "count": IntegerAttr(count, i64),
                "descending": bool_attr(descending),
                "first": IntegerAttr(first, i64),
            },
            result_types=[TensorType(i64, (*shape_of(x)[:-1], count))],
        )

    def inferred_type(self) -> AnyTensor:
        expect_element("x", self.x, ALL)
        *rows, size = expect_rank("x", self.x, at_least=1)
        if not 0 <= (count := self.count.value.data) <= size:
            raise VerifyException(f"expected count in 0..{size}, got {count}")
        if not 0 <= (first := self.first.value.data) <= size - count:
            raise VerifyException(f"expected first in 0..{size - count}, got {first}")
        return TensorType(i64, (*rows, count))


def names_each_once(index: SSAValue, dim: int) -> bool:
    """True if a row of `index` along `dim` is known to have no element twice."""
    match index.owner:
        case ArgsortOp():
            return dim == len(shape_of(index)) - 1
        case InversePermutationOp() as op:
            return dim == op.along
        case _:
            return False


def order(insert: Callable[[ValueOp], SSAValue], x: SSAValue, count: int, descending: bool) -> SSAValue:
    """The places of the first `count` elements of each sorted row of x along the last dimension."""
    last = len(shape_of(x)) - 1
    if not is_short(shape_of(x)[last]):
        return insert(ArgsortOp(x, count, descending))
    return insert(InversePermutationOp(insert(RankOp(x, last, descending)), last, count))
