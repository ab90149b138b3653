"""The opening of a loop body: its code up to the first tensor, which sets rates as nanoGPT does. Python runs it before each step.

A trace only runs through it. What it reads is no part of the compiled step, so the values that it leaves in variables are
compared before each step, if the rest of the body uses them.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from types import CodeType, FrameType
from typing import Any, cast

from torch.overrides import TorchFunctionMode

from aicf_mlir.errors import TraceError
from aicf_mlir.frontend import source
from aicf_mlir.frontend.carried import put_back
from aicf_mlir.frontend.places import TracedPlaces
from aicf_mlir.frontend.reads import ABSENT, Read
from aicf_mlir.frontend.recorder import function_name, tensors
from aicf_mlir.frontend.source import is_users_file, trace_error
from aicf_mlir.frontend.special import TRACED
from aicf_mlir.frontend.structure import mapped
from aicf_mlir.frontend.values import alike, is_a

PASSED = frozenset(
    [
        "shape",
        "size",
        "dim",
        "ndim",
        "dtype",
        "device",
        "numel",
        "nelement",
        "is_cuda",
        "requires_grad",
        "is_leaf",
        "layout",
        "stride",
        "__len__",
        "grad",
    ]
)
"""Functions, by name, that do not end an opening: they compute nothing; zero_grad() uses `grad`."""

MODES = ("_", "set_", "is_", "get_")
"""The beginnings of names of functions without tensors that set modes, as no_grad() does."""

LOADS = ("LOAD_FAST", "LOAD_DEREF", "LOAD_CLOSURE")


class SetsRates(TraceError):
    """The body sets a number of a param group in its opening."""


class Ended(BaseException):
    """The first tensor is computed."""

    def __init__(self, left: dict[str, Any]):
        super().__init__()
        self.left = left


def ends_opening(func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> bool:
    """True if a function of torch computes something."""
    name = function_name(func)
    has_tensors = any(True for _ in tensors((args, kwargs or {})))
    return name not in PASSED and (has_tensors or not name.startswith(MODES))


class Watch(TorchFunctionMode):
    """Ends an opening at the first function of torch that computes something."""

    def __init__(self, caller: CodeType, keeps_gradients: bool = False):
        super().__init__()
        self._caller = caller
        self._keeps_gradients = keeps_gradients

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if ends_opening(func, args, kwargs):
            raise Ended(left_in_frames(sys._getframe(1), self._caller))  # pyright: ignore[reportPrivateUsage]
        if self._keeps_gradients and function_name(func) == "grad" and len(args) > 1:
            return None
        return func(*args, **(kwargs or {}))


class Opening:
    """The opening of one body."""

    def __init__(self, call: Callable[[Any], Any]):
        """Take `call`, the method that calls the body with a batch."""
        self._call = call
        self._caller: CodeType = cast(Any, call).__func__.__code__
        self.left: dict[str, Any] = {}
        """The values that it has left in variables that the rest uses, by name."""
        self._is_begun = False

    def begin(self) -> None:
        """Begin a trace of the body."""
        self._is_begun = False

    def traced(self, frame: FrameType, batch: Any) -> None:
        """Note the values at the end of the opening in a call while the body is traced."""
        left = {
            name: _without_batch(value, batch) for name, value in left_in_frames(frame, self._caller).items()
        }
        made = [name for name, value in left.items() if any(is_a(t, TRACED) for t in tensors(value))]
        if self._is_begun:
            made += [
                n for n in {**self.left, **left} if not alike(self.left.get(n, ABSENT), left.get(n, ABSENT))
            ]
        if made:
            raise trace_error(
                f"the loop body sets rates, and keeps in {made[0]!r} what a step cannot compare; make it outside of the body, or"
                " behind the first tensor",
                source.here(),
            )
        if not self._is_begun:
            self._is_begun = True
            self.left.clear()  # the guards watch this dictionary
            self.left.update(left)

    def expect_no_effects(self, batch: Any, groups: Set[int]) -> None:
        """Raise TraceError if the opening changes Python state other than `groups`, by their ids: a trace would do so too."""
        places = TracedPlaces()
        with places.taken(), places.recording(), suppress(Ended), Watch(self._caller, keeps_gradients=True):
            self._call(batch)
        left = [
            place for place in places.left() if place.location is not None and id(place.owner) not in groups
        ]
        put_back(places.all)
        if left:
            raise trace_error(
                "the loop body sets rates, and changes Python state before its first tensor; do so outside, with what the step"
                " returns",
                left[0].location,
            )

    def reads(self) -> Iterator[Read]:
        """Yield the values as guards."""
        for name in self.left:
            yield Read(name, "item", self.left, name, may_be_host_scalar=False)

    def run(self, batch: Any) -> None:
        """Run the opening on a batch. The next look at the guards sees what it has left."""
        try:
            with Watch(self._caller):
                self._call(batch)
        except Ended as ended:
            for name, value in self.left.items():
                now = _without_batch(ended.left.get(name, ABSENT), batch)
                if not alike(value, now):
                    self.left[name] = now


def _without_batch(value: Any, batch: Any) -> Any:
    """Return a value with the numbers of the batch's tensors in their places."""
    numbers = {id(tensor): f"tensor {number} of the batch" for number, tensor in enumerate(tensors(batch))}
    if not any(id(tensor) in numbers for tensor in tensors(value)):
        return value
    return mapped(lambda leaf: numbers.get(id(leaf), leaf), value)


def left_in_frames(frame: FrameType | None, caller: CodeType) -> dict[str, Any]:
    """Return the values of variables that the user's frames still use, by name, down to the `caller` of the body."""
    frames: list[FrameType] = []
    while frame is not None and frame.f_code is not caller:
        if is_users_file(frame.f_code.co_filename):
            frames.append(frame)
        frame = frame.f_back
    left: dict[str, Any] = {}
    for depth, each in enumerate(reversed(frames)):
        prefix = f"{each.f_code.co_name}: " if depth else ""
        arguments = each.f_code.co_varnames[: each.f_code.co_argcount] if not depth else ()
        for name in sorted(used_after(each.f_code, each.f_lasti) - {*arguments, *each.f_code.co_freevars}):
            if name in each.f_locals:
                left[prefix + name] = each.f_locals[name]
    return left


def used_after(code: CodeType, offset: int) -> set[str]:
    """Return the variables that a code may load after an instruction."""
    lines = list(dis.get_instructions(code))
    first, before = offset, -1
    while first != before:  # a loop around it may run again
        before = first
        jumps = [line.argval for line in lines if line.offset >= first and "JUMP_BACKWARD" in line.opname]
        first = min([first, *jumps])
    named: set[str] = set()
    for line in lines:
        if line.offset >= first and line.opname.startswith(LOADS):
            argument: Any = line.argval
            named |= {*argument} if isinstance(argument, tuple) else {argument}
    return named
