"""Common parts of the pictures: sizes, fonts and colours.

Every picture has a white ground of its own, and so reads the same on a light and on a dark page. Fills are light enough for
dark text to stand on them; their edges are the darker tone of each.
"""

from __future__ import annotations

WIDTH = 960
"""Pixels, before the page scales the picture."""

MARGIN = 20
NAME_WIDTH = 0.61
"""The width of a character of the fixed-width font, in units of its size: the width of names is known for any font."""

PROSE_WIDTH = 0.6
"""The width of a character of prose, in units of its size: somewhat more than the mean."""

INK, MUTED, RULE, GROUND, ACCENT = "#1b1f24", "#57606a", "#d8dee4", "#ffffff", "#b3261e"

ROLE_COLOURS: dict[str, str] = {
    "input": "#9cc9ea",
    "param": "#fdbb77",
    "buffer": "#c3bfe0",
    "state": "#a4d8a0",
    "host_scalar": "#f6dd7d",
    "status": "#f2a7a0",
    "const": "#cfd3d8",
    "grad": "#e8abd3",
    "temp": "#86cfc4",
    "copy": "#e2cdb0",
    "output": "#d3b79b",
}
"""A colour for each row of the table of roles."""

OP_COLOURS: tuple[str, ...] = (
    "#8fbbe6",
    "#fdbb77",
    "#93cf9a",
    "#ef9f98",
    "#c3b5e3",
    "#f3da78",
    "#86d3d8",
    "#e6a9d0",
    "#c9ae92",
    "#bcd67a",
    "#a7b4c4",
)
"""The colours for the ops of a plan, the most frequent first."""

OTHER_COLOUR = "#dfe3e8"
"""The colour for the ops that no colour is left for."""

CSS = f"""\
text{{font-family:-apple-system,"Segoe UI","Liberation Sans",Helvetica,Arial,sans-serif;font-size:11px;fill:{INK}}}
.h{{font-size:15px;font-weight:600}}
.m{{fill:{MUTED}}}
.s{{font-size:10px;fill:{MUTED}}}
.n,.v{{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"Liberation Mono",monospace;font-size:9px}}
.n,.v,.q{{pointer-events:none}}
.e{{text-anchor:end}}
.c,.v{{text-anchor:middle}}
.g{{stroke:{RULE};stroke-width:1}}
.f{{fill:none;stroke:{MUTED};stroke-width:.75}}
.r{{stroke-dasharray:3 2}}
.p{{fill:none;stroke:{ACCENT};stroke-width:1.25}}
.a{{fill:{ACCENT};font-weight:600}}
"""
"""Classes: heading, muted, small, names, vertical names, end and centre of text, grid, frame, dashes, mark, text of the mark."""


def darker(colour: str, share: float = 0.62) -> str:
    """The tone of `colour` with the share `share` of its light."""
    return "#" + "".join(f"{round(int(colour[i : i + 2], 16) * share):02x}" for i in (1, 3, 5))


def lighter(colour: str, share: float = 0.45) -> str:
    """The tone of `colour` with the share `share` of the way to white."""
    parts = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(part + (255 - part) * share):02x}" for part in parts)
