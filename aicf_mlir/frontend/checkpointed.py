"""`torch.utils.checkpoint` while a step is traced: its function is called once for its value, and again for what it writes.

Torch calls the function again where a gradient needs what it has not kept. A step has its values, so a second call is needed only
if the first one writes to a buffer: running statistics of a norm follow the batch twice. What torch does otherwise in the second
call than in the first is refused.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from threading import get_ident
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode

from aicf_mlir.frontend import source
from aicf_mlir.frontend.autograd_graph import edges_behind
from aicf_mlir.frontend.source import quoted, trace_error
from aicf_mlir.ir.locations import SourceLocation

CHECKPOINT: Any = import_module("torch.utils.checkpoint")
AUTOGRAD: Any = torch.autograd
AROUND = "_checkpoint_without_reentrant_generator"
"""What a checkpoint does around its function, to compute it again in a gradient."""
BETWEEN = 5
"""Its arguments after the function and before those of the function."""


@dataclass(frozen=True)
class Written:
    """A call of a checkpointed function that has written to a buffer."""

    call: Callable[[], object]
    nodes: range
    """The numbers of the nodes of autograd that it has made."""
    keeping: frozenset[int]
    """Those of them that have kept a value: torch calls the function again where a gradient asks for one."""
    location: SourceLocation | None


class Draws(TorchDispatchMode):
    """Notes whether an op that draws random numbers runs."""

    def __init__(self) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType]
        self.found = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.found |= torch.Tag.nondeterministic_seeded in func.tags
        return func(*args, **(kwargs or {}))


class Checkpoints:
    """The checkpoints that one call of a step meets."""

    def __init__(self) -> None:
        self._buffers: Sequence[torch.Tensor] = ()
        self._written: list[Written] = []
        self._kept: list[torch.Tensor] = []
        """The values that nodes of autograd have kept: nodes refer to them weakly, or a value would keep itself."""

    @contextmanager
    def traced(self, buffers: Sequence[torch.Tensor]) -> Generator[None]:
        """Trace a step inside, in this thread."""
        thread, theirs, self._buffers = get_ident(), getattr(CHECKPOINT, AROUND), buffers

        def around(*args: Any, **kwargs: Any) -> Any:
            if get_ident() != thread:
                return theirs(*args, **kwargs)
            return self._around(lambda: args[0](*args[1 + BETWEEN :], **kwargs), early=True)

        try:
            setattr(CHECKPOINT, AROUND, around)
            yield
        finally:
            setattr(CHECKPOINT, AROUND, theirs)
            self._kept.clear()

    def call(self, function: Callable[..., Any], args: Sequence[Any]) -> Any:
        """Return the value of a function that torch computes again as a whole."""
        around = self._around(lambda: function(*args), early=False)
        next(around)
        result = function(*args)
        next(around, None)
        return result

    def call_again(self, loss: torch.Tensor) -> None:
        """Make the calls again that torch makes where the gradient of `loss` is taken, the last one first."""
        reached = self._reached([loss])
        with torch.no_grad():
            for each in reversed(reached):
                each.call()

    def expect_none(self, outputs: Sequence[torch.Tensor], why: str) -> None:
        """Raise TraceError, with the reason, if a gradient of `outputs` would call a function again."""
        for each in self._reached(outputs):
            self._refuse("writes to a buffer", why, each.location)

    def _reached(self, outputs: Sequence[torch.Tensor]) -> list[Written]:
        """Return the calls that a gradient of `outputs` goes through."""
        if not self._written:
            return []
        with torch._C.DisableTorchFunction():  # pyright: ignore[reportPrivateUsage]
            nodes: list[Any] = [node for output in outputs for node, _ in edges_behind(output)]
            numbers = {node._sequence_nr() for node in nodes}
            # a function of the user's is a node before its forward, which may make others
            users = {node._sequence_nr() for node in nodes if getattr(node, "_raw_saved_tensors", ())}
        return [
            each
            for each in self._written
            if numbers & each.keeping or any(number in each.nodes for number in users)
        ]

    def _around(self, call: Callable[[], object], early: bool) -> Generator[None]:
        """Surround the first call; with `early` the second one ends at the last value that a gradient needs."""
        before = kept = self._versions()
        first, draws, keeping = AUTOGRAD._get_sequence_nr(), Draws(), set[int]()

        def keep(tensor: torch.Tensor) -> Any:
            nonlocal kept
            kept = self._versions()
            keeping.add(AUTOGRAD._get_sequence_nr() - 1)  # a node keeps values when it has been made
            self._kept.append(tensor)
            return weakref.ref(tensor)

        with saved_tensors_hooks(keep, lambda held: held()), draws:
            yield
        after, location = self._versions(), source.here()
        if not torch.is_grad_enabled() or before == after:
            return
        if draws.found:
            self._refuse(
                "draws random numbers and writes to a buffer",
                "torch calls it again with the same draw",
                location,
            )
        if early and kept != after:
            self._refuse(
                "writes to a buffer",
                "torch's second call stops before, at the last value that it needs",
                location,
            )
        nodes = range(first, AUTOGRAD._get_sequence_nr())
        self._written.append(Written(call, nodes, frozenset(keeping if early else nodes), location))

    def _refuse(self, what: str, why: str, location: SourceLocation | None) -> None:
        raise trace_error(
            f"a function under torch.utils.checkpoint {what}{quoted(location)}, and {why}; write outside of the checkpoint",
            location,
        )

    def _versions(self) -> list[int]:
        return [buffer._version for buffer in self._buffers]
