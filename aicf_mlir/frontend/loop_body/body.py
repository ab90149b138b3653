"""A loop body, and one run of it while torch.export traces it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import CodeType
from typing import Any, cast

import torch
from torch.optim.lr_scheduler import LRScheduler

from aicf_mlir.frontend.loop_body.drivers import Drivers
from aicf_mlir.frontend.loop_body.found import found_by
from aicf_mlir.frontend.loop_body.gradients import GradientRecorder
from aicf_mlir.frontend.model import free_name
from aicf_mlir.frontend.outcome import LOSS
from aicf_mlir.frontend.recorder import tensors
from aicf_mlir.frontend.source import of_function, trace_error
from aicf_mlir.frontend.structure import DEEPEST, Structure, mapped, named


@dataclass(frozen=True)
class Returned:
    """What a body returns: its last loss, and outputs of the step, in containers of the user's."""

    structure: Structure | None
    """None for one tensor, or for nothing."""
    names: Mapping[str, str]
    """The output behind each tensor, by its name in the structure."""

    def rebuilt(self, tensors: Callable[[str], torch.Tensor]) -> Any:
        """The same of a step, `tensors` by the names of outputs."""
        found = {place: tensors(name) for place, name in self.names.items()}
        if self.structure is not None:
            return self.structure.rebuilt(found)
        return next(iter(found.values()), None)

    def results(self, value: Any) -> dict[str, torch.Tensor]:
        """The tensors in what the body has returned, copies by the names of outputs; the inverse of `rebuilt`."""
        found: dict[str, Any] = (
            dict.fromkeys(self.names, value) if self.structure is None else named(value)[0]
        )
        return {self.names[place]: tensor.detach().clone() for place, tensor in found.items()}


class LoopBody:
    """A function of a batch that calls `opt.zero_grad()`, `loss.backward()`, `opt.step()` and `scheduler.step()` as it likes."""

    def __init__(self, function: Callable[..., Any]):
        if not callable(function) or isinstance(function, torch.nn.Module):
            raise trace_error(f"a loop body is a function of a batch, got {type(function).__name__}")
        self.function = function
        found = found_by(function)
        self.model = found.model
        self.optimizers = found.optimizers
        self.schedulers = found.schedulers
        self.left: dict[torch.Tensor, bool] = dict.fromkeys(self.model.parameters(), True)
        """Of each parameter, whether a call may find a gradient that another has left."""
        required = [
            p
            for p in inspect.signature(function).parameters.values()
            if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty
        ]
        self._several = len(required) > 1

    def call(self, batch: Any) -> Any:
        """The function on a batch: its members one by one, where it takes several arguments."""
        return self.function(*batch) if self._several else self.function(batch)

    def run(self) -> LoopRun:
        """One more run, for one trace."""
        return LoopRun(self)


class LoopRun:
    """A body as a function of (model, batch) that returns its last loss and its outputs."""

    def __init__(self, body: LoopBody):
        self._body = body
        self.recorder = GradientRecorder(body.left)
        self._drivers = Drivers(body.optimizers, body.schedulers, self.recorder)
        self._own = dict(body.model.named_parameters())
        self.returned = Returned(None, {})
        self.never_left: set[torch.Tensor] = set()
        """The parameters of which no call leaves a gradient, though the body asks for it as if one did."""

    def anew(self) -> LoopRun:
        """One more run, for one trace."""
        return self._body.run()

    @property
    def __code__(self) -> CodeType | None:
        """Of the user's function: it says where the body begins."""
        return getattr(self._body.function, "__code__", None)

    @property
    def stepped(self) -> list[LRScheduler]:
        """The schedulers that the body steps, in their order."""
        return self._drivers.stepped

    def __call__(self, model: torch.nn.Module, batch: Any) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        traced = dict(model.named_parameters())
        self.recorder.begin(
            [(own, traced[name]) for name, own in self._own.items()], [*model.buffers(), *tensors(batch)]
        )
        with self._drivers.traced():
            result = self._body.call(batch)
        where = of_function(self._body.function)
        self.recorder.end(where)
        with torch._C.DisableTorchFunction():  # pyright: ignore[reportPrivateUsage]
            asked = [own for own in self._own.values() if id(own) in self.recorder.asked_left]
            self.never_left = {own for own in asked if self.recorder.never_left(own)}
        if (loss := self.recorder.loss) is None:
            raise trace_error("the loop body calls no loss.backward(), so it trains nothing", where)
        return loss, self._outputs(result, loss, where)

    def _outputs(self, result: Any, loss: torch.Tensor, where: Any) -> dict[str, torch.Tensor]:
        """The tensors that the body returns, but for its last loss, by name."""

        def expect_tensor(value: object) -> object:
            if not isinstance(value, torch.Tensor):
                raise trace_error(
                    f"the loop body returns {type(value).__name__}, expected nothing, or tensors in tuples, lists and"
                    " dictionaries; a number of Python would be the same after every step",
                    where,
                )
            return value

        if result is None:
            self.returned = Returned(None, {})
            return {}
        if isinstance(result, torch.Tensor):
            found, structure = {"result": result}, None
        else:
            mapped(expect_tensor, result, DEEPEST if not isinstance(result, (dict, list, tuple)) else 0)
            found, structure = named(cast(Any, result))
        is_pair = (
            structure is not None
            and structure.kind is tuple
            and "1" not in found
            and len(structure.members) == 2
        )
        outputs, names = dict[str, torch.Tensor](), dict[str, str]()
        for place, tensor in found.items():
            if tensor is loss:
                names[place] = LOSS
                continue
            plain = (
                place.removeprefix("1.") if is_pair else place
            )  # (loss, {name: tensor}), as a loss function returns it
            names[place] = name = free_name(plain, {LOSS, *outputs})
            outputs[name] = tensor
        self.returned = Returned(structure, names)
        return outputs
