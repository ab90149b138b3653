"""A scaled loss: its gradients are divided by the scale again, an overflow among them is found, and the scale follows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp, TensorType, f32, f64, i1, i64
from xdsl.ir import Attribute, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint

from aicf_mlir.dialects import nn
from aicf_mlir.dialects.nn.emitter import Emitter, location_of, summed_in
from aicf_mlir.dialects.nn.pointwise import CLASSES
from aicf_mlir.dialects.nn.reductions import REDUCTIONS
from aicf_mlir.ir.division import DividedGradients, gradient_names
from aicf_mlir.ir.signature import (
    Label,
    append_argument,
    argument_keys,
    result_labels,
    return_op,
    set_results,
    steps,
)
from aicf_mlir.ir.tensor_op import element_type
from aicf_mlir.passes.autodiff import SCALE, refuse
from aicf_mlir.passes.numbers_of_ranks import known_to_all

GROWTH, SKIPPED = "loss_scale.growth", "loss_scale.skipped"
"""The names, among the buffers, of the steps since the scale has changed, and of the number of steps with an overflow."""

FINITE = "all_finite"
"""The name, among the outputs, of the flag that is true if the step has no overflow."""


@dataclass(frozen=True)
class ScaleLossPass(ModulePass):
    """Divide the gradients of every function by the scale of its loss, and update the scale, as torch.amp.GradScaler does.

    The pass is for functions that autodiff has differentiated with `scaled`. A gradient is multiplied by the reciprocal of the
    scale, in f32 at least, and rounded once. If one has an element that is not finite, the scale is multiplied by `backoff`.
    After `interval` consecutive steps without one it is multiplied by `growth`, unless the result is infinite. The buffers
    "loss_scale.growth" and "loss_scale.skipped" are new last arguments. The output "all_finite" is a new result, which
    skip-overflow takes.

    Options:
      growth: the factor by which the scale grows
      backoff: the factor by which it falls
      interval: the number of steps without an overflow after which it grows
    """

    name = "scale-loss"

    growth: float = 2.0
    backoff: float = 0.5
    interval: int = 2000

    def __post_init__(self) -> None:
        if not self.growth >= 1 or not 0 < self.backoff <= 1 or self.interval < 1:
            raise ValueError(
                "expected a growth of 1 or more, a backoff above 0 up to 1 and an interval of 1 or more,"
                f" got {self.growth}, {self.backoff} and {self.interval}"
            )

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for function in steps(op):
            self.unscale(function)

    def unscale(self, function: func.FuncOp) -> None:
        """Complete one function."""
        where, keys = f"@{function.sym_name.data}", argument_keys(function)
        results = list(zip(return_op(function).operands, result_labels(function), strict=True))
        gradients = {label.name: value for value, label in results if label.role == "grad"}
        if ("buffer", SCALE) not in keys or not gradient_names(function):
            refuse(
                function,
                f"{where} has no gradients of a scaled loss among its results; run autodiff{{scaled}} first",
            )
        for name in (GROWTH, SKIPPED):
            if ("buffer", name) in keys:
                refuse(function, f'{where} has a buffer named "{name}", which scale-loss adds; leave it out')
        if any((label.role, label.name) == ("output", FINITE) for _, label in results):
            refuse(function, f'{where} has an output named "{FINITE}", which scale-loss adds; leave it out')
        scaled = Scaled(function, function.args[keys.index(("buffer", SCALE))])
        finite = scaled.all_finite(gradients)
        results = [
            (scaled.unscaled(value) if label.role == "grad" else value, label) for value, label in results
        ]
        updates = scaled.updates(finite, self.growth, self.backoff, self.interval)
        set_results(function, [*results, (finite, Label("output", FINITE)), *updates])


class Scaled(Emitter):
    """Emits arguments and ops at the end of a function whose loss is scaled."""

    def __init__(self, function: func.FuncOp, scale: SSAValue):
        end = return_op(function)
        losses = [
            v for v, label in zip(end.operands, result_labels(function), strict=True) if label.role == "loss"
        ]
        self.of_all = location_of(losses[0]) if losses else function.location
        super().__init__(InsertPoint.before(end), self.of_all)
        self.function, self.scale = function, scale
        self.wide = self.cast(scale, f64)
        self.inverse = self.cast(
            self.emit(nn.ReciprocalOp(self.wide)), f32
        )  # torch's: of the f64, then rounded to f32

    def all_finite(self, gradients: Mapping[str, SSAValue]) -> SSAValue:
        """True if every element of all gradients is finite, as they were scaled, on other ranks too: 0-d, i1."""
        own = dict[str, SSAValue]()
        for name, gradient in gradients.items():
            self.location = location_of(gradient)
            finite = self.emit(REDUCTIONS["all"](self.emit(CLASSES["isfinite"](gradient))))
            own[name] = self.emit(nn.ReshapeOp(finite, [1]))
        self.location = self.of_all
        divided = DividedGradients.of(self.function)
        told = known_to_all(self, divided, own, gradient_names(self.function), i1)
        return self.emit(REDUCTIONS["all"](self.emit(nn.ConcatOp(told, 0))), FINITE)

    def unscaled(self, gradient: SSAValue) -> SSAValue:
        """A gradient over the scale."""
        self.location = location_of(gradient)
        element = summed_in(gradient)
        product = self.emit(nn.MulOp(self.cast(gradient, element), self.cast(self.inverse, element)))
        value = self.cast(product, element_type(gradient))
        value.name_hint = f"{gradient.name_hint or 'gradient'}.unscaled"
        return value

    def updates(
        self, finite: SSAValue, growth: float, backoff: float, interval: int
    ) -> list[tuple[SSAValue, Label]]:
        """The new values of the scale, of the steps since it changed, and of the number of skipped steps."""
        self.location = self.of_all
        since, skipped = self.counter(GROWTH), self.counter(SKIPPED)
        zero, one = self.constant(0, i64), self.constant(1, i64)
        grown = self.cast(self.emit(nn.MulOp(self.wide, self.constant(growth, f64))), f32)
        grown = self.where(self.emit(CLASSES["isfinite"](grown)), grown, self.scale)
        fallen = self.cast(self.emit(nn.MulOp(self.wide, self.constant(backoff, f64))), f32)
        count = self.emit(nn.AddOp(since, one))
        is_due = self.emit(CLASSES["eq"](count, self.constant(interval, i64)))
        news = {
            SCALE: self.where(finite, self.where(is_due, grown, self.scale), fallen),
            GROWTH: self.where(finite, self.where(is_due, zero, count), zero),
            SKIPPED: self.emit(nn.AddOp(skipped, self.where(finite, zero, one))),
        }
        for name, value in news.items():
            value.name_hint = f"{name}.next"
        return [(value, Label("update", name, target_role="buffer")) for name, value in news.items()]

    def counter(self, name: str) -> SSAValue:
        """A new argument."""
        argument = append_argument(self.function, TensorType(i64, []), Label("buffer", name))
        argument.name_hint = name
        return argument

    def constant(self, value: float, element: Attribute) -> SSAValue:
        """A number."""
        return self.emit(nn.ConstantOp(value, TensorType(element, [])))

    def where(self, condition: SSAValue, value: SSAValue, other: SSAValue) -> SSAValue:
        """Emit `value` if the condition holds, else `other`."""
        return self.emit(CLASSES["where"](condition, value, other))
