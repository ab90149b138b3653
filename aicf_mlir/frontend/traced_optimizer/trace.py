"""The trace of a user's optimizer to a function of the nn dialect: it is traced twice, from no state and from the state
that it makes.

Both steps must be one function, except for the state; then it is every step. Otherwise the optimizer must have taken its first
step, and the later one is every step from then on. Numbers that the step reads from the param
groups become host scalars, comparisons with them become conditions, and the state is bound like torch's own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.fx import Node
from xdsl.dialects import func
from xdsl.dialects.builtin import ArrayAttr, ModuleOp

from aicf_mlir.dialects.optimizer_groups import ParamGroup
from aicf_mlir.errors import BindError, GuardError, TraceError
from aicf_mlir.frontend import source
from aicf_mlir.frontend.reached import collect
from aicf_mlir.frontend.reads import Read
from aicf_mlir.frontend.source import trace_error
from aicf_mlir.frontend.traced_optimizer.begun import NUMBERS, begun_step, kept_states
from aicf_mlir.frontend.traced_optimizer.first_step import GraphComparison, Initial, StateKey
from aicf_mlir.frontend.traced_optimizer.graph import Number, OptimizerGraph, OptimizerModule, export_step
from aicf_mlir.frontend.traced_optimizer.importer import Argument, UpdateImporter
from aicf_mlir.frontend.traced_optimizer.numbers import Condition
from aicf_mlir.frontend.traced_optimizer.settings import COUNTED, GroupSettings, settings_of
from aicf_mlir.frontend.traced_optimizer.shadow import demanded_by_step, step_line
from aicf_mlir.frontend.unsupported import with_decompositions
from aicf_mlir.ir.signature import Label, argument_labels, result_labels, steps
from aicf_mlir.optimizers.rule import Setting
from aicf_mlir.optimizers.slots import OptimizerSlot, group_key
from aicf_mlir.optimizers.traced import TracedRule, setting
from aicf_mlir.passes.autodiff import differentiate


@dataclass(frozen=True)
class OptimizerTrace:
    """A traced optimizer: the facts about it beyond its param groups."""

    function: func.FuncOp
    """The private function that a step applies to parameters and states."""
    groups: list[ParamGroup]
    optimizer: torch.optim.Optimizer
    first_group: int
    """The number of its first param group among all groups of the step."""
    parameters: list[torch.Tensor]
    beginnings: Mapping[tuple[str, str], tuple[Initial, Sequence[torch.Tensor]]]
    """The beginning of each state as a function of parameters, by parameter and key; none if only the optimizer can make it."""
    numbers: Mapping[tuple[str, str], type[Number]]
    """The states that are Python numbers for the optimizer."""
    conditions: Sequence[Condition]
    skeletons: Sequence[Mapping[str, tuple[object, ...]]]
    """The members that are no numbers, in each group's entries from which the step reads numbers."""
    reads: list[Read]

    def beginning(self, param: str, key: str) -> torch.Tensor:
        """The state of a parameter that has taken no step."""
        initial, parameters = self.beginnings[param, key]
        return initial([parameter.detach() for parameter in parameters])

    def check(self) -> None:
        """Raise GuardError if the numbers of the param groups have changed so that the step would be a different one."""
        settings = settings_of(self.optimizer, self.first_group)
        values = {name: value for each in settings for name, value in each.values.items()}
        for each, before in zip(settings, self.skeletons, strict=True):
            now = each.skeleton
            for key in before:
                if now.get(key) != before[key]:
                    raise GuardError(
                        f"param_groups[{each.place}][{key!r}] of {type(self.optimizer).__name__} has other members than numbers,"
                        " or more or fewer, than when it was compiled; call recompile()"
                    )
        for condition in self.conditions:
            if broken := condition.broken(values):
                where = (
                    f" at {condition.where.file_and_line}{source.quoted(condition.where)}"
                    if condition.where
                    else ""
                )
                raise GuardError(
                    f"{type(self.optimizer).__name__}.step reads{where} a number of its param groups, and {broken}"
                )


