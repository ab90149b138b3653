"""The largest elements of windows, which are never in memory: maximum pools, and where their gradients go."""

from __future__ import annotations

import abc
import math
from collections.abc import Sequence

from xdsl.builder import Builder
from xdsl.dialects.builtin import TensorType, i32, i64
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, traits_def
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.dialects.nn.gathering import GatherOp
from aicf_mlir.dialects.nn.indices import reshaped
from aicf_mlir.dialects.nn.window_relation import Index, Windows, row_major
from aicf_mlir.dialects.nn.windows import LARGEST, SMALLEST, SUM, ReducedOp, at, where
from aicf_mlir.ir.body import Body
from aicf_mlir.ir.expect import Value, expect_float, expect_type, with_shape
from aicf_mlir.ir.formula import Scalar, select, trace
from aicf_mlir.ir.generated import Argument
from aicf_mlir.ir.interfaces import DifferentiableInterface, NotDifferentiable
from aicf_mlir.ir.properties import ints_attr
from aicf_mlir.ir.tensor_op import AnyTensor, shape_of

__all__ = ["WindowIndexOp", "WindowMaxOp", "WindowRouteOp", "WindowTapOp"]


def taps(x: Value, size: Sequence[int]) -> AnyTensor:
    """The type of taps of windows of x[N, C, *spatial]."""
    return TensorType(i32, (*shape_of(x)[:2], *size))


