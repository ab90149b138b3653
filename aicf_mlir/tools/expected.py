"""`--verify-diagnostics`: messages that the input itself announces with `// expected-error {{text}}`.

The message must be on the line of the comment, or at the place that the comment gives: `@+2`, `@-1`, `@above`, `@below`,
`@unknown` (no line). Its text must contain the text in braces.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from aicf_mlir.ir.diagnostics import Diagnostic, Position, Severity, Source

_ANNOTATION = re.compile(
    r"//\s*expected-(?P<severity>error|warning|note|remark)\s*"
    r"(?:@(?P<where>[+-]\d{1,9}|above|below|unknown))?\s*\{\{(?P<text>.*?)\}\}"
)


@dataclass(frozen=True)
class Expected:
    """One announced message; `line` is None for a message without a line."""

    severity: Severity
    line: int | None
    text: str
    place: Position

    def matches(self, diagnostic: Diagnostic) -> bool:
        """True if `diagnostic` is the announced message."""
        return (diagnostic.severity, diagnostic.place.line) == (
            self.severity,
            self.line,
        ) and self.text in diagnostic.message


def expected_diagnostics(source: Source) -> list[Expected]:
    """The messages that `source` announces."""
    return [_expected(source, match) for match in _ANNOTATION.finditer(source.text)]


def _expected(source: Source, match: re.Match[str]) -> Expected:
    line, _ = source.line_and_column(match.start())
    severity: dict[str, Severity] = {
        "error": "error",
        "warning": "warning",
        "note": "note",
        "remark": "remark",
    }
    where: str = match["where"] or "+0"
    offset = {"above": -1, "below": 1, "unknown": 0}.get(where)
    wanted = None if where == "unknown" else line + (int(where) if offset is None else offset)
    place = source.place(match.start(), match.end() - match.start())
    return Expected(severity[match["severity"]], wanted, match["text"], place)


def check_expected(expected: list[Expected], diagnostics: list[Diagnostic]) -> list[Diagnostic]:
    """The differences: announced messages that did not come, and messages, except for notes, that were not announced."""
    open_ones = list(expected)
    wrong: list[Diagnostic] = []
    for message in [part for whole in diagnostics for part in (whole, *whole.notes)]:
        match = next((one for one in open_ones if one.matches(message)), None)
        if match is not None:
            open_ones.remove(match)
        elif message.severity != "note":
            text = f"unexpected {message.severity}: {message.message}"
            wrong.append(Diagnostic("error", text, message.place))
    for missing in open_ones:
        text = f"expected {missing.severity} {missing.text!r} was not produced"
        wrong.append(Diagnostic("error", text, missing.place))
    return wrong