def trace_optimizer(
    optimizer: torch.optim.Optimizer,
    names: Mapping[torch.Tensor, str],
    function: str,
    device: torch.device,
    first_group: int = 0,
) -> OptimizerTrace:
    """Trace the step of `optimizer` for the parameters in `names`, which have a gradient, as the function `function`.

    `first_group` is the number of its first param group among the groups of a step that has several optimizers.

    Raises TraceError for a step that cannot be compiled, with the user's line.
    """
    fallback = step_line(optimizer) or source.here()
    own: Any = vars(optimizer).get("step")
    if own is not None and not getattr(own, "_wrapped_by_lr_sched", False):
        raise trace_error(
            f"{type(optimizer).__name__} has a step of its own in the object; define it in the class",
            fallback,
        )
    if demanded := demanded_by_step(optimizer):
        raise trace_error(
            f"{type(optimizer).__name__}.step demands {demanded!r}, as optimizers do that compute the loss several times in a"
            " step; a compiled step computes it once: compile the loss with its gradients,"
            " step = compile_eval_step(model, …, keep_gradients=True), and call"
            f" {type(optimizer).__name__}.step(lambda: step.eval_step(batch))",
            fallback,
        )
    params = [p for group in optimizer.param_groups for p in group["params"] if p in names]
    if (complex_one := next((names[p] for p in params if p.is_complex()), None)) is not None:
        raise trace_error(
            f"{type(optimizer).__name__} has a step of its own, and {complex_one!r} is a complex parameter, which optimizers of"
            " torch.optim alone train here",
            fallback,
        )
    at = {id(p): i for i, p in enumerate(params)}
    members = [[at[id(p)] for p in group["params"] if p in names] for group in optimizer.param_groups]
    try:
        settings = [
            replace(
                each, passed_over=frozenset(i for i, p in enumerate(each.group["params"]) if p not in names)
            )
            for each in settings_of(optimizer, first_group)
        ]
        numbers = [
            torch.tensor(float(v), dtype=torch.float64, device="cpu")
            for each in settings
            for v in each.values.values()
        ]
    except BindError as error:
        raise trace_error(str(error), fallback) from None
    like = [torch.zeros(p.shape, dtype=p.dtype, device="cpu") for p in (*params, *params)]
    kept = kept_states(optimizer, params)
    try:
        first = _first(optimizer, members, settings, [*like, *numbers], fallback)
        begins = True
    except TraceError:
        if not kept:
            raise
        first = begun_step(optimizer, members, settings, kept, like, numbers, fallback)
        begins = False
    keys = [
        *first.module.record.keys,
        *(key for key in first.module.record.literals if key not in first.module.record.keys),
    ]
    keys.sort(key=lambda key: key[0])
    made = dict(zip(first.module.record.keys, first.results[len(params) :], strict=True))
    states = [(key, key in first.module.record.numbers) for key in keys]
    tensors = [
        torch.tensor(0.0, dtype=torch.float64, device="cpu")
        if is_number
        else torch.zeros_like(made[key].meta["val"], device="cpu")
        for key, is_number in states
    ]
    nothing = [()] * len(settings)
    later = _export(optimizer, members, settings, states, nothing, [*like, *tensors, *numbers], fallback)
    group_of = {i: place for place, inside in enumerate(members) for i in inside}
    given = [
        (index, name)
        for index, name in keys
        if (key := group_key(name)) in settings[place := group_of[index]].members
        and key not in first.module.absent[place]
    ]
    comparison = GraphComparison(
        first, later, keys, given, [float(v) for each in settings for v in each.values.values()]
    )
    beginnings = comparison.run() if begins else comparison.none()
    for (index, key), error in comparison.unknown.items():
        if not _is_there(optimizer, group_of[index], params[index], key):
            raise error

    located = dict(zip(_slots(settings), _numbers_read(later, len(keys)), strict=True))
    arguments = _arguments(params, names, states, beginnings, tensors, settings, members)
    rules = [
        (
            TracedRule.with_settings(_settings(each, located)),
            {names[params[i]]: tuple(key for index, key in keys if index == i) for i in inside},
        )
        for each, inside in zip(settings, members, strict=True)
    ]
    groups = [ParamGroup(rule(type(optimizer).__name__, function, kept), tuple(kept)) for rule, kept in rules]

    def build(graph: OptimizerGraph) -> func.FuncOp:
        return UpdateImporter(graph, arguments, function, device).run()

    types = comparison.number_types()
    COUNTED[optimizer] = {
        (group_of[index], key): types[index, name] for index, name in keys if (key := group_key(name))
    }
    NUMBERS[optimizer] = {(id(params[index]), name): kind for (index, name), kind in types.items()}
    return OptimizerTrace(
        _without_unused(with_decompositions(later, build)),
        groups,
        optimizer,
        first_group,
        params,
        {(names[params[i]], key): (initial, params) for (i, key), initial in beginnings.items()},
        {(names[params[i]], key): kind for (i, key), kind in types.items()},
        [
            *later.module.record.conditions,
            *(first.module.record.conditions if later.module.record.forked else ()),
        ],
        [{row.key: each.skeleton[row.key] for row in _settings(each, located)} for each in settings],
        _reads(later, located),
    )


