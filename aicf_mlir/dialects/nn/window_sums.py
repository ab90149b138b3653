"""Weighed sums of windows that are never in memory: convolutions, average pools, the gradients of weights.

The channels of x[N, C, *spatial] are in groups of `own` neighbours, and so are the filters w[F, own, *kernel]: as many to each.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.builder import Builder
from xdsl.dialects.builtin import IntegerAttr, TensorType
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_operand_def, prop_def
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.dialects.nn.unfolded_windows import exchanged
from aicf_mlir.dialects.nn.window_relation import Index, Windows
from aicf_mlir.dialects.nn.windows import SUM, ReducedOp, WindowedOp, at, taken, where
from aicf_mlir.ir.body import Body
from aicf_mlir.ir.expect import Value, expect_float, expect_type, with_shape
from aicf_mlir.ir.formula import Builder as Lines
from aicf_mlir.ir.formula import Scalar, row_sum, trace
from aicf_mlir.ir.generated import Argument
from aicf_mlir.ir.interfaces import DifferentiableInterface
from aicf_mlir.ir.properties import int_attr, ints_attr
from aicf_mlir.ir.tensor_op import AnyTensor, shape_of, tensor_type

__all__ = ["WindowProductOp", "WindowSumOp"]


def groups_of(filters: int, own: int, channels: int) -> int:
    """The groups of the channels; refuses filters that do not fit."""
    if not own or channels % own or ((groups := channels // own) and filters % groups):
        raise VerifyException(
            f"{channels} channels in groups of {own} do not fit to {filters} filters, as many to each group"
        )
    return channels // own


def channel(builder: Lines, f: Scalar, k: Index, filters: int, own: int, channels: int) -> Scalar:
    """The channel that is number k in the group of filter f."""
    groups = channels // own
    (number,) = at(builder, [k])
    if groups == 1:
        return number
    group = f if filters == groups else f.apply("arith.divsi", filters // groups)
    return group if own == 1 else group * own + number


@irdl_op_definition
class WindowSumOp(ReducedOp, DifferentiableInterface):
    """The sum of each window of x[N, C, *spatial]: [N, C, *size]; with w[F, own, *kernel] of its elements in the channels of a
    group times those of a filter: [N, F, *size].
    """

    name = "nn.window_sum"

    x = operand_def(TensorType)
    w = opt_operand_def(TensorType)

    def __init__(self, x: Value, w: Value | None, windows: Windows, size: Sequence[int]):
        n, c, *_ = shape_of(x)
        super().__init__(
            operands=[x, w],
            properties={**windows.properties(), "size": ints_attr(size)},
            result_types=[with_shape(x, (n, c if w is None else shape_of(w)[0], *size))],
        )

    def inferred_type(self) -> AnyTensor:
        expect_float("x", self.x)
        n, c, *_ = self.expect_windows(self.x, self.rank + 2)
        if self.w is None:
            return with_shape(self.x, (n, c, *self.sizes))
        if len(shape_of(self.w)) != self.rank + 2:
            raise VerifyException(f"expected w of rank {self.rank + 2}, got {tensor_type(self.w)}")
        filters, own, *_ = shape_of(self.w)
        groups_of(filters, own, c)
        expect_type("w", self.w, with_shape(self.x, (filters, own, *self.windows.kernel)))
        return with_shape(self.x, (n, filters, *self.sizes))

    @property
    def depth(self) -> int:
        return 1 if self.w is None else shape_of(self.w)[1]

    @property
    def arguments(self) -> Sequence[Argument]:
        return [(value, None) for value in self.operands]

    def body(self) -> Body:
        channels, filters = shape_of(self.x)[1], shape_of(self.result)[1]

        def formula(x: Scalar, *w: Scalar) -> Scalar:
            n, f, *_ = self.here(x)
            channel_here, _ = self.here_reduced(x.builder)
            looked = range(self.depth) if channel_here is None else [channel_here]

            def product(k: Index, position: Sequence[Index], places: Sequence[Scalar]) -> Scalar:
                if not w:
                    return x.load(n, f, *places)
                c = channel(x.builder, f, k, filters, self.depth, channels)
                return x.load(n, c, *places) * w[0].load(f, *at(x.builder, [k, *position]))

            def term(
                position: Sequence[Index], places: Sequence[Scalar], holds: Scalar | None
            ) -> tuple[Scalar, Scalar | None]:
                first, *others = (product(k, position, places) for k in looked)
                return sum(others, first), holds

            return self.reduced(x, shape_of(self.x)[2:], term, SUM)

        return trace(self.compute_types, formula)

    def vjp(self, builder: Builder, cotangents: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        (g,), spatial, windows = cotangents, shape_of(self.x)[2:], self.windows.transposed
        if self.w is None:
            return [builder.insert(WindowSumOp(g, None, windows, spatial)).result]
        weights = exchanged(lambda op: builder.insert(op).result, self.w, shape_of(self.x)[1])
        dx = builder.insert(WindowSumOp(g, weights, windows, spatial)).result
        return [dx, builder.insert(WindowProductOp(self.x, g, self.windows, self.depth)).result]


@irdl_op_definition
class WindowProductOp(WindowedOp, DifferentiableInterface):
    """[F, own, *kernel]: at each position the sum over all windows of a channel of x[N, C, *spatial] times a filter's
    dy[N, F, *size].
    """

    name = "nn.window_product"

    x = operand_def(TensorType)
    dy = operand_def(TensorType)
    own = prop_def(IntegerAttr, default_value=int_attr(1))

    def __init__(self, x: Value, dy: Value, windows: Windows, own: int):
        shape = shape_of(dy)
        super().__init__(
            operands=[x, dy],
            properties={**windows.properties(), "size": ints_attr(shape[2:]), "own": int_attr(own)},
            result_types=[with_shape(x, (shape[1], own, *windows.kernel))],
        )

    @property
    def depth(self) -> int:
        """Channels of a group."""
        return self.own.value.data

    def inferred_type(self) -> AnyTensor:
        expect_float("x", self.x)
        n, c, *_ = self.expect_windows(self.x, self.rank + 2)
        if len(shape_of(self.dy)) != self.rank + 2:
            raise VerifyException(f"expected dy of rank {self.rank + 2}, got {tensor_type(self.dy)}")
        filters = shape_of(self.dy)[1]
        groups_of(filters, self.depth, c)
        expect_type("dy", self.dy, with_shape(self.x, (n, filters, *self.sizes)))
        return with_shape(self.x, (filters, self.depth, *self.windows.kernel))

    @property
    def domain(self) -> tuple[int, ...]:
        """The result, filters and their channels as one dimension; then images and windows."""
        n, filters, *size = shape_of(self.dy)
        return (filters * self.depth, *self.windows.kernel, n, *size)

    @property
    def reduced_dims(self) -> tuple[int, ...]:
        return tuple(range(self.rank + 1, len(self.domain)))

    @property
    def whole_results(self) -> tuple[bool, ...]:
        return (False,)

    @property
    def arguments(self) -> Sequence[Argument]:
        n, *windows = self.reduced_dims
        return [(self.dy, (n, 0, *windows) if self.depth == 1 else None), (self.x, None)]

    def body(self) -> Body:
        filters, channels = shape_of(self.result)[0], shape_of(self.x)[1]

        def formula(dy: Scalar, x: Scalar) -> Scalar:
            f, seen = x.builder.index(0), dy
            k: Index = 0
            if self.depth > 1:
                number = f
                f = number.apply("arith.divsi", self.depth)
                k = number - f * self.depth
                seen = dy.load(
                    x.builder.index(self.rank + 1), f, *map(x.builder.index, self.reduced_dims[1:])
                )
            c = channel(x.builder, f, k, filters, self.depth, channels)
            found, holds = taken(self, x, c)
            return row_sum(where(holds, found * seen, 0))

        return trace(self.compute_types, formula)

    def vjp(self, builder: Builder, cotangents: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        (g,) = cotangents
        weights = exchanged(lambda op: builder.insert(op).result, g, shape_of(self.x)[1])
        dx = WindowSumOp(self.dy, weights, self.windows.transposed, shape_of(self.x)[2:])
        return [
            builder.insert(dx).result,
            builder.insert(WindowSumOp(self.x, g, self.windows, self.sizes)).result,
        ]
