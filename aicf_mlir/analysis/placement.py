"""Where blocks of memory that are in use for a time are placed, so that all of them take few bytes.

Best-fit: one block after the other, each in the smallest gap that those which it meets leave. How many bytes that takes depends
on the order. Several are tried, and some are improved: the block that ends highest is placed earlier, and all is done again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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


Meets = Callable[[TemporaryBlock, TemporaryBlock], bool]
"""A predicate that is True if two blocks may not share bytes, for rules beyond `TemporaryBlock.meets`."""
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


def conflicts(blocks: Sequence[TemporaryBlock], meets: Meets | None = None) -> Conflicts:
    """What may not share bytes: what is in use at the same time, or what a rule says."""
    found: dict[str, list[str]] = {block.name: [] for block in blocks}
    for number, block in enumerate(blocks):
        _, _, first, last = block
        for other in blocks[:number]:
            # As Block.meets, without a call: each block is compared with all.
            if (other.first <= last and first <= other.last) if meets is None else meets(other, block):
                found[block.name].append(other.name)
                found[other.name].append(block.name)
    return found


def best_fit(blocks: Sequence[TemporaryBlock], apart: Conflicts | None = None) -> tuple[dict[str, int], int]:
    """Offsets of the blocks, placed in the order given, and the bytes that they take in all."""
    apart = conflicts(blocks) if apart is None else apart
    places: dict[str, tuple[int, int]] = {}
    for name, size, _, _ in blocks:
        best, best_gap, end = None, 0, 0
        for offset, behind in sorted([places[other] for other in apart[name] if other in places]):
            gap = offset - end
            if gap >= size and (best is None or gap < best_gap):
                best, best_gap = end, gap
            if behind > end:
                end = behind
        at = end if best is None else best
        places[name] = at, at + size
    offsets = {name: at for name, (at, _) in places.items()}
    return offsets, max((behind for _, behind in places.values()), default=0)


def place_blocks(
    blocks: Sequence[TemporaryBlock], meets: Meets | None = None, *, improve: bool = True
) -> tuple[dict[str, int], int]:
    """Offsets of the blocks, and the bytes that they take: the best of several orders of placement, which is improved or not."""
    at, bound = fullest(blocks)
    apart = conflicts(blocks, meets)
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
