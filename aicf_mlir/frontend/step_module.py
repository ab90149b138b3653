"""The step as a module that torch.export can trace, and what one call of it has changed of Python."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable

import torch
from torch.autograd.function import BackwardCFunction

from aicf_mlir.frontend import drawn, kept, source
from aicf_mlir.frontend.autograd_graph import nodes_behind
from aicf_mlir.frontend.buffers import Buffers
from aicf_mlir.frontend.counted import Counters, Left
from aicf_mlir.frontend.outcome import outcome
from aicf_mlir.frontend.precision import Precision
from aicf_mlir.frontend.reads import ModuleReads
from aicf_mlir.frontend.recorder import Recorder
from aicf_mlir.frontend.source import trace_error
from aicf_mlir.frontend.structure import Structure


@runtime_checkable
class Repeatable(Protocol):
    """A function of (model, batch) that serves one trace, and the recorder that it works with."""

    recorder: Recorder

    def anew(self) -> Repeatable:
        """The same for another trace."""
        ...

    def __call__(self, model: torch.nn.Module, batch: Any) -> Any:
        """What a step returns."""
        ...


class StepModule(torch.nn.Module):
    """`function(model, batch)` as a module of the batch's tensors, in the order of `names`."""

    def __init__(
        self,
        model: torch.nn.Module,
        function: Callable[..., Any],
        names: Sequence[str],
        structure: Structure | None = None,
        recorder: Recorder | None = None,
        *,
        updates_parameters: bool = False,
        precision: Precision | None = None,
    ):
        super().__init__()
        self.model = model
        self.function = function
        self.names = names
        self.structure = structure or Structure.plain(names)
        self.recorder = recorder or Recorder()
        self.reads = ModuleReads()
        self.precision = precision or Precision()
        self.updates_parameters = updates_parameters
        self.held = Buffers(self, with_parameters=updates_parameters)
        self.counters: Counters | None = None
        self.caches: Sequence[Any] = ()
        """The user's functions that keep what they gave."""
        self.moved = set[Hashable]()
        """Where Python numbers are that the function has changed."""
        self.flags: dict[Hashable, Any] = {}
        """What else it has changed, as it was then."""
        self.left: dict[kept.Attribute, Any] = {}
        """The tensors that it has left in attributes of modules."""
        self.found: list[Left] = []
        """The containers and records in which it has left something else than tensors."""
        self.outputs: list[str] = []
        """The names of what the function returned beside the loss."""

    def anew(self) -> StepModule:
        """The same step for another trace."""
        function = self.function
        recorder = None
        if isinstance(function, Repeatable):
            function = function.anew()
            recorder = function.recorder
        step = StepModule(
            self.model,
            function,
            self.names,
            self.structure,
            recorder,
            updates_parameters=self.updates_parameters,
            precision=self.precision,
        )
        step.caches = self.caches
        return step

    def watch(self, counters: Counters) -> None:
        """Find what a call changes of what `counters` knows, and have functions forget what they keep of a call."""
        self.counters, self.caches = counters, counters.caches

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The loss and the outputs; refused if they are no tensors, or if the gradient of the loss would be lost."""
        function, model, names, reads = self.function, self.model, self.names, self.reads
        structure, precision = self.structure, self.precision  # what is read while reads are recorded is kept
        counters, moved, flags, left = self.counters, self.moved, self.flags, self.left
        found = self.found
        held = kept.attributes(model)
        forward = source.of_function(type(model).forward)
        with (
            self.held.traced(reads, forward),
            self.recorder,
            forgetting(self.caches),
            reads.recording(),
            precision.autocast(),
            drawn.refused(source.of_function(function) or forward),
        ):
            result = function(model, structure.rebuilt(dict(zip(names, tensors, strict=True))))
        # here, since torch.export puts attributes of modules back
        if counters is not None:
            moved.update(counters.moved())
            flags.update(counters.flags())
            left.update(kept.replaced(held, kept.attributes(model)))
            found[:] = [each for each in counters.left() if not each.is_traced]  # as parameters are, here
        loss, outputs = outcome(result, source.of_function(function))
        refuse_custom_backward(loss)
        self.outputs[:] = outputs
        return loss, *outputs.values()


@contextmanager
def forgetting(caches: Sequence[Any]) -> Generator[None]:
    """Empty those that compute something meanwhile: tensors of a trace would be found there later, which have no values."""
    misses = [cache.cache_info().misses for cache in caches]
    try:
        yield
    finally:
        for cache, before in zip(caches, misses, strict=True):
            if cache.cache_info().misses != before:
                cache.cache_clear()


def refuse_custom_backward(result: torch.Tensor) -> None:
    """Raise TraceError if an autograd.Function leads to `result`: the graph has its forward only."""
    for node in nodes_behind(result):
        if isinstance(node, BackwardCFunction):
            function: Any = vars(type(node))["_forward_cls"]
            raise trace_error(
                f"the autograd function {function.__name__!r} has its own backward, which is not supported",
                source.of_function(function.forward),
            )
