"""A double of the user's optimizer whose parameters, state and numbers are the trace's; the optimizer stays unchanged."""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import torch

from aicf_mlir.frontend import source
from aicf_mlir.frontend.foreach import FOREACH, one_by_one
from aicf_mlir.frontend.source import trace_error
from aicf_mlir.ir.locations import SourceLocation
from aicf_mlir.optimizers.slots import RATES

OWN = ("state", "param_groups", "defaults", "step")
"""Attributes that the trace replaces or does not need."""


class AskedGroup(dict[str, Any]):
    """A param group that notes the keys that were looked up but not found."""

    def __init__(self, entries: Mapping[str, Any], missed: dict[str, None]):
        super().__init__(entries)
        self._missed = missed

    def get(self, key: str, default: Any = None) -> Any:
        return super().get(self._noted(key), default)

    def setdefault(self, key: str, default: Any = None) -> Any:
        return super().setdefault(self._noted(key), default)

    def __contains__(self, key: object) -> bool:
        return super().__contains__(self._noted(key))

    def __missing__(self, key: str) -> Any:
        raise KeyError(self._noted(key))

    def _noted(self, key: Any) -> Any:
        if not super().__contains__(key):
            self._missed[key] = None
        return key


@dataclass
class ShadowRun:
    """The data that one run of the double has left."""

    groups: list[dict[str, Any]]
    state: dict[torch.Tensor, Any]
    attributes: dict[str, None] = field(default_factory=dict[str, None])
    """The attributes of the optimizer that were read."""
    missed: list[dict[str, None]] = field(default_factory=list[dict[str, None]])
    """The keys of each group that were looked up but not found."""
    counted: list[list[str]] = field(default_factory=list[list[str]])
    """The keys of each group whose number the step has changed."""


def run_double(
    optimizer: torch.optim.Optimizer,
    groups: Sequence[Mapping[str, Any]],
    state: Mapping[torch.Tensor, Mapping[str, Any]],
) -> ShadowRun:
    """Take a step of a double with these param groups and this state. Raises TraceError for a step that changes more."""
    entries: dict[torch.Tensor, dict[str, Any]] = defaultdict(dict)
    entries |= {owner: dict(kept) for owner, kept in state.items()}
    missed: list[dict[str, None]] = [{} for _ in groups]
    asked: list[dict[str, Any]] = [AskedGroup(*each) for each in zip(groups, missed, strict=True)]
    run = ShadowRun(asked, entries, missed=missed)
    double, own = _double(optimizer, run.attributes)
    own |= {"param_groups": run.groups, "state": run.state}
    before = [dict(group) for group in run.groups]
    values = {name: _members(value) for name, value in own.items() if name not in OWN}
    with _foreach_one_by_one():
        type(optimizer).step(double)
    title, where = type(optimizer).__name__, step_line(optimizer)
    for index, (group, given) in enumerate(zip(run.groups, before, strict=True)):
        now = dict(group)
        changed = [key for key in {**now, **given} if now.get(key) is not given.get(key)]
        for key in changed:
            if key in RATES or not _is_count(now.get(key)) or not _is_count(given.get(key, 0)):
                raise trace_error(
                    f"{title}.step changes param_groups[{index}][{key!r}], which only the host may set; keep what it counts in"
                    " a number of its own or in self.state[p]",
                    where,
                )
        run.counted.append(changed)
    for name in own:
        if name not in OWN and (name not in values or not _same(values[name], _members(own[name]))):
            raise trace_error(
                f"{title}.step changes self.{name}, which a compiled step would not; keep what it counts in self.state[p]",
                where,
            )
    return run


def step_line(optimizer: torch.optim.Optimizer) -> SourceLocation | None:
    """Return the first line of the user's step, under any wrappers around it; None for a step of torch's own."""
    return source.of_function(inspect.unwrap(type(optimizer).step))


def demanded_by_step(optimizer: torch.optim.Optimizer) -> str | None:
    """Return the name of the first argument that its step requires, mostly a closure; None if it requires none."""
    _, *parameters = inspect.signature(inspect.unwrap(type(optimizer).step)).parameters.values()
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    demanded = (p.name for p in parameters if p.default is p.empty and p.kind not in variadic)
    return next(demanded, None)


def _double(optimizer: torch.optim.Optimizer, read: dict[str, None]) -> tuple[Any, dict[str, Any]]:
    """Return an object of a class like the optimizer's that notes reads, and its attributes."""
    kind: Any = type(optimizer)
    plain: Callable[[Any, str], Any] = kind.__getattribute__

    def observed(self: Any, name: str) -> Any:
        read[name] = None
        return plain(self, name)

    double: Any = type(kind.__name__, (kind,), {"__getattribute__": observed, "__module__": kind.__module__})
    made = object.__new__(double)
    own: dict[str, Any] = object.__getattribute__(made, "__dict__")
    own.update({name: value for name, value in vars(optimizer).items() if name != "step"})
    return made, own


def _is_count(value: object) -> bool:
    return isinstance(value, (int, float, torch.SymFloat)) and not isinstance(value, bool)


def _members(value: Any) -> tuple[Any, list[Any]]:
    """Return a value and, for a container, its current content: members, or keys and values in turns."""
    if isinstance(value, (list, tuple, set)):
        return cast(Any, value), list(cast("list[Any]", value))
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value).items()
        return cast(Any, value), [each for item in items for each in item]
    return value, []


def _same(a: tuple[Any, list[Any]], b: tuple[Any, list[Any]]) -> bool:
    plain = isinstance(a[0], (int, float, str)) and a[0] == b[0]
    if not plain and a[0] is not b[0]:
        return False
    return len(a[1]) == len(b[1]) and all(x is y for x, y in zip(a[1], b[1], strict=True))


@contextmanager
def _foreach_one_by_one() -> Generator[None]:
    """Replace `torch._foreach_add_(xs, ys)` by the loop that it stands for: `x.add_(y)` for each of them."""
    of_torch: Any = torch
    before = {name: getattr(of_torch, name) for name in dir(of_torch) if name.startswith(FOREACH)}
    try:
        for name, function in before.items():
            setattr(of_torch, name, one_by_one(name, function))
        yield
    finally:
        for name, function in before.items():
            setattr(of_torch, name, function)
