"""The methods of an optimizer by which a loop drives it, found under torch's own wrappers."""

from __future__ import annotations

from types import FunctionType
from typing import Any

import torch

from aicf_mlir.frontend.behind import called_by
from aicf_mlir.frontend.library import class_attribute, is_librarys
from aicf_mlir.frontend.reads import Read

VERBS = ("step", "zero_grad")

WRAPPED = "__wrapped__"
"""The attribute in which functools.wraps keeps the wrapped function."""


def verb_of(optimizer: torch.optim.Optimizer, name: str) -> Any:
    """Return the code that runs when an optimizer's method is called: torch wraps `step` for its profiler, and again
    for schedulers.
    """
    own = vars(optimizer).get(name)
    return unwrapped(class_attribute(type(optimizer), name) if own is None else own)


def unwrapped(method: Any) -> Any:
    """Return a method or function without torch's wrappers; wrappers of others are kept."""
    function = getattr(method, "__func__", method)
    while isinstance(function, FunctionType) and is_librarys(function) and hasattr(function, WRAPPED):
        inner: Any = getattr(function, WRAPPED)
        function = getattr(inner, "__func__", inner)
    return function


def behind(optimizer: torch.optim.Optimizer) -> list[Read]:
    """Return the places of torch's code that a step of torch would run in `loss.backward()` and the verbs."""
    verbs = {f"{type(optimizer).__name__}.{verb}": verb_of(optimizer, verb) for verb in VERBS}
    verbs |= {"Tensor.backward": vars(torch.Tensor)["backward"]}
    return called_by(
        {path: verb for path, verb in verbs.items() if isinstance(verb, FunctionType) and is_librarys(verb)}
    )


def replaced(optimizer: torch.optim.Optimizer) -> str | None:
    """Return the first torch function that the verbs call and that the user has replaced, as torch's code calls it."""
    for read in behind(optimizer):
        value = read.value()
        if read.kind == "item" and isinstance(value, FunctionType) and not is_librarys(value):
            return read.path
    return None
