"""Windows of a tensor [N, C, *spatial] taken apart, and added up again: each the other's vector-Jacobian product.

A convolution is a product over `nn.unfold`. What is outside of the tensor is 0.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Sequence
from itertools import product
from operator import add
from typing import NamedTuple

from xdsl.builder import Builder
from xdsl.dialects.builtin import DenseArrayBase, TensorType, i64
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, prop_def
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.dialects.nn.common import ValueOp
from aicf_mlir.dialects.nn.window_relation import NUMBERS, Index, Windows, every
from aicf_mlir.ir.body import Body
from aicf_mlir.ir.expect import Value, expect_float, with_shape
from aicf_mlir.ir.formula import Builder as Lines
from aicf_mlir.ir.formula import Scalar, maximum, minimum, row_max, row_min, row_sum, select, trace
from aicf_mlir.ir.generated import Argument, GeneratedInterface
from aicf_mlir.ir.interfaces import DifferentiableInterface
from aicf_mlir.ir.properties import ints_attr
from aicf_mlir.ir.tensor_op import AnyTensor, shape_of, tensor_type

__all__ = ["FoldOp", "UnfoldOp", "Windows"]

MOST_DIMS = 3
"""Spatial dimensions."""


class WindowedOp(ValueOp, GeneratedInterface, abc.ABC):
    """An op over a relation. `size` are the spatial sizes of its result."""

    kernel = prop_def(DenseArrayBase.constr(i64))
    stride = prop_def(DenseArrayBase.constr(i64))
    dilation = prop_def(DenseArrayBase.constr(i64))
    low = prop_def(DenseArrayBase.constr(i64))
    spread = prop_def(DenseArrayBase.constr(i64))
    size = prop_def(DenseArrayBase.constr(i64))

    @property
    def windows(self) -> Windows:
        """The relation."""
        return Windows(
            *(each.get_values() for each in (self.kernel, self.stride, self.dilation, self.low, self.spread))
        )

    @property
    def sizes(self) -> tuple[int, ...]:
        """Spatial ones of the result."""
        return self.size.get_values()

    @property
    def rank(self) -> int:
        """Spatial dimensions."""
        return len(self.kernel)

    def expect_windows(self, x: Value, rank: int) -> tuple[int, ...]:
        """The shape of an operand of `rank`; refuses numbers that are no relation."""
        windows, sizes = self.windows, self.sizes
        spatial = windows.rank
        if any(len(each) != spatial for each in (*(getattr(windows, name) for name in NUMBERS), sizes)):
            raise VerifyException(
                f"expected numbers for each of {spatial} dimensions, got {windows} and {sizes}"
            )
        if not 1 <= spatial <= MOST_DIMS:
            raise VerifyException(f"expected 1 to {MOST_DIMS} spatial dimensions, got {spatial}")
        if min(*windows.kernel, *windows.stride, *windows.spread) < 1 or min(sizes) < 0:
            raise VerifyException(
                f"expected kernel, stride and spread from 1 on, got {windows} and size {sizes}"
            )
        shape = shape_of(x)
        if len(shape) != rank:
            raise VerifyException(f"expected an operand of rank {rank}, got {tensor_type(x)}")
        return shape


MOST_UNROLLED = 64
"""Positions that a body has one behind the other; more are a reduction."""

Term = Callable[[Sequence[Index], Sequence[Scalar], Scalar | None], tuple[Scalar, Scalar | None]]
"""What a position adds, and whether it does: from the position in the kernel, the element, and whether there is one."""


class ReducedOp(WindowedOp, abc.ABC):
    """Each element of [N, C, *size] is reduced from those that belong to it, one for each position."""

    @property
    def looks(self) -> Windows:
        """The relation, from the side of the result."""
        return self.windows

    @property
    def depth(self) -> int:
        """The number of channels that an element is reduced from."""
        return 1

    @property
    def channels_are_reduced(self) -> bool:
        """True if a reduction runs over the channels; otherwise a term has them all."""
        return self.depth > 1 and self.depth * math.prod(self.looks.positions) > MOST_UNROLLED

    @property
    def positions_are_reduced(self) -> bool:
        """True if a reduction runs over the positions; otherwise the body has them one behind the other."""
        return math.prod(self.looks.positions) > MOST_UNROLLED

    @property
    def channels_join_positions(self) -> bool:
        """True if the channels and the first dimension of the positions are one: no kernel has nine dimensions."""
        return self.channels_are_reduced and self.positions_are_reduced and self.rank == MOST_DIMS

    @property
    def reduced_dims(self) -> tuple[int, ...]:
        return tuple(range(len(self.domain) - self.rank - 2))

    @property
    def domain(self) -> tuple[int, ...]:
        """What is reduced, then the result."""
        channels = [self.depth] if self.channels_are_reduced else []
        positions = [*self.looks.positions] if self.positions_are_reduced else []
        if self.channels_join_positions:
            channels, positions = [self.depth * positions[0]], positions[1:]
        return (*channels, *positions, *shape_of(self.results[0]))

    def here_reduced(self, builder: Lines) -> tuple[Scalar | None, list[Scalar]]:
        """The channel and the position of this point, as far as a reduction runs over them."""
        numbers = [builder.index(d) for d in self.reduced_dims]
        if self.channels_join_positions:
            first = self.looks.positions[0]
            channel = numbers[0].apply("arith.divsi", first)
            return channel, [numbers[0] - channel * first, *numbers[1:]]
        return (numbers[0], numbers[1:]) if self.channels_are_reduced else (None, numbers)

    @property
    def whole_results(self) -> tuple[bool, ...]:
        return (not self.reduced_dims,)

    @property
    def own(self) -> range:
        """The dimensions of the domain that are those of the result."""
        return range(len(self.domain) - self.rank - 2, len(self.domain))

    def here(self, x: Scalar) -> list[Scalar]:
        """Where in the result this point is."""
        return [x.builder.index(d) for d in self.own]

    def reduced(self, x: Scalar, sizes: Sequence[int], term: Term, reduction: Reduction) -> Scalar:
        """The terms of all positions together; `sizes` are those of the tensor that they look at.

        A position that adds nothing leaves the total as it is. A masked sum is one instruction, a chosen term and a sum are two.
        """
        looks, (_, _, *here) = self.looks, self.here(x)
        if self.positions_are_reduced:
            _, position = self.here_reduced(x.builder)
            one, adds = term(*looks.places(here, position, sizes, self.sizes))
            return reduction.of_row(where(adds, one, reduction.of_none))
        total: Scalar | None = None
        for position in product(*(range(n) for n in looks.positions)):
            one, adds = term(*looks.places(here, position, sizes, self.sizes))
            both, before = (
                (one, reduction.of_none) if total is None else (reduction.of_two(total, one), total)
            )
            total = where(adds, both, before)
        assert total is not None
        return reduction.of_row(total) if self.channels_are_reduced else total


class Reduction(NamedTuple):
    """Of a row, of two, and of none."""

    of_row: Callable[[Scalar], Scalar]
    of_two: Callable[[Scalar, Scalar], Scalar]
    of_none: float


SUM, LARGEST = Reduction(row_sum, add, 0), Reduction(row_max, maximum, -math.inf)
SMALLEST = Reduction(row_min, minimum, math.inf)


def where(condition: Scalar | None, value: Scalar, otherwise: Scalar | float) -> Scalar:
    """`value` where the condition holds; None always does."""
    return value if condition is None else select(condition, value, otherwise)


def at(builder: Lines, positions: Sequence[Index]) -> list[Scalar]:
    """Numbers as indices."""
    return [builder.constant(k, "i64") if isinstance(k, int) else k for k in positions]


def taken(op: WindowedOp, x: Scalar, c: Scalar) -> tuple[Scalar, Scalar | None]:
    """The element of channel c at a point of [.., *kernel, N, *size], and whether there is one."""
    rank = op.rank
    rest = [x.builder.index(d) for d in range(1, 2 * rank + 2)]
    positions, n, windows = rest[:rank], rest[rank], rest[rank + 1 :]
    holds: list[Scalar] = []
    each = zip(windows, positions, shape_of(op.operands[0])[2:], op.sizes, strict=True)
    places = [op.windows.element(d, *numbers, holds) for d, numbers in enumerate(each)]
    return x.load(n, c, *places), every(holds)


@irdl_op_definition
class UnfoldOp(WindowedOp, DifferentiableInterface):
    """The windows of x[N, C, *spatial], taken apart: [C, *kernel, N, *size], 0 where there is no element.

    So the product with weights [outputs, C * positions] is one matmul, over all images at once.
    """

    name = "nn.unfold"

    x = operand_def(TensorType)

    def __init__(self, x: Value, windows: Windows, size: Sequence[int]):
        n, c, *_ = shape_of(x)
        super().__init__(
            operands=[x],
            properties={**windows.properties(), "size": ints_attr(size)},
            result_types=[with_shape(x, (c, *windows.kernel, n, *size))],
        )

    def inferred_type(self) -> AnyTensor:
        n, c, *_ = self.expect_windows(self.x, self.rank + 2)
        return with_shape(self.x, (c, *self.windows.kernel, n, *self.sizes))

    @property
    def domain(self) -> tuple[int, ...]:
        """That of the result."""
        return shape_of(self.result)

    @property
    def arguments(self) -> Sequence[Argument]:
        return [(self.x, None)]

    def body(self) -> Body:
        def formula(x: Scalar) -> Scalar:
            found, holds = taken(self, x, x.builder.index(0))
            return where(holds, found, 0)

        return trace(self.compute_types, formula)

    def vjp(self, builder: Builder, cotangents: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        return [builder.insert(FoldOp(cotangents[0], self.windows, shape_of(self.x)[2:])).result]


@irdl_op_definition
class FoldOp(ReducedOp, DifferentiableInterface):
    """[N, C, *size] from windows [C, *kernel, N, *windows]: each element is the sum of its places in all windows."""

    name = "nn.fold"

    x = operand_def(TensorType)

    def __init__(self, x: Value, windows: Windows, size: Sequence[int]):
        shape = shape_of(x)
        super().__init__(
            operands=[x],
            properties={**windows.properties(), "size": ints_attr(size)},
            result_types=[with_shape(x, (shape[windows.rank + 1], shape[0], *size))],
        )

    def inferred_type(self) -> AnyTensor:
        expect_float("x", self.x)
        c, *rest = self.expect_windows(self.x, 2 * self.rank + 2)
        if tuple(rest[: self.rank]) != self.windows.kernel:
            raise VerifyException(f"expected windows of {self.windows.kernel}, got {tensor_type(self.x)}")
        return with_shape(self.x, (rest[self.rank], c, *self.sizes))

    @property
    def looks(self) -> Windows:
        return self.windows.transposed

    @property
    def arguments(self) -> Sequence[Argument]:
        return [(self.x, None)]

    def body(self) -> Body:
        counts = shape_of(self.x)[self.rank + 2 :]

        def formula(x: Scalar) -> Scalar:
            n, c, *_ = self.here(x)

            def term(
                position: Sequence[Index], window: Sequence[Scalar], holds: Scalar | None
            ) -> tuple[Scalar, Scalar | None]:
                return x.load(c, *at(x.builder, position), n, *window), holds

            return self.reduced(x, counts, term, SUM)

        return trace(self.compute_types, formula)

    def vjp(self, builder: Builder, cotangents: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        back = UnfoldOp(cotangents[0], self.windows, shape_of(self.x)[self.rank + 2 :])
        return [builder.insert(back).result]
