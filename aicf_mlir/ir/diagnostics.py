"""The message to a user when something is refused: `file:line:column: error: message`, the line and a caret."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import TracebackType
from typing import Literal

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.utils.diagnostic import Diagnostic as XdslDiagnostic
from xdsl.utils.exceptions import ParseError

from aicf_mlir.errors import VerifyError
from aicf_mlir.ir.locations import SourceLocation, origin

Severity = Literal["error", "warning", "note", "remark"]

EXCERPT_COLUMNS = 160
"""Longer source lines are cut to this many characters around the caret."""

MESSAGE_CHARACTERS = 2000
"""Longer messages are cut: a message may quote the input, and the input may be hostile."""


@dataclass(frozen=True)
class Position:
    """A position in a file, counted from 1; `text` is the whole source line if it is known."""

    file: str
    line: int | None = None
    column: int | None = None
    text: str | None = None
    length: int = 1

    def __str__(self) -> str:
        parts = [self.file, self.line, self.column]
        return ":".join(str(part) for part in parts if part is not None)

    def excerpt(self) -> str:
        """The source line and a caret under the place, or nothing where the line is not known."""
        if self.text is None or self.column is None:
            return ""
        column = self.column - 1
        start = max(0, column - EXCERPT_COLUMNS // 2) if len(self.text) > EXCERPT_COLUMNS else 0
        shown = self.text[start : start + EXCERPT_COLUMNS]
        visible = "".join(c if c.isprintable() else " " for c in shown)
        carets = max(1, min(self.length, len(shown) - (column - start)))
        return f"{visible}\n{' ' * (column - start)}{'^' * carets}\n"


@dataclass(frozen=True)
class Source:
    """One input, or one piece of a split input, whose first line is line `first_line` of its file."""

    name: str
    text: str
    first_line: int = 1

    @cached_property
    def _line_starts(self) -> list[int]:
        starts = [0]
        while (newline := self.text.find("\n", starts[-1])) >= 0:
            starts.append(newline + 1)
        return starts

    def line_and_column(self, position: int) -> tuple[int, int]:
        """Line (in the file) and column of a character position, both from 1."""
        line = bisect_right(self._line_starts, position) - 1
        return line + self.first_line, position - self._line_starts[line] + 1

    def line_text(self, line: int) -> str | None:
        """The text of a line of the file without its line end, or None if this piece does not hold it."""
        index = line - self.first_line
        if not 0 <= index < len(self._line_starts):
            return None
        end = self.text.find("\n", self._line_starts[index])
        return self.text[self._line_starts[index] : end if end >= 0 else None].rstrip("\r")

    def place(self, position: int, length: int = 1) -> Position:
        """The place of a character position; positions after the end are the end."""
        line, column = self.line_and_column(min(position, len(self.text)))
        return Position(self.name, line, column, self.line_text(line), length)


@dataclass(frozen=True)
class Diagnostic:
    """One message to the user, with the notes that explain it."""

    severity: Severity
    message: str
    place: Position
    notes: tuple[Diagnostic, ...] = ()

    def __str__(self) -> str:
        """The message, excerpt and notes; every line ends with a newline."""
        message = self.message.rstrip()
        if (left_out := len(message) - MESSAGE_CHARACTERS) > 0:
            message = f"{message[:MESSAGE_CHARACTERS]} … ({left_out} characters left out)"
        head = f"{self.place}: {self.severity}: {message}\n{self.place.excerpt()}"
        return head + "".join(str(note) for note in self.notes)


class LocatedError(VerifyError):
    """Text that was refused, with the place; `str` of it is the whole diagnostic."""

    def __init__(self, diagnostic: Diagnostic):
        super().__init__(str(diagnostic).rstrip("\n"))
        self.diagnostic = diagnostic


def failing_op(error: BaseException) -> Operation | None:
    """The op that `error` is about: the first that called `emit_error`, else the innermost `op` on the way.

    xDSL's `verify` catches an error and emits it again for the op around: the first call is innermost.
    """
    emitter: Operation | None = None
    nearest: Operation | None = None
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        if frame.f_code is XdslDiagnostic.raise_exception.__code__:
            emitter = frame.f_locals.get("ir")
        for name in ("op", "self"):
            candidate: object = frame.f_locals.get(name)
            if isinstance(candidate, Operation) and not isinstance(candidate, ModuleOp):
                nearest = candidate
        trace = trace.tb_next
    return emitter or nearest


@dataclass(frozen=True)
class Locator:
    """Finds places: of text positions in `source`, and of ops by their place in the text or by their location."""

    source: Source
    positions: Mapping[Operation, int]

    def place_of(self, op: Operation | None) -> Position:
        """The place of `op`: its own line, the line its location names, or else only the file."""
        while op is not None:
            if (position := self.positions.get(op)) is not None:
                return self.source.place(position, len(op.name))
            if (found := origin(op)) is not None:
                return self._named(found)
            op = op.parent_op()
        return Position(self.source.name)

    def _named(self, location: SourceLocation) -> Position:
        place = Position(location.file, location.line, location.column)
        if place.file == self.source.name:
            return replace(place, text=self.source.line_text(location.line))
        return place

    def describe(self, error: BaseException) -> Diagnostic:
        """Any error about this source as one diagnostic. Notes of one line on the error become notes."""
        if isinstance(error, LocatedError):
            return error.diagnostic
        notes = [note for note in getattr(error, "__notes__", ()) if "\n" not in note]
        if isinstance(error, ParseError):
            length = max(1, error.span.end - error.span.start)
            place, message = self.source.place(error.span.start, length), error.msg
            return Diagnostic("error", message, place, self._notes(place, notes))
        op = failing_op(error)
        place, message = self.place_of(op), str(error) or type(error).__name__
        if op is not None and op.name not in message:
            message = f"'{op.name}' op {message}"
        if op is not None and op not in self.positions:
            notes.append(f"see current operation: {_one_line(op)}")
        return Diagnostic("error", message, place, self._notes(place, notes))

    def _notes(self, place: Position, notes: Sequence[str]) -> tuple[Diagnostic, ...]:
        bare = replace(place, text=None)
        return tuple(Diagnostic("note", note, bare) for note in notes)


def _one_line(op: Operation) -> str:
    text = " ".join(str(op).split())
    return text if len(text) <= EXCERPT_COLUMNS else f"{text[:EXCERPT_COLUMNS]} …"
