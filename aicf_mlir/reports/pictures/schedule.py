"""The earliest start of each launch if only its dependencies delayed it, and its lane.

Dependencies are those of the plan's own `after`, which the rules of a plan hold to the bytes that launches read and write. In a
plan with branches a launch also comes after the one before it on its branch, and the branches are the lanes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

from xdsl.dialects.builtin import ModuleOp

from aicf_mlir.dialects.plan import LaunchOp, ProgramOp
from aicf_mlir.dialects.plan.branches import branches_of, with_branch_order
from aicf_mlir.dialects.plan.hazards import Reach, hazards
from aicf_mlir.errors import PlanError
from aicf_mlir.reports.pictures.memory_map import planned_program


@dataclass(frozen=True)
class Bar:
    """A launch and its time, in seconds or, where none are known, in launches."""

    launch: LaunchOp
    length: float
    start: float
    """The earliest: the longest path to here."""
    lane: int
    """The branch; in a plan without any 0 is the lane of the longest path."""
    is_critical: bool
    """True if it is on the longest path of the plan."""
    after: tuple[int, ...]
    """The launches that it waits for, by index."""
    by_reuse: frozenset[int]
    """The dependencies that exist only because two temporaries share bytes, and that the branch does not imply."""

    @property
    def end(self) -> float:
        """The time at which it is complete."""
        return self.start + self.length


@dataclass(frozen=True)
class Schedule:
    """The launches of a plan, in its order."""

    program: ProgramOp
    bars: tuple[Bar, ...]
    is_timed: bool
    """True if lengths are seconds."""
    has_branches: bool
    depth_apart: float
    """The longest path if no two slots shared memory."""

    @property
    def total(self) -> float:
        """The duration of one launch after another."""
        return sum(bar.length for bar in self.bars)

    @property
    def depth(self) -> float:
        """The longest path: no order of launches takes less."""
        return max((bar.end for bar in self.bars), default=0.0)

    @property
    def lanes(self) -> int:
        """The number of launches that are drawn side by side."""
        return max((bar.lane + 1 for bar in self.bars), default=0)


def schedule(module: ModuleOp | ProgramOp, seconds: Mapping[str, float] | None = None) -> Schedule:
    """The schedule of the one plan of `module`; `seconds` has the time of each launch by its symbol.

    Raises PlanError for a module without one plan with addresses, and for times that are not those of its launches.
    """
    program = planned_program(module)
    launches = program.launches
    lengths = _lengths(launches, seconds)
    index = {launch.symbol: number for number, launch in enumerate(launches)}
    after = [tuple(index[name] for name in launch.waits_for) for launch in launches]
    branches, apart = branches_of(launches), _apart(program)
    has_branches = any(branches)
    if has_branches:
        order, order_apart = (with_branch_order(edges, branches) for edges in (after, apart))
    else:
        order, order_apart = after, apart
    starts = _starts(lengths, order)
    critical = _longest_path(starts, lengths, order)
    lanes = branches if has_branches else _lanes(starts, lengths, after, critical)
    reach = Reach()
    reuse: list[frozenset[int]] = []
    for number, needed in enumerate(order_apart):
        reach.add(needed)
        reuse.append(frozenset(early for early in after[number] if (early, number) not in reach))
    rows = zip(launches, lengths, starts, lanes, after, reuse, strict=True)
    bars = (
        Bar(launch, length, start, lane, number in critical, before, shared)
        for number, (launch, length, start, lane, before, shared) in enumerate(rows)
    )
    ends = (start + length for start, length in zip(_starts(lengths, order_apart), lengths, strict=True))
    return Schedule(program, tuple(bars), seconds is not None, has_branches, max(ends, default=0.0))


def _starts(lengths: Sequence[float], after: Sequence[Collection[int]]) -> list[float]:
    """The end of the longest path to each launch."""
    starts: list[float] = []
    for before in after:
        starts.append(max((starts[early] + lengths[early] for early in before), default=0.0))
    return starts


def _lengths(launches: Sequence[LaunchOp], seconds: Mapping[str, float] | None) -> list[float]:
    """The time of each launch: 1 where none are known."""
    if seconds is None:
        return [1.0] * len(launches)
    names = [launch.symbol for launch in launches]
    missing, others = [n for n in names if n not in seconds], [n for n in seconds if n not in set(names)]
    if missing or others:
        listed = [
            f"{what} {', '.join(f'@{name}' for name in some[:4])}{' …' if len(some) > 4 else ''}"
            for what, some in (("there is none of", missing), ("there is no launch", others))
            if some
        ]
        raise PlanError(
            f"expected a time for each of the {len(names)} launches of the plan; {'; '.join(listed)}"
        )
    for name in names:
        if not isfinite(seconds[name]) or seconds[name] < 0:
            raise PlanError(f"expected the time of @{name} in seconds, at least 0, got {seconds[name]}")
    return [float(seconds[name]) for name in names]


def _longest_path(
    starts: Sequence[float], lengths: Sequence[float], after: Sequence[Collection[int]]
) -> frozenset[int]:
    """The launches of one longest path; of equal ones that with the first launches of the plan."""
    if not starts:
        return frozenset()
    ends = [start + length for start, length in zip(starts, lengths, strict=True)]
    at = max(range(len(ends)), key=lambda i: (ends[i], -i))
    path = [at]
    while after[at]:
        at = max(after[at], key=lambda i: (ends[i], -i))
        path.append(at)
    return frozenset(path)


def _lanes(
    starts: Sequence[float],
    lengths: Sequence[float],
    after: Sequence[Sequence[int]],
    critical: frozenset[int],
) -> list[int]:
    """The lane of each launch: the longest path alone is on lane 0; any other launch follows one that it waits for, else it is
    on the first free lane.
    """
    lanes = [0] * len(starts)
    free_from: list[float] = [float("inf")]
    for i in sorted(range(len(starts)), key=lambda i: (starts[i], i)):
        if i in critical:
            continue
        wanted = [lanes[early] for early in reversed(after[i]) if early not in critical]
        free = [lane for lane, since in enumerate(free_from) if since <= starts[i]]
        lane = next((lane for lane in [*wanted, *free] if lane in free), len(free_from))
        if lane == len(free_from):
            free_from.append(0.0)
        lanes[i] = lane
        free_from[lane] = starts[i] + lengths[i]
    return lanes


def _apart(program: ProgramOp) -> list[set[int]]:
    """The launches that each would wait for if every slot had memory of its own."""
    apart = program.clone()
    for slot in apart.slots.values():
        slot.arena = slot.offset = None
    return hazards(apart.launches, apart.slots)
