"""Extend a function from gradients to the whole train step: one optim op per parameter, one advance per group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, make_dataclass
from typing import TYPE_CHECKING, Literal, NoReturn

from xdsl.builder import Builder
from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ArrayAttr, ModuleOp, TensorType, f32, f64
from xdsl.ir import Attribute, Operation, OpResult, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.utils.exceptions import PassFailedException, VerifyException

from aicf_mlir.dialects.nn.emitter import Emitter
from aicf_mlir.dialects.nn.pointwise import CLASSES as POINTWISE
from aicf_mlir.dialects.optimizer_groups import OPTIMIZER, ParamGroup, parse_groups
from aicf_mlir.dialects.train import UpdateOp
from aicf_mlir.ir.division import gradient_names
from aicf_mlir.ir.signature import (
    Key,
    Label,
    argument_labels,
    private_function,
    result_labels,
    return_op,
    set_results,
    steps,
)
from aicf_mlir.ir.tensor_op import element_type
from aicf_mlir.optimizers import CLASSES, OPTIONS
from aicf_mlir.optimizers.inlined import inline_update
from aicf_mlir.optimizers.op import HYPERPARAMETER
from aicf_mlir.optimizers.rule import UpdateRule
from aicf_mlir.optimizers.slots import OptimizerSlot
from aicf_mlir.optimizers.traced import TracedRule
from aicf_mlir.optimizers.values import StepValues

CHOICES = {torch_class.option: (torch_class, rule) for torch_class, rule in CLASSES}
"""The torch class and the rule for each value of the option `kind`."""

if TYPE_CHECKING:

    class _Chosen(ModulePass):
        kind: str = "adam"

else:
    _Chosen = make_dataclass(
        "_Chosen",
        [("kind", Literal[tuple(CHOICES)], "adam"), *((flag, bool, False) for flag in OPTIONS)],
        bases=(ModulePass,),
        frozen=True,
    )
    """The options that follow from the rules."""


@dataclass(frozen=True)
class ApplyOptimizerPass(_Chosen):
    """
    Turn the gradients among the results of every function into updates of its parameters.

    The param groups come from the function attribute `aicf.optimizer`; without it, one group of all
    parameters follows from the options. New arguments follow the existing ones, group by group: its host scalars,
    then its states. So do the updates among the results. A parameter without a gradient is left alone: no
    state, no update, and no place in the step counters and bias corrections, which have an element for each
    updated parameter of the group. Group k > 0 marks its host scalars and counters with `.k`. For groups of kind "traced", the
    private function that they name is put in its place, and is gone.
    In a function with train.update each of these gives way to the updates of the parameters that it names, group by group;
    two of the same parameters are two steps of their optimizer. A step that may be left out selects between old and new
    values. A function with an empty attribute updates its parameters itself.

    Options, all but the last for functions without the attribute:
      kind: the optimizer, called as its class in torch: "sgd", "adam", "adamw"
      the flags of its rule in `aicf_mlir.optimizers`, such as momentum, amsgrad, maximize
      keep-grads: keep the gradients among the results
    """

    name = "apply-optimizer"

    keep_grads: bool = False

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for function in steps(op):
            self.update(function)
        for symbol in {symbol for step in steps(op) for symbol in traced_by(self.groups(step, []))}:
            if (function := private_function(op, symbol)) is not None:
                Rewriter.erase_op(function)

    def update(self, function: func.FuncOp) -> None:
        """Complete one function."""
        if asked := [op for op in function.body.block.ops if isinstance(op, UpdateOp)]:
            self.update_asked(function, asked)
            return
        returned = list(zip(return_op(function).operands, result_labels(function), strict=True))
        gradients = {label.name: value for value, label in returned if label.role == "grad"}
        if function.attributes.get(OPTIMIZER) == ArrayAttr([]):
            return
        if not gradient_names(function):
            refuse(
                function, f"@{function.sym_name.data} has no gradients among its results; run autodiff first"
            )
        groups = [
            group.with_params([name for name in group.params if name in gradients])
            for group in self.groups(function, list(gradients))
        ]
        kept = [entry for entry in returned if self.keep_grads or entry[1].role != "grad"]
        values = StepValues(function)
        self.emit(values, groups, gradients, return_op(function))
        values.finish()
        function.attributes[OPTIMIZER] = ArrayAttr([group.to_attribute() for group in groups])
        set_results(function, [*kept, *values.updates()])

    def update_asked(self, function: func.FuncOp, asked: Sequence[UpdateOp]) -> None:
        """Put the updates in the place of each op that requests them."""
        if self.keep_grads:
            refuse(function, "keep-grads is for a step of one loss; let the loop body return what it needs")
        named = [name.data for op in asked for name in op.names]
        groups = [
            group.with_params([name for name in group.params if name in named])
            for group in self.groups(function, list(dict.fromkeys(named)))
        ]
        values = StepValues(function)
        for op in asked:
            names = [name.data for name in op.names]
            own = [group for group in groups if set(group.params) & set(names)]
            if set(names) != {name for group in own for name in group.params}:
                refuse(
                    op,
                    f"expected the parameters of whole groups of {OPTIMIZER}, the same at each step, got {', '.join(names)}",
                )
            for name, value in zip(names, op.params, strict=True):
                values.now["param", name] = value
            before = dict(values.now)
            self.emit(
                values,
                [group if group in own else group.with_params(()) for group in groups],
                dict(zip(names, op.grads, strict=True)),
                op,
            )
            if op.taken is not None:
                keep(values, before, op.taken, op)
            for name, result in zip(names, op.updated, strict=True):
                result.replace_all_uses_with(values.now["param", name])
            op.detach()
            op.erase()
        values.finish()
        function.attributes[OPTIMIZER] = ArrayAttr([group.to_attribute() for group in groups])
        returned = list(zip(return_op(function).operands, result_labels(function), strict=True))
        set_results(
            function, [*returned, *(entry for entry in values.updates() if entry[1].target_role != "param")]
        )

    def emit(
        self,
        values: StepValues,
        groups: Sequence[ParamGroup],
        gradients: Mapping[str, SSAValue],
        before: Operation,
    ) -> None:
        """Emit one step of the optimizer of `groups` with these gradients before an op."""
        inlined = set[str]()
        try:
            for index, group in enumerate(groups):
                if not group.params:
                    continue
                if not isinstance(group.rule, TracedRule):
                    GroupUpdate(values, index, group.rule, before).emit(group.params, gradients)
                elif group.rule.function not in inlined:
                    inlined.add(group.rule.function)
                    inline_update(values, group.rule.function, gradients, before)
        except VerifyException as error:
            refuse(values.function, str(error))

    def groups(self, function: func.FuncOp, trained: Sequence[str]) -> list[ParamGroup]:
        """The param groups in the function's attribute, or the one that the options describe."""
        if (attribute := function.attributes.get(OPTIMIZER)) is None:
            return [ParamGroup(self.rule(function), tuple(trained))]
        try:
            groups = parse_groups(attribute)
        except VerifyException as error:
            refuse(function, str(error))
        known = {label.name for label in argument_labels(function) if label.role == "param"}
        for name in (name for group in groups for name in group.params):
            if name not in known:
                refuse(
                    function,
                    f'{OPTIMIZER}: expected names of params of @{function.sym_name.data}, got "{name}"',
                )
        return groups

    def rule(self, function: func.FuncOp) -> UpdateRule:
        """The update rule of the options."""
        torch_class, rule = CHOICES[self.kind]
        try:
            return rule.of_options(torch_class, {flag: getattr(self, flag) for flag in OPTIONS})
        except ValueError as error:
            refuse(function, str(error))


