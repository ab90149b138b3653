"""Buffers while a step is exported: each occurs in the graph once, and an assignment to one is an update.

An export loses `self.buf = new`, and cannot follow an update of a tensor that it meets in two places. So a module or
a buffer in several places is None in all but the first, until the user's code runs.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from aicf_mlir.frontend.reads import named_modules
from aicf_mlir.frontend.source import SourceLocation, trace_error
from aicf_mlir.frontend.types import describe
from aicf_mlir.frontend.values import is_a


@dataclass(frozen=True, eq=False)
class BufferPlace:
    """The place of a tensor on a module: an entry of its buffers, or a plain attribute."""

    module: torch.nn.Module
    entries: dict[str, Any]
    key: str
    path: str
    """The path from the model."""

    @property
    def tensor(self) -> Any:
        """Return the current tensor of the place."""
        return self.entries.get(self.key)


class Buffers:
    """The buffers of a module and of its submodules, and the plain attributes that refer to one of them."""

    def __init__(self, root: torch.nn.Module, *, with_parameters: bool = False):
        """Take `with_parameters`: parameters as well, if a step updates them itself."""
        self._modules = named_modules(root)
        self._places = [place for path, module in self._modules for place in _places(path, module)]
        first: dict[int, BufferPlace] = {}
        for place in self._places:
            if place.tensor is not None and place.entries is _buffers(place.module):
                first.setdefault(id(place.tensor), place)
        self._places = [p for p in self._places if p.entries is _buffers(p.module) or id(p.tensor) in first]
        self._parameters = [place for path, module in self._modules for place in _parameters(path, module)]
        if with_parameters:
            for place in self._parameters:
                first.setdefault(id(place.tensor), place)
            self._places += self._parameters
        self._again = [
            (place, found)
            for place in self._places
            if (found := first.get(id(place.tensor))) is not None and found is not place
        ]
        """The further places of a tensor, each with the first."""
        paths = {id(module): path for path, module in self._modules}
        self._modules_again = [
            (_children(parent), name, child)
            for path, parent in self._modules
            for name, child in _children(parent).items()
            if child is not None and paths[id(child)] != f"{path}.{name}".strip(".")
        ]
        """The further places of a module."""

    @contextmanager
    def once(self) -> Generator[None]:
        """Leave each buffer and module in its first place only; afterwards all places are restored."""
        buffers = [(_buffers(module), dict(_buffers(module))) for _, module in self._modules]
        attributes = [(place, place.tensor) for place, _ in self._again]
        self._hide()
        try:
            yield
        finally:
            for children, name, child in self._modules_again:
                children[name] = child
            for place, tensor in attributes:
                place.entries[place.key] = tensor
            for entries, saved in buffers:
                if [(k, id(t)) for k, t in entries.items()] != [(k, id(t)) for k, t in saved.items()]:
                    entries.clear()
                    entries.update(saved)

    def _hide(self) -> None:
        for place, _ in self._again:
            place.entries[place.key] = None
        for children, name, _ in self._modules_again:
            children[name] = None

    @contextmanager
    def traced(self, location: SourceLocation | None, varies: Callable[[object], bool]) -> Generator[None]:
        """Run the user's code, inside `once`, with the tracer's tensors in all places; then turn assignments into
        copies.

        `varies` tells if a tensor may differ at the next call. An empty place that gets an unvarying value stays empty,
        unless `state_dict()` would include it: each call would compute the same table.
        """
        for place, first in self._again:
            place.entries[place.key] = first.tensor
        for children, name, child in self._modules_again:
            children[name] = child
        before = [(place, place.tensor) for place in self._places]
        parameters = [(place, place.tensor) for place in self._parameters]
        yield
        self._expect_kept(parameters, location)
        known = {(id(place.entries), place.key) for place in self._places}
        for path, module in self._modules:
            for name in _buffers(module):
                if (id(_buffers(module)), name) not in known:
                    what = _path(path, name)
                    raise trace_error(f"the step registers the buffer {what!r}; do so in __init__", location)
        held = [(tensor, place.path) for place, tensor in before if is_a(tensor, torch.Tensor)]
        for place, tensor in before:
            if place.tensor is tensor:
                continue
            if not _is_table(place, tensor) or varies(place.tensor):
                _assign(place, tensor, held, location)
                held.append((place.tensor, place.path))
            place.entries[place.key] = tensor
        self._hide()

    def _expect_kept(
        self, before: Sequence[tuple[BufferPlace, Any]], location: SourceLocation | None
    ) -> None:
        """Raise TraceError if a parameter is another one than before: a step trains those that it has begun with."""
        known = {(id(place.entries), place.key) for place, _ in before}
        changed = [place.path for place, tensor in before if place.tensor is not tensor]
        changed += [
            place.path
            for path, module in self._modules
            for place in _parameters(path, module)
            if (id(place.entries), place.key) not in known
        ]
        if changed:
            raise trace_error(
                f"the step makes {changed[0]!r} another parameter, which its optimizer does not have; keep what the step computes"
                " for its next call in a buffer (register_buffer), or write to the parameter in place",
                location,
            )


def _assign(
    place: BufferPlace, tensor: Any, held: list[tuple[torch.Tensor, str]], location: SourceLocation | None
) -> None:
    """Update `tensor` instead of replacing it; refuse it if that is not the same."""
    new, what = place.tensor, f"the step assigns to the buffer {place.path!r}"
    if not is_a(tensor, torch.Tensor) or not is_a(new, torch.Tensor):
        raise trace_error(f"{what} {_kind(new)}, where there was {_kind(tensor)}", location)
    if (new.dtype, new.shape) != (tensor.dtype, tensor.shape):
        first = "" if tensor.numel() else ": call the model once before, which gives the buffer its shape"
        raise trace_error(
            f"{what} {describe(new)}, where there was {describe(tensor)}; a compiled step keeps dtype and shape{first}",
            location,
        )
    same = [path for other, path in held if path != place.path and other is tensor]
    alike = [path for other, path in held if path != place.path and _share(other, new)]
    if same or alike:
        shared = "was" if same else "would then be"
        raise trace_error(
            f"{what}, which {shared} the same memory as {(same or alike)[0]!r}; a compiled step changes none of that:"
            " update it in place with copy_()",
            location,
        )
    tensor.copy_(new)


def _is_table(place: BufferPlace, before: object) -> bool:
    """True if a tensor fills a place that had none and that is no part of the module's state."""
    has_none = before is None or (isinstance(before, torch.Tensor) and not before.numel())
    passing: set[str] = vars(place.module).get("_non_persistent_buffers_set", set())
    is_state = place.entries is _buffers(place.module) and place.key not in passing
    return has_none and not is_state and isinstance(place.tensor, torch.Tensor)


