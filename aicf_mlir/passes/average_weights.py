"""An exponential moving average of the parameters, kept in addition to them: torch.optim.swa_utils.AveragedModel in the step."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp, TensorType, i64
from xdsl.ir import SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint

from aicf_mlir.dialects import nn
from aicf_mlir.dialects.nn.emitter import Emitter, location_of, summed_in
from aicf_mlir.dialects.nn.pointwise import CLASSES
from aicf_mlir.ir.signature import (
    Label,
    append_argument,
    argument_keys,
    result_keys,
    result_labels,
    return_op,
    set_results,
    steps,
)
from aicf_mlir.ir.tensor_op import element_type
from aicf_mlir.passes.autodiff import refuse

AVERAGE, COUNT = "ema.", "ema"
"""The prefix of an average's name, before the name of the parameter; the name of the number of steps averaged."""


@dataclass(frozen=True)
class AverageWeightsPass(ModulePass):
    """Keep an average of every parameter of every function, as the buffer "ema." and its name.

    The first step sets the average a to the parameter after its update. Each further step computes a + (1 - decay) * (p - a),
    where p is the parameter after the update, in f32 at least, rounded once. The pass belongs after every pass that decides the
    next value of a parameter. The buffer "ema" counts the steps.

    Options:
      decay: how much of the average stays in a step, from 0 to below 1
    """

    name = "average-weights"

    decay: float

    def __post_init__(self) -> None:
        if not 0 <= self.decay < 1:
            raise ValueError(f"expected a decay from 0 to below 1, got {self.decay}")

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for function in steps(op):
            average(function, self.decay)


def average(function: func.FuncOp, decay: float) -> None:
    """Complete one function."""
    keys, where = argument_keys(function), f"@{function.sym_name.data}"
    results = list(zip(return_op(function).operands, result_labels(function), strict=True))
    news = dict(zip(result_keys(function), [value for value, _ in results], strict=True))
    params = [
        (name, argument)
        for (role, name), argument in zip(keys, list(function.args), strict=True)
        if role == "param"
    ]
    if not any(("param", name) in news for name, _ in params):
        refuse(function, f"{where} updates no parameter; run apply-optimizer first")
    for name in (COUNT, *(AVERAGE + name for name, _ in params)):
        if ("buffer", name) in keys:
            refuse(function, f'{where} has a buffer named "{name}", which average-weights adds; leave it out')
    emitter = Emitter(InsertPoint.before(return_op(function)), function.location)
    count = append_argument(function, TensorType(i64, []), Label("buffer", COUNT))
    count.name_hint = COUNT
    is_first = emitter.emit(CLASSES["eq"](count, emitter.emit(nn.ConstantOp(0, TensorType(i64, [])))))
    one = emitter.emit(nn.ConstantOp(1, TensorType(i64, [])))
    results.append((emitter.emit(nn.AddOp(count, one), f"{COUNT}.next"), updated(COUNT)))
    for name, old in params:
        new = news.get(("param", name), old)
        kept = append_argument(function, old.type, Label("buffer", AVERAGE + name))
        kept.name_hint = f"{old.name_hint or 'param'}.ema"
        emitter.location = location_of(new)
        value = emitter.emit(CLASSES["where"](is_first, new, nearer(emitter, kept, new, 1 - decay)))
        value.name_hint = f"{kept.name_hint}.next"
        results.append((value, updated(AVERAGE + name)))
    set_results(function, results)


def nearer(emitter: Emitter, start: SSAValue, end: SSAValue, weight: float) -> SSAValue:
    """torch.lerp: part of the way from `start` to `end`, reckoned from the end that is nearer."""
    wide = summed_in(start)
    a, b = emitter.cast(start, wide), emitter.cast(end, wide)
    way = emitter.emit(nn.SubOp(b, a))
    near = weight < 0.5
    part = emitter.emit(nn.ConstantOp(weight if near else weight - 1, TensorType(wide, [])))
    moved = emitter.emit(nn.AddOp(a if near else b, emitter.emit(nn.MulOp(way, part))))
    return emitter.cast(moved, element_type(start))


def updated(name: str) -> Label:
    """The label of the new value of a buffer."""
    return Label("update", name, target_role="buffer")
