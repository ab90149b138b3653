"""The content of Python objects, remembered so that it can be put back after an error."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, cast

import torch
from torch.optim.lr_scheduler import LRScheduler

_NOT_ENTERED = (
    torch.nn.Module,
    torch.optim.Optimizer,
    FunctionType,
    MethodType,
    BuiltinFunctionType,
    ModuleType,
    type,
)


class Remembered:
    """The contents of containers and schedulers, of their members, and of the objects that a scheduler calls.

    Models, optimizers and large tensors are not entered: the code that writes them also restores them.
    """

    def __init__(self, roots: Iterable[object]):
        self._undo: list[Callable[[], object]] = []
        self._known: dict[int, object] = {}
        for root in roots:
            self._enter(root, objects=True)

    def put_back(self) -> None:
        """Restore the remembered content of everything."""
        for undo in self._undo:
            undo()

    def _enter(self, value: object, objects: bool) -> None:
        if id(value) in self._known or isinstance(value, _NOT_ENTERED):
            return
        self._known[id(value)] = value  # kept alive, so that no other object gets its id
        if isinstance(value, torch.Tensor):
            if value.numel() == 1 and not isinstance(value, torch.nn.Parameter):
                before = value.detach().clone()
                self._undo.append(lambda: value.detach().copy_(before))
        elif isinstance(value, list):
            self._remember_list(cast(list[object], value), objects)
        elif isinstance(value, tuple):
            for item in cast(tuple[object, ...], value):
                self._enter(item, objects)
        elif isinstance(value, dict):
            self._remember_dict(cast(dict[Any, Any], value), objects)
        elif hasattr(value, "__dict__") and (objects or isinstance(value, LRScheduler)):
            self._remember_dict(vars(value), objects=isinstance(value, LRScheduler))

    def _remember_list(self, value: list[object], objects: bool) -> None:
        before = list(value)
        self._undo.append(lambda: value.__setitem__(slice(None), before))
        for item in before:
            self._enter(item, objects)

    def _remember_dict(self, value: dict[Any, Any], objects: bool) -> None:
        before = dict(value)

        def undo() -> None:
            if value.keys() != before.keys() or any(value[key] is not before[key] for key in before):
                value.clear()
                value.update(before)

        self._undo.append(undo)
        for item in before.values():
            self._enter(item, objects)
