"""Objects that must stay what they are between two steps, each with what to do when it does not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from aicf_mlir import _C

Handler = Callable[[], None]
"""Follows a change, or raises; called once a check, however many of its entries have changed."""

_handle: Callable[[torch.Tensor], Any] = vars(torch._C)["_aoti"].unsafe_alloc_void_ptr_from_tensor  # pyright: ignore[reportPrivateUsage]
"""Torch's handle of a tensor for its stable C interface, in a capsule."""


class Watched:
    """A list of entries, compared by identity in C++; see csrc/bindings_watch.cpp."""

    def __init__(self) -> None:
        self._watch = _C.Watch()
        self._handlers: list[Handler] = []
        self._generation = 0
        self.changed = self._watch.changed
        """Index of the first changed entry from a start on, or -1: `changed()` alone asks whether all is as it was."""

    def clear(self) -> None:
        """Watch nothing any more."""
        self._watch.clear()
        self._handlers = []
        self._generation += 1

    def check(self) -> None:
        """Call the handlers of the entries that changed, and accept what they leave; an entry whose handler raises stays changed.

        A handler may clear the list and fill it anew.
        """
        index = self.changed()
        called: list[Handler] = []
        while index >= 0:
            handler, generation = self._handlers[index], self._generation
            if handler not in called:
                called.append(handler)
                handler()
            if generation == self._generation:
                self._watch.accept(index)
                index = self.changed(index + 1)
            else:
                index = self.changed()

    def _added(self, handler: Handler) -> int:
        self._handlers.append(handler)
        return len(self._handlers) - 1

    def other(self, watched: Watched) -> int:
        """All that another list watches, with its own handlers."""
        self._watch.add_watch(watched._watch)
        return self._added(watched.check)

    def tensor(self, tensor: torch.Tensor, handler: Handler) -> int:
        """The memory, shape and strides of a tensor."""
        self._watch.add_tensor(tensor, _handle(tensor))
        return self._added(handler)

    def attribute(self, owner: object, name: str, expected: object, handler: Handler) -> int:
        """An attribute that is `expected`."""
        self._watch.add_attribute(owner, name, expected)
        return self._added(handler)

    def namespace(self, owner: dict[str, Any], names: Sequence[str], handler: Handler) -> int:
        """What a dictionary holds under `names`."""
        self._watch.add_namespace(owner, list(names))
        return self._added(handler)

    def items(self, owner: dict[Any, Any], handler: Handler) -> int:
        """All entries of a dictionary, in order."""
        self._watch.add_items(owner)
        return self._added(handler)

    def members(self, owner: list[Any], handler: Handler) -> int:
        """All members of a list."""
        self._watch.add_members(owner)
        return self._added(handler)

    def cell(self, owner: Any, handler: Handler) -> int:
        """What a closure cell holds."""
        self._watch.add_cell(owner)
        return self._added(handler)

    def class_attribute(self, owner: type, name: str, handler: Handler) -> int:
        """What a class has under `name`, itself or from a base."""
        self._watch.add_class_attribute(owner, name)
        return self._added(handler)

    def bytes(self, owner: Any, handler: Handler) -> int:
        """The memory that an array exports."""
        self._watch.add_bytes(owner, bytes(memoryview(owner).cast("B")))
        return self._added(handler)

    def call(self, function: Callable[[], object], expected: object, handler: Handler) -> int:
        """What a function without arguments returns."""
        self._watch.add_call(function, expected)
        return self._added(handler)
