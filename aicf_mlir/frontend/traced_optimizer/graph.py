"""The graph of one step of an optimizer: a function of parameters, gradients, states and numbers, as torch.export sees it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self, cast

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from aicf_mlir.errors import AicfError
from aicf_mlir.frontend import source
from aicf_mlir.frontend.caught import none_caught
from aicf_mlir.frontend.effects import WritesUndone
from aicf_mlir.frontend.places import TracedPlaces
from aicf_mlir.frontend.quiet import quiet
from aicf_mlir.frontend.source import trace_error
from aicf_mlir.frontend.torch_errors import explained
from aicf_mlir.frontend.traced_optimizer.forks import Forks, forking, join_equal
from aicf_mlir.frontend.traced_optimizer.functional import without_writes
from aicf_mlir.frontend.traced_optimizer.numbers import Condition, LiveNumber, python_functions
from aicf_mlir.frontend.traced_optimizer.settings import GroupSettings
from aicf_mlir.frontend.traced_optimizer.shadow import ShadowRun, run_double, step_line
from aicf_mlir.frontend.traced_optimizer.traced_calls import TracedCalls
from aicf_mlir.frontend.type_tests import refuse_type_tests
from aicf_mlir.frontend.types import ELEMENT_TYPES
from aicf_mlir.ir.locations import SourceLocation
from aicf_mlir.optimizers.slots import group_key, group_state

aten: Any = torch.ops.aten

FRESH = (aten.lift_fresh.default, aten.lift_fresh_copy.default)
"""The ops that take a tensor made of numbers into the graph."""
StateKey = tuple[int, str]
"""The number of the parameter, and torch's key."""
Number = int | float | bool


@dataclass
class Record:
    """The data that a run of the module leaves besides its results; torch.export restores the lists of the module itself."""

    conditions: list[Condition] = field(default_factory=list[Condition])
    literals: dict[StateKey, Number] = field(default_factory=dict[StateKey, Number])
    """States that are plain numbers after the step."""
    numbers: set[StateKey] = field(default_factory=set[StateKey])
    """States that are Python numbers after the step."""
    keys: list[StateKey] = field(default_factory=list[StateKey])
    """The keys of the results that follow the parameters."""
    attributes: dict[str, None] = field(default_factory=dict[str, None])
    """The attributes of the optimizer that were read."""
    missed: list[dict[str, None]] = field(default_factory=list[dict[str, None]])
    """The keys of each param group that were looked up but not found."""
    kinds: dict[StateKey, type[Number]] = field(default_factory=dict[StateKey, "type[Number]"])
    """The Python types of numbers that the step changes in the groups, and of those that it has kept before."""

    forked: bool = False
    """True if the step selects between runs."""

    def join(self, other: Record) -> None:
        """Take up what another run has read and found."""
        self.conditions += other.conditions
        self.numbers |= other.numbers
        self.attributes |= other.attributes
        self.missed = [{**mine, **theirs} for mine, theirs in zip(self.missed, other.missed, strict=True)]
        self.kinds = {key: kind if other.kinds[key] is kind else float for key, kind in self.kinds.items()}