def with_gradient(step: func.FuncOp, names: Mapping[torch.Tensor, str]) -> dict[torch.Tensor, str]:
    """Return the parameters in `names` to which the loss of a step gives a gradient: an optimizer passes over the others."""
    module = ModuleOp([step.clone()])
    (copy,) = steps(module)
    differentiate(copy)
    reached = {label.name for label in result_labels(copy) if label.role == "grad"}
    return {tensor: name for tensor, name in names.items() if name in reached}


def _first(
    optimizer: torch.optim.Optimizer,
    members: Sequence[Sequence[int]],
    settings: Sequence[GroupSettings],
    tensors: Sequence[torch.Tensor],
    fallback: Any,
) -> OptimizerGraph:
    """Return the step from no state. A number that the groups got after the optimizer was made may be a state, which an
    earlier step has left: it is absent, unless the step needs it.
    """
    absent = [{key for key in each.members if key not in optimizer.defaults} for each in settings]
    nothing = [set[str]() for _ in settings]
    try:
        found = _export(optimizer, members, settings, [], absent, tensors, fallback)
    except TraceError:
        if not any(absent):
            raise
        return _export(optimizer, members, settings, [], nothing, tensors, fallback)
    made = [
        {key for index, name in found.module.record.kinds if index in inside and (key := group_key(name))}
        for inside in members
    ]
    if any(
        (gone & set(missed)) - here
        for gone, missed, here in zip(absent, found.module.record.missed, made, strict=True)
    ):
        left = [gone & here for gone, here in zip(absent, made, strict=True)]
        return _export(optimizer, members, settings, [], left, tensors, fallback)
    return found


def _export(
    optimizer: torch.optim.Optimizer,
    members: Sequence[Sequence[int]],
    settings: Sequence[GroupSettings],
    states: Sequence[tuple[StateKey, bool]],
    absent: Sequence[Collection[str]],
    tensors: Sequence[torch.Tensor],
    fallback: Any,
) -> OptimizerGraph:
    return export_step(OptimizerModule(optimizer, members, settings, states, absent), tensors, fallback)


def _is_there(optimizer: torch.optim.Optimizer, group: int, parameter: torch.Tensor, name: str) -> bool:
    """Return whether the optimizer has this state."""
    if key := group_key(name):
        return key in optimizer.param_groups[group]
    return name in (optimizer.state.get(parameter) or {})


