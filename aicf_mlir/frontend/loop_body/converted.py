"""`float(loss)` in a loop body: Python makes a number of it at once, so a body can only return it, in the same expression."""

from __future__ import annotations

import dis
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from aicf_mlir.frontend.source import is_users_file

CONVERSIONS: dict[str, Callable[..., Any]] = {"__float__": float, "__int__": int}
"""The conversion by the method of a tensor that does it."""

CONVERTED: dict[str, Callable[[int], Any]] = {
    "__float__": lambda number: float(number) + 0.5,
    "__int__": lambda number: 1_000_000_007 + number,
}
"""A number of that type which is an object of its own, with its place: it stands for the one that is known after the step."""

CONTAINERS = ("BUILD_TUPLE", "BUILD_LIST", "BUILD_MAP", "BUILD_CONST_KEY_MAP")
NEUTRAL = ("PRECALL", "KW_NAMES", "CACHE", "NOP", "EXTENDED_ARG", "PUSH_NULL", "POP_TOP", "STORE_FAST")
LOOKED_INTO = ("LOAD_ATTR", "LOAD_METHOD")
WITH_RESULT = ("CALL", "BINARY_", "COMPARE_OP", "UNARY_", "BUILD_")
"""The beginnings of names of instructions that put one value in the place of others."""


def users_frame(frame: FrameType | None) -> FrameType | None:
    """Return the next frame of the user's code."""
    while frame is not None and not is_users_file(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def runs_percent(frame: FrameType) -> bool:
    """True if the code of a frame is at a `%`, as in `"%.3f" % number`."""
    at = (line for line in dis.get_instructions(frame.f_code) if line.offset == frame.f_lasti)
    return any(line.opname == "BINARY_OP" and line.argrepr in ("%", "%=") for line in at)


def is_returned(code: CodeType, offset: int) -> bool:
    """True if the result of the call at an instruction goes, alone or in containers, into what the code returns."""
    above = 0
    """The values above it on the stack."""
    for line in dis.get_instructions(code):
        if line.offset <= offset:
            continue
        if line.opname == "RETURN_VALUE":
            return above == 0
        effect = dis.stack_effect(line.opcode, line.arg if line.opcode >= dis.HAVE_ARGUMENT else None)
        if line.opname in LOOKED_INTO:
            least = 1 - min(effect, 0)
        elif line.opname.startswith("LOAD_") or line.opname in NEUTRAL:
            least = -min(effect, 0)
        elif line.opname.startswith(WITH_RESULT):
            least = 1 - effect
        else:
            return False
        if above < least:
            if line.opname not in CONTAINERS:
                return False
            above = 0
            continue
        above += effect
    return False
