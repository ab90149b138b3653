"""The largest size and depth of text, and the linear scan that checks them before any parser runs."""

from __future__ import annotations

import re

from aicf_mlir.ir.diagnostics import Diagnostic, LocatedError, Position, Source
from aicf_mlir.ir.reading import refuse

MAX_NESTING = 32
"""Brackets inside brackets; programs of these dialects need 10. A level costs the parser 9 Python frames."""

MAX_DIGITS = 40
"""Digits of one number: every 128-bit integer fits."""

MAX_INTEGER_WIDTH = 64
"""Bits of an integer type."""

MAX_RANK = 32
"""Dimensions of one tensor."""

MAX_ELEMENTS = 1 << 40
"""Elements of one tensor."""

MAX_LITERAL_ELEMENTS = 1 << 18
"""Elements of a `dense` literal: weights are arguments, never attributes."""

MAX_MARKS = 1 << 21
"""Opening brackets, quotation marks, comments and lines of one text: each is looked at before it is parsed."""

_STRING = r'"(?:[^"\\\n]|\\[^\n])*+"?'
_SCANNED = re.compile(
    rf"//[^\n]*|{_STRING}|->|[<>]=|(?P<open>[(\[{{<])|(?P<close>[)\]}}>])"
    rf"|(?P<digits>[0-9][0-9a-fA-F]{{{MAX_DIGITS},}})"
)
"""Comments and strings are skipped whole; arrows and comparisons hold no brackets."""


def check_text(source: Source) -> None:
    """Refuse text that is empty, nested too deeply, or holds a number of absurd length."""
    if (marks := sum(source.text.count(mark) for mark in ("(", "[", "{", "<", '"', "//", "\n"))) > MAX_MARKS:
        message = f"{marks:,} brackets, quotation marks, comments and lines; at most {MAX_MARKS:,} are read"
        raise LocatedError(Diagnostic("error", message, Position(source.name)))
    if not source.text.strip():
        refuse(source, 0, "the text is empty; expected a module, a function or a program")
    depth = 0
    for match in _SCANNED.finditer(source.text):
        match match.lastgroup:
            case "open":
                depth += 1
                if depth > MAX_NESTING:
                    refuse(source, match.start(), f"brackets are nested more than {MAX_NESTING} levels deep")
            case "close":
                depth = max(0, depth - 1)
            case "digits":
                count = match.end() - match.start()
                refuse(source, match.start(), f"a number of {count} digits; at most {MAX_DIGITS} are read")
            case _:
                pass
