"""Functions that take numbers of a loop body: those of numbers give a number, those that show numbers are called after each
step.

`print(loss.item())` shows a number that is known after the step. `math.cos(step)` follows a number of a Python place. While a
body is traced these functions are replaced in their module or class. A call without such a number is left as it is.
"""

from __future__ import annotations

import builtins
import math
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, cast

import torch

from aicf_mlir.frontend import source
from aicf_mlir.frontend.loop_body.decided import DECIDED, names_that_decide
from aicf_mlir.frontend.loop_body.numbers import Book, Number
from aicf_mlir.frontend.loop_body.python_state import Request
from aicf_mlir.frontend.loop_body.texts import is_marked
from aicf_mlir.frontend.reads import ORIGINAL, Replaced, while_tracing
from aicf_mlir.frontend.special import TRACED
from aicf_mlir.frontend.values import is_a

SHOW = (
    ("builtins", "", "print"),
    ("logging", "Logger", "_log"),
    ("tqdm.std", "tqdm", "set_postfix"),
    ("tqdm.std", "tqdm", "set_postfix_str"),
    ("tqdm.std", "tqdm", "set_description"),
    ("torch.utils.tensorboard.writer", "SummaryWriter", "add_scalar"),
    ("wandb", "", "log"),
)
"""Functions that show numbers: module, class, name. Only modules that are imported count."""

CONSTANTS = (str, int, float, bool, type(None))
OF_NUMBERS = (*((math, name) for name in dir(math)), (builtins, "min"), (builtins, "max"))
"""Functions that compute a number of others."""


@dataclass(frozen=True)
class Shown:
    """A function that shows its arguments."""

    function: Callable[..., Any]
    named: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Arguments that no number is in, as a file."""

    def show(self, *args: Any, **named: Any) -> None:
        """Call it."""
        self.function(*args, **named, **self.named)


@contextmanager
def replaced(book: Book, calls: list[Request]) -> Generator[None]:
    """Replace the functions; those that show are added to `calls`."""
    with ExitStack() as stack:
        is_here = stack.enter_context(while_tracing())
        for module, kind, name in SHOW:
            owner = sys.modules.get(module)
            owner = getattr(owner, kind, None) if kind else owner
            if owner is not None and callable(function := vars(owner).get(name)):
                stack.callback(setattr, owner, name, function)
                shown = _shows(function, calls, is_method=bool(kind))
                setattr(
                    owner,
                    name,
                    _method(shown, function, is_here) if kind else Replaced(shown, function, is_here),
                )
        for owner, name in OF_NUMBERS:
            if callable(function := vars(owner)[name]) and not name.startswith("_"):
                stack.callback(setattr, owner, name, function)
                setattr(owner, name, Replaced(_computes(function), function, is_here))
        yield


def _method(
    shown: Callable[..., Any], original: Callable[..., Any], is_here: Callable[[], bool]
) -> Callable[..., Any]:
    """Return a method that is another one in the thread that traces."""

    def called(*args: Any, **named: Any) -> Any:
        return (shown if is_here() else original)(*args, **named)

    setattr(called, ORIGINAL, original)
    return called


@dataclass(frozen=True)
class OfList:
    """A function of one list, as a function of its members."""

    function: Callable[..., Any]

    def __call__(self, *members: Any) -> Any:
        """Call it."""
        return self.function(list(members))


def _computes(function: Callable[..., Any]) -> Callable[..., Any]:
    def computed(*args: Any, **named: Any) -> Any:
        of, whole = args, function
        if len(args) == 1 and type(args[0]) in (list, tuple):
            of, whole = tuple(cast("list[Any]", args[0])), OfList(function)
        numbers = [each for each in of if type(each) is Number]
        if not numbers or named or any(is_a(each, torch.Tensor) for each in of):
            return function(*args, **named)  # a number says itself what it cannot be beside a tensor
        return numbers[0].of(whole, *of)

    return computed


def _shows(function: Callable[..., Any], calls: list[Request], *, is_method: bool) -> Callable[..., Any]:
    def shown(*args: Any, **named: Any) -> Any:
        values = (*args[is_method:], *named.values())
        if not any(has_number(each) or is_a(each, TRACED) for each in values) and not (
            all(map(is_constant, args[is_method:])) and is_called_by_user()
        ):
            return function(*args, **named)
        refuse_decided_texts()
        apart = {key: value for key, value in named.items() if not _is_plain(value)}
        called = function.__get__(args[0]) if is_method else function
        rest = {key: value for key, value in named.items() if key not in apart}
        calls.append((Shown(called, apart), "show", args[is_method:], rest))
        return None

    return shown


def is_constant(value: Any) -> bool:
    """True for a plain value, and for a container of them, as a logger gets for its text."""
    if type(value) is dict:
        return all(map(is_constant, cast("dict[Any, Any]", value).values()))
    if type(value) in (list, tuple):
        return all(map(is_constant, value))
    return type(value) in CONSTANTS


def is_called_by_user() -> bool:
    """True if the function that shows something, or the module that it is a part of, was called by the user's code."""
    frame: FrameType | None = sys._getframe(2)  # pyright: ignore[reportPrivateUsage]
    own = {"aicf_mlir", *(module.partition(".")[0] for module, _, _ in SHOW)} - {"builtins", "torch"}
    while frame is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] in own:
        frame = frame.f_back
    return frame is not None and source.is_users_frame(frame)


def refuse_decided_texts() -> None:
    """Refuse to show anything in a function that compares a text with a number in it: what it shows may depend on that."""
    frame: FrameType | None = sys._getframe(2)  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        if source.is_users_frame(frame):
            names = names_that_decide(frame.f_code) & frame.f_locals.keys()
            if any(is_marked(frame.f_locals[name]) for name in names):
                raise source.trace_error(f"the loop body {DECIDED}", source.here())
        frame = frame.f_back


def has_number(value: Any) -> bool:
    """True for a number that is known after each step, a text with the mark of one, and a container of them."""
    if type(value) is dict:
        return any(map(has_number, cast("dict[Any, Any]", value).values()))
    if type(value) in (list, tuple):
        return any(map(has_number, value))
    return type(value) is Number or is_marked(value)


def _is_plain(value: Any) -> bool:
    """True for a value that may hold a number, or is one of Python's own."""
    return type(value) in (Number, str, int, float, bool, list, tuple, dict, type(None)) or is_a(
        value, torch.Tensor
    )
