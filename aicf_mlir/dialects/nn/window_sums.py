"""Weighed sums of windows that are never in memory: depthwise convolutions, average pools, the gradients of weights."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.builder import Builder
from xdsl.dialects.builtin import TensorType
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_operand_def

from aicf_mlir.dialects.nn.window_relation import Index, Windows
from aicf_mlir.dialects.nn.windows import SUM, ReducedOp, WindowedOp, at, taken, where
from aicf_mlir.ir.body import Body
from aicf_mlir.ir.expect import Value, expect_float, expect_type, with_shape
from aicf_mlir.ir.formula import Scalar, row_sum, trace
from aicf_mlir.ir.generated import Argument
from aicf_mlir.ir.interfaces import DifferentiableInterface
from aicf_mlir.ir.properties import ints_attr
from aicf_mlir.ir.tensor_op import AnyTensor, shape_of

__all__ = ["WindowProductOp", "WindowSumOp"]


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
        return [dx, builder.insert(WindowProductOp(self.x, g, self.windows)).result]


@irdl_op_definition
class WindowProductOp(WindowedOp, DifferentiableInterface):
    """[C, *kernel]: at each position the sum over all windows of x[N, C, *spatial] times dy[N, C, *size]."""

    name = "nn.window_product"

    x = operand_def(TensorType)
    dy = operand_def(TensorType)

    def __init__(self, x: Value, dy: Value, windows: Windows):
        shape = shape_of(dy)
        super().__init__(
            operands=[x, dy],
            properties={**windows.properties(), "size": ints_attr(shape[2:])},
            result_types=[with_shape(x, (shape[1], *windows.kernel))],
        )

    def inferred_type(self) -> AnyTensor:
        expect_float("x", self.x)
        n, c, *_ = self.expect_windows(self.x, self.rank + 2)
        expect_type("dy", self.dy, with_shape(self.x, (n, c, *self.sizes)))
        return with_shape(self.x, (c, *self.windows.kernel))

    @property
    def domain(self) -> tuple[int, ...]:
        """The result, then images and windows."""
        n, c, *size = shape_of(self.dy)
        return (c, *self.windows.kernel, n, *size)

    @property
    def reduced_dims(self) -> tuple[int, ...]:
        return tuple(range(self.rank + 1, len(self.domain)))

    @property
    def whole_results(self) -> tuple[bool, ...]:
        return (False,)

    @property
    def arguments(self) -> Sequence[Argument]:
        n, *windows = self.reduced_dims
        return [(self.dy, (n, 0, *windows)), (self.x, None)]

    def body(self) -> Body:
        def formula(dy: Scalar, x: Scalar) -> Scalar:
            found, holds = taken(self, x)
            return row_sum(where(holds, found * dy, 0))

        return trace(self.compute_types, formula)

    def vjp(self, builder: Builder, cotangents: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        (g,) = cotangents
        dx = WindowSumOp(self.dy, g, self.windows.transposed, shape_of(self.x)[2:])
        return [
            builder.insert(dx).result,
            builder.insert(WindowSumOp(self.x, g, self.windows, self.sizes)).result,
        ]