class OptimizerModule(torch.nn.Module):
    """A module for `step` of `optimizer`: it maps parameters, gradients, states and the numbers of the groups to the
    changed values.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        members: Sequence[Sequence[int]],
        settings: Sequence[GroupSettings],
        states: Sequence[tuple[StateKey, bool]],
        absent: Sequence[Collection[str]],
    ):
        """Take `members`, the positions of each group's parameters; `states`, True for each existing state that is a
        number; `absent`, the keys that each group lacks.
        """
        super().__init__()
        self.optimizer = optimizer
        self.members = members
        self.settings = settings
        self.states = states
        self.absent = absent
        self.count = sum(map(len, members))
        """The number of parameters."""
        self.record = Record()
        self.places = TracedPlaces()
        """The places that the step has visited."""
        self._others: dict[int, tuple[torch.Tensor, str]] = {}
        """The parameters of this run without a gradient, by id, each with its place."""

    def anew(self) -> OptimizerModule:
        """Return the same module before its first run."""
        return OptimizerModule(self.optimizer, self.members, self.settings, self.states, self.absent)

    def forward(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        """Return the parameters, then the states of `keys`."""
        return self._explored(tensors, ())

    def _explored(self, tensors: Sequence[torch.Tensor], path: Sequence[bool]) -> list[torch.Tensor]:
        """Return the results of all runs that begin with these decisions, selected by the further ones."""
        forks = Forks(type(self.optimizer).__name__, path)
        results = self._run(tensors, forks)
        record = copy(self.record)
        outcomes = [outcome for _, outcome in forks.taken]
        for last in reversed(range(len(path), len(outcomes))):
            others = self._explored(tensors, [*outcomes[:last], not outcomes[last]])
            results = self._selected(forks.taken[last][0], record, results, others)
        self.record.__dict__.update(vars(record))
        return results

    def _selected(
        self,
        condition: torch.Tensor,
        record: Record,
        results: Sequence[torch.Tensor],
        others: Sequence[torch.Tensor],
    ) -> list[torch.Tensor]:
        """Return `results` if the condition holds, else `others`, of which `self.record` tells; join the records."""
        keys = [*range(self.count), *record.keys]
        found = dict(zip([*range(self.count), *self.record.keys], others, strict=True))
        same = found.keys() == {*keys} and record.literals == self.record.literals
        if not same or any(
            (found[key].shape, found[key].dtype) != (result.shape, result.dtype)
            for key, result in zip(keys, results, strict=True)
        ):
            raise trace_error(
                f"{type(self.optimizer).__name__}.step decides by a number that changes from step to step which states it keeps;"
                " keep the same ones on both sides",
                step_line(self.optimizer),
            )
        record.join(self.record)
        record.forked = True
        return [torch.where(condition, result, found[key]) for key, result in zip(keys, results, strict=True)]

    def _run(self, tensors: Sequence[torch.Tensor], forks: Forks) -> list[torch.Tensor]:
        given = list(tensors)
        params = [tensor.clone() for tensor in given[: self.count]]
        for param, gradient in zip(params, given[self.count : 2 * self.count], strict=True):
            param.grad = gradient.clone()  # another run must not see what is written
            as_parameter(param)
        rest = given[2 * self.count :]
        state: dict[torch.Tensor, dict[str, Any]] = {}
        counted: dict[StateKey, Any] = {}
        for ((index, key), is_number), tensor in zip(self.states, rest, strict=False):
            value = tensor.item() if is_number else tensor.clone()
            if group_key(key):
                counted[index, key] = value
            else:
                state.setdefault(params[index], {})[key] = value
        self.record.__init__()
        self._others.clear()
        groups = self._groups(rest[len(self.states) :], params)
        for group, inside in zip(groups, self.members, strict=True):
            group |= {group_key(key): value for (index, key), value in counted.items() if index in inside[:1]}
        with (
            python_functions(),
            forking(forks),
            TracedCalls(forks, self._others, type(self.optimizer).__name__),
            torch.no_grad(),
            self.places.recording(),
            none_caught(),
        ):
            run = run_double(self.optimizer, groups, state)
        self.record.attributes |= run.attributes
        self.record.missed = run.missed
        results = [param.requires_grad_(False) for param in params]
        for index, param in enumerate(params):
            for key, value in run.state.get(param, {}).items():
                made = self._result(index, key, value)
                if made is not None:
                    self.record.keys.append((index, key))
                    results.append(made)
        for place, group in enumerate(run.groups):
            results += self._counted(place, group, run.counted[place])
        self._refuse_foreign(run, params)
        return results

    def _counted(self, place: int, group: Mapping[str, Any], changed: Sequence[str]) -> list[torch.Tensor]:
        """Return the numbers of a group that are states: the given ones, and those that the step has changed."""
        if changed and not self.members[place]:
            raise trace_error(
                f"{type(self.optimizer).__name__}.step changes param_groups[{place}][{changed[0]!r}], and no parameter of this"
                " group has a gradient",
                step_line(self.optimizer),
            )
        owner = self.members[place][0] if self.members[place] else None
        given = [key for (index, name), _ in self.states if index == owner and (key := group_key(name))]
        made: list[torch.Tensor] = []
        for key in dict.fromkeys([*given, *changed]):
            state = (self.members[place][0], group_state(key))
            value = group[key]
            known = value.known if isinstance(value, LiveNumber) else value
            self.record.kinds[state] = type(known) if isinstance(known, (int, float)) else float
            self.record.numbers.add(state)
            if isinstance(value, (int, float)) and not self.states:
                self.record.literals[state] = value
                continue
            self.record.keys.append(state)
            made.append(torch.scalar_tensor(value, dtype=torch.float64, device="cpu"))  # pyright: ignore[reportArgumentType]
        return made

    def _groups(
        self, tensors: Sequence[torch.Tensor], params: Sequence[torch.Tensor]
    ) -> list[dict[str, Any]]:
        names = [name for settings in self.settings for name in settings.slots]
        values = {name: value for settings in self.settings for name, value in settings.values.items()}
        live: dict[str, Any] = {}
        for name, tensor in zip(names, tensors, strict=True):
            node: Any = cast(Any, tensor.item()).node
            live[name] = LiveNumber(
                node, lambda given, name=name: given[name], values, self.record.conditions
            )
        return [
            {
                **{key: value for key, value in settings.entries(live).items() if key not in absent},
                "params": self._in_order(settings, [params[index] for index in members]),
            }
            for settings, members, absent in zip(self.settings, self.members, self.absent, strict=True)
        ]

    def _in_order(self, settings: GroupSettings, own: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the parameters of a group in torch's order: between its `own` ones stand those without a gradient."""
        members, found = iter(own), list[torch.Tensor]()
        for place, real in enumerate(settings.group["params"]):
            if place in settings.passed_over:
                made = torch.empty(real.shape, dtype=real.dtype, device="cpu")
                as_parameter(made, real.requires_grad)
                self._others[id(made)] = made, f"parameter {place} of param_groups[{settings.place}]"
                found.append(made)
            else:
                found.append(next(members))
        return found

    def _result(self, index: int, key: str, value: Any) -> torch.Tensor | None:
        if group_key(key):
            raise trace_error(
                f"{type(self.optimizer).__name__}.step keeps {key!r} in the state of a parameter, a name that states of groups"
                " have here; give it another",
                step_line(self.optimizer),
            )
        if isinstance(value, torch.Tensor):
            if value.dtype not in ELEMENT_TYPES:
                raise trace_error(
                    f"{type(self.optimizer).__name__}.step keeps a tensor of {value.dtype} in {key!r}, a type that no compiled"
                    " step has",
                    step_line(self.optimizer),
                )
            return value
        if isinstance(value, torch.SymFloat):
            self.record.numbers.add((index, key))
            return torch.scalar_tensor(value, dtype=torch.float64, device="cpu")  # pyright: ignore[reportArgumentType]
        if isinstance(value, (int, float)):
            self.record.numbers.add((index, key))
            self.record.literals[index, key] = value
            return None
        raise trace_error(
            f"{type(self.optimizer).__name__}.step keeps {type(value).__name__} {key!r} in the state of a parameter; a compiled"
            " step keeps tensors and numbers",
            step_line(self.optimizer),
        )

    def _refuse_foreign(self, run: ShadowRun, params: Sequence[torch.Tensor]) -> None:
        known = {id(param) for param in params}
        for owner, entries in run.state.items():
            if id(owner) not in known and (entries or id(owner) not in self._others):
                raise trace_error(
                    f"{type(self.optimizer).__name__}.step keeps state of {owner!r:.40}, no parameter with a gradient;"
                    " keep it in self.state[p]",
                    step_line(self.optimizer),
                )


