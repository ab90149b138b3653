"""Binding of plans and the user's tensors to the parts of a running step: memory, executors, host scalars, optimizer state."""

from __future__ import annotations

import weakref
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from xdsl.dialects.builtin import ModuleOp

from aicf_mlir.dialects.optimizer_groups import ParamGroup
from aicf_mlir.errors import BindError
from aicf_mlir.frontend import Traced
from aicf_mlir.frontend.traced_optimizer import OptimizerTrace
from aicf_mlir.ir.signature import ArgumentIndex, argument_labels, literal_names, result_labels, steps
from aicf_mlir.optimizers.slots import STEP
from aicf_mlir.runtime.bound_plan import BoundPlan
from aicf_mlir.runtime.group_numbers import GroupNumbers
from aicf_mlir.runtime.host_values import HostValue
from aicf_mlir.runtime.hyperparameters import Hyperparameters
from aicf_mlir.runtime.optimizer_state import (
    Beginning,
    BoundGroup,
    BoundParameter,
    OptimizerState,
    OptimizerStates,
    shared_views,
)
from aicf_mlir.runtime.plan_file import PlanFile
from aicf_mlir.runtime.program import Program
from aicf_mlir.runtime.step_numbers import StepNumber
from aicf_mlir.runtime.store import Store, is_on
from aicf_mlir.stages import Snapshots


@dataclass(frozen=True)
class Built:
    """A step in all its parts."""

    traces: list[Traced]
    traced_modules: list[ModuleOp]
    """Copies of the front end's modules; the pipeline has since rewritten the modules of the traces."""
    stages: list[Snapshots]
    store: Store
    plans: list[BoundPlan]
    hyperparameters: Hyperparameters
    optimizers: Sequence[torch.optim.Optimizer]
    optimizer_state: OptimizerStates | None
    host_values: Mapping[str, HostValue]
    plan_file: PlanFile | None = None
    """The source of the plan, if it is not the step's own."""


def bind_step(
    traces: list[Traced],
    traced_modules: list[ModuleOp],
    stages: list[Snapshots],
    programs: Sequence[Program],
    optimizers: Sequence[torch.optim.Optimizer],
    groups: Sequence[ParamGroup],
    device: torch.device,
    host_values: Mapping[str, HostValue],
    numbers: Mapping[str, StepNumber],
    plan_file: PlanFile | None = None,
    locked: bool = False,
) -> Built:
    """Bind one plan per shape group to the tensors of the first trace.

    A kernel may refuse a launch of a plan file or a lock, and nothing is lost: tensors move to their slots only once
    all launches are accepted. Until then both copies use memory. The compiler's own launches are always accepted, so
    tensors move first.
    """
    parameters = traces[0].parameters
    owners = [optimizer for optimizer in optimizers for _ in optimizer.param_groups]
    trained = {("param", name): parameter for name, parameter in parameters.items()}
    frozen = {("buffer", name): tensor for name, tensor in traces[0].buffers.items()}
    shared = {
        slot.key: views[slot.name]
        for k, (group, optimizer) in enumerate(zip(groups, owners, strict=True))
        for name in group.params
        if (views := shared_views(optimizer, parameters[name]))
        for slot in group.rule.state_slots(k, name)
        if slot.name in views
    }
    literals = [literals_of(*each) for each in zip(traces, traced_modules, strict=True)]
    for traced, own in zip(traces, literals, strict=True):
        expect_same_tensors(traces[0], traced, own)
    expect_here(traces[0], traced_modules[0], literals[0], device)
    store = Store(programs[0], str(device), {**trained, **frozen}, shared, literals[0])
    with store.session:
        may_be_refused = locked or plan_file is not None
        if not may_be_refused:
            store.adopt()
        plans = [
            BoundPlan(program, store, index, literals[index] if index else None)
            for index, program in enumerate(programs)
        ]
        if may_be_refused:
            store.adopt()
        written = {traced.optimizer: traced for traced in traces[0].written}

        def allowed() -> None:
            for traced in written.values():
                traced.check()

        hyperparameters = Hyperparameters(optimizers, groups, store, device, host_values, allowed, numbers)
        state = None
        if optimizers:
            bound = [
                (
                    owner,
                    _bind_group(
                        owner,
                        k,
                        k - next(i for i, each in enumerate(owners) if each is owner),
                        group,
                        parameters,
                        store,
                        written.get(owner),
                    ),
                )
                for k, (group, owner) in enumerate(zip(groups, owners, strict=True))
            ]
            follow = weakref.WeakMethod(hyperparameters.follow_steps)
            state = OptimizerStates(
                [
                    OptimizerState(o, [own for owner, own in bound if owner is o], store, on_adopt=follow)
                    for o in optimizers
                ]
            )
            hyperparameters.refresh = weakref.WeakMethod(state.refresh)
    return Built(
        traces,
        traced_modules,
        stages,
        store,
        plans,
        hyperparameters,
        optimizers,
        state,
        host_values,
        plan_file,
    )


