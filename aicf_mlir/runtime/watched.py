"""Objects that must not change between two steps, each with the handler to call if it does."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from types import MethodType
from typing import Any

import torch

from aicf_mlir import _C
from aicf_mlir.runtime.torch_layout import PLAIN, add_tensors

Handler = Callable[[], None]
"""A function that follows a change, or raises; it is called once a check, for any number of changed entries."""


def _hook_field(attribute: str, register: str) -> int:
    """Return the byte offset of a tensor's hooks, found by searching a tensor that has some; 0 if they are not found.

    Reading there takes a nanosecond, torch's getter thirty, and a step reads two for each parameter.
    """
    tensor, other = (
        torch.zeros(1, requires_grad=True, device="cpu"),
        torch.zeros(1, requires_grad=True, device="cpu"),
    )
    getattr(tensor, register)(print)
    hooks = getattr(tensor, attribute)
    return 0 if _C.Watch.find_field(other, hooks) else _C.Watch.find_field(tensor, hooks)


HOOKS = {
    "_backward_hooks": _hook_field("_backward_hooks", "register_hook"),
    "_post_accumulate_grad_hooks": _hook_field(
        "_post_accumulate_grad_hooks", "register_post_accumulate_grad_hook"
    ),
}
"""The byte offsets of the hooks on a tensor's gradient; 0: ask torch."""


class Watched:
    """A list of entries, compared by identity in C++; see csrc/bindings/watch.cpp."""

    def __init__(self) -> None:
        self._watch = _C.Watch()
        self._handlers: list[Callable[[], Handler | None]] = []
        self._generation = 0
        self.changed = self._watch.changed
        """The index of the first changed entry from a start on, or -1: `changed()` without a start tests all entries."""

    def clear(self) -> None:
        """Stop watching everything."""
        self._watch.clear()
        self._handlers = []
        self._generation += 1

    def check(self) -> None:
        """Call the handlers of the entries that changed, and accept the values they leave; an entry whose handler
        raises stays changed.

        A handler may clear the list and fill it again.
        """
        index = self.changed()
        called: list[Handler] = []
        while index >= 0:
            handler, generation = self._handlers[index](), self._generation
            if handler is not None and handler not in called:
                called.append(handler)
                handler()
            if generation == self._generation:
                self._watch.accept(index)
                index = self.changed(index + 1)
            else:
                index = self.changed()

    def _added(self, handler: Handler) -> int:
        bound = isinstance(handler, MethodType)  # held weakly: its object has this list
        self._handlers.append(weakref.WeakMethod(handler) if bound else lambda: handler)
        return len(self._handlers) - 1

    def other(self, watched: Watched) -> int:
        """Watch all that another list watches, with its own handlers."""
        self._watch.add_watch(watched._watch)
        return self._added(watched.check)

    def tensors(self, tensors: Sequence[torch.Tensor], handler: Handler) -> int:
        """Watch the memory, shape, strides and dtype of tensors."""
        add_tensors(self._watch, tensors)
        return self._added(handler)

    def attribute(self, owner: object, name: str, expected: object, handler: Handler) -> int:
        """Watch an attribute that is `expected`."""
        self._watch.add_attribute(owner, name, expected)
        return self._added(handler)

    def attributes(self, owners: Sequence[object], name: str, expected: object, handler: Handler) -> None:
        """Watch an attribute that is `expected` of every object."""
        if owners:
            self._watch.add_attributes(list(owners), name, expected)
            self._added(handler)

    def trained(self, tensors: Sequence[torch.Tensor], handler: Handler) -> None:
        """Watch that every tensor requires a gradient."""
        self.attributes([t for t in tensors if type(t) not in PLAIN], "requires_grad", True, handler)
        self._watch.add_trained([t for t in tensors if type(t) in PLAIN])
        self._added(handler)

    def no_hooks(self, tensors: Sequence[torch.Tensor], handler: Handler) -> None:
        """Watch that no tensor has hooks on its gradient."""
        if all(HOOKS.values()):
            self._watch.add_fields(list(tensors), list(HOOKS.values()))
            self._added(handler)
            return
        for attribute in HOOKS:
            self.attributes(tensors, attribute, None, handler)

    def empty(self, owners: Sequence[dict[Any, Any]], handler: Handler) -> int:
        """Watch that dictionaries have no entries."""
        self._watch.add_empty(list(owners))
        return self._added(handler)

    def namespace(self, owner: dict[str, Any], names: Sequence[str], handler: Handler) -> int:
        """Watch the values of a dictionary under `names`."""
        self._watch.add_namespace(owner, list(names))
        return self._added(handler)

    def items(self, owner: dict[Any, Any], handler: Handler) -> int:
        """Watch all entries of a dictionary, in order."""
        self._watch.add_items(owner)
        return self._added(handler)

    def members(self, owner: list[Any], handler: Handler) -> int:
        """Watch all members of a list."""
        self._watch.add_members(owner)
        return self._added(handler)

    def cell(self, owner: Any, handler: Handler) -> int:
        """Watch the content of a closure cell."""
        self._watch.add_cell(owner)
        return self._added(handler)

    def class_attribute(self, owner: type, name: str, handler: Handler) -> int:
        """Watch the value of a class under `name`, its own or from a base."""
        self._watch.add_class_attribute(owner, name)
        return self._added(handler)

    def bytes(self, owner: Any, expected: bytes, handler: Handler) -> int:
        """Watch the memory that an array exports, in the order of its indices."""
        self._watch.add_bytes(owner, expected)
        return self._added(handler)

    def word(self, function: Callable[..., object], argument: object, handler: Handler) -> int:
        """Watch the result of a C function, called on `argument` if that is not None: an object, or an equal number or
        text.
        """
        self._watch.add_word(function, argument)
        return self._added(handler)

    def torch_words(self, words: Sequence[int], handler: Handler) -> int:
        """Watch words of torch's state by their numbers, among the words that `runtime/torch_words.py` has verified."""
        self._watch.add_torch_words(list(words))
        return self._added(handler)

    def functions(self, functions: Sequence[Any], handler: Handler) -> int:
        """Watch code and defaults of Python functions."""
        self._watch.add_functions(list(functions))
        return self._added(handler)

    def types(self, types: Sequence[type], handler: Handler) -> int:
        """Watch classes: no attribute of them or of a base may be set, to any value."""
        self._watch.add_types(list(types))
        return self._added(handler)

    def instances(self, objects: Sequence[object], handler: Handler) -> int:
        """Watch the class and the dictionary of objects, which may be replaced."""
        self._watch.add_instances(list(objects))
        return self._added(handler)

    def context(self, variable: object, handler: Handler) -> int:
        """Watch the value of a ContextVar in the context of the caller."""
        self._watch.add_context(variable)
        return self._added(handler)

    def call(self, function: Callable[[], object], expected: object, handler: Handler) -> int:
        """Watch the result of a function without arguments."""
        self._watch.add_call(function, expected)
        return self._added(handler)
