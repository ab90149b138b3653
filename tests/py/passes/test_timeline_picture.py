"""The picture of launches: each as early as the bytes that it touches allow, on lanes where no two are at once."""

from __future__ import annotations

import itertools
import re

import branched
import pytest
from svg_marks import PIXEL, marks, texts
from test_memory_picture import NAMES, plan_of

from aicf_mlir.dialects.plan import LaunchOp, ProgramOp
from aicf_mlir.dialects.plan.hazards import Range, memory_of
from aicf_mlir.errors import PlanError
from aicf_mlir.reports.pictures import style, timeline_picture
from aicf_mlir.reports.pictures.schedule import Schedule, schedule
from aicf_mlir.reports.pictures.timeline import PER_ROW
from aicf_mlir.reports.pictures.units import decimal_step, readable_seconds, tick_seconds


def times_of(program: ProgramOp) -> dict[str, float]:
    """Seconds of launches, all different from their neighbours'."""
    return {launch.symbol: (1 + i * 7 % 5) * 1e-6 for i, launch in enumerate(program.launches)}


def waits(program: ProgramOp) -> list[set[int]]:
    """Of each launch the earlier ones with which it shares a byte that one of the two writes: said pair by pair."""
    memory = {name: memory_of(slot) for name, slot in program.slots.items()}

    def written(launch: LaunchOp) -> list[Range]:
        return [memory[name] for name in (*launch.writes, launch.scratch) if name is not None]

    touches = [(written(each), [memory[name] for name in each.touched]) for each in program.launches]

    def must_wait(early: int, late: int) -> bool:
        (writes, uses), (later_writes, later_uses) = touches[early], touches[late]
        pairs = itertools.chain(itertools.product(writes, later_uses), itertools.product(uses, later_writes))
        return any(one.overlaps(other) for one, other in pairs)

    return [{early for early in range(late) if must_wait(early, late)} for late in range(len(touches))]


def earliest(before: list[set[int]], lengths: list[float]) -> list[float]:
    """The longest path to each launch."""
    starts: list[float] = []
    for waits in before:
        starts.append(max((starts[early] + lengths[early] for early in waits), default=0.0))
    return starts


