"""Modules that a step imports while it is traced: they stay imported.

A module runs once in a process. Whatever its code writes, into its own names or into a registry, must not be put back after
the trace: a later import finds the module in `sys.modules` and does not write it again.
"""

from __future__ import annotations

import _frozen_importlib
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, cast

from aicf_mlir import _C

IMPORTLIB: Any = _frozen_importlib


@contextmanager
def not_recorded() -> Generator[None]:
    """Do not record the code of modules that are loaded inside, nor what it calls."""
    load: Callable[..., Any] = IMPORTLIB._find_and_load

    def loaded(*args: Any) -> Any:
        was_recording = _C.places.pause()
        try:
            return load(*args)
        finally:
            if was_recording:
                _C.places.resume()

    IMPORTLIB._find_and_load = loaded
    try:
        yield
    finally:
        IMPORTLIB._find_and_load = load


def is_imported(owner: Any, key: Any, value: Any) -> bool:
    """True if a dictionary has a module under a key because the module was imported."""
    if not isinstance(value, ModuleType) or type(owner) is not dict:
        return False
    name: Any = vars(value).get("__name__")
    if sys.modules.get(name) is not value:
        return False
    holder = cast(dict[Any, Any], owner)
    return holder is sys.modules or f"{holder.get('__name__')}.{key}" == name