def as_parameter(tensor: Any, needs_gradient: bool = True) -> None:
    """Make a tensor what a step finds in a group: `p.requires_grad`, `p.is_leaf` and `isinstance(p, Parameter)` are true."""
    tensor.requires_grad_(needs_gradient)
    tensor._is_param = True  # torch's own mark for isinstance


@dataclass(frozen=True)
class OptimizerGraph:
    """A functional graph of ATen ops, and the meaning of its inputs and results."""

    program: ExportedProgram
    module: OptimizerModule
    fallback: SourceLocation | None

    def with_program(self, program: ExportedProgram) -> Self:
        """Return the same step with another graph."""
        return replace(self, program=program)

    def location(self, node: Node) -> SourceLocation | None:
        """Return the user's line of `node`."""
        return source.of_stack_trace(node.meta.get("stack_trace")) or self.fallback

    @cached_property
    def constants(self) -> dict[Node, torch.Tensor]:
        """Return the tensors that the step makes of numbers, each by its placeholder."""
        return lifted(self.program)

    @property
    def inputs(self) -> list[Node]:
        """Return the nodes of parameters, gradients, states and numbers."""
        names = list(map(str, self.program.graph_signature.user_inputs))
        by_name = {node.name: node for node in self.program.graph.find_nodes(op="placeholder")}
        return [by_name[name] for name in names]

    @property
    def results(self) -> list[Node]:
        """Return the nodes of parameters, then of the states of `module.record.keys`."""
        (given,) = self.program.graph.output_node().args
        return list(cast("Sequence[Node]", given))[-(self.module.count + len(self.module.record.keys)) :]