def literals_of(traced: Traced, module: ModuleOp) -> dict[str, torch.Tensor]:
    """Return the tensors of literals of a trace, by name; `module` is the front end's."""
    return {name: traced.buffers[name] for name in literal_names(module.ops)}


def expect_here(traced: Traced, module: ModuleOp, literals: Collection[str], device: torch.device) -> None:
    """Raise BindError for a tensor on another device that the step trains or updates; one that it only reads may lie there."""
    written = {("param", name) for name in traced.parameters}
    for function in steps(module):
        labels = argument_labels(function)
        index = ArgumentIndex(labels)
        updates = [label for label in result_labels(function) if label.role == "update"]
        written |= {(labels[at].role, labels[at].name) for label in updates for at in index.updated_by(label)}
    held = {"param": traced.parameters, "buffer": traced.buffers}
    for role, name in sorted(written):
        tensor = held.get(role, {}).get(name)
        if tensor is not None and name not in literals and not is_on(tensor, str(device)):
            raise BindError(
                f"{name!r} is on {tensor.device}, and the step on {device} changes it; move it to {device}, then compile"
            )


def expect_same_tensors(first: Traced, traced: Traced, literals: Collection[str]) -> None:
    """Raise BindError if a name of the first trace is another tensor of the user's in this one; literals may differ."""
    known = {**first.parameters, **first.buffers}
    for name, tensor in {**traced.parameters, **traced.buffers}.items():
        if name in known and known[name] is not tensor and name not in literals:
            raise BindError(
                f"{name!r} is one tensor for one batch size and another for another; let the loss read both at every size"
            )


def _bind_group(
    optimizer: torch.optim.Optimizer,
    index: int,
    place: int,
    group: ParamGroup,
    parameters: Mapping[str, torch.nn.Parameter],
    store: Store,
    traced: OptimizerTrace | None,
) -> BoundGroup:
    rule = group.rule
    counters = {slot.name: slot.key for slot in rule.group_slots(index) if slot.counts}
    columns = {name: list(store.view(*key)) for name, key in counters.items() if key in store.slots}
    counts = columns.pop(STEP, [None] * len(group.params))

    def beginning(name: str) -> Beginning:
        if traced is not None:
            return partial(traced.beginning, name)
        return lambda key: float(optimizer.defaults[rule.INITIAL[key]]) if key in rule.INITIAL else 0.0

    bound = [
        BoundParameter(
            name,
            parameters[name],
            (slots := {slot.name: slot for slot in rule.state_slots(index, name)}),
            GroupNumbers(optimizer, place, slots),
            shared_views(optimizer, parameters[name]),
            count,
            {key: column[number] for key, column in columns.items()},
            beginning(name),
            frozenset(key for key in slots if traced is not None and (name, key) not in traced.beginnings),
            {}
            if traced is None
            else {key: kind for (owner, key), kind in traced.numbers.items() if owner == name},
        )
        for number, (name, count) in enumerate(zip(group.params, counts, strict=True))
    ]
    return BoundGroup(bound, counts_in_state=group.rule.COUNTS_IN_STATE)