@pytest.mark.parametrize("is_timed", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_a_launch_starts_where_the_longest_path_to_it_ends(name: str, is_timed: bool) -> None:
    program = plan_of(name)
    plan = schedule(program, times_of(program) if is_timed else None)
    starts = earliest(waits(program), [bar.length for bar in plan.bars])
    assert [bar.start for bar in plan.bars] == pytest.approx(starts)
    assert plan.depth == max(start + bar.length for start, bar in zip(starts, plan.bars, strict=True))


@pytest.mark.parametrize("is_timed", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_lanes(name: str, is_timed: bool) -> None:
    """Lane 0 is one longest path without a gap; nowhere are two launches in one place."""
    program = plan_of(name)
    plan = schedule(program, times_of(program) if is_timed else None)
    longest = sorted((bar for bar in plan.bars if bar.is_critical), key=lambda bar: bar.start)
    assert [bar for bar in plan.bars if bar.lane == 0] == longest
    assert longest[0].start == 0
    assert all(left.end == right.start for left, right in itertools.pairwise(longest))
    assert longest[-1].end == plan.depth
    for left, right in itertools.combinations(plan.bars, 2):
        if left.lane == right.lane:
            assert left.end <= right.start or right.end <= left.start


@pytest.mark.parametrize("name", NAMES)
def test_waiting_for_memory_alone_is_told_apart(name: str) -> None:
    program = plan_of(name)
    apart = program.clone()
    for slot in apart.slots.values():
        slot.arena = slot.offset = None
    plan = schedule(program)
    needed = waits(apart)
    assert plan.depth_apart == max(earliest(needed, [1.0] * len(needed))) + 1
    complete: list[set[int]] = []
    for direct in needed:
        complete.append(direct.union(*(complete[early] for early in direct)))
    for late, bar in enumerate(plan.bars):
        assert bar.by_reuse == {early for early in bar.after if early not in complete[late]}


@pytest.mark.parametrize("is_timed", [False, True])
@pytest.mark.parametrize("name", ["64x256x8", "wide transformer"])
def test_branches_are_lanes(name: str, is_timed: bool) -> None:
    """Each launch begins where what it waits for ends, and the one in front of it on its branch; the picture says so."""
    program = branched.plan(name)
    plan = schedule(program, times_of(program) if is_timed else None)
    last: dict[int, float] = {}
    for bar, before in zip(plan.bars, waits(program), strict=True):
        assert bar.lane == bar.launch.branch_number
        assert bar.start == max([last.get(bar.lane, 0.0), *(plan.bars[early].end for early in before)])
        last[bar.lane] = bar.end
        assert not bar.by_reuse
    assert plan.depth == plan.depth_apart == max(last.values()) < plan.total
    drawn = timeline_picture(program, times_of(program) if is_timed else None)
    written = texts(drawn)
    assert {f"branch {number}" for number in last} <= set(written)
    assert "longest" not in written
    tooltips = {mark.symbol: mark.tooltip for mark in marks(drawn) if mark.tooltip}
    for bar in plan.bars:
        assert f"\nbranch {bar.lane}\n" in tooltips[bar.launch.symbol]


def bars(svg: str, plan: Schedule) -> list[tuple[str, float]]:
    """Symbol and width in pixels of the bars of the strip above, in order."""
    found = [mark for mark in marks(svg) if mark.tooltip]
    strip = [mark for mark in found if mark.y == found[0].y]
    assert len(strip) == len(plan.bars)
    return [(mark.symbol, mark.width) for mark in strip]


@pytest.mark.parametrize("name", NAMES)
def test_widths_are_times(name: str) -> None:
    program = plan_of(name)
    seconds = times_of(program)
    plan = schedule(program, seconds)
    shown = bars(timeline_picture(program, seconds), plan)
    assert [symbol for symbol, _ in shown] == [launch.symbol for launch in program.launches]
    whole = sum(width for _, width in shown)
    for symbol, width in shown:
        assert width / whole == pytest.approx(seconds[symbol] / plan.total, abs=2 * PIXEL / whole)


@pytest.mark.parametrize("is_timed", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_every_launch_is_in_the_strip_and_below(name: str, is_timed: bool) -> None:
    """Below, a launch at the end of a row may go on in the next; nothing is drawn over anything, or beyond the edge."""
    program = plan_of(name)
    svg = timeline_picture(program, times_of(program) if is_timed else None)
    found = [mark for mark in marks(svg) if mark.tooltip]
    for launch in program.launches:
        assert sum(mark.symbol == launch.symbol for mark in found) >= 2
    frame = marks(svg)[0]
    assert all(frame.holds(mark) for mark in found)
    for left, right in itertools.combinations(found, 2):
        is_apart = (
            left.right <= right.x + PIXEL
            or right.right <= left.x + PIXEL
            or left.bottom <= right.y + PIXEL
            or right.bottom <= left.y + PIXEL
        )
        assert is_apart, (left, right)


def test_a_long_plan_continues_in_further_rows() -> None:
    plan = schedule(plan_of("layers"))
    path = sum(bar.is_critical for bar in plan.bars)
    assert path > 2 * PER_ROW
    assert texts(timeline_picture(plan_of("layers"))).count("longest") == -(-path // PER_ROW)
    assert texts(timeline_picture(plan_of("train_step"))).count("longest") == 1


def test_a_tooltip_says_all_of_a_launch() -> None:
    svg = timeline_picture(plan_of("train_step"))
    tooltips = {mark.symbol: mark.tooltip for mark in marks(svg) if mark.tooltip}
    k6 = tooltips["k6"].splitlines()
    assert k6[:3] == [
        "@k6 gemm_epilogue",
        "kernel gemm_epilogue_cpu_blas",
        "earliest start: depth 5, on the longest path",
    ]
    assert k6[3:5] == ["after @k5", "after, only since memory is used again: @k2"]
    assert re.search(r"^at .*:17$", tooltips["k6"], re.MULTILINE)
    timed = timeline_picture(plan_of("train_step"), times_of(plan_of("train_step")))
    assert "\n3 µs\nearliest start: 1 µs" in {m.symbol: m.tooltip for m in marks(timed) if m.tooltip}["k1"]


def test_the_legend_counts_ops() -> None:
    written = texts(timeline_picture(plan_of("train_step")))
    assert {"gemm_epilogue × 5", "adam_step × 1"} <= set(written)
    assert (
        "9 launches: 9 one after another, 7 along the longest path of what must wait, 6 if no memory were used again"
        in written
    )


def test_ops_that_no_colour_is_left_for_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(style, "OP_COLOURS", style.OP_COLOURS[:2])
    written = texts(timeline_picture(plan_of("train_step")))
    assert [text for text in written if "×" in text] == [
        "gemm_epilogue × 5",
        "adam_step × 1",
        "3 other ops × 3",
    ]


def test_a_wait_for_memory_alone_is_dashed() -> None:
    """Also of a launch that stands right behind the one that it waits for."""
    plan = schedule(plan_of("train_step"))
    drawn = timeline_picture(plan_of("train_step"))
    assert any(bar.by_reuse for bar in plan.bars)
    in_key = 1
    assert drawn.count('class="f r"') == in_key + sum(len(bar.by_reuse) for bar in plan.bars)


def test_a_plan_without_launches_is_drawn() -> None:
    program = plan_of("train_step").clone()
    for launch in program.launches:
        launch.detach()
    assert "0 launches: 0 one after another, 0 along the longest path of what must wait" in texts(
        timeline_picture(program)
    )


def test_times_that_are_nothing_still_make_a_picture() -> None:
    program = plan_of("train_step")
    plan = schedule(program, dict.fromkeys(times_of(program), 0.0))
    assert (plan.total, plan.depth) == (0, 0)
    assert timeline_picture(program, dict.fromkeys(times_of(program), 0.0))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k0": None}, "expected a time for each of the 9 launches of the plan; there is none of @k0"),
        ({"k99": 1.0}, "there is no launch @k99"),
        ({"k0": -1.0}, "expected the time of @k0 in seconds, at least 0, got -1.0"),
        ({"k0": float("nan")}, "expected the time of @k0 in seconds, at least 0, got nan"),
        ({"k0": float("inf")}, "expected the time of @k0 in seconds, at least 0, got inf"),
        ({f"k{i}": None for i in range(9)}, "there is none of @k0, @k1, @k2, @k3 …"),
    ],
)
def test_times_that_do_not_fit_are_refused(change: dict[str, float | None], message: str) -> None:
    program = plan_of("train_step")
    given = {name: time for name, time in (times_of(program) | change).items() if time is not None}
    with pytest.raises(PlanError, match=re.escape(message)):
        timeline_picture(program, given)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (2.5, "2.5 s"), (1.5e-3, "1.5 ms"), (1e-6, "1 µs"), (2e-10, "0.2 ns")]
)
def test_seconds_are_readable(seconds: float, text: str) -> None:
    assert readable_seconds(seconds) == text


@pytest.mark.parametrize("length", [1e-9, 3.6e-5, 0.3, 1.0, 9.0, 528.0, 1e6])
def test_ticks_of_time_are_all_different(length: float) -> None:
    step = decimal_step(length, 12)
    assert length / 12 <= step * 1.001
    assert step < length / 4
    assert len({tick_seconds(1000 * length + i * step, step) for i in range(12)}) == 12
