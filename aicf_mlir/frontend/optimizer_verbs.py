"""The methods of an optimizer by which a loop drives it, seen through what torch itself puts around them."""

from __future__ import annotations

from types import FunctionType
from typing import Any

import torch

from aicf_mlir.frontend.behind import called_by
from aicf_mlir.frontend.library import class_attribute, is_librarys
from aicf_mlir.frontend.reads import Read

VERBS = ("step", "zero_grad")

WRAPPED = "__wrapped__"
"""Where functools.wraps keeps what it wraps."""


def verb_of(optimizer: torch.optim.Optimizer, name: str) -> Any:
    """What runs when a method of an optimizer is called: torch wraps `step` for its profiler, and once more for schedulers."""
    own = vars(optimizer).get(name)
    return unwrapped(class_attribute(type(optimizer), name) if own is None else own)


def unwrapped(method: Any) -> Any:
    """A method or function without wrappers of torch's; wrappers of others are what they are."""
    function = getattr(method, "__func__", method)
    while isinstance(function, FunctionType) and is_librarys(function) and hasattr(function, WRAPPED):
        inner: Any = getattr(function, WRAPPED)
        function = getattr(inner, "__func__", inner)
    return function


def behind(optimizer: torch.optim.Optimizer) -> list[Read]:
    """The places of torch's code that a step of torch would run behind `loss.backward()` and the verbs."""
    verbs = {f"{type(optimizer).__name__}.{verb}": verb_of(optimizer, verb) for verb in VERBS}
    verbs |= {"Tensor.backward": vars(torch.Tensor)["backward"]}
    return called_by(
        {path: verb for path, verb in verbs.items() if isinstance(verb, FunctionType) and is_librarys(verb)}
    )


def replaced(optimizer: torch.optim.Optimizer) -> str | None:
    """The first function in a module of torch behind the verbs that is the user's, as torch's code calls it."""
    for read in behind(optimizer):
        value = read.value()
        if read.kind == "item" and isinstance(value, FunctionType) and not is_librarys(value):
            return read.path
    return None