def _slots(settings: Sequence[GroupSettings]) -> list[str]:
    return [name for each in settings for name in each.slots]


def _numbers_read(graph: OptimizerGraph, states: int) -> list[bool]:
    """Return for each number True if a result depends on it."""
    live, pending = set[Node](), list(graph.results)
    while pending:
        node = pending.pop()
        if node not in live:
            live.add(node)
            pending += node.all_input_nodes
    return [node in live for node in graph.inputs[2 * graph.module.count + states :]]


def _settings(each: GroupSettings, read: Mapping[str, bool]) -> list[Setting]:
    """The entries that hold a number which the step reads."""
    rows: list[Setting] = []
    for key, members in each.members.items():
        names = [name if name and read[each.slot(name)] else "" for name in members]
        if any(names):
            rows.append(setting(key, names if isinstance(each.group[key], (tuple, list)) else names[0]))
    return rows


def _arguments(
    params: Sequence[torch.Tensor],
    names: Mapping[torch.Tensor, str],
    states: Sequence[tuple[StateKey, bool]],
    beginnings: Mapping[StateKey, Initial],
    made: Sequence[torch.Tensor],
    settings: Sequence[GroupSettings],
    members: Sequence[Sequence[int]],
) -> list[Argument]:
    group_of = {i: each.index for each, inside in zip(settings, members, strict=True) for i in inside}
    zeros = [torch.zeros(p.shape, dtype=p.dtype, device="cpu") for p in params]
    arguments = [
        Argument(Label(role, names[p]), tuple(p.shape), p.dtype)
        for role in ("param", "input")
        for p in params
    ]
    for ((index, key), _), after in zip(states, made, strict=True):
        begins = beginnings[index, key](zeros) if (index, key) in beginnings else after
        slot = OptimizerSlot(group_of[index], key, names[params[index]])
        arguments.append(Argument(Label(*slot.key), tuple(begins.shape), begins.dtype))
    return arguments + [Argument(Label("host_scalar", name), (), torch.float64) for name in _slots(settings)]


def _without_unused(function: func.FuncOp) -> func.FuncOp:
    """The function without the host scalars that it does not read."""
    labels = argument_labels(function)
    block = function.body.block
    for argument, label in reversed(list(zip(block.args, labels, strict=True))):
        if label.role == "host_scalar" and not argument.uses:
            labels.pop(argument.index)
            block.erase_arg(argument)
    function.arg_attrs = ArrayAttr([label.to_attribute() for label in labels])
    function.update_function_type()
    return function


def _reads(graph: OptimizerGraph, read: Mapping[str, bool]) -> list[Read]:
    """Return the step's reads besides live numbers: other entries of the groups, the optimizer's attributes, places its
    code reaches.
    """
    module = graph.module
    title = type(module.optimizer).__name__
    entries = [
        Read(
            f"{title}.param_groups[{each.place}][{key!r}]", "item", each.group, key, may_be_host_scalar=False
        )
        for each in module.settings
        for key in each.group
        if key != "params"
        and (each.place, key) not in COUNTED[module.optimizer]
        and not any(name and read[each.slot(name)] for name in each.members.get(key, ()))
    ]
    entries += [
        Read(
            f"{title}.param_groups[{index}][{key!r}]",
            "item",
            module.settings[index].group,
            key,
            may_be_host_scalar=False,
        )
        for index, missed in enumerate(module.record.missed)
        for key in missed
    ]
    plain = torch.optim.SGD([torch.zeros(1, device="cpu")])
    known = {*dir(torch.optim.Optimizer), *vars(plain)} - {"defaults", "step"}
    own = vars(module.optimizer)
    entries += [
        Read(f"{title}.{name}", "item", own, name) for name in module.record.attributes if name not in known
    ]
    entries += [Read(title, "type", type(module.optimizer), may_be_host_scalar=False, is_code=True)]
    return entries + collect(module.places.all, {id(module.optimizer): title})
