"""Reads the text of a chain and follows what lies in the shared memory of a warp, statement by statement, for three tiles."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from aicf_mlir.codegen.cuda.back_to_back_plan import ChainSchedule
from aicf_mlir.kernels.back_to_back import BackToBackKernel

PATTERNS = {
    "product": r"product_\d+_\d+(?:_t)?\(z(\d+), (\w+),",
    "fetch": r"chain::(\w+)<(\d+)>::fetch\(strip \+ (\d+), .*?([ar]\d+) \+ (?:next_)?row0",
    "read": r"chain::(\w+)<(\d+)>::read\((?:\w+, )?strip \+ (\d+)",
    "write": r"chain::Strip<(\d+)>::write\(strip \+ (\d+), (\w+)\)",
    "each": r"chain::Strip<\d+>::each\(strip \+ (\d+)",
    "put": r"::put\(r(\d+) \+ row0",
    "add": r"add_chunk<[\w:]+>\(s(\d+), chunk\)",
    "outer": r"outer_(?!8\()\d+\(d(\d+) \+ \d+, .*?rows16 \+ (\d+).*?rows16 \+ (\d+)\)",
    "commit": r"^commit_products\(\);",
    "wait": r"wait_products(?:<(\d+)>)?\(",
    "meet": r"__syncthreads\(\);|meet\(warp / 4\);",
}


@dataclass
class Read:
    """Of an outer product, until its warps know that it is over."""

    begin: int
    end: int
    over: bool = False


@dataclass
class Walk:
    """What is known at a statement."""

    kernel: BackToBackKernel
    plan: ChainSchedule
    lies: dict[tuple[int, int], str] = field(default_factory=dict[tuple[int, int], str])
    """By bytes, what was brought there and not written over."""
    groups: list[list[Read]] = field(default_factory=list[list[Read]])
    """Of products, in order; those that are over are gone."""
    started: list[Read] = field(default_factory=list[Read])
    reads: list[Read] = field(default_factory=list[Read])
    link: int = -1
    read_at: int = -1
    faults: list[str] = field(default_factory=list[str])
    outer_products: int = 0

    def bring(self, place: int, size: int, what: str) -> None:
        """Write bytes that nothing still reads."""
        end = place + size
        if end > self.plan.strip:
            self.faults.append(f"{what} ends at {end} of {self.plan.strip}")
        for read in self.reads:
            if read.begin < end and place < read.end:
                self.faults.append(
                    f"{what} at {place} while an outer product reads {read.begin} to {read.end}"
                )
        self.lies = {at: it for at, it in self.lies.items() if at[1] <= place or end <= at[0]}
        self.lies[place, end] = what

    def expect(self, place: int, what: str) -> tuple[int, int]:
        """The bytes of something that must lie there, from that place on or from one of its columns."""
        at = next((at for at, it in self.lies.items() if at[0] <= place < at[1] and it == what), None)
        if at is None:
            self.faults.append(f"link {self.link}: {what} no longer lies at {place}: {self.lies}")
        return at or (place, place)

    def step(self, kind: str, found: re.Match[str]) -> None:
        """What a statement does."""
        if kind == "product":
            self.link = int(found[1])
            self.groups.append([])
        elif kind == "fetch":
            self.bring(int(found[3]), size_of(found[1], int(found[2])), found[4])
        elif kind == "read":
            fetches = [fetch for fetch in self.plan.fetches_of(self.link) if fetch.place == int(found[3])]
            self.expect(int(found[3]), f"a{fetches[0].operand}")
        elif kind == "write":
            self.bring(int(found[2]), size_of("Strip", int(found[1])), found[3])
        elif kind == "each":
            self.read_at = int(found[1])
        elif kind == "put":
            values = {wide: value for value, (wide, _) in enumerate(self.kernel.places) if wide is not None}
            self.expect(self.read_at, f"y{values[int(found[1])]}" if int(found[1]) in values else "a")
        elif kind == "add":
            self.expect(self.read_at, f"y{found[1]}")
        elif kind == "outer":
            outer = self.kernel.outers[int(found[1])]
            sides = (f"y{outer.left}", "a" if outer.right is None else f"y{outer.right}")
            for place, side in zip(found.groups()[1:], sides, strict=True):
                self.started.append(Read(*self.expect(int(place), side)))
            self.outer_products += 1
        elif kind == "commit":
            self.reads += self.started
            self.groups.append(self.started)
            self.started = []
        elif kind == "wait":
            left = int(found[1] or 0)
            for group in self.groups[: len(self.groups) - left]:
                for read in group:
                    read.over = True
            self.groups = self.groups[len(self.groups) - left :]
        else:
            self.reads = [read for read in self.reads if not read.over]


def size_of(strip: str, columns: int) -> int:
    """Bytes of 16 rows, as strips.cuh has them."""
    if strip == "Strip":
        return -(-columns // 64) * 16 * 128
    return 16 * (4 * columns + (0 if columns % 32 == 0 else 32))


def statements(text: str) -> Iterator[tuple[str, re.Match[str]]]:
    """Those that concern shared memory, each once: what is fetched, read and multiplied in loops lies in one place."""
    for line in text.splitlines():
        for kind, pattern in PATTERNS.items():
            if found := re.search(pattern, line.strip().replace("aicf::chain::commit", "commit")):
                yield kind, found


def walked(kernel: BackToBackKernel, plan: ChainSchedule, source: str) -> Walk:
    """The walk through the first phase, over three tiles."""
    function = source[source.index("extern __shared__") :]
    head, _, rest = (
        function.partition("    for (; tile")
        if "    for (; tile" in function
        else function.partition("  for (; tile")
    )
    tile, _, _ = rest.partition("\n  }\n")
    walk = Walk(kernel, plan)
    for part in (head, tile, tile, tile):
        walk.link = -1
        for kind, found in statements(part):
            walk.step(kind, found)
    return walk
