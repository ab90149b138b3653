"""A loop body, and one run of it while torch.export traces it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any

import torch

from aicf_mlir.errors import TraceError
from aicf_mlir.frontend.carried import Key
from aicf_mlir.frontend.loop_body.after import Call
from aicf_mlir.frontend.loop_body.drivers import Drivers
from aicf_mlir.frontend.loop_body.found import found_by
from aicf_mlir.frontend.loop_body.gradients import GradientRecorder
from aicf_mlir.frontend.loop_body.python_state import PythonState, Request
from aicf_mlir.frontend.loop_body.returned import Outputs, Returned
from aicf_mlir.frontend.loop_body.shown import has_number
from aicf_mlir.frontend.places import PlaceNames, VisitedPlace
from aicf_mlir.frontend.recorder import tensors
from aicf_mlir.frontend.source import of_function, trace_error


class LoopBody:
    """A function of a batch that calls `opt.zero_grad()`, `loss.backward()`, `opt.step()` and `scheduler.step()` in any
    order.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        states: Sequence[torch.Tensor] = (),
        takes_several: bool | None = None,
    ):
        """Take `states`: the tensors outside of modules that it writes to; `takes_several`: True if the members of a batch
        are arguments of their own, None if its signature decides.
        """
        if not callable(function) or isinstance(function, torch.nn.Module):
            raise trace_error(f"a loop body is a function of a batch, got {type(function).__name__}")
        self.function = function
        self.states = tuple(states)
        found = found_by(function, states)
        self.model = found.model
        self.optimizers = found.optimizers
        self.schedulers = found.schedulers
        self.scalers = found.scalers
        self.wrappers = found.wrappers
        self.left: dict[torch.Tensor, bool] = dict.fromkeys(self.model.parameters(), True)
        """True for each parameter if a call may find a gradient that another has left."""
        self.state = PythonState()
        """The Python places around it."""
        self.is_traced = False
        """True once a trace has succeeded."""
        self.constants: list[list[tuple[str, str]]] = []
        """The values of each run's result that are the same after each step."""
        required = [
            p
            for p in inspect.signature(function).parameters.values()
            if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty
        ]
        self.takes_several = len(required) > 1 if takes_several is None else takes_several

    def call(self, batch: Any) -> Any:
        """Call the function on a batch: with its members one by one, if it takes several arguments."""
        is_one = not self.takes_several or isinstance(batch, torch.Tensor)
        return self.function(batch) if is_one else self.function(*batch)

    def run(self) -> LoopRun:
        """Return one more run, for one trace."""
        return LoopRun(self)


class LoopRun:
    """A body as a function of (model, batch) that returns its last loss and its outputs."""

    def __init__(self, body: LoopBody):
        self._body = body
        self.recorder = GradientRecorder(body.left, body.state.book)
        self._drivers = Drivers(body.optimizers, body.schedulers, body.scalers, self.recorder, body.wrappers)
        self._own = dict(body.model.named_parameters())
        states = {id(state) for state in body.states}
        scaled = [vars(scaler) for scaler in body.scalers.values()]
        states |= {id(own[key]) for own in scaled for key in ("_scale", "_growth_tracker")}
        self._states = {name: own for name, own in body.model.named_buffers() if id(own) in states}
        self.returned = Returned()
        self.calls: list[Call] = []
        """What Python does after each step."""
        self.opening: list[Call] = []
        """What Python does before each step."""
        self.unreturned: Exception | None = None
        """The error for a number that the body has read, and does nothing with that is known."""
        self.taken: dict[str, list[int]] = {}
        """The outputs that are true if steps of optimizers are taken, and the ids of the parameters."""
        self.never_left: set[torch.Tensor] = set()
        """The parameters whose gradient no call leaves, though the body reads it as if one did."""

    def anew(self) -> LoopRun:
        """Return one more run, for one trace."""
        return self._body.run()

    @property
    def kept(self) -> set[Key]:
        """The keys of the places around the body that are known."""
        return self._body.state.keys

    def is_known_after(self, value: Any) -> bool:
        """True for a number that is known after each step, or a text or a list with one."""
        return has_number(value)

    def keep(
        self,
        effects: Sequence[VisitedPlace],
        names: PlaceNames,
        refusal: Callable[[VisitedPlace], TraceError],
    ) -> None:
        """Let the body leave places with other content."""
        self._body.state.keep(effects, names, refusal)

    @property
    def __code__(self) -> CodeType | None:
        """The code of the user's function: it gives the line where the body begins."""
        return getattr(self._body.function, "__code__", None)

    def __call__(self, model: torch.nn.Module, batch: Any) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        traced = dict(model.named_parameters())
        self.recorder.begin(
            [(own, traced[name]) for name, own in self._own.items()],
            [(own, model.get_buffer(name)) for name, own in self._states.items()],
            [*model.buffers(), *tensors(batch)],
        )
        self.recorder.body_code = self.__code__
        with self._drivers.traced():
            result = self._body.call(batch)
        left = self.recorder.with_shared_memory(self._body.state.requests())
        where = of_function(self._body.function)
        self.recorder.end(where)
        with torch._C.DisableTorchFunction():  # pyright: ignore[reportPrivateUsage]
            asked = [own for own in self._own.values() if id(own) in self.recorder.asked_left]
            self.never_left = {own for own in asked if self.recorder.never_left(own)}
        if (loss := self.recorder.loss) is None:
            raise trace_error("the loop body calls no loss.backward(), so it trains nothing", where)
        return loss, self._outputs(result, loss, where, left)

    def _outputs(
        self, result: Any, loss: torch.Tensor, where: Any, left: Sequence[Request]
    ) -> dict[str, torch.Tensor]:
        """Return the tensors that the step gives with the loss, by name; `left`: what Python does to the places around it."""
        texts, recorder = self.recorder.book.texts, self.recorder
        found = Outputs(loss, recorder.read, where, texts, recorder.converted, recorder.twin)
        self.returned = found.of(result)

        def calls(requests: Sequence[Request], verb: str) -> list[Call]:
            found.verb = verb
            return [
                Call(
                    owner,
                    method,
                    found.of((args, named), getattr(owner, "name", f"{method}_of_{type(owner).__name__}")),
                )
                for owner, method, args, named in requests
            ]

        self.opening = calls(self._drivers.opening, "sets")
        self.calls = [*calls(self._drivers.calls, "uses"), *calls(left, "keeps")]
        self.taken = {
            found.of(tensor, "taken").template.name: [id(param) for param in params]
            for tensor, params in self.recorder.taken
        }
        self.unreturned = self.recorder.unreturned(found.numbers)
        if texts.has_unused and self.unreturned is None:
            self.unreturned = trace_error(
                "the loop body writes a number into a text that it neither prints, returns nor keeps; write it outside",
                where,
            )
        self._body.constants.append(found.constants)
        return found.tensors
