"""The launches of a plan as a picture: in their order of execution, and as early as their dependencies let them.

The upper strip is the plan as it runs, one launch after the other. Below, each launch begins at the end of the longest path to
it: lane 0 is the longest path of the plan, and every further lane holds launches that could run in parallel. If the plan has
branches they are the lanes, and each launch comes after the one before it on its branch. Plans of many launches continue in
further rows, as a text does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

from xdsl.dialects.builtin import ModuleOp

from aicf_mlir.dialects.plan import ProgramOp
from aicf_mlir.reports.pictures import style
from aicf_mlir.reports.pictures.launches import headline, sources
from aicf_mlir.reports.pictures.schedule import Bar, Schedule, schedule
from aicf_mlir.reports.pictures.style import MARGIN, NAME_WIDTH, PROSE_WIDTH
from aicf_mlir.reports.pictures.svg import Svg
from aicf_mlir.reports.pictures.units import counted, decimal_step, readable_seconds, short, tick_seconds

LEFT = 66
BAR, CHANNEL = 21, 12
"""The pixels of a bar, and of the channel between two lanes, in which the lines of dependencies run."""

FULL_LANES, THIN = 6, 5
"""Lanes of a row that have room for names, and pixels of each further one."""

ROW_GAP = 8

PER_ROW = 32
"""Launches of the longest path, on average, before a further row begins."""

NAME_HEIGHT = 10

NAME_SIZE = 9
EDGE = 3


@dataclass(frozen=True)
class Scale:
    """The positions of times in a row that begins at `begin`."""

    begin: float
    length: float
    width: float

    @property
    def end(self) -> float:
        """The time at which the row ends."""
        return self.begin + self.length

    def at(self, time: float) -> float:
        """The position in pixels; a time outside of the row is moved to its edge."""
        inside = min(max(time, self.begin), self.end)
        return LEFT + self.width * (inside - self.begin) / (self.length or 1)


@dataclass(frozen=True)
class Lanes:
    """The positions of the lanes of a row."""

    top: float
    count: int

    def height(self, lane: int) -> float:
        """The height of a bar."""
        return BAR if lane < FULL_LANES else THIN - 1

    def at(self, lane: int) -> float:
        """The upper edge of a bar."""
        full = min(lane, FULL_LANES)
        return self.top + full * (BAR + CHANNEL) + (lane - full) * THIN

    def middle(self, lane: int) -> float:
        """The middle of a bar."""
        return self.at(lane) + self.height(lane) / 2

    @property
    def end(self) -> float:
        """The lower edge of the last one."""
        return self.at(self.count - 1) + self.height(self.count - 1)


def timeline_picture(module: ModuleOp | ProgramOp, seconds: Mapping[str, float] | None = None) -> str:
    """The SVG of the one plan of `module`.

    `seconds` has the time of each launch by its symbol; without, all are equally long. Raises PlanError as `schedule` does.
    """
    plan = schedule(module, seconds)
    title = f"Launches of @{plan.program.symbol} for {plan.program.target.data}"
    uses = Counter(bar.launch.op.data for bar in plan.bars)
    ops = [op for op, _ in sorted(uses.items(), key=lambda row: (-row[1], row[0]))]
    classes = {op: f"o{number}" for number, op in enumerate(ops[: len(style.OP_COLOURS)])}
    colours = dict(zip(classes.values(), style.OP_COLOURS, strict=False)) | {"other": style.OTHER_COLOUR}
    svg = Svg(title, colours)
    drawing = _Drawing(svg, plan, {op: classes.get(op, "other") for op in ops})
    y = drawing.heading(title, uses)
    y = drawing.in_order(y)
    y = drawing.as_early_as_possible(y)
    return svg.close(style.WIDTH, y + MARGIN)


@dataclass(frozen=True)
class _Drawing:
    svg: Svg
    plan: Schedule
    classes: Mapping[str, str]
    """The CSS class of each op."""

    def heading(self, title: str, uses: Mapping[str, int]) -> float:
        """Draw title, the two lengths, and the legend; returns where it ends."""
        plan, svg = self.plan, self.svg
        svg.text(MARGIN, 30, title, "h")
        svg.text(
            MARGIN,
            48,
            f"{counted(len(plan.bars), 'launch')}: {self._length(plan.total)} one after another,"
            f" {self._length(plan.depth)} along the longest path of what must wait"
            + (
                ""
                if plan.depth == plan.depth_apart
                else f", {self._length(plan.depth_apart)} if no memory were used again"
            ),
            "m",
        )
        x, y = float(MARGIN), 62.0
        keys = [
            (self.classes[op], f"{op} × {uses[op]}") for op in self.classes if self.classes[op] != "other"
        ]
        if others := [op for op in self.classes if self.classes[op] == "other"]:
            keys.append(("other", f"{counted(len(others), 'other op')} × {sum(uses[op] for op in others)}"))
        for class_, text in keys:
            needed = 16 + len(text) * 11 * PROSE_WIDTH + 14
            if x + needed > style.WIDTH - MARGIN and x > MARGIN:
                x, y = float(MARGIN), y + 18
            svg.rect(x, y, 11, 11, f"{class_} k")
            svg.text(x + 16, y + 9.5, text)
            x += needed
        return y + 18

    def in_order(self, y: float) -> float:
        """Draw the strip of the plan as it runs; returns where it ends."""
        self.svg.text(LEFT, y + 20, "in the order of the plan")
        scale = Scale(0, self.plan.total, style.WIDTH - LEFT - MARGIN)
        top, time = y + 27, 0.0
        for bar in self.plan.bars:
            self._bar(bar, scale.at(time), scale.at(time + bar.length), top, BAR)
            time += bar.length
        return self._ticks(scale, top + BAR + 3)

    def as_early_as_possible(self, y: float) -> float:
        """Draw the lanes, row by row; returns where they end."""
        plan = self.plan
        where = "on their branches, " if plan.has_branches else ""
        self.svg.text(LEFT, y + 24, f"{where}as early as what they wait for is complete")
        self._key(y + 24)
        y += 36
        rows = max(ceil(sum(bar.is_critical for bar in plan.bars) / PER_ROW), 1)
        # One row shares the scale of the strip above it, so that the saved time can be seen.
        length = plan.total if rows == 1 else plan.depth / rows
        if not plan.is_timed:
            length = float(ceil(length))
        for row in range(rows):
            scale = Scale(row * length, length, style.WIDTH - LEFT - MARGIN)
            shown = [bar for bar in plan.bars if self._is_in(bar, scale)]
            if shown or not row:
                y = self._row(shown, scale, y)
        return y

    def _is_in(self, bar: Bar, scale: Scale) -> bool:
        """True if a part of `bar` is in the row; for a bar without length, its start."""
        return bar.start < scale.end and (bar.end > scale.begin or bar.start >= scale.begin)

    def _row(self, shown: list[Bar], scale: Scale, y: float) -> float:
        """Draw the lanes of one row, the dependencies, and the bars over it; returns where it ends."""
        lanes = Lanes(y, max((bar.lane for bar in shown), default=0) + 1)
        for lane in range(lanes.count):
            middle = lanes.middle(lane)
            if lane <= FULL_LANES or lane == lanes.count - 1:
                self.svg.text(LEFT - 10, middle + 3.5, self._lane_name(lane), "s e")
            if lane < FULL_LANES:
                self.svg.line(LEFT, middle, LEFT + scale.width, middle)
        for bar in shown:
            for early in bar.after:
                self._wait(early, bar, scale, lanes)
        for bar in shown:
            left, right, top = scale.at(bar.start), scale.at(bar.end), lanes.at(bar.lane)
            self._bar(bar, left, right, top, lanes.height(bar.lane))
            if bar.is_critical:
                self.svg.line(left, top - 3, right, top - 3, "p")
        return self._ticks(scale, lanes.end + 4) + ROW_GAP

    def _lane_name(self, lane: int) -> str:
        if self.plan.has_branches:
            return f"branch {lane}"
        return f"lane {lane}" if lane else "longest"

    def _wait(self, index: int, late: Bar, scale: Scale, lanes: Lanes) -> None:
        """Draw a line from the launch `index` to one that waits for it, in the channel next to the lane that it leaves.

        No line is drawn if one launch directly follows the other, except for a wait that is only one for memory.
        """
        early, by_reuse = self.plan.bars[index], index in late.by_reuse
        is_next = early.lane == late.lane and early.end == late.start
        if (
            (is_next and not by_reuse)
            or early.end <= scale.begin
            or late.start < scale.begin
            or early.lane >= lanes.count
        ):
            return
        inset = min(6.0, (scale.at(late.end) - scale.at(late.start)) / 2)
        x1, x2 = max(scale.at(early.end) - inset, scale.at(early.start)), scale.at(late.start) + inset
        way = CHANNEL * (0.35 if by_reuse else 0.6)
        if late.lane < early.lane:
            leaves, enters = lanes.at(early.lane), lanes.at(late.lane) + lanes.height(late.lane)
            channel = leaves - way
        else:
            leaves = lanes.at(early.lane) + lanes.height(early.lane)
            enters = leaves if late.lane == early.lane else lanes.at(late.lane)
            channel = leaves + way
        path = f"M{short(x1)} {short(leaves)}V{short(channel)}H{short(x2)}V{short(enters)}"
        self.svg.add("path", d=path, class_="f r" if by_reuse else "f")

    def _bar(self, bar: Bar, left: float, right: float, y: float, height: float) -> None:
        """Draw a launch, with its name if it fits."""
        width = right - left
        kind = self.classes[bar.launch.op.data] + (" k" if min(width, height) >= EDGE else "")
        self.svg.rect(left, y, width, height, kind, self._tooltip(bar))
        for name in (headline(bar.launch), bar.launch.symbol):
            if height >= NAME_HEIGHT and len(name) * NAME_SIZE * NAME_WIDTH + 4 <= width:
                self.svg.text((left + right) / 2, y + height / 2 + 3, name, "n c")
                break

    def _tooltip(self, bar: Bar) -> str:
        launch = bar.launch
        lines = [f"@{headline(launch)}", f"kernel {launch.kernel_id.data}"]
        if self.plan.is_timed:
            lines.append(readable_seconds(bar.length))
        begins = readable_seconds(bar.start) if self.plan.is_timed else f"depth {short(bar.start)}"
        lines.append(f"earliest start: {begins}" + (", on the longest path" if bar.is_critical else ""))
        if self.plan.has_branches:
            lines.append(f"branch {bar.lane}")
        for what, some in (
            ("after", [early for early in bar.after if early not in bar.by_reuse]),
            (
                "after, only since memory is used again:",
                [early for early in bar.after if early in bar.by_reuse],
            ),
        ):
            if some:
                lines.append(
                    f"{what} " + ", ".join(f"@{self.plan.bars[early].launch.symbol}" for early in some)
                )
        lines += [f"at {line}" if number == 0 else f"  {line}" for number, line in enumerate(sources(launch))]
        return "\n".join(lines)

    def _key(self, y: float) -> None:
        """Draw the key of the lines, at the right."""
        x = style.WIDTH - MARGIN
        reuse = any(bar.by_reuse for bar in self.plan.bars)
        for text, class_ in (
            *([("waits only since memory is used again", "f r")] if reuse else []),
            ("must wait", "f"),
            ("longest path", "p"),
        ):
            x -= len(text) * 10 * PROSE_WIDTH
            self.svg.text(x, y, text, "s")
            self.svg.line(x - 24, y - 3.5, x - 6, y - 3.5, class_)
            x -= 38

    def _ticks(self, scale: Scale, y: float) -> float:
        """Draw the axis of a row; returns where it ends."""
        if not self.plan.bars or not scale.length:
            return y + 18
        step = decimal_step(scale.length, 12)
        if not self.plan.is_timed:
            step = max(step, 1.0)
        number = ceil(scale.begin / step)
        while number * step <= scale.end:
            at = number * step
            self.svg.line(scale.at(at), y, scale.at(at), y + 4, "f")
            text = tick_seconds(at, step) if self.plan.is_timed else short(at)
            self.svg.text(scale.at(at), y + 14, text, "s c")
            number += 1
        return y + 24

    def _length(self, time: float) -> str:
        return readable_seconds(time) if self.plan.is_timed else short(time)
