"""The passes of a kernel with reductions over its elements, and the values that stay in registers from one to the next.

Pass p computes the values that follow p reductions: it feeds the reductions of level p + 1, and writes results. A result that may
take the place of an operand is written in the last pass that reads this operand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aicf_mlir.codegen.cuda.scalars import REDUCERS
from aicf_mlir.codegen.cuda.text import closure, line_of
from aicf_mlir.ir.body import BITS
from aicf_mlir.kernels.kernel import Kernel

REMADE = ("scalar.index", "arith.constant")
"""Operations that cost no more than to keep their result."""


@dataclass(frozen=True)
class Walk:
    """The purpose of one walk over the elements."""

    reductions: tuple[int, ...]
    """Values that are reductions of this pass's values."""
    written: tuple[int, ...]
    """Numbers of results of the domain's shape."""
    fed: tuple[int, ...]
    """Values that sums over the rows take."""
    computed: tuple[int, ...]
    """Values that differ along the row and were not there before, in the body's order."""
    narrow: tuple[int, ...]
    """Values needed that are the same along the row."""


@dataclass(frozen=True)
class Passes:
    """All walks over the elements, and the last use of each value."""

    passes: tuple[Walk, ...]
    held: Mapping[int, int]
    """For each value that a later pass needs: the last pass that uses it."""
    made: Mapping[int, int]
    """For each such value: the pass that computes it."""


def plan_passes(kernel: Kernel, hold: bool, fed: Sequence[int] = ()) -> Passes:
    """The passes of a row kernel. With `hold` no value is computed twice; without, each pass starts from the operands.

    `fed`: values that sums over the rows take, in addition to the kernel's own results.
    """
    body, stages, wide = kernel.body, kernel.body.stages, kernel.wide
    count = max((stages[v] for v in range(len(stages))), default=0) + 1
    reductions: list[list[int]] = [[] for _ in range(count)]
    for number, line in enumerate(body.lines):
        if line.op in REDUCERS:
            reductions[stages[line.args[0]]].append(len(body.args) + number)
    arguments = [[line.args[0] for v in values if (line := line_of(kernel, v))] for values in reductions]
    written = _written(kernel, arguments)
    feeding = [[v for v in dict.fromkeys(fed) if stages[v] == p] for p in range(count)]
    targets = [[*arguments[p], *(body.results[n] for n in written[p]), *feeding[p]] for p in range(count)]
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    passes: list[Walk] = []
    for p in range(count):
        there: set[int] = set()
        if hold:
            there = {v for v in first if first[v] < p and not _remade(kernel, v)}
        needed = closure(kernel, targets[p], there)
        for value in there & _uses(kernel, needed, targets[p]):
            last[value] = p
        for value in closure(kernel, targets[p]):
            if wide[value]:
                first.setdefault(value, p)
        passes.append(
            Walk(
                tuple(reductions[p]),
                tuple(written[p]),
                tuple(feeding[p]),
                tuple(v for v in needed if wide[v]),
                tuple(v for v in sorted({*needed, *_uses(kernel, needed, targets[p])}) if not wide[v]),
            )
        )
    return Passes(tuple(passes), last, {v: first[v] for v in last})


def _remade(kernel: Kernel, value: int) -> bool:
    line = line_of(kernel, value)
    return line is not None and line.op in REMADE


def _uses(kernel: Kernel, values: list[int], targets: list[int]) -> set[int]:
    """The values that the computation of `values` reads, and the targets themselves."""
    found = set(targets)
    for value in values:
        if line := line_of(kernel, value):
            found.update(line.args)
    return found


def _written(kernel: Kernel, arguments: list[list[int]]) -> list[list[int]]:
    """For each pass, the results of the domain's shape that are written in it."""
    body, count = kernel.body, len(arguments)
    reads = [
        {v for v in closure(kernel, arguments[p]) if v < len(body.args) and kernel.wide[v]}
        for p in range(count)
    ]
    whole = [n for n in range(len(body.results)) if kernel.is_whole(n)]
    at = {n: body.stages[body.results[n]] for n in whole}
    changed = True
    while changed:  # a write that waits makes its own reads wait too
        changed = False
        for n in whole:
            for _, operand in (pair for pair in kernel.in_place if pair[0] == n):
                using = [p for p in range(count) if operand in reads[p]]
                using += [at[m] for m in whole if operand in closure(kernel, [body.results[m]])]
                if (latest := max(using, default=0)) > at[n]:
                    at[n], changed = latest, True
    return [[n for n in whole if at[n] == p] for p in range(count)]


def registers(kernel: Kernel, plan: Passes, early: list[int]) -> float:
    """32-bit registers for each element of a thread, at the fullest boundary between two passes.

    `early`: operands that are read before the first pass, and stay unchanged until they are used.
    """
    most = 0.0
    for boundary in range(-1, len(plan.passes)):
        total = 0.0
        for value in {*plan.held, *early}:
            made = -1 if value in early else plan.made[value]
            if made <= boundary < plan.held.get(value, _first_use(plan, value)):
                total += _size(kernel, value)
        most = max(most, total)
    return most


def _first_use(plan: Passes, value: int) -> int:
    return next((p for p, item in enumerate(plan.passes) if value in item.computed), 0)


def _size(kernel: Kernel, value: int) -> float:
    if value < len(kernel.body.args):
        return max(BITS[kernel.operands[value].element], 8) / 32
    return max(BITS[kernel.body.type(value)], 32) / 32
