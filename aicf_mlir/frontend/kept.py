"""Tensors that a step keeps in attributes of modules for its next call: hidden states, which it would begin anew."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import torch
from torch.overrides import TorchFunctionMode

from aicf_mlir.errors import TraceError
from aicf_mlir.frontend.reads import ModuleReads, named_modules
from aicf_mlir.frontend.recorder import tensors
from aicf_mlir.frontend.source import of_function, trace_error

Attribute = tuple[int, str]
"""The id of a module, and a name."""


class Followed(TorchFunctionMode):
    """Which tensors are computed from what may be another one at the next call."""

    def __init__(self, changing: Iterable[torch.Tensor], buffers: Iterable[torch.Tensor]):
        """`changing`: the batch and parameters; of `buffers` those count that are written to meanwhile."""
        super().__init__()
        self._sources = [*((each, -1) for each in changing), *((each, each._version) for each in buffers)]
        self._found: dict[int, tuple[torch.Tensor, frozenset[int]]] = {
            id(source): (source, frozenset([number])) for number, (source, _) in enumerate(self._sources)
        }
        """Tensors by their id, each with the numbers of the sources that it is computed from."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if origins := self._origins((args, kwargs or {})):
            self._found.update({id(tensor): (tensor, origins) for tensor in tensors(result)})
        return result

    def varies(self, value: object) -> bool:
        """Whether one of the tensors in `value` may: a table that is made of a buffer is the same at each call."""
        return any(
            self._sources[number][0]._version != self._sources[number][1] for number in self._origins(value)
        )

    def _origins(self, value: object) -> frozenset[int]:
        found = (self._found.get(id(tensor)) for tensor in tensors(value))
        return frozenset[int]().union(*(origins for _, origins in filter(None, found)))


class Kept(ModuleReads):
    """The reads of a call, and which of them find a tensor that the call before has left there."""

    def __init__(self, left: Mapping[Attribute, Any]):
        super().__init__()
        self._left = left
        self.found: dict[Attribute, None] = {}

    def note(self, module: torch.nn.Module, name: str) -> None:
        """Record a read, and what it finds."""
        super().note(module, name)
        place = (id(module), name)
        if place in self._left and vars(module).get(name) is self._left[place]:
            self.found[place] = None


def attributes(model: torch.nn.Module) -> dict[Attribute, Any]:
    """The tensors, and the tuples with tensors, in plain attributes of modules: what a list holds is no attribute."""
    return {
        (id(module), name): value
        for _, module in named_modules(model)
        for name, value in vars(module).items()
        if isinstance(value, (torch.Tensor, tuple)) and next(tensors(cast(object, value)), None) is not None
    }


def replaced(before: Mapping[Attribute, Any], now: Mapping[Attribute, Any]) -> dict[Attribute, Any]:
    """What is in `now` and was not there before."""
    return {place: value for place, value in now.items() if before.get(place) is not value}


def error(model: torch.nn.Module, found: Iterable[Attribute]) -> TraceError:
    """The error for what a call finds in attributes."""
    places = set(found)
    path, module, name = next(
        (path, module, name)
        for path, module in named_modules(model)
        for name in vars(module)
        if (id(module), name) in places
    )
    return trace_error(
        f"the step keeps {'.'.join(filter(None, ('model', path, name)))} for its next call, which a compiled step would begin"
        " anew each time; make it a buffer of the model (register_buffer), or pass it in the batch and return it as an output",
        of_function(type(module).forward),
    )
