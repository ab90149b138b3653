"""An operand that the forward of an autograd function changes in place, without `mark_dirty`.

In torch the operand has a new value then, and the gradient of the value before. So the forward works on a copy from the first
write on. Nothing else may read the operand after that.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import torch

from aicf_mlir.frontend import source
from aicf_mlir.frontend.batched import is_batched
from aicf_mlir.frontend.source import quoted, trace_error
from aicf_mlir.ir.locations import SourceLocation

Tensor = torch.Tensor

OPERATORS = frozenset(
    (
        *("__iadd__", "__isub__", "__imul__", "__itruediv__", "__ifloordiv__", "__imod__", "__ipow__"),
        "__setitem__",
    )
)
"""Operators, by name, that write to their first operand."""

OTHERWISE = frozenset(("requires_grad_", "detach_", "set_", "resize_", "resize_as_", "rename_"))
"""Functions with a name as if they wrote, which change something else of a tensor."""


class Traced(Protocol):
    """What replaces tensors in the calls of the user's code."""

    twins: dict[int, Tensor]
    """The tensors that stand for others, by the id of those."""


class OperandsWritten:
    """The operands of the forwards that run, and those that have been written to."""

    def __init__(self) -> None:
        self._running: list[tuple[str, list[Tensor], list[tuple[Tensor, Tensor]]]] = []
        """By forward that runs: the function's name, its operands with a gradient, and those written to, with their copies."""
        self._stale: list[tuple[Tensor, str]] = []
        """Operands that have another value in torch, each with the function's name."""
        self._twins: dict[int, Tensor] | None = None

    @contextmanager
    def forward(self, name: str, args: Sequence[Any]) -> Generator[list[tuple[Tensor, Tensor]]]:
        """Run the forward of a function inside; gives the operands that it writes to, each with its copy."""
        with torch._C.DisableTorchFunction():  # pyright: ignore[reportPrivateUsage]
            own = [each for each in args if isinstance(each, Tensor) and is_computed(each)]
        written: list[tuple[Tensor, Tensor]] = []
        self._running.append((name, own, written))
        try:
            yield written
        finally:
            self._running.pop()
            for operand, _ in written:
                if self._twins is not None:
                    self._twins.pop(id(operand), None)

    def before(self, traced: Traced, name: str, args: Sequence[Any]) -> None:
        """Let a copy stand for an operand of the running forward that a function is about to write to."""
        writes = name in OPERATORS or (
            name.endswith("_") and not name.endswith("__") and name not in OTHERWISE
        )
        if not self._running or not writes or not args or torch.is_grad_enabled():
            return
        function, own, written = self._running[-1]
        operand = args[0]
        if id(operand) in traced.twins or not any(operand is each for each in own):
            return
        copy = source.call_at(source.here(), torch.clone, operand)
        self._twins = traced.twins
        traced.twins[id(operand)] = copy
        written.append((operand, copy))
        self._stale.append((operand, function))

    def expect_unread(self, operands: Sequence[Tensor], location: SourceLocation | None) -> None:
        """Raise TraceError if one of these shares memory with an operand that has another value in torch."""
        for stale, name in self._stale:
            memory = stale.untyped_storage()._cdata  # pyright: ignore[reportPrivateUsage]
            for each in operands:
                if each.layout is torch.strided and each.untyped_storage()._cdata == memory:  # pyright: ignore[reportPrivateUsage]
                    raise trace_error(
                        f"the step reads or returns a tensor{quoted(location)} that the forward of the autograd function"
                        f" {name!r} has changed in place; let it compute with a new tensor, as x = x - y in place of x -= y",
                        location,
                    )


def is_computed(operand: Tensor) -> bool:
    """True for a tensor with a gradient whose memory the step has made: a part of a parameter would change the parameter."""
    if is_batched(operand) or operand.grad_fn is None:
        return False
    base = operand._base  # pyright: ignore[reportPrivateUsage]
    return base is None or base.grad_fn is not None
