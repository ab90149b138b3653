"""Launches in an order in which less memory is in use at once, where a plan needs most.

A product's gradient by its weight frees an activation, the one by its input takes memory for a result. So the first comes first
where both are ready. Launches move a few places at most, and none across another with which it has a hazard: each computes what
it computed before. An order that would save too little stays as it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from aicf_mlir.dialects.plan import ProgramOp
from aicf_mlir.dialects.plan.hazards import hazards, order_launches
from aicf_mlir.errors import PlanError

FARTHEST = 8
"""The most places that a launch moves at once."""
WORTH = 1 << 20
"""Bytes; an order that saves less than this is not worth a change."""


class Order:
    """The launches of one plan without addresses, by their first numbers, and the temporaries that each uses."""

    def __init__(self, program: ProgramOp):
        launches, slots = program.launches, program.slots
        self.before = hazards(launches, slots)
        self.now = list(range(len(launches)))
        self.users: list[list[int]] = []
        self.sizes: list[int] = []
        self.of_launch: list[list[int]] = [[] for _ in launches]
        """The temporaries of each launch."""
        number: dict[str, int] = {}
        for index, launch in enumerate(launches):
            for root in dict.fromkeys(slots[name].root for name in launch.touched):
                if (slot := slots[root]).role.data != "temp":
                    continue
                at = number.setdefault(root, len(number))
                if at == len(self.sizes):
                    self.sizes.append(slot.nbytes)
                    self.users.append([])
                self.users[at].append(index)
                self.of_launch[index].append(at)

    def held(self, order: Sequence[int]) -> list[int]:
        """The bytes in use at each place of an order."""
        place = {launch: at for at, launch in enumerate(order)}
        change = [0] * (len(order) + 1)
        for users, size in zip(self.users, self.sizes, strict=True):
            places = [place[user] for user in users]
            change[min(places)] += size
            change[max(places) + 1] -= size
        return list(accumulate(change))[:-1]

    def improve(self) -> bool:
        """True if launches were moved: as long as that lowers what is in use at a place where that is most."""
        changed, held = False, self.held(self.now)
        while found := self.better(held):
            self.now, held = found
            changed = True
        return changed

    def better(self, held: Sequence[int]) -> tuple[list[int], list[int]] | None:
        """An order with less in use at one of the places with most, and the bytes at each place then; None if none is found."""
        most = max(held, default=0)
        best: tuple[int, list[int], list[int]] | None = None
        for place in (at for at, size in enumerate(held) if size == most):
            for start, end in self.moves(place):
                order = [*self.now]
                order.insert(end, order.pop(start))
                then = self.held(order)
                low, high = min(start, end), max(start, end) + 1
                needed = max(then[low:high])
                if needed <= most - WORTH and (best is None or needed < best[0]):
                    best = needed, order, then
            if best is not None:
                return best[1:]
        return None

    def moves(self, place: int) -> Iterator[tuple[int, int]]:
        """From where to where one launch may move, so that what comes first at a place changes; the shortest ways first."""
        for far in range(1, FARTHEST + 1):
            early, late = place - far, place + far
            if early >= 0 and self.is_free(early, place):
                yield early, place
            if late < len(self.now) and self.is_free(late, place):
                yield late, place

    def is_free(self, start: int, end: int) -> bool:
        """True if the launch at one place has no hazard with those on its way to another."""
        launch = self.now[start]
        way = self.now[start + 1 : end + 1] if start < end else self.now[end:start]
        return not any(launch in self.before[other] or other in self.before[launch] for other in way)


def free_early(program: ProgramOp) -> None:
    """Move the launches of a plan without addresses."""
    order, launches = Order(program), program.launches
    if not order.improve():
        return
    block = program.body.block
    for launch in launches:
        launch.detach()
    block.add_ops(launches[index] for index in order.now)
    order_launches(program.launches, program.slots)


@dataclass(frozen=True)
class FreeEarlyPass(ModulePass):
    """Move launches of each plan.program so that it needs less memory at once, if that saves a megabyte or more."""

    name = "free-early"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for program in op.ops:
            if not isinstance(program, ProgramOp):
                continue
            if program.arenas or program.peak is not None:
                message = "launches move before there are addresses; run free-early before plan-memory"
                program.emit_error(message, PlanError(message))
            free_early(program)
