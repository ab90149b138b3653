"""Branches on the value of a tensor of which one side raises: `if torch.any(var < 0): raise …`, `assert
x.isfinite().all()`.

A branch of this kind is a check of values and no control flow: the step takes the other side, and a check that can fail
replaces the branch. The bytecode shows the raising side. It must lead to `raise` without another branch, and no code
may catch the error.
"""

from __future__ import annotations

import dis
import linecache
from bisect import bisect_right
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch

from aicf_mlir.frontend import source
from aicf_mlir.ir.locations import SourceLocation

ASSERT: Any = torch._assert_async  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]
"""The function that torch exports as an op; there is no public name for it."""
ON_TRUE, ON_FALSE = "IF_TRUE", "IF_FALSE"
STEP = Path(__file__).with_name("step_module.py")
"""The file whose frame calls the step: a handler further out catches errors of the step too."""
CATCHES = ("CHECK_EXC_MATCH", "POP_EXCEPT")


def passed(
    frame: FrameType | None, function: str, condition: torch.Tensor, location: SourceLocation | None
) -> bool | None:
    """Return the value with which a branch of the running code does not raise, and a check for it; None for other
    branches.

    `frame` is the running one, of the code that torch calls in place of `function` on `condition`.
    """
    frame = users(frame)
    is_asked = function == "__bool__" or (function == "item" and condition.dtype == torch.bool)
    if not is_asked or frame is None or condition.numel() != 1:
        return None
    side = raising_side(frame)
    if side is None or is_caught(frame):
        return None
    raises, line = side
    holds = condition != 0
    wanted = holds.logical_not() if raises else holds
    text = linecache.getline(frame.f_code.co_filename, line).strip()
    where = f"{Path(frame.f_code.co_filename).name}:{line}"
    source.call_at(location, ASSERT, wanted.reshape(()), f"`{text}` ({where})")
    return not raises


def users(frame: FrameType | None) -> FrameType | None:
    """Return the frame of the user's code, from one of a function that torch calls for it."""
    while frame is not None and frame.f_code.co_name in ("__torch_function__", "seen"):
        frame = frame.f_back
    return frame


def in_while(frame: FrameType) -> bool:
    """True if the running instruction is in a `while` of its code: a loop that a condition ends, and no iterator."""
    code = list(dis.get_instructions(frame.f_code))
    heads = {each.offset: each.opname for each in code}
    return any(
        each.opcode in JUMPS
        and "BACKWARD" in each.opname
        and each.argval <= frame.f_lasti <= each.offset
        and heads.get(each.argval) != "FOR_ITER"
        for each in code
    )


def raising_side(frame: FrameType) -> tuple[bool, int] | None:
    """Return the truth value of the current test with which the code reaches `raise`, and the line of that; None if
    neither or both do.
    """
    code = list(dis.get_instructions(frame.f_code))
    offsets = [each.offset for each in code]
    at, negated = bisect_right(offsets, frame.f_lasti) - 1, False
    at += code[at].opname.startswith("CALL")  # the call of `item()`
    while code[at].opname in ("UNARY_NOT", "TO_BOOL", "CACHE", "COPY", "NOP"):
        negated ^= code[at].opname == "UNARY_NOT"
        at += 1
    name, target = code[at].opname, code[at].argval
    jumps_on = name.endswith(ON_TRUE)
    if not name.startswith("POP_JUMP") or not (jumps_on or name.endswith(ON_FALSE)):
        return None
    sides = {jumps_on: raise_at(code, offsets.index(target)), not jumps_on: raise_at(code, at + 1)}
    found = [(side ^ negated, line) for side, line in sides.items() if line is not None]
    return found[0] if len(found) == 1 else None


def raise_at(code: list[dis.Instruction], at: int) -> int | None:
    """Return the line of the `raise` that the code reaches from here without a branch."""
    line = next((each.positions.lineno for each in code[at:] if each.positions), None)
    for each in code[at:]:
        if each.opname == "RAISE_VARARGS" and each.arg:
            return line
        if each.opcode in JUMPS or each.opname.startswith(("RETURN", "YIELD", "STORE", "DELETE", "RERAISE")):
            return None
    return None


JUMPS = frozenset({*dis.hasjrel, *dis.hasjabs})


def is_caught(frame: FrameType | None) -> bool:
    """True if the running code of the step is in a `try` with an `except`."""
    first = True
    while frame is not None and Path(frame.f_code.co_filename) != STEP:
        if (first or source.is_users_frame(frame)) and has_handler(frame.f_code, frame.f_lasti):
            return True
        frame, first = frame.f_back, False
    return False


def has_handler(code: CodeType, at: int) -> bool:
    """True if an `except` belongs to the instruction at `at`; a `with` or a `finally` raises again."""
    bytecode: Any = dis.Bytecode(code)
    entries: list[Any] = bytecode.exception_entries
    targets: list[int] = [entry.target for entry in entries if entry.start <= at < entry.end]
    return any(catches(code, target) for target in targets)


def catches(code: CodeType, target: int) -> bool:
    """True if a handler inspects the error, or continues after it."""
    for each in dis.get_instructions(code):
        if each.offset <= target:
            continue
        if each.opname in ("WITH_EXCEPT_START", "RERAISE"):
            return False
        if each.opname in CATCHES:
            return True
    return False