class ExtremeOp(ReducedOp, abc.ABC):
    """An op about the largest element of each window."""

    def expect_elements(self, sizes: Sequence[int], counts: Sequence[int]) -> None:
        """Refuse a relation that is no pool of `sizes` elements into `counts` windows, of which each has an element."""
        windows = self.windows
        if any(n != 1 for n in windows.spread):
            raise VerifyException(f"expected a spread of 1, got {windows.spread}")
        for d, (size, count) in enumerate(zip(sizes, counts, strict=True)):
            first = (n * windows.stride[d] - windows.low[d] for n in range(count))
            ahead = [k * windows.dilation[d] for k in range(windows.kernel[d])]
            if not all(any(0 <= at + k < size for k in ahead) for at in first):
                raise VerifyException(f"a window of dimension {d} has no element")


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
        self.expect_elements(shape[2:], self.sizes)
        return with_shape(self.x, (*shape[:2], *self.sizes))

    @property
    def arguments(self) -> Sequence[Argument]:
        return [(self.x, None)]

    def body(self) -> Body:
        def formula(x: Scalar) -> Scalar:
            n, c, *_ = self.here(x)

            def term(_: object, places: Sequence[Scalar], holds: Scalar | None) -> tuple[Scalar, None]:
                return where(holds, x.load(n, c, *places), -math.inf), None

            return self.reduced(x, shape_of(self.x)[2:], term, LARGEST)

        return trace(self.compute_types, formula)

    def vjp(self, builder: Builder, cotangents: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        tap = builder.insert(WindowTapOp(self.x, self.result, self.windows)).result
        back = WindowRouteOp(cotangents[0], tap, self.windows, shape_of(self.x)[2:])
        return [builder.insert(back).result]


@irdl_op_definition
class WindowTapOp(ExtremeOp):
    """The tap of the first element of each window that is its `largest`: [N, C, *size].

    The taps of a kernel are its positions, numbered row-major. `largest` is the nn.window_max of x. Where it is a NaN, the last
    NaN of the window counts. If no element does, the tap is the number of taps.
    """

    name = "nn.window_tap"

    x = operand_def(TensorType)
    largest = operand_def(TensorType)

    traits = traits_def(NotDifferentiable("its result is a position in a window"))

    def __init__(self, x: Value, largest: Value, windows: Windows):
        size = shape_of(largest)[2:]
        super().__init__(
            operands=[x, largest],
            properties={**windows.properties(), "size": ints_attr(size)},
            result_types=[taps(x, size)],
        )

    def inferred_type(self) -> AnyTensor:
        expect_float("x", self.x)
        shape = self.expect_windows(self.x, self.rank + 2)
        self.expect_elements(shape[2:], self.sizes)
        expect_type("largest", self.largest, with_shape(self.x, (*shape[:2], *self.sizes)))
        return taps(self.x, self.sizes)

    @property
    def arguments(self) -> Sequence[Argument]:
        return [(self.largest, self.own), (self.x, None)]

    def body(self) -> Body:
        sizes, kernel = shape_of(self.x)[2:], self.windows.kernel

        def formula(largest: Scalar, x: Scalar) -> Scalar:
            n, c, *_ = self.here(x)
            has_nan = largest.is_nan()

            def tap(
                position: Sequence[Index], places: Sequence[Scalar], holds: Scalar | None
            ) -> tuple[Scalar, None]:
                found, (number,) = x.load(n, c, *places), at(x.builder, [row_major(position, kernel)])
                hit = found.equal(largest) | (has_nan & found.is_nan())
                hit = hit if holds is None else hit & holds
                return select(hit, select(has_nan, -number, number), math.prod(kernel)), None

            first = self.reduced(x, sizes, tap, SMALLEST)
            return select(first < 0, -first, first).cast("i32")

        return trace(self.compute_types, formula)


@irdl_op_definition
class WindowIndexOp(ExtremeOp):
    """The number of the element at the `tap` of each window among the elements of its channel, of spatial `size`.

    It has the shape of the taps. No formula counts in it: it is for users, and for ops that gather.
    """

    name = "nn.window_index"

    tap = operand_def(TensorType)

    traits = traits_def(NotDifferentiable("its result is an index"))

    def __init__(self, tap: Value, windows: Windows, size: Sequence[int]):
        super().__init__(
            operands=[tap],
            properties={**windows.properties(), "size": ints_attr(size)},
            result_types=[TensorType(i64, shape_of(tap))],
        )

    def inferred_type(self) -> AnyTensor:
        shape = self.expect_windows(self.tap, self.rank + 2)
        self.expect_elements(self.sizes, shape[2:])
        expect_type("tap", self.tap, taps(self.tap, shape[2:]))
        return TensorType(i64, shape)

    @property
    def domain(self) -> tuple[int, ...]:
        return shape_of(self.tap)

    @property
    def whole_results(self) -> tuple[bool, ...]:
        return (True,)

    @property
    def arguments(self) -> Sequence[Argument]:
        return [(self.tap, range(self.rank + 2))]

    def body(self) -> Body:
        windows, counts = self.windows, shape_of(self.tap)[2:]

        def formula(tap: Scalar) -> Scalar:
            rest, places = tap.cast("i64"), list[Scalar]()
            for d in reversed(range(self.rank)):
                position = rest.apply("arith.remsi", windows.kernel[d]) if d else rest
                rest = rest.apply("arith.divsi", windows.kernel[d])
                window = tap.builder.index(d + 2)
                places.append(windows.element(d, window, position, self.sizes[d], counts[d], []))
            return row_major(places[::-1], self.sizes)

        return trace(self.compute_types, formula)


@irdl_op_definition
class WindowRouteOp(ExtremeOp, DifferentiableInterface):
    """[N, C, *size]: each element the sum of dy of the windows whose `tap` it is."""

    name = "nn.window_route"

    dy = operand_def(TensorType)
    tap = operand_def(TensorType)

    def __init__(self, dy: Value, tap: Value, windows: Windows, size: Sequence[int]):
        super().__init__(
            operands=[dy, tap],
            properties={**windows.properties(), "size": ints_attr(size)},
            result_types=[with_shape(dy, (*shape_of(dy)[:2], *size))],
        )

    def inferred_type(self) -> AnyTensor:
        expect_float("dy", self.dy)
        shape = self.expect_windows(self.dy, self.rank + 2)
        self.expect_elements(self.sizes, shape[2:])
        expect_type("tap", self.tap, taps(self.dy, shape[2:]))
        return with_shape(self.dy, (*shape[:2], *self.sizes))

    @property
    def arguments(self) -> Sequence[Argument]:
        return [(self.dy, None), (self.tap, None)]

    @property
    def looks(self) -> Windows:
        return self.windows.transposed

    def body(self) -> Body:
        counts, kernel = shape_of(self.dy)[2:], self.windows.kernel

        def formula(dy: Scalar, tap: Scalar) -> Scalar:
            n, c, *_ = self.here(dy)

            def term(
                position: Sequence[Index], window: Sequence[Scalar], holds: Scalar | None
            ) -> tuple[Scalar, Scalar]:
                (number,) = at(dy.builder, [row_major(position, kernel)])
                own = tap.load(n, c, *window).equal(number.cast("i32"))
                return dy.load(n, c, *window), own if holds is None else own & holds

            return self.reduced(dy, counts, term, SUM)

        return trace(self.compute_types, formula)

    def vjp(self, builder: Builder, cotangents: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        n, c, *size = shape_of(self.dy)
        flat = reshaped(builder, cotangents[0], (n, c, math.prod(self.sizes)))
        index = builder.insert(WindowIndexOp(self.tap, self.windows, self.sizes)).result
        index = reshaped(builder, index, (n, c, math.prod(size)))
        return [reshaped(builder, builder.insert(GatherOp(flat, index, 2)).result, (n, c, *size)), None]
