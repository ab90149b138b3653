"""`f"{loss.item():.3f}"` in a loop body: a text with a mark where a number will be, which the body may print, return or store."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import count
from typing import Any

MARK = re.compile("\ue0f1([0-9]+)\ue0f2")
"""The mark of a number, two characters that no text has around its place."""


def is_marked(value: object) -> bool:
    """True for a text with a mark in it."""
    return type(value) is str and MARK.search(value) is not None


WIDTHS = count()


def joined(*parts: str) -> str:
    """Return a text of its parts."""
    return "".join(parts)


@dataclass
class Texts:
    """The numbers that marks stand for."""

    at_once: bool = False
    """True if a number that is known before the step is written as it is, and guarded: the text decides something."""
    numbers: list[Any] = field(default_factory=list[Any])
    used: set[int] = field(default_factory=set[int])
    """The places of the numbers whose mark has come into a text that is printed, returned or stored."""
    width: int = field(default_factory=lambda: next(WIDTHS) % 5)
    """What makes marks longer: a text whose parts depend on the length of a mark differs from trace to trace."""

    def standing_for(self, number: Any) -> str:
        """Return a mark for a number that is a text."""
        self.numbers.append(number)
        return f"\ue0f1{len(self.numbers) - 1:0{self.width + 3}}\ue0f2"

    def resolved(self, text: str) -> Any:
        """Return the text, or if it has marks the number that is this text after each step."""
        pieces: list[Any] = MARK.split(text)
        if len(pieces) == 1:
            return text
        places = [int(piece) for piece in pieces[1::2]]
        self.used |= {*places}
        pieces[1::2] = [self.numbers[place] for place in places]
        return pieces[1].of(joined, *pieces)

    @property
    def has_unused(self) -> bool:
        """True if a mark has come into no text that is printed, returned or stored."""
        return len(self.used) < len(self.numbers)
