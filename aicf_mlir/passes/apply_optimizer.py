"""From gradients to the whole train step: one optim op per parameter, one advance per group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, make_dataclass
from typing import TYPE_CHECKING, Literal, NoReturn

from xdsl.builder import Builder
from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ArrayAttr, ModuleOp, TensorType, f32, f64
from xdsl.ir import Attribute, OpResult, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.utils.exceptions import PassFailedException, VerifyException

from aicf_mlir.dialects.optimizer_groups import OPTIMIZER, Group, parse_groups
from aicf_mlir.ir.signature import (
    Label,
    argument_labels,
    label_arguments,
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

CHOICES = {torch_class.option: (torch_class, rule) for torch_class, rule in CLASSES}
"""By the option `kind`."""

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
    parameters follows from the options. New arguments follow the existing ones, group by group: its metas,
    then its states. So do the updates among the results. A parameter without a gradient is left alone: no
    state, no update, and no place in the step counters and bias corrections, which have an element for each
    updated parameter of the group. Group k > 0 marks its metas and counters with `.k`. For groups of kind "traced", the
    private function that they name is put in its place, and is gone.

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
        returned = list(zip(return_op(function).operands, result_labels(function), strict=True))
        gradients = {label.name: value for value, label in returned if label.role == "grad"}
        if not gradients:
            refuse(
                function, f"@{function.sym_name.data} has no gradients among its results; run autodiff first"
            )
        groups = [
            group.with_params([name for name in group.params if name in gradients])
            for group in self.groups(function, list(gradients))
        ]
        results = [entry for entry in returned if self.keep_grads or entry[1].role != "grad"]
        traced = traced_by(groups)
        if traced and not all(isinstance(group.rule, TracedRule) for group in groups):
            refuse(
                function,
                f"{OPTIMIZER}: expected every group to be traced where one is: @{min(traced)} updates all",
            )
        for symbol in traced:
            try:
                results += inline_update(function, symbol, gradients)
            except VerifyException as error:
                refuse(function, str(error))
        for index, group in enumerate(groups):
            if group.params and not traced:
                results += GroupUpdate(function, index, group.rule).emit(group.params, gradients)
        function.attributes[OPTIMIZER] = ArrayAttr([group.to_attribute() for group in groups])
        set_results(function, results)

    def groups(self, function: func.FuncOp, trained: Sequence[str]) -> list[Group]:
        """The param groups in the function's attribute, or the one that the options describe."""
        if (attribute := function.attributes.get(OPTIMIZER)) is None:
            return [Group(self.rule(function), tuple(trained))]
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
    """Emits the arguments and ops of one param group at the end of a function."""

    function: func.FuncOp
    index: int
    rule: UpdateRule

    def __post_init__(self) -> None:
        labels = argument_labels(self.function)
        self.arguments: dict[tuple[str, str], SSAValue] = {
            (label.role, label.name): argument
            for label, argument in zip(labels, self.function.args, strict=True)
        }
        self.added: list[Label] = []
        """Arguments of the block that are not in the signature yet."""

    def emit(self, params: Sequence[str], gradients: Mapping[str, SSAValue]) -> list[tuple[SSAValue, Label]]:
        """Add the update of `params`; return the new results."""
        builder = Builder(InsertPoint.before(return_op(self.function)))
        written, counters = self.rule.written_metas, self.rule.counters
        types = {
            **dict.fromkeys(written, TensorType(f64, [len(params)])),
            **dict.fromkeys(counters, TensorType(f32, [len(params)])),
        }
        slots = {slot.name: slot for slot in self.rule.group_slots(self.index)}
        meta = {
            name: self.add_argument(slot, types.get(name, HYPERPARAMETER)) for name, slot in slots.items()
        }
        results: list[tuple[SSAValue, Label]] = []
        if counters:
            wide = any(element_type(self.arguments["param", param]) == f64 for param in params)
            advance = builder.insert(self.rule.advance(meta, f64 if wide else f32))
            advance.location = self.function.location
            meta |= zip(self.rule.advanced, advance.results, strict=True)
            replaced = [slots[name].key for name in (*counters, *written)]
            results += self.updates(advance.results[: len(replaced)], replaced)
            for name, value in list(zip(self.rule.advanced, advance.results, strict=True))[len(replaced) :]:
                value.name_hint = slots[name].slot if name in slots else name
        for index, param in enumerate(params):
            value, gradient = self.arguments["param", param], gradients[param]
            kept = self.rule.state_slots(self.index, param)
            states = [self.add_argument(slot, value.type) for slot in kept]
            update = builder.insert(self.rule.update(value, gradient, states, meta, index))
            if isinstance(gradient, OpResult):
                update.location = gradient.op.location
            results += self.updates(update.results, [("param", param), *(slot.key for slot in kept)])
        label_arguments(self.function, self.added)
        self.added = []
        return results

    def add_argument(self, slot: OptimizerSlot, type: Attribute) -> SSAValue:
        """A new argument of the block; a state is called after its parameter in the text, as %w0.exp_avg after %w0."""
        role, name = slot.key
        if slot.key in self.arguments:
            refuse(
                self.function,
                f'@{self.function.sym_name.data} has a {role} named "{name}", which apply-optimizer adds; leave it out',
            )
        block = self.function.body.block
        argument = block.insert_arg(type, len(block.args))
        self.added.append(Label(role, name))
        owner = slot.owner and self.arguments["param", slot.owner].name_hint
        argument.name_hint = name if slot.owner is None else f"{owner}.{slot.name}" if owner else slot.name
        self.arguments[slot.key] = argument
        return argument

    def updates(
        self, values: Sequence[SSAValue], keys: Sequence[tuple[str, str]]
    ) -> list[tuple[SSAValue, Label]]:
        """The new values of the arguments of these roles and names."""
        pairs = list(zip(values, keys, strict=True))
        for result, key in pairs:
            if hint := self.arguments[key].name_hint:
                result.name_hint = f"{hint}.next"
        return [(result, Label("update", name, target_role=role)) for result, (role, name) in pairs]


def traced_by(groups: Sequence[Group]) -> set[str]:
    """The private functions that update the parameters of traced optimizers."""
    return {group.rule.function for group in groups if isinstance(group.rule, TracedRule)}


def refuse(function: func.FuncOp, message: str) -> NoReturn:
    """Stop at `function`."""
    function.emit_error(message, PassFailedException(message))
