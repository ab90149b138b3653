"""What an SVG of a plan shows, read back from its text: every mark with its tooltip, and the frames around them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from xml.etree import ElementTree

NAMESPACE = "{http://www.w3.org/2000/svg}"
PIXEL = 0.02
"""Positions have two decimals."""


@dataclass(frozen=True)
class Mark:
    """A rectangle in pixels."""

    x: float
    y: float
    width: float
    height: float
    classes: str
    tooltip: str

    @property
    def symbol(self) -> str:
        """What the tooltip is about: `k0` of `@k0 relu`, `x` of `@x: f32[4]`."""
        found = re.match(r"@(\S+?)[: \n]", self.tooltip)
        assert found is not None, self.tooltip
        return found[1]

    @property
    def right(self) -> float:
        return self.x + self.width

    @property
    def bottom(self) -> float:
        return self.y + self.height

    def holds(self, other: Mark) -> bool:
        """Whether `other` lies inside."""
        return (
            self.x - PIXEL <= other.x
            and other.right <= self.right + PIXEL
            and self.y - PIXEL <= other.y
            and other.bottom <= self.bottom + PIXEL
        )


@dataclass(frozen=True)
class Shown:
    """A slot as its picture has it, in bytes and launches."""

    symbol: str
    role: str
    begin: int
    end: int
    first: float
    last: float
    """The end of its last launch."""


def marks(svg: str) -> list[Mark]:
    """Every rectangle, in the order of the text."""
    return [
        Mark(
            *(float(rect.get(name, "0")) for name in ("x", "y", "width", "height")),
            classes=rect.get("class", ""),
            tooltip=rect.findtext(f"{NAMESPACE}title", ""),
        )
        for rect in ElementTree.fromstring(svg).iter(f"{NAMESPACE}rect")
    ]


def texts(svg: str) -> list[str]:
    """Every line of text."""
    return [text.text or "" for text in ElementTree.fromstring(svg).iter(f"{NAMESPACE}text")]


def panels(svg: str) -> list[tuple[Mark, list[Mark]]]:
    """The frames of a picture of memory, each with the slots in it."""
    found: list[tuple[Mark, list[Mark]]] = []
    slots: list[Mark] = []
    for mark in marks(svg):
        if mark.tooltip:
            slots.append(mark)
        elif mark.classes == "f q":
            found.append((mark, slots))
            slots = []
    assert not slots, "a slot outside of all panels"
    return found


def shown_slots(svg: str, launches: int, arenas: dict[str, int]) -> list[Shown]:
    """The slots of a picture of memory, held against their frames: position and tooltip say the same."""
    found: list[Shown] = []
    for frame, slots in panels(svg):
        for mark in slots:
            assert frame.holds(mark), mark
            facts = re.search(r"^(\w+), offset ([\d,]+), ([\d,]+) bytes$", mark.tooltip, re.MULTILINE)
            assert facts is not None, mark.tooltip
            role, (begin, nbytes) = facts[1], (int(text.replace(",", "")) for text in facts.groups()[1:])
            pixel = arenas[role] / frame.height
            assert abs((frame.bottom - mark.bottom) * pixel - begin) <= 2 * PIXEL * pixel, mark
            assert nbytes <= mark.height * pixel + 2 * PIXEL * pixel < nbytes + 256 + 4 * PIXEL * pixel, mark
            first, last = ((x - frame.x) / frame.width * launches for x in (mark.x, mark.right))
            found.append(Shown(mark.symbol, role, begin, begin + nbytes, first, last))
    return found
