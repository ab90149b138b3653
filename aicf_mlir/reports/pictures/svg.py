"""SVG as text, element by element: numbers with two decimals, everything escaped, the same bytes each time."""

from __future__ import annotations

import re
from xml.sax.saxutils import escape, quoteattr

from aicf_mlir.reports.pictures import style
from aicf_mlir.reports.pictures.units import short

_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def clean(text: str) -> str:
    """`text` without the characters that XML cannot hold: names of a plan may be anything."""
    return _NO_XML.sub("\ufffd", text)


class Svg:
    """A picture that grows; `close` gives its text."""

    def __init__(self, title: str, colours: dict[str, str]):
        """`colours` are those of the marks, by CSS class; an edge is drawn if there is room for one."""
        self._title = title
        self._colours = colours
        self._parts: list[str] = []

    def add(self, tag: str, title: str | None = None, **attributes: str | float) -> None:
        """Add one element, with a tooltip if it has a `title`; `_` in names stands for `-`, `class_` for `class`."""
        written = "".join(
            f" {name.removesuffix('_').replace('_', '-')}={quoteattr(_value(value))}"
            for name, value in attributes.items()
        )
        inner = "" if title is None else f"<title>{escape(clean(title))}</title>"
        self._parts.append(f"<{tag}{written}>{inner}</{tag}>" if inner else f"<{tag}{written}/>")

    def rect(
        self, x: float, y: float, width: float, height: float, class_: str, title: str | None = None
    ) -> None:
        """Add a rectangle."""
        self.add("rect", title, x=x, y=y, width=width, height=height, class_=class_)

    def line(self, x1: float, y1: float, x2: float, y2: float, class_: str = "g") -> None:
        """Add a straight line."""
        self.add("path", d=f"M{short(x1)} {short(y1)}L{short(x2)} {short(y2)}", class_=class_)

    def text(self, x: float, y: float, text: str, class_: str = "", turn: int = 0) -> None:
        """Add a line of text with its baseline at `y`, turned by `turn` degrees around its anchor."""
        place = f'x="{short(x)}" y="{short(y)}"' + (f' class="{class_}"' if class_ else "")
        if turn:
            place += f' transform="rotate({turn} {short(x)} {short(y)})"'
        self._parts.append(f"<text {place}>{escape(clean(text))}</text>")

    def close(self, width: float, height: float) -> str:
        """The whole file."""
        fills = "".join(
            f".{name}{{fill:{colour}}}.{name}.k{{stroke:{style.darker(colour)};stroke-width:.6}}\n"
            for name, colour in self._colours.items()
        )
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {short(width)} {short(height)}"'
            f' width="{short(width)}" height="{short(height)}" role="img">\n'
            f"<title>{escape(clean(self._title))}</title>\n<style>{style.CSS}{fills}</style>\n"
            f'<rect width="{short(width)}" height="{short(height)}" rx="6" fill="{style.GROUND}"/>\n'
        )
        return head + "\n".join(self._parts) + "\n</svg>\n"


def _value(value: str | float) -> str:
    return clean(value) if isinstance(value, str) else short(value)
