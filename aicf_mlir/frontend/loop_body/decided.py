"""Texts of numbers that a loop body decides by: `s = f"{loss.item():.1f}"; if s != self.last: print(s)`.

While a body is traced, a text has a mark in the place of each number, and Python compares the mark, without a word to anyone. So
the code of whoever makes such a text, and of whoever shows one, is read: no comparison there, and no method that looks into
a text, may take the text, or what is stored together with it.
"""

from __future__ import annotations

import dis
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dis import Instruction
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any, NamedTuple

from aicf_mlir.frontend import source

DECIDED = "compares a text with a number in it that it has read; return the text, and decide by it outside"
COMPARES = ("COMPARE_OP", "CONTAINS_OP")
LOOKS = frozenset(
    (
        "startswith",
        "endswith",
        "find",
        "rfind",
        "index",
        "rindex",
        "count",
        "get",
        "pop",
        "setdefault",
        "remove",
    )
) | {name for name in dir(str) if name.startswith("is")}
"""The methods that answer something about a text, or look it up."""
ENDS = ("STORE_", "RETURN_", "POP_TOP", "YIELD_VALUE")
"""How instructions are called that take the value of an expression."""
VARIABLE = re.compile("LOAD_|STORE_")
"""What an instruction does to variables, by its name: Python 3.13 has some for two."""


class Span(NamedTuple):
    """A part of a source text, by lines and columns."""

    start: tuple[int, int]
    end: tuple[int, int]

    def has(self, other: Span) -> bool:
        """True if `other` is inside."""
        return self.start <= other.start and other.end <= self.end


class Uses(NamedTuple):
    """What becomes of a value that an instruction makes."""

    decides: bool
    is_returned: bool


def is_decided_by(frame: FrameType | None) -> bool:
    """True if what is made at this place of a user's function, or by its caller of what it returns, decides something."""
    while frame is not None and source.is_users_frame(frame):
        uses = uses_of(frame.f_code, frame.f_lasti)
        if uses.decides or not uses.is_returned:
            return uses.decides
        frame = frame.f_back
    return False


@lru_cache(maxsize=1024)
def names_that_decide(code: CodeType) -> frozenset[str]:
    """The variables that a comparison, or a method that looks into a text, takes."""
    lines, deciding = _read(code)
    return frozenset(
        name
        for line in lines
        if any(_is_in(line, span) for span in deciding)
        for name in _names(line, "LOAD_")
    )


def is_decided_where_written(code: CodeType, offset: int, name: str) -> bool:
    """True if the function that writes a text to a variable or an attribute at `offset` decides by it, or by what it is from."""
    lines, _ = _read(code)
    end = _place(code, offset)
    names = {name, f".{name}"}
    for line in reversed(lines[:end]):
        if line.opname.startswith(ENDS):
            break
        names |= {*_names(line, "LOAD_")}
    return not names.isdisjoint(names_that_decide(code))


@lru_cache(maxsize=1024)
def uses_of(code: CodeType, offset: int) -> Uses:
    """What becomes of the value that is made at `offset`, followed through variables and attributes by their names."""
    lines, deciding = _read(code)
    found = [_place(code, offset)]
    names = set[str]()
    is_returned = False
    for number in found:  # which grows
        taken = next((n for n in range(number, len(lines)) if lines[n].opname.startswith(ENDS)), len(lines))
        is_returned |= any(line.opname.startswith(("RETURN_", "YIELD_")) for line in lines[taken : taken + 1])
        new = {name for line in _stores(lines[taken:]) for name in _names(line, "STORE_")} - names
        names |= new
        loads = (n for n, line in enumerate(lines) if not new.isdisjoint(_names(line, "LOAD_")))
        found += [n for n in loads if n not in found]
    return Uses(any(_is_in(lines[number], span) for number in found for span in deciding), is_returned)


@lru_cache(maxsize=1024)
def _read(code: CodeType) -> tuple[list[Instruction], list[Span]]:
    """The instructions of a function and of those inside, and the parts of its text that decide by what is in them."""
    lines = list(dis.get_instructions(code))
    for inner in code.co_consts:
        lines += _read(inner)[0] if isinstance(inner, CodeType) else ()
    deciding: list[Span] = []
    loaded = Span((0, 0), (0, 0))
    for number, line in enumerate(lines):
        if any(_names(line, "LOAD_")):
            loaded = _span(line)
        if line.opname in COMPARES:  # that of a pattern is where the pattern is: the value was loaded before
            deciding.append(Span(min(loaded.start, _span(line).start), _span(line).end))
        if line.opname in ("LOAD_METHOD", "LOAD_ATTR") and line.argval in LOOKS:
            calls = (_span(other) for other in lines[number:] if other.opname.startswith("CALL"))
            deciding += [call for call in calls if call.has(_span(line))][:1]
    return lines, deciding


def _stores(lines: Sequence[Instruction]) -> Iterator[Instruction]:
    """The first instructions, as long as they store: several of `a, b = …` and `a = self.b = …`, which loads an object."""
    for number, line in enumerate(lines):
        if line.opname.startswith("STORE_"):
            yield line
        elif not any(each.opname == "STORE_ATTR" for each in lines[number + 1 : number + 2]):
            return


def _place(code: CodeType, offset: int) -> int:
    """The number of the instruction at which a function is: in a call that is its last byte."""
    offsets = [line.offset for line in dis.get_instructions(code)]
    return bisect_right(offsets, offset) - 1


def _names(line: Instruction, kind: str) -> Iterator[str]:
    """The variables and attributes, these with a dot, that an instruction loads or stores, of which one may do both."""
    kinds = VARIABLE.findall(line.opname)
    if not kinds or line.opname.endswith(("CONST", "SUBSCR")):
        return
    dot = "." if line.opname.endswith(("_ATTR", "_METHOD")) else ""
    given: Any = line.argval if len(kinds) > 1 else (line.argval,)
    yield from (
        f"{dot}{name}" for each, name in zip(kinds, given, strict=True) if each == kind and type(name) is str
    )


def _is_in(line: Instruction, span: Span) -> bool:
    """True if an instruction is in a part of the source; of one for two variables Python tells the place of the first alone."""
    own = _span(line)
    if len(VARIABLE.findall(line.opname)) > 1:
        return span.start[0] <= own.start[0] <= span.end[0]
    return span.has(own)


def _span(line: Instruction) -> Span:
    """Where an instruction is in the source; where Python does not tell columns, its lines."""
    place = line.positions
    if place is None or place.lineno is None or place.end_lineno is None:
        return Span((0, 0), (0, 0))
    return Span((place.lineno, place.col_offset or 0), (place.end_lineno, place.end_col_offset or 1 << 30))
