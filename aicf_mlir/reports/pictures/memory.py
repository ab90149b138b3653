"""The memory of a plan as a picture: time to the right in launches, addresses upwards, a panel an arena.

A rectangle is a slot: the bytes that it keeps from others, during the launches in which it holds a value. Views of a slot are
not drawn, since they are its bytes once more; its tooltip names them, and their uses count as its own. The panel of temporaries
comes first and is the tallest: only there do slots take turns.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp

from aicf_mlir.dialects.plan import ProgramOp
from aicf_mlir.ir.roles import ROLE_TABLE
from aicf_mlir.reports.pictures import style
from aicf_mlir.reports.pictures.launches import headline, sources
from aicf_mlir.reports.pictures.memory_map import Arena, MemoryMap, SlotBlock, memory_map
from aicf_mlir.reports.pictures.style import MARGIN, NAME_WIDTH, PROSE_WIDTH
from aicf_mlir.reports.pictures.svg import Svg
from aicf_mlir.reports.pictures.units import byte_ticks, counted, decimal_step, exact_bytes, readable_bytes

LEFT = 92
"""The left end of the axis of launches."""

WIDEST = 1400
HEADER, GAP = 18, 12
MARKED = 16
"""The further height of a header for the text about the mark."""
NAMED_LAUNCHES = 32
"""The largest number of launches that have their ops under the axis."""

NAME_SIZE = 9
NAME_HEIGHT = 9.5
"""The height of a rectangle that a name needs."""

EDGE = 4
"""The smallest size of rectangles with an edge: in a smaller one the edge would cover everything."""

TONES = 3
"""Neighbours of one role differ in tone."""

MEANINGS = {role.name: role.meaning for role in ROLE_TABLE}


@dataclass(frozen=True)
class Axis:
    """The positions of launches."""

    left: float
    width: float
    launches: int

    def at(self, launch: int) -> float:
        """The left edge of a launch; for the number after the last launch, the end of the axis."""
        return self.left + self.width * launch / max(self.launches, 1)


def memory_picture(module: ModuleOp | ProgramOp) -> str:
    """The SVG of the one plan of `module`.

    Raises PlanError if there is none, more than one, or one without addresses.
    """
    memory = memory_map(module)
    launches = len(memory.launches)
    width = min(max(style.WIDTH, LEFT + MARGIN + 2 * launches), WIDEST)
    axis = Axis(LEFT, width - LEFT - MARGIN, launches)
    title = f"Memory of @{memory.program.symbol} for {memory.program.target.data}"
    svg = Svg(title, _colours(memory))
    y = _heading(svg, memory, title, width)
    first = [arena for arena in memory.arenas if arena.name == "temp"]
    for arena in [*first, *(arena for arena in memory.arenas if arena.name != "temp")]:
        y = _panel(svg, memory, arena, axis, y)
    y = _launch_axis(svg, memory, axis, y - GAP)
    return svg.close(width, y + MARGIN)


def _colours(memory: MemoryMap) -> dict[str, str]:
    """The tones of each role by CSS class, and a lighter one for workspaces."""
    fills: dict[str, str] = {}
    for arena in memory.arenas:
        colour = style.ROLE_COLOURS[arena.name]
        for tone in range(TONES):
            fills[f"{arena.name}{tone}"] = style.lighter(colour, 0.22 * tone)
        fills[f"{arena.name}w"] = style.lighter(colour, 0.75)
    return fills


def _heading(svg: Svg, memory: MemoryMap, title: str, width: float) -> float:
    """Title, peak and legend; returns where the panels begin."""
    svg.text(MARGIN, 30, title, "h")
    peak = f"peak {exact_bytes(memory.peak)} ({readable_bytes(memory.peak)}): all arenas, held for the whole step"
    svg.text(MARGIN, 48, peak, "m")
    x, y = float(MARGIN), 62.0
    keys = [(f"{arena.name}0 k", f"{arena.name} {readable_bytes(arena.nbytes)}") for arena in memory.arenas]
    if any(block.is_workspace for arena in memory.arenas for block in arena.blocks):
        keys.append(("tempw k", "workspace of one launch"))
    for class_, text in keys:
        needed = 16 + len(text) * 11 * PROSE_WIDTH + 14
        if x + needed > width - MARGIN and x > MARGIN:
            x, y = float(MARGIN), y + 18
        svg.rect(x, y, 11, 11, class_)
        svg.text(x + 16, y + 9.5, text)
        x += needed
    return y + 24


def _height(arena: Arena) -> float:
    """The height of an arena. Temporaries take turns, which needs room to see; persistent slots are a pile of names."""
    if arena.name == "temp":
        return min(max(20.0 * len(arena.blocks), 120.0), 560.0)
    return min(max(11.5 * len(arena.blocks), 14.0), 110.0)


def _panel(svg: Svg, memory: MemoryMap, arena: Arena, axis: Axis, y: float) -> float:
    """Draw one arena with its header, ticks and slots; returns where the next may begin."""
    is_marked = arena.name == "temp" and memory.fullest is not None
    top, height = y + HEADER + (MARKED if is_marked else 0), _height(arena)
    slots = counted(len(arena.blocks), "slot")
    svg.text(axis.left, y + HEADER - 5, f"{arena.name}: {MEANINGS[arena.name]}")
    svg.text(axis.left + axis.width, y + HEADER - 5, f"{exact_bytes(arena.nbytes)} in {slots}", "s e")
    for tick in byte_ticks(arena.nbytes, max(int(height / 26), 1)):
        at = top + height * (1 - tick / max(arena.nbytes, 1))
        svg.line(axis.left - 4, at, axis.left + axis.width, at)
        svg.text(axis.left - 8, at + 3.5, readable_bytes(tick) if tick else "0", "s e")
    scale = height / max(arena.nbytes, 1)
    upwards = sorted(arena.blocks, key=lambda block: (block.begin, block.held))
    for number, block in enumerate(upwards):
        _block(svg, memory, block, axis, top + height, scale, number % TONES)
    svg.rect(axis.left, top, axis.width, height, "f q")
    if is_marked:
        _mark_fullest(svg, memory, arena, axis, top, height)
    return top + height + GAP


def _block(
    svg: Svg, memory: MemoryMap, block: SlotBlock, axis: Axis, bottom: float, scale: float, tone: int
) -> None:
    """Draw a slot, with its name if it fits, upright if only that fits."""
    x, width = axis.at(block.held[0]), axis.at(block.held[1] + 1) - axis.at(block.held[0])
    y, height = bottom - block.end * scale, (block.end - block.begin) * scale
    role = block.slot.role.data
    kind = f"{role}{'w' if block.is_workspace else tone}" + (" k" if min(width, height) >= EDGE else "")
    svg.rect(x, y, width, height, kind, _tooltip(memory, block))
    name = block.slot.symbol
    length = len(name) * NAME_SIZE * NAME_WIDTH + 6
    if height >= NAME_HEIGHT and width >= length:
        svg.text(x + 4, y + height / 2 + 3, name, "n")
    elif width >= NAME_HEIGHT and height >= length:
        svg.text(x + width / 2 + 3, y + height / 2, name, "v", turn=-90)


def _tooltip(memory: MemoryMap, block: SlotBlock) -> str:
    """The plan's description of a slot."""
    slot = block.slot
    dtype, shape = slot.spec
    lines = [
        f"@{slot.symbol}: {dtype}{list(shape)}",
        f"{slot.role.data}, offset {block.begin:,}, {slot.nbytes:,} bytes",
    ]
    if slot.label is not None:
        lines.append(f'named "{slot.label.data}"')
    if block.used is None:
        lines.append("no launch touches it")
    else:
        for what, index in zip(("first", "last"), block.used, strict=True):
            launch = memory.launches[index]
            lines.append(f"{what} launch {index}: @{headline(launch)}")
        lines += [f"  {line}" for line in sources(memory.launches[block.used[0]])]
    if block.views:
        lines.append("seen as " + ", ".join(f"@{name}" for name in block.views))
    return "\n".join(lines)


