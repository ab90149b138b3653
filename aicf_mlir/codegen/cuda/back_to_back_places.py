"""Places in the shared memory of a warp, and their lifetimes: the same bytes serve several uses one after the other.

For each tile, the time of a link has four parts. The first is its product, while the staged values of the link before are
written. The second is its body. The third is the barrier after which the operands of the previous link's outer products are free.
The fourth is the staging of its values. The time of link -1 is the one in which a arrives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aicf_mlir.codegen.cuda.back_to_back_plan import Fetch, strip_bytes
from aicf_mlir.ir.element_types import NARROW
from aicf_mlir.kernels.back_to_back import BackToBackKernel, Outer

PANEL = 1024
"""Bytes to which places are aligned."""
PRODUCT, BODY, BARRIER, STAGING = range(4)
"""The parts of a link's time."""

Times = tuple[tuple[int, int], ...]
"""Intervals of time: the first part in which the memory is used, and the first part in which it is free again."""


def part(link: int, which: int) -> int:
    """A part of the time of a link."""
    return 4 * (link + 1) + which


@dataclass(frozen=True)
class Strip:
    """A user of memory."""

    size: int
    """Bytes."""
    times: Times

    def meets(self, other: Strip) -> bool:
        """True if both are there at a time."""
        return any(first < end and begin < last for begin, end in self.times for first, last in other.times)


def needs_pairs(kernel: BackToBackKernel, value: int) -> bool:
    """True if a value goes through shared memory on its way out."""
    made = kernel.values[value][1]
    return made.element in NARROW and (made.wide is not None or made.column_sum is not None)


def panels(size: int) -> int:
    """Bytes up to where the next panel may begin."""
    return -(-size // PANEL) * PANEL


def link_of(kernel: BackToBackKernel, value: int | None) -> int:
    """The link that gives a value; of a, -1."""
    return -1 if value is None or value < 0 else kernel.values[value][0]


def ready(kernel: BackToBackKernel, outer: Outer) -> int:
    """The link after whose body an outer product starts."""
    return max(link_of(kernel, outer.left), link_of(kernel, outer.right))


def right_of(outer: Outer) -> int:
    """The value on the right of an outer product, -1 for a."""
    return -1 if outer.right is None else outer.right


def lay_out(
    kernel: BackToBackKernel, fetches: Sequence[Fetch], alone: bool, divided: bool
) -> tuple[list[int], dict[int, int], int]:
    """The places of the fetched tiles and of the staged values of a warp, where -1 is a; and the end of the last of them."""
    staged = _staged(kernel, divided)
    strips = [*_fetched(kernel, fetches, alone), *(strip for _, strip in staged)]
    places = _pack(strips)
    end = max((place + panels(strip.size) for place, strip in zip(places, strips, strict=True)), default=0)
    values = {
        value: place
        for (values, _), place in zip(staged, places[len(fetches) :], strict=True)
        for value in values
    }
    return places[: len(fetches)], values, end


def _end(kernel: BackToBackKernel) -> int:
    """The end of a tile's time."""
    return part(len(kernel.links), STAGING) + 1


def _fetched(kernel: BackToBackKernel, fetches: Sequence[Fetch], alone: bool) -> list[Strip]:
    """The tiles of operands. A link's tiles are there from the time when those of the link before are read; the first ones
    from the last link's time on.
    """
    links = sorted({fetch.link for fetch in fetches})
    strips: list[Strip] = []
    for fetch in fetches:
        read = part(fetch.link, BARRIER)
        if alone or len(links) == 1:
            times: Times = ((0, _end(kernel)),)
        elif fetch.link == links[0]:
            times = ((0, read), (part(links[-1], BARRIER), _end(kernel)))
        else:
            times = ((part(links[links.index(fetch.link) - 1], BARRIER), read),)
        strips.append(Strip(fetch.bytes, times))
    return strips


def _staged(kernel: BackToBackKernel, divided: bool) -> list[tuple[list[int], Strip]]:
    """The strips of values on their way to memory, one after the other within a link, and of the operands of outer products."""
    multiplied = [-1, *kernel.multiplied] if kernel.multiplies_a else list(kernel.multiplied)
    found: list[tuple[list[int], Strip]] = []
    if kernel.a_rounded is not None and -1 not in multiplied:
        found.append(([-1], Strip(strip_bytes(kernel.links[0].k), ((part(-1, STAGING), part(0, PRODUCT)),))))
    for number, link in enumerate(kernel.links):
        first = kernel.first_value(number)
        own = range(first, first + len(link.yields))
        leaving = [value for value in own if needs_pairs(kernel, value) and value not in multiplied]
        if leaving:
            times = ((part(number, STAGING), part(number + 1, BODY)),)
            found.append((leaving, Strip(strip_bytes(link.n), times)))
    for value in sorted(multiplied):
        owner = link_of(kernel, value)
        columns = kernel.links[0].k if value < 0 else kernel.links[owner].n
        begin = part(0, BODY) if value < 0 else part(owner, STAGING)
        found.append(([value], Strip(strip_bytes(columns), _multiplied(kernel, value, begin, divided))))
    return found


def _multiplied(kernel: BackToBackKernel, value: int, begin: int, divided: bool) -> Times:
    """The time from `begin` until all warps know that the last outer product has read the value."""
    last = max(ready(kernel, outer) for outer in kernel.outers if value in (outer.left, right_of(outer)))
    if divided:
        return ((begin, part(last + 1, BARRIER) + 1),)
    later = [link for link in (ready(kernel, outer) for outer in kernel.outers) if link > last]
    if later:
        return ((begin, part(min(later), STAGING) + 1),)
    return ((0, part(0, BODY)), (begin, _end(kernel)))


def _pack(strips: Sequence[Strip]) -> list[int]:
    """The start of each strip: the largest strip is placed first, each at the first place where no other strip is at the same
    time.
    """
    places: dict[int, int] = {}
    for number in sorted(range(len(strips)), key=lambda n: (-strips[n].size, strips[n].times)):
        strip, place = strips[number], 0
        others = sorted(
            (places[other], places[other] + panels(strips[other].size))
            for other in places
            if strip.meets(strips[other])
        )
        for begin, end in others:
            if begin < place + panels(strip.size) and place < end:
                place = end
        places[number] = place
    return [places[number] for number in range(len(strips))]
