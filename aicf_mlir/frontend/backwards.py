"""Checks of the memory that the backward of an autograd function uses, while a graph runs.

The graph has the backward at the place where the function is applied, but torch runs it after the whole forward. So it
may change only tensors that it has made, and the tensors it reads must not be written to before the gradient is taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Node

from aicf_mlir.frontend.autograd_graph import edges_behind
from aicf_mlir.frontend.custom_gradients import ARRIVING
from aicf_mlir.frontend.recorder import tensors
from aicf_mlir.frontend.replaced_data import memory_of
from aicf_mlir.frontend.source import trace_error
from aicf_mlir.ir.locations import SourceLocation


@dataclass
class Open:
    """A backward that has begun: the one of the function with this number."""

    number: int
    before: set[object]
    """The memory that existed before it, and the memory of its arriving gradients."""
    reads: dict[object, int] = field(default_factory=dict[object, int])
    """The tensors that it has read, each with its number of writes at that time."""


@dataclass
class Backwards:
    """The backwards that one run of a graph has met, each between its first gradient and its results."""

    open: list[Open] = field(default_factory=list[Open])
    """A backward may apply a function, whose backward is inside of it then."""
    ended: dict[Any, tuple[Mapping[object, int], SourceLocation | None]] = field(
        default_factory=dict[Any, tuple[Mapping[object, int], SourceLocation | None]]
    )
    """The reads of each backward, and the line where the function was applied, by node of autograd."""

    def ours(
        self, number: int, op: Any, made: Any, known: Iterable[Any], location: SourceLocation | None
    ) -> None:
        """Note that one of the two ops of a function has run; `known` holds the values computed by the graph up to here."""
        if op is ARRIVING:
            if all(each.number != number for each in self.open):
                self.open.append(Open(number, {memory_of(tensor) for tensor in tensors([*known])}))
            self.open[-1].before.add(memory_of(made))
            return
        ended = self.open.pop()
        self.ended[made[0].grad_fn] = ended.reads, location
        if self.open:
            outer = self.open[-1]
            outer.reads |= {m: count for m, count in ended.reads.items() if m in outer.before}

    def saw(
        self,
        node: Node,
        operands: Iterable[torch.Tensor],
        written: set[object],
        location: SourceLocation | None,
        writes: Mapping[object, int],
    ) -> None:
        """Note that a plain op has run. Raises TraceError if it belongs to a backward and writes to an older tensor."""
        if not self.open:
            return
        if any(each.before & written for each in self.open):
            raise trace_error(
                f"the backward of an autograd function changes a tensor in place that it has not made ({node.target}); torch"
                " asks it not to: compute with a copy, x.clone()",
                location,
            )
        for memory in map(memory_of, operands):
            if memory in self.open[-1].before:
                self.open[-1].reads.setdefault(memory, writes.get(memory, 0))

    def expect_same(self, loss: Any, writes: Mapping[object, int]) -> None:
        """Raise TraceError if the gradient of `loss` reads a tensor that has changed since its function was applied."""
        if not self.ended or not isinstance(loss, torch.Tensor):
            return
        for node, _ in edges_behind(loss):
            reads, location = self.ended.get(node, ({}, None))
            if any(writes.get(memory, 0) != count for memory, count in reads.items()):
                raise trace_error(
                    "the backward of an autograd function reads a tensor that the step changes in place behind it, and before the"
                    " gradient is taken; let forward save a copy of it",
                    location,
                )