@dataclass
class GroupUpdate:
    """Emits the arguments and ops of one step of a param group before an op."""

    values: StepValues
    index: int
    rule: UpdateRule
    before: Operation

    def emit(self, params: Sequence[str], gradients: Mapping[str, SSAValue]) -> None:
        """Add the update of `params`."""
        builder, now = Builder(InsertPoint.before(self.before)), self.values.now
        written, counters = self.rule.written_scalars, self.rule.counters
        types = {
            **dict.fromkeys(written, TensorType(f64, [len(params)])),
            **dict.fromkeys(counters, TensorType(f32, [len(params)])),
        }
        slots = {slot.name: slot for slot in self.rule.group_slots(self.index)}
        arguments = {
            name: self.argument(slot, types.get(name, HYPERPARAMETER)) for name, slot in slots.items()
        }
        if counters:
            wide = any(element_type(now["param", param]) == f64 for param in params)
            advance = builder.insert(self.rule.advance(arguments, f64 if wide else f32))
            advance.location = self.values.function.location
            arguments |= zip(self.rule.advanced, advance.results, strict=True)
            replaced = [slots[name].key for name in (*counters, *written)]
            self.replace(replaced, advance.results[: len(replaced)])
            for name, value in list(zip(self.rule.advanced, advance.results, strict=True))[len(replaced) :]:
                value.name_hint = slots[name].slot if name in slots else name
        for index, param in enumerate(params):
            value, gradient = now["param", param], gradients[param]
            kept = self.rule.state_slots(self.index, param)
            states = [self.argument(slot, value.type) for slot in kept]
            update = builder.insert(self.rule.update(value, gradient, states, arguments, index))
            if isinstance(gradient, OpResult):
                update.location = gradient.op.location
            self.replace([("param", param), *(slot.key for slot in kept)], update.results)

    def replace(self, keys: Sequence[Key], values: Sequence[SSAValue]) -> None:
        """Put these values in the place of arguments, and call them after those."""
        self.values.replace(keys, values)
        self.values.named_after(keys, values)

    def argument(self, slot: OptimizerSlot, type: Attribute) -> SSAValue:
        """The value of a slot; a state is called after its parameter in the text, as %w0.exp_avg after %w0."""
        owner = slot.owner and self.values.arguments["param", slot.owner].name_hint
        label = Label(*slot.key)
        hint = label.name if slot.owner is None else f"{owner}.{slot.name}" if owner else slot.name
        return self.values.added(label, type, hint, "apply-optimizer")


def keep(values: StepValues, before: Mapping[Key, SSAValue], taken: SSAValue, op: Operation) -> None:
    """Let everything that a step of an optimizer has replaced be as it was before where `taken` is false."""
    emitter = Emitter(InsertPoint.before(op), op.location)
    for key, value in list(values.now.items()):
        old = before.get(key, values.arguments[key])
        if value is not old:
            kept = emitter.emit(POINTWISE["where"](taken, value, old), f"{old.name_hint or 'value'}.kept")
            values.replace([key], [kept])


def traced_by(groups: Sequence[ParamGroup]) -> set[str]:
    """The private functions that update the parameters of traced optimizers."""
    return {group.rule.function for group in groups if isinstance(group.rule, TracedRule)}


def refuse(function: Operation, message: str) -> NoReturn:
    """Stop at `function`, or at an op in it."""
    function.emit_error(message, PassFailedException(message))
