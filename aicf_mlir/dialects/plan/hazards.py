"""Hazards between launches: read after write, write after read, write after write, on bytes.

Before plan-memory every owner of memory is a space of its own; afterwards the arenas are, so that temporaries
which share bytes are ordered too.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from aicf_mlir.dialects.plan.launch import LaunchOp
from aicf_mlir.dialects.plan.memory import SlotOp


class Range(NamedTuple):
    """Bytes `begin` to `end` (exclusive) of one space."""

    space: str
    begin: int
    end: int

    def overlaps(self, other: Range) -> bool:
        """True if the two have a byte in common."""
        return self.space == other.space and self.begin < other.end and other.begin < self.end


def memory_of(slot: SlotOp) -> Range:
    """The bytes from the first that `slot` covers to the last."""
    space, begin = slot.place or (slot.root, 0)
    first, end = slot.extent
    return Range(space, begin + first, begin + end)


@dataclass
class _Segment:
    """Bytes with one history: their last writer, and their readers since."""

    begin: int
    end: int
    writer: int | None = None
    readers: list[int] = field(default_factory=list[int])

    def split(self, at: int) -> _Segment:
        """Cut off and return the part from `at` on."""
        tail = _Segment(at, self.end, self.writer, list(self.readers))
        self.end = at
        return tail


class _History:
    """The history of one space as segments in the order of their bytes; untouched bytes have none."""

    def __init__(self) -> None:
        self.segments: list[_Segment] = []

    def read(self, begin: int, end: int, launch: int) -> Iterator[int]:
        """Record a read and yield the launches that wrote these bytes."""
        for segment in self._cover(begin, end):
            if segment.writer is not None:
                yield segment.writer
            segment.readers.append(launch)

    def write(self, begin: int, end: int, launch: int) -> Iterator[int]:
        """Record a write and yield the launches that wrote these bytes or have read them since."""
        covered = self._cover(begin, end)
        if not covered:
            return
        for segment in covered:
            if segment.writer is not None:
                yield segment.writer
            yield from segment.readers
        first = bisect_left(self.segments, begin, key=lambda s: s.begin)
        self.segments[first : first + len(covered)] = [_Segment(begin, end, launch)]

    def _cover(self, begin: int, end: int) -> list[_Segment]:
        """The segments that make up exactly these bytes; segments that extend beyond are cut, missing ones added."""
        if begin >= end:
            return []
        self._cut(begin)
        self._cut(end)
        first = bisect_left(self.segments, begin, key=lambda s: s.begin)
        last = bisect_left(self.segments, end, key=lambda s: s.begin)
        covered: list[_Segment] = []
        position = begin
        for segment in self.segments[first:last]:
            if segment.begin > position:
                covered.append(_Segment(position, segment.begin))
            covered.append(segment)
            position = segment.end
        if position < end:
            covered.append(_Segment(position, end))
        self.segments[first:last] = covered
        return covered

    def _cut(self, at: int) -> None:
        index = bisect_right(self.segments, at, key=lambda s: s.begin) - 1
        if index >= 0 and self.segments[index].begin < at < self.segments[index].end:
            self.segments.insert(index + 1, self.segments[index].split(at))


def hazards(launches: Sequence[LaunchOp], slots: Mapping[str, SlotOp]) -> list[set[int]]:
    """For each launch the earlier launches with which it has a hazard, by index."""
    spaces: dict[str, _History] = {}
    memory = {name: memory_of(slot) for name, slot in slots.items()}
    found: list[set[int]] = []
    for index, launch in enumerate(launches):
        before: set[int] = set()
        written = [*launch.writes, *([] if launch.scratch is None else [launch.scratch])]
        read = [*launch.reads, *([] if launch.predicate_slot is None else [launch.predicate_slot])]
        for names, access in ((read, _History.read), (written, _History.write)):
            for name in names:
                space, begin, end = memory[name]
                before.update(access(spaces.setdefault(space, _History()), begin, end, index))
        before.discard(index)
        found.append(before)
    return found


class Reach:
    """The launches that are complete before another starts, through any chain of edges; as bit masks."""

    def __init__(self) -> None:
        self._before: list[int] = []

    def add(self, edges: Iterable[int]) -> None:
        """Append a launch that waits for the launches `edges`."""
        mask = 0
        for edge in edges:
            mask |= self._before[edge] | 1 << edge
        self._before.append(mask)

    def before(self, launch: int) -> int:
        """The launches that are complete before `launch` starts, as a mask of bits."""
        return self._before[launch]

    def __contains__(self, pair: tuple[int, int]) -> bool:
        """True if `(early, late)`: launch `early` is complete before launch `late` starts."""
        early, late = pair
        return bool(self._before[late] >> early & 1)


def reduced(edges: Sequence[set[int]]) -> list[list[int]]:
    """The fewest edges with the same meaning, ascending: implied edges are left out."""
    reach = Reach()
    result: list[list[int]] = []
    for before in edges:
        kept: list[int] = []
        # An edge can only follow from one that is later, so the latest is always needed.
        for early in sorted(before, reverse=True):
            if not any((early, later) in reach for later in kept):
                kept.append(early)
        reach.add(kept)
        result.append(kept[::-1])
    return result


def order_launches(launches: Sequence[LaunchOp], slots: Mapping[str, SlotOp]) -> None:
    """Write the `after` of every launch: exactly its hazards, reduced."""
    for launch, edges in zip(launches, reduced(hazards(launches, slots)), strict=True):
        launch.set_after([launches[edge].symbol for edge in edges])
