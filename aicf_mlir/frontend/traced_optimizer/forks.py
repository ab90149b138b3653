"""Decisions by numbers that change from step to step: both sides are traced, and the step selects between their results."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import get_ident
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import Graph, Node

from aicf_mlir.frontend import source
from aicf_mlir.frontend.source import trace_error

MOST = 4
"""The most decisions of one run: a step is traced up to 2 ** MOST times."""

_torch: Any = torch
WHERE: Any = _torch.ops.aten.where.self


@dataclass
class Forks:
    """The decisions of one run, of which the first are given."""

    title: str
    """The class of the optimizer."""
    given: Sequence[bool] = ()
    taken: list[tuple[torch.Tensor, bool]] = field(default_factory=list[tuple[torch.Tensor, bool]])
    """Each condition with the outcome of this run."""
    _seen: dict[object, tuple[bool, object]] = field(default_factory=dict[object, tuple[bool, object]])

    def decide(self, key: object, kept: object, condition: Callable[[], torch.Tensor]) -> bool:
        """Return the outcome of a condition; a comparison of the same objects, which are `kept`, is the same decision."""
        if key not in self._seen:
            if len(self.taken) == MOST:
                where = source.here()
                raise trace_error(
                    f"{self.title}.step looks at a number that changes from step to step{source.quoted(where)}, after {MOST}"
                    " other such decisions, and no more are traced; count once for a group, or write it as arithmetic on tensors"
                    " (torch.where, max, min)",
                    where,
                )
            outcome = self.given[len(self.taken)] if len(self.taken) < len(self.given) else True
            self.taken.append((condition(), outcome))
            self._seen[key] = outcome, kept
        return self._seen[key][0]


class Undecided:
    """The result of a comparison with a number that is on the device only."""

    def __init__(self, forks: Forks, name: str, a: Any, b: Any):
        self._forks, self._name, self._parts = forks, name, (a, b)

    def __bool__(self) -> bool:
        key = (
            self._name,
            *(id(part) if isinstance(part, torch.SymFloat) else part for part in self._parts),
        )
        return self._forks.decide(key, self._parts, self._condition)

    def _condition(self) -> torch.Tensor:
        numbers = [_torch.scalar_tensor(part, dtype=torch.float64, device="cpu") for part in self._parts]
        return getattr(_torch, self._name)(*numbers)


@contextmanager
def forking(forks: Forks) -> Generator[None]:
    """Let comparisons of numbers of the device, by other code than torch's, be decided by `forks`, in this thread."""
    names = ("lt", "le", "gt", "ge", "eq", "ne")
    thread = get_ident()
    before = {name: getattr(torch.SymFloat, f"__{name}__") for name in names}

    def compared(name: str) -> Callable[[Any, Any], Any]:
        def comparison(self: Any, other: Any) -> Any:
            caller: str = sys._getframe(1).f_globals.get("__name__", "")  # pyright: ignore[reportPrivateUsage]
            if (
                get_ident() != thread
                or caller.split(".")[0] == "torch"
                or not isinstance(other, (int, float, torch.SymFloat))
            ):
                return before[name](self, other)
            return Undecided(forks, name, self, other)

        return comparison

    try:
        for name in names:
            setattr(torch.SymFloat, f"__{name}__", compared(name))
        yield
    finally:
        for name, function in before.items():
            setattr(torch.SymFloat, f"__{name}__", function)


def join_equal(graph: Graph) -> None:
    """Leave one of equal nodes in a functional graph, and none of a selection between a value and itself."""
    first: dict[object, Node] = {}
    for node in list(graph.nodes):
        if node.op != "call_function" or _draws(node.target):
            continue
        same = first.setdefault((node.target, repr(node.args), repr(node.kwargs)), node)
        if node.target is WHERE and node.args[1] is node.args[2]:
            same = node.args[1]
        if same is not node:
            node.replace_all_uses_with(same)
            graph.erase_node(node)


def _draws(target: object) -> bool:
    return isinstance(target, OpOverload) and torch.Tag.nondeterministic_seeded in target.tags