def _share(a: torch.Tensor, b: torch.Tensor) -> bool:
    """True if two tensors of the tracer are views of the same memory."""
    return a is b or torch._C._is_alias_of(a, b)  # pyright: ignore[reportPrivateUsage, reportUnknownMemberType, reportUnknownVariableType, reportAttributeAccessIssue]


def _kind(value: object) -> str:
    return f"a tensor {describe(value)}" if is_a(value, torch.Tensor) else repr(value)


def _places(path: str, module: torch.nn.Module) -> list[BufferPlace]:
    """The buffers of one module, and its plain attributes that are tensors."""
    own = vars(module)
    plain = [name for name, value in own.items() if is_a(value, torch.Tensor)]
    return [
        *(BufferPlace(module, _buffers(module), name, _path(path, name)) for name in _buffers(module)),
        *(BufferPlace(module, own, name, _path(path, name)) for name in plain),
    ]


def _parameters(path: str, module: torch.nn.Module) -> list[BufferPlace]:
    """The parameters of one module."""
    entries: dict[str, Any] = vars(module).get("_parameters", {})
    return [
        BufferPlace(module, entries, name, _path(path, name))
        for name, own in entries.items()
        if own is not None
    ]


def _path(module: str, name: str) -> str:
    return f"{module}.{name}".strip(".").removeprefix("model.")


def _children(module: torch.nn.Module) -> dict[str, torch.nn.Module | None]:
    return vars(module).get("_modules", {})


def _buffers(module: torch.nn.Module) -> dict[str, Any]:
    return vars(module).get("_buffers", {})
