"""Windows of a tensor [N, C, *spatial]: taken apart, summed, and their largest elements, each with its transpose.

All that these ops read is at places of one relation: element i, window o and position k belong together where
`i * spread = o * stride + k * dilation - low` in each spatial dimension. What is outside of the tensor is the neutral element.
A convolution is a product over `nn.unfold`; a pool is a reduction of it that is never in memory.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from operator import add
from typing import NamedTuple

from xdsl.builder import Builder
from xdsl.dialects.builtin import DenseArrayBase, TensorType, i64
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_operand_def, prop_def, traits_def
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.dialects.nn.broadcasting import SumOp
from aicf_mlir.dialects.nn.common import ValueOp
from aicf_mlir.dialects.nn.gathering import GatherOp, reshaped
from aicf_mlir.dialects.nn.pointwise import MulOp
from aicf_mlir.dialects.nn.shape import TransposeOp
from aicf_mlir.ir.body import Body
from aicf_mlir.ir.expect import Value, expect_element, expect_float, expect_type, with_shape
from aicf_mlir.ir.formula import Builder as Lines
from aicf_mlir.ir.formula import Scalar, maximum, minimum, row_max, row_min, row_sum, select, trace
from aicf_mlir.ir.generated import Argument, GeneratedInterface
from aicf_mlir.ir.interfaces import DifferentiableInterface, NotDifferentiable
from aicf_mlir.ir.properties import ints_attr
from aicf_mlir.ir.tensor_op import AnyTensor, shape_of, tensor_type

__all__ = ["FoldOp", "UnfoldOp", "WindowIndexOp", "WindowMaxOp", "WindowRouteOp", "WindowSumOp", "Windows"]

MOST_DIMS = 3
"""Spatial dimensions."""


@dataclass(frozen=True)
class Windows:
    """The relation, a number for each spatial dimension."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    low: tuple[int, ...]
    spread: tuple[int, ...]

    @staticmethod
    def of(
        kernel: Sequence[int],
        stride: Sequence[int] | None = None,
        dilation: Sequence[int] | None = None,
        low: Sequence[int] | None = None,
    ) -> Windows:
        """As torch says it: strides and dilations are 1, and no padding in front, unless given."""
        ones, zeros = (1,) * len(kernel), (0,) * len(kernel)
        given = (stride or ones, dilation or ones, low or zeros)
        return Windows(tuple(kernel), *(tuple(each) for each in given), ones)

    @property
    def rank(self) -> int:
        """Spatial dimensions."""
        return len(self.kernel)

    @property
    def transposed(self) -> Windows:
        """The same relation with windows and elements exchanged."""
        back = (tuple(-n for n in each) for each in (self.dilation, self.low))
        return Windows(self.kernel, self.spread, *back, self.stride)

    def properties(self) -> dict[str, DenseArrayBase]:
        """As an op has it."""
        return {name: ints_attr(getattr(self, name)) for name in NUMBERS}

    def is_cut(self, d: int) -> bool:
        """Whether only every `spread`-th position can have an element, counted from one that depends on the window."""
        return self.spread[d] > 1 and self.stride[d] == 1 and self.dilation[d] == -1

    @property
    def positions(self) -> tuple[int, ...]:
        """How many positions each window looks at, in each dimension."""
        return tuple(-(-k // self.spread[d]) if self.is_cut(d) else k for d, k in enumerate(self.kernel))

    def places(
        self, here: Sequence[Scalar], looks: Sequence[Index], sizes: Sequence[int], counts: Sequence[int]
    ) -> tuple[list[Index], list[Scalar], Scalar | None]:
        """What a window finds at one of its `positions`: the position in the kernel, the element, and whether there is one.

        That is None where there always is. `sizes` are those of the tensor, and `counts` is how many windows there are.
        """
        positions: list[Index] = []
        elements: list[Scalar] = []
        holds: list[Scalar] = []
        for d, (o, look) in enumerate(zip(here, looks, strict=True)):
            if not self.is_cut(d):
                positions.append(look)
                elements.append(self.element(d, o, look, sizes[d], counts[d], holds))
                continue
            spread, low = self.spread[d], self.low[d]
            at = plus(o, -low)
            whole = at.apply("arith.divsi" if low <= 0 else "arith.floordivsi", spread)
            rest = at - whole * spread
            positions.append(rest + look * spread)
            elements.append(whole - look)
            last = (counts[d] - 1 - low) // spread
            if self.kernel[d] % spread:
                holds.append(positions[-1] < self.kernel[d])
            inside(elements[-1], -low // spread - self.positions[d] + 1, last, sizes[d], holds)
        return positions, elements, every(holds)

    def element(self, d: int, o: Scalar, k: Index, size: int, count: int, holds: list[Scalar]) -> Scalar:
        """The element at position k of window o in one dimension; adds to `holds` what must hold for it to exist."""
        stride, dilation, low, spread = (n[d] for n in (self.stride, self.dilation, self.low, self.spread))
        at = o * stride if stride != 1 else o
        if isinstance(k, int):
            at, first = plus(at, k * dilation - low), k * dilation - low
            last = first
        else:
            at = plus(at if self.kernel[d] == 1 else at + k * dilation if dilation != 1 else at + k, -low)
            far = (self.kernel[d] - 1) * dilation
            first, last = min(far, 0) - low, max(far, 0) - low
        last += (count - 1) * stride
        if spread != 1:
            whole = at.apply("arith.floordivsi", spread)
            holds.append((whole * spread).equal(at))
            at, first, last = whole, first // spread, last // spread
        inside(at, first, last, size, holds)
        return at


Index = Scalar | int


def plus(x: Scalar, number: int) -> Scalar:
    """The sum."""
    return x + number if number > 0 else x - -number if number else x


def inside(at: Scalar, first: int, last: int, size: int, holds: list[Scalar]) -> None:
    """Add what must hold for an index, between `first` and `last`, to be one of `size`."""
    if first < 0:
        holds.append(at >= 0)
    if last >= size:
        holds.append(at < size)


def every(conditions: Sequence[Scalar]) -> Scalar | None:
    """Whether all hold; None of none."""
    found: Scalar | None = None
    for each in conditions:
        found = each if found is None else found & each
    return found


NUMBERS = ("kernel", "stride", "dilation", "low", "spread")


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
            *(
                each.get_values()
                for each in (self.kernel, self.stride, self.dilation, self.low, self.spread)
            )
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
            raise VerifyException(f"expected numbers for each of {spatial} dimensions, got {windows} and {sizes}")
        if not 1 <= spatial <= MOST_DIMS:
            raise VerifyException(f"expected 1 to {MOST_DIMS} spatial dimensions, got {spatial}")
        if min(*windows.kernel, *windows.stride, *windows.spread) < 1 or min(sizes) < 0:
            raise VerifyException(f"expected kernel, stride and spread from 1 on, got {windows} and size {sizes}")
        shape = shape_of(x)
        if len(shape) != rank:
            raise VerifyException(f"expected an operand of rank {rank}, got {tensor_type(x)}")
        return shape


MOST_UNROLLED = 64
"""Positions that a body has one behind the other; more are a reduction."""

Term = Callable[[Sequence[Index], Sequence[Scalar], Scalar | None], Scalar]
"""What a position adds: from the position in the kernel, the element, and whether there is one."""


class ReducedOp(WindowedOp, abc.ABC):
    """Each element of [N, C, *size] is reduced from those that belong to it, one for each position."""

    @property
    def looks(self) -> Windows:
        """The relation, from the side of the result."""
        return self.windows

    @property
    def reduced_dims(self) -> tuple[int, ...]:
        return tuple(range(self.rank)) if math.prod(self.looks.positions) > MOST_UNROLLED else ()

    @property
    def domain(self) -> tuple[int, ...]:
        """The positions where they are many, then the result."""
        return (*(self.looks.positions if self.reduced_dims else ()), *shape_of(self.results[0]))

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
        """The terms of all positions together; `sizes` are those of the tensor that they look at."""
        looks, (_, _, *here) = self.looks, self.here(x)
        if self.reduced_dims:
            position = [x.builder.index(d) for d in range(self.rank)]
            return reduction.of_row(term(*looks.places(here, position, sizes, self.sizes)))
        found: Scalar | None = None
        for position in product(*(range(n) for n in looks.positions)):
            one = term(*looks.places(here, position, sizes, self.sizes))
            found = one if found is None else reduction.of_two(found, one)
        assert found is not None
        return found

    def flat(self, places: Sequence[Scalar], sizes: Sequence[int]) -> Scalar:
        """The number of a place among the elements of a channel."""
        number = places[0]
        for at, size in zip(places[1:], sizes[1:], strict=True):
            number = number * size + at
        return number


class Reduction(NamedTuple):
    """Of a row, and of two."""

    of_row: Callable[[Scalar], Scalar]
    of_two: Callable[[Scalar, Scalar], Scalar]


SUM, LARGEST, SMALLEST = Reduction(row_sum, add), Reduction(row_max, maximum), Reduction(row_min, minimum)


def where(condition: Scalar | None, value: Scalar, otherwise: float) -> Scalar:
    """`value` where the condition holds; None always does."""
    return value if condition is None else select(condition, value, otherwise)


def at(builder: Lines, positions: Sequence[Index]) -> list[Scalar]:
    """Numbers as indices."""
    return [builder.constant(k, "i64") if isinstance(k, int) else k for k in positions]


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
        rank = self.rank

        def formula(x: Scalar) -> Scalar:
            c, *rest = (x.builder.index(d) for d in range(2 * rank + 2))
            positions, n, windows = rest[:rank], rest[rank], rest[rank + 1 :]
            holds: list[Scalar] = []
            each = zip(windows, positions, shape_of(self.x)[2:], self.sizes, strict=True)
            places = [self.windows.element(d, *numbers, holds) for d, numbers in enumerate(each)]
            return where(every(holds), x.load(n, c, *places), 0)

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

            def term(position: Sequence[Index], window: Sequence[Scalar], holds: Scalar | None) -> Scalar:
                return where(holds, x.load(c, *at(x.builder, position), n, *window), 0)

            return self.reduced(x, counts, term, SUM)

        return trace(self.compute_types, formula)

    def vjp(self, builder: Builder, cotangents: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        back = UnfoldOp(cotangents[0], self.windows, shape_of(self.x)[self.rank + 2 :])
        return [builder.insert(back).result]


@irdl_op_definition
class WindowSumOp(ReducedOp, DifferentiableInterface):
    """The sum of each window of x[N, C, *spatial], its elements times w[C, *kernel] where there is one: [N, C, *size]."""

    name = "nn.window_sum"

    x = operand_def(TensorType)
    w = opt_operand_def(TensorType)

    def __init__(self, x: Value, w: Value | None, windows: Windows, size: Sequence[int]):
        super().__init__(
            operands=[x, w],
            properties={**windows.properties(), "size": ints_attr(size)},
            result_types=[with_shape(x, (*shape_of(x)[:2], *size))],
        )

    def inferred_type(self) -> AnyTensor:
        expect_float("x", self.x)
        n, c, *_ = self.expect_windows(self.x, self.rank + 2)
        if self.w is not None:
            expect_type("w", self.w, with_shape(self.x, (c, *self.windows.kernel)))
        return with_shape(self.x, (n, c, *self.sizes))

    @property
    def arguments(self) -> Sequence[Argument]:
        return [(value, None) for value in self.operands]

    def body(self) -> Body:
        def formula(x: Scalar, *w: Scalar) -> Scalar:
            n, c, *_ = self.here(x)

            def term(position: Sequence[Index], places: Sequence[Scalar], holds: Scalar | None) -> Scalar:
                found = x.load(n, c, *places)
                return where(holds, found * w[0].load(c, *at(x.builder, position)) if w else found, 0)

            return self.reduced(x, shape_of(self.x)[2:], term, SUM)

        return trace(self.compute_types, formula)

    def vjp(self, builder: Builder, cotangents: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        (g,) = cotangents
        dx = builder.insert(WindowSumOp(g, self.w, self.windows.transposed, shape_of(self.x)[2:])).result
        if self.w is None:
            return [dx]
        n, c, *size = shape_of(g)
        taken = builder.insert(UnfoldOp(self.x, self.windows, size)).result
        positions = math.prod(self.windows.kernel)
        taken = reshaped(builder, taken, (c, positions, n, math.prod(size)))
        rows = reshaped(builder, g, (n, c, math.prod(size)))
        rows = builder.insert(TransposeOp(rows, (1, 0, 2))).result
        weighed = builder.insert(MulOp(taken, reshaped(builder, rows, (c, 1, n, math.prod(size))))).result
        dw = builder.insert(SumOp(weighed, [2, 3])).result
        return [dx, reshaped(builder, dw, shape_of(self.w))]


class ExtremeOp(ReducedOp, abc.ABC):
    """An op about the largest element of each window."""

    def expect_elements(self) -> None:
        """Refuse a relation that is no pool."""
        if any(n != 1 for n in self.windows.spread):
            raise VerifyException(f"expected a spread of 1, got {self.windows.spread}")


@irdl_op_definition
class WindowMaxOp(ExtremeOp, DifferentiableInterface):
    """The largest element of each window of x[N, C, *spatial], a NaN where there is one: [N, C, *size]."""

    name = "nn.window_max"

    x = operand_def(TensorType)

    def __init__(self, x: Value, windows: Windows, size: Sequence[int]):
        super().__init__(
            operands=[x],
            properties={**windows.properties(), "size": ints_attr(size)},
            result_types=[with_shape(x, (*shape_of(x)[:2], *size))],
        )

    def inferred_type(self) -> AnyTensor:
        expect_float("x", self.x)
        shape = self.expect_windows(self.x, self.rank + 2)
        self.expect_elements()
        return with_shape(self.x, (*shape[:2], *self.sizes))

    @property
    def arguments(self) -> Sequence[Argument]:
        return [(self.x, None)]

    def body(self) -> Body:
        def formula(x: Scalar) -> Scalar:
            n, c, *_ = self.here(x)

            def term(_: object, places: Sequence[Scalar], holds: Scalar | None) -> Scalar:
                return where(holds, x.load(n, c, *places), -math.inf)

            return self.reduced(x, shape_of(self.x)[2:], term, LARGEST)

        return trace(self.compute_types, formula)

    def vjp(self, builder: Builder, cotangents: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        index = builder.insert(WindowIndexOp(self.x, self.result, self.windows)).result
        back = WindowRouteOp(cotangents[0], index, self.windows, shape_of(self.x)[2:])
        return [builder.insert(back).result]


@irdl_op_definition
class WindowIndexOp(ExtremeOp):
    """The number, among the elements of its channel, of the first element that is the largest of each window; of the last NaN.

    `largest` is the nn.window_max of x.
    """

    name = "nn.window_index"

    x = operand_def(TensorType)
    largest = operand_def(TensorType)

    traits = traits_def(NotDifferentiable("its result is an index"))

    def __init__(self, x: Value, largest: Value, windows: Windows):
        shape = shape_of(largest)
        super().__init__(
            operands=[x, largest],
            properties={**windows.properties(), "size": ints_attr(shape[2:])},
            result_types=[TensorType(i64, shape)],
        )

    def inferred_type(self) -> AnyTensor:
        expect_float("x", self.x)
        shape = (*self.expect_windows(self.x, self.rank + 2)[:2], *self.sizes)
        self.expect_elements()
        expect_type("largest", self.largest, with_shape(self.x, shape))
        return TensorType(i64, shape)

    @property
    def arguments(self) -> Sequence[Argument]:
        return [(self.largest, self.own), (self.x, None)]

    def body(self) -> Body:
        sizes = shape_of(self.x)[2:]

        def formula(largest: Scalar, x: Scalar) -> Scalar:
            n, c, *_ = self.here(x)
            none = largest.is_nan()

            def term(_: object, places: Sequence[Scalar], holds: Scalar | None) -> Scalar:
                found, number = x.load(n, c, *places), self.flat(places, sizes)
                hit = found.equal(largest) | found.is_nan()
                hit = hit if holds is None else hit & holds
                return select(hit, select(none, -number, number), math.prod(sizes))

            first = self.reduced(x, sizes, term, SMALLEST)
            return select(none, -first, first)

        return trace(self.compute_types, formula)


@irdl_op_definition
class WindowRouteOp(ExtremeOp, DifferentiableInterface):
    """[N, C, *size]: each element the sum of dy of the windows of which `index` says that they are its own."""

    name = "nn.window_route"

    dy = operand_def(TensorType)
    index = operand_def(TensorType)

    def __init__(self, dy: Value, index: Value, windows: Windows, size: Sequence[int]):
        super().__init__(
            operands=[dy, index],
            properties={**windows.properties(), "size": ints_attr(size)},
            result_types=[with_shape(dy, (*shape_of(dy)[:2], *size))],
        )

    def inferred_type(self) -> AnyTensor:
        expect_float("dy", self.dy)
        expect_element("index", self.index, frozenset({"i64"}))
        shape = self.expect_windows(self.dy, self.rank + 2)
        self.expect_elements()
        expect_type("index", self.index, TensorType(i64, shape))
        return with_shape(self.dy, (*shape[:2], *self.sizes))

    @property
    def arguments(self) -> Sequence[Argument]:
        return [(self.dy, None), (self.index, None)]

    @property
    def looks(self) -> Windows:
        return self.windows.transposed

    def body(self) -> Body:
        counts = shape_of(self.dy)[2:]

        def formula(dy: Scalar, index: Scalar) -> Scalar:
            n, c, *here = self.here(dy)
            number = self.flat(here, self.sizes)

            def term(_: object, window: Sequence[Scalar], holds: Scalar | None) -> Scalar:
                own = index.load(n, c, *window).equal(number)
                return select(own if holds is None else own & holds, dy.load(n, c, *window), 0)

            return self.reduced(dy, counts, term, SUM)

        return trace(self.compute_types, formula)

    def vjp(self, builder: Builder, cotangents: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        n, c, *size = shape_of(self.dy)
        flat = reshaped(builder, cotangents[0], (n, c, math.prod(self.sizes)))
        index = reshaped(builder, self.index, (n, c, math.prod(size)))
        return [reshaped(builder, builder.insert(GatherOp(flat, index, 2)).result, (n, c, *size)), None]
