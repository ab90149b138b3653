"""The step as a module that torch.export can trace, and the changes that one call of it makes in Python."""

from __future__ import annotations

from collections.abc import Callable, Container, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import CodeType
from typing import Any, Protocol, runtime_checkable

import torch

from aicf_mlir.errors import TraceError
from aicf_mlir.frontend import drawn, gradient_hooks, source, transforms
from aicf_mlir.frontend.buffers import Buffers
from aicf_mlir.frontend.carried import Carried, Followed, Key, is_passed_on, put_back
from aicf_mlir.frontend.caught import none_caught
from aicf_mlir.frontend.effects import WritesUndone
from aicf_mlir.frontend.grad_modes import without_inference
from aicf_mlir.frontend.outcome import outcome
from aicf_mlir.frontend.places import PlaceNames, TracedPlaces, VisitedPlace
from aicf_mlir.frontend.precision import Precision
from aicf_mlir.frontend.recorder import Recorder
from aicf_mlir.frontend.replaced_data import ReplacedData
from aicf_mlir.frontend.selections import counted, refuse_returned
from aicf_mlir.frontend.structure import Structure


@runtime_checkable
class Repeatable(Protocol):
    """A function of (model, batch) that serves one trace, and the recorder that it works with."""

    recorder: Recorder

    @property
    def kept(self) -> Container[Key]:
        """The keys of the places into which Python stores, after each step, what a call has left."""
        ...

    def is_known_after(self, value: Any) -> bool:
        """True for a value that is known after each step."""
        ...

    def anew(self) -> Repeatable:
        """Return the same for another trace."""
        ...

    def keep(
        self,
        effects: Sequence[VisitedPlace],
        names: PlaceNames,
        refusal: Callable[[VisitedPlace], TraceError],
    ) -> None:
        """Let these places be kept, or raise the refusal of one."""
        ...

    def __call__(self, model: torch.nn.Module, batch: Any) -> Any:
        """Return the result of a step."""
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
        trains: bool = True,
        precision: Precision | None = None,
        paths: Mapping[int, str] | None = None,
        numbers: Sequence[torch.Tensor] = (),
        hooks: frozenset[CodeType] = frozenset(),
        parts: Sequence[torch.nn.Module] = (),
    ):
        super().__init__()
        self.model = model
        self.function = function
        self.parts = torch.nn.ModuleList(parts)
        """Modules that the function finds in its closure, of which it updates buffers."""
        self.names = names
        self.structure = structure or Structure.plain(names)
        self.recorder = recorder or Recorder()
        self.places = TracedPlaces()
        """The places that the function visits."""
        self.precision = precision or Precision()
        self.updates_parameters, self.trains = updates_parameters, trains
        self.held = Buffers(self, with_parameters=updates_parameters)
        self.paths = paths or {}
        """The user's names of modules, by their ids."""
        self.numbers = numbers
        """The 0-d tensors that replace Python numbers."""
        self.hooks = hooks
        """The code of forward hooks."""
        self.written: frozenset[str] = frozenset()
        """The paths of parameters and buffers that a call is known to write to."""
        self.own = self.held_tensors()
        self.gradient_hooks = gradient_hooks.hooks_of(self) if trains and not updates_parameters else {}
        self.followed = Followed()
        self.undone = WritesUndone()
        """The writes to tensors that have values, seen in any trace of the step."""
        self.needs_dense = ""
        """The reason why each batch must be dense."""
        self.outputs: list[str] = []
        """The names of the outputs that the function returned with the loss."""

    def held_tensors(self) -> dict[str, torch.Tensor]:
        """Return parameters and buffers by path; while the tracer runs, these are its tensors."""
        named = (self.named_parameters, self.named_buffers)
        return {path: tensor for each in named for path, tensor in each(remove_duplicate=False)}

    def anew(self) -> StepModule:
        """Return the same step for another trace."""
        function = self.function
        recorder = None
        if isinstance(function, Repeatable):
            function = function.anew()
            recorder = function.recorder
        again = StepModule(
            self.model,
            function,
            self.names,
            self.structure,
            recorder,
            updates_parameters=self.updates_parameters,
            trains=self.trains,
            precision=self.precision,
            paths=self.paths,
            numbers=self.numbers,
            hooks=self.hooks,
            parts=[*self.parts],
        )
        again.written = self.written
        again.undone = self.undone
        return again

    @property
    def carried(self) -> Carried:
        """Return the values that the next call would find from the last one."""
        function = self.function
        location = source.of_function(function) or source.of_function(type(self.model).forward)
        kept = function.kept if isinstance(function, Repeatable) else ()
        return Carried(self.places.all, self.followed, location, kept)

    def expect_no_effects(self) -> None:
        """Raise TraceError for effects of a loop body or a forward hook that would happen once."""
        carried, named, function = self.carried, PlaceNames(self.places.all, self.paths), self.function
        is_body = self.updates_parameters
        refusal = partial(carried.effect, names=named, hooks=self.hooks, is_body=is_body)
        if not isinstance(function, Repeatable):
            for place in carried.effects(self.hooks, is_body=is_body):
                raise refusal(place)
            return
        effects = carried.effects(self.hooks, is_body=is_body, is_known_after=function.is_known_after)
        for place in effects:
            if place.code in self.hooks and not is_passed_on(place):
                raise refusal(place)
        function.keep(effects, named, refusal)

    @contextmanager
    def restored(self) -> Generator[None]:
        """Surround a call: afterwards its places are known, and Python's state is restored."""
        try:
            with self.places.taken():
                yield
        finally:
            self.recorder.known.end()
            put_back(self.places.all)

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the loss and the outputs; refused if they are no tensors, or if the gradient of the loss would be lost."""
        function, model, names, places = self.function, self.model, self.names, self.places
        structure, precision, recorder, functions = (
            self.structure,
            self.precision,
            self.recorder,
            self.recorder.functions,
        )  # values that are read while reads are recorded are kept
        forward = source.of_function(type(model).forward)
        self.followed.begin([*tensors, *self.parameters()], self.buffers())
        recorder.replaced = ReplacedData([*self.parameters(), *self.buffers(), *tensors])
        batch = dict(zip(names, tensors, strict=True))
        self.recorder.known.begin(self.own, self.held_tensors(), batch, self.written, self.numbers)
        with (
            self.held.traced(forward, self.followed.varies),
            self.followed,
            self.recorder,
            precision.autocast(),
            functions.traced(self.updates_parameters, [*self.buffers()]),
            transforms.traced(recorder),
            without_inference(),
            counted(),
            drawn.refused(source.of_function(function) or forward),
            recorder.selections.decided(),
            places.recording(),
            gradient_hooks.calling(self, self.gradient_hooks, functions),
            none_caught(),
        ):
            result = function(model, structure.rebuilt(batch))
            recorder.expect_apart(source.of_function(function) or forward)
            loss, outputs = outcome(result, source.of_function(function))
            if loss.numel() == 1 and not self.updates_parameters:  # as `backward` takes it
                loss = loss.reshape(())
            if not self.trains:
                functions.checkpoints.expect_none([loss], "whether a gradient follows is not known here")
            elif not self.updates_parameters:  # a loop body takes its gradients itself
                functions.checkpoints.call_again(loss)
        functions.expect_known(loss)
        refuse_returned((loss, outputs), source.of_function(function))
        functions.operands.expect_unread([loss, *outputs.values()], source.of_function(function))
        self.outputs[:] = outputs
        return loss, *outputs.values()