def lifted(program: ExportedProgram) -> dict[Node, torch.Tensor]:
    """Return the tensors that a graph has from outside, by their placeholders."""
    names = program.graph_signature.inputs_to_lifted_tensor_constants
    values = cast(Mapping[str, Any], program.constants)
    nodes: dict[str, Node] = {str(node.name): node for node in program.graph.find_nodes(op="placeholder")}
    return {nodes[str(node)]: cast(torch.Tensor, values[name]) for node, name in names.items()}


def _refuse_live(program: ExportedProgram, title: str, fallback: SourceLocation | None) -> None:
    """Raise TraceError if a step uses a tensor that it neither gets nor makes: nothing would follow its values."""
    for node in lifted(program):
        for user in node.users:
            if user.target not in FRESH:
                location = source.of_stack_trace(user.meta.get("stack_trace")) or fallback
                raise trace_error(
                    f"{title}.step uses a tensor that belongs to no parameter{source.quoted(location)}; keep it in self.state[p]"
                    " of each parameter, or as a number in the param groups",
                    location,
                )


def export_step(
    module: OptimizerModule, tensors: Sequence[torch.Tensor], fallback: SourceLocation | None
) -> OptimizerGraph:
    """Export one step for parameters, gradients, states and numbers like `tensors`. Raises TraceError if it cannot be
    traced.
    """
    title = type(module.optimizer).__name__
    try:
        with WritesUndone() as undone, undone.seen(), quiet(), torch.no_grad(), module.places.taken():
            program = torch.export.export(module, tuple(tensors), strict=False)
            ran = (place.owner for place in module.places.all if place.kind == "code")
            refuse_type_tests(ran, lambda: torch.export.export(module.anew(), tuple(tensors), strict=False))
            _refuse_live(program, title, fallback)
            if not without_writes(program.graph):
                program = program.run_decompositions({})  # pyright: ignore[reportUnknownMemberType]
            if module.record.forked:
                join_equal(program.graph)
    except AicfError:
        raise
    except Exception as error:
        location = source.of_traceback(error.__traceback__) or fallback
        if "DataDependent" in type(error).__name__:
            raise trace_error(
                f"{title}.step looks at a number that changes from step to step{source.quoted(location)}, and a compiled step"
                " is the same each time; write it as arithmetic on tensors (torch.where, max, min)",
                location,
            ) from error
        raise explained(error, location) from error
    return OptimizerGraph(program, module, fallback)
