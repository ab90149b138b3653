"""Where blocks of memory that are in use for a time are placed, so that all of them take few bytes.

Best-fit: one block after the other, each in the smallest gap that those which it meets leave. How many bytes that takes depends
on the order. Several are tried, and some are improved: the block that ends highest is placed earlier, and all is done again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import sub
from typing import NamedTuple

from aicf_mlir.ir.layouts import ALIGNMENT

WORTH = 4 << 20
"""Bytes above the least; an order that loses fewer is not improved."""
ROUNDS, FITS = 16, 1 << 14
"""How often an order is improved: at most `ROUNDS` times, and less often if there are more than `FITS` / `ROUNDS` blocks."""


def aligned(size: int) -> int:
    """`size` rounded up to the alignment of slots."""
    return -(-size // ALIGNMENT) * ALIGNMENT


class TemporaryBlock(NamedTuple):
    """A temporary to be placed: its size, aligned, and the launches between which it is in use."""

    name: str
    size: int
    first: int
    last: int

    def meets(self, other: TemporaryBlock) -> bool:
        """True if both are in use at some time."""
        return self.first <= other.last and other.first <= self.last


Conflicts = Mapping[str, Sequence[str]]
"""For each block the others with which it may not share bytes."""

ORDERS: Sequence[Callable[[TemporaryBlock], tuple[int, ...]]] = (
    lambda block: (-block.size, block.first, block.last),
    lambda block: (-block.size * (block.last - block.first + 1), block.first, block.last),
    lambda block: (block.first - block.last, -block.size, block.first),
    lambda block: (block.first, -block.size, block.last),
)
"""Orders of placement: by size, by size times duration, by duration, by time."""


def lower_bound(blocks: Sequence[TemporaryBlock]) -> int:
    """The most bytes that are in use at once: no placement needs less."""
    return fullest(blocks)[1]


def fullest(blocks: Sequence[TemporaryBlock]) -> tuple[int, int]:
    """The first launch at which most bytes are in use, and how many."""
    change: dict[int, int] = {}
    for block in blocks:
        change[block.first] = change.get(block.first, 0) + block.size
        change[block.last + 1] = change.get(block.last + 1, 0) - block.size
    at = most = held = 0
    for time in sorted(change):
        held += change[time]
        at, most = (time, held) if held > most else (at, most)
    return at, most


def in_order(blocks: Sequence[TemporaryBlock]) -> list[TemporaryBlock]:
    """The blocks by the launch from which on they are in use."""
    return sorted(blocks, key=lambda block: block.first)


def conflicts(
    blocks: Sequence[TemporaryBlock], further: Iterable[tuple[str, Iterable[str]]] = ()
) -> Conflicts:
    """What may not share bytes: what is in use at the same time, and pairs of a block and `further` ones before it `in_order`."""
    before: dict[str, set[str]] = {}
    active: list[TemporaryBlock] = []
    for block in in_order(blocks):
        active = [other for other in active if other.last >= block.first]
        before[block.name] = {other.name for other in active}
        active.append(block)
    for name, others in further:
        before[name].update(others)
    found = {name: list(others) for name, others in before.items()}
    for name, others in before.items():
        for other in others:
            found[other].append(name)
    return found


def best_fit(blocks: Sequence[TemporaryBlock], apart: Conflicts | None = None) -> tuple[dict[str, int], int]:
    """Offsets of the blocks, placed in the order given, and the bytes that they take in all.

    The n-th gap that placed blocks leave is from the n-th smallest of their ends to the next larger of their starts, where that
    is not before it. Floats, which are exact here, are sorted eight times as fast as pairs of integers.
    """
    apart = conflicts(blocks) if apart is None else apart
    starts: dict[str, float] = {}
    ends: dict[str, float] = {}
    for name, size, _, _ in blocks:
        near = [other for other in apart[name] if other in ends]
        free = [0.0, *sorted(map(ends.__getitem__, near))]
        """Where gaps may begin; behind the last of them all is free."""
        taken = map(sub, sorted(map(starts.__getitem__, near)), free)
        fits = [gap for gap in zip(taken, free, strict=False) if gap[0] >= size]
        at = min(fits)[1] if fits else free[-1]
        starts[name], ends[name] = at, at + size
    return {name: int(at) for name, at in starts.items()}, int(max(ends.values(), default=0))


def place_blocks(
    blocks: Sequence[TemporaryBlock], apart: Conflicts | None = None, *, improve: bool = True
) -> tuple[dict[str, int], int]:
    """Offsets of the blocks, and the bytes that they take: the best of several orders of placement, which is improved or not."""
    at, bound = fullest(blocks)
    apart = conflicts(blocks) if apart is None else apart
    best = best_fit(sorted(blocks, key=ORDERS[0]), apart)
    for order in ORDERS[1:]:
        if best[1] == bound:
            break
        best = min(best, best_fit(sorted(blocks, key=order), apart), key=lambda found: found[1])
    for start in starts(blocks, at) if improve else ():
        if best[1] <= bound + WORTH:
            break
        best = min(best, improved(start, apart, bound), key=lambda found: found[1])
    return best


def starts(blocks: Sequence[TemporaryBlock], at: int) -> Iterator[list[TemporaryBlock]]:
    """Orders that are worth improving: what is in use at launch `at` before all else, by duration or by time."""

    def is_late(block: TemporaryBlock) -> bool:
        return not block.first <= at <= block.last

    yield sorted(blocks, key=lambda block: (is_late(block), *ORDERS[2](block)))
    yield sorted(blocks, key=lambda block: (is_late(block), *ORDERS[3](block)))


def improved(order: list[TemporaryBlock], apart: Conflicts, bound: int) -> tuple[dict[str, int], int]:
    """The best of some orders, each of which places the highest block of the one before it twice as early."""
    best = best_fit(order, apart)
    found = best
    for _ in range(min(ROUNDS, FITS // max(1, len(order)))):
        if best[1] <= bound + WORTH:
            break
        offsets, _ = found
        top = max(range(len(order)), key=lambda at: offsets[order[at].name] + order[at].size)
        if not top:
            break
        order.insert(top // 2, order.pop(top))
        found = best_fit(order, apart)
        best = min(best, found, key=lambda each: each[1])
    return best