def _mark_fullest(svg: Svg, memory: MemoryMap, arena: Arena, axis: Axis, top: float, height: float) -> None:
    """Mark the launch at which the most temporaries hold a value, and their bytes."""
    if (index := memory.fullest) is None:
        return
    x, width = axis.at(index), axis.at(index + 1) - axis.at(index)
    svg.rect(x, top, width, height, "p q")
    most = memory.in_use[index]
    text = f"most in use: {exact_bytes(most)} of {exact_bytes(arena.nbytes)}, at @{headline(memory.launches[index])}"
    middle = axis.left + axis.width / 2
    if x <= middle:
        svg.text(x, top - 5, text, "a")
    else:
        svg.text(x + width, top - 5, text, "a e")


def _launch_axis(svg: Svg, memory: MemoryMap, axis: Axis, y: float) -> float:
    """Draw the launches under the last panel; returns where it ends."""
    launches = len(memory.launches)
    if not launches:
        svg.text(axis.left, y + 16, "no launches", "s")
        return y + 16
    if launches <= NAMED_LAUNCHES:
        for index, launch in enumerate(memory.launches):
            svg.line(axis.at(index), y, axis.at(index), y + 4)
            svg.text((axis.at(index) + axis.at(index + 1)) / 2 + 4, y + 12, headline(launch), "n e", turn=-24)
        longest = max(len(headline(launch)) for launch in memory.launches)
        return y + 13 + longest * NAME_SIZE * NAME_WIDTH * 0.41
    step = int(max(decimal_step(launches, 16), 1))
    for index in range(0, launches, step):
        svg.line(axis.at(index), y, axis.at(index), y + 4, "f")
        svg.text(axis.at(index), y + 15, str(index), "s c")
    svg.text(axis.left + axis.width / 2, y + 30, "launches, in the order in which they run", "s c")
    return y + 30
