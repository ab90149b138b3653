"""The walks of rows that several blocks share: sums of distances from a number that other sums give need no walk of their own.

With n elements x, their mean m and the sum S of the squares of x - m, for every number k the sum of x - k is n (m - k), and that
of its squares is S + n (m - k)^2. So where a variance is written as in the corrected two-pass algorithm (Chan, Golub, LeVeque,
"Algorithms for Computing the Sample Variance", 1983), one walk is enough. Each block subtracts the first of its own elements
from all of them. Of a block's n elements the squares lose no more digits than those of n, where one element is like no other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from aicf_mlir.codegen.cuda.passes import Walk, plan_passes
from aicf_mlir.codegen.cuda.text import closure, line_of
from aicf_mlir.kernels.kernel import Kernel


@dataclass(frozen=True)
class Served:
    """A sum that follows from the moments of a value."""

    value: int
    """The value x."""
    power: int
    """0 for the sum of x; 1 for that of x - `near`, 2 for that of its squares."""
    near: int = -1


@dataclass(frozen=True)
class Round:
    """One walk over the elements, and the sums that it leaves."""

    stage: int
    """Values that follow so many reductions can be computed in it."""
    reductions: tuple[int, ...]
    moments: tuple[int, ...]
    """Values whose mean and squares are found."""
    written: tuple[int, ...]
    """Numbers of results of the domain's shape."""
    computed: tuple[int, ...]
    """Values that differ along the row, and are not read again."""
    again: tuple[tuple[int, int], ...]
    """Such values that a result has, which a walk before this one has written: the value, and the number of the result."""
    narrow: tuple[int, ...]
    """Values needed that are the same along the row."""


def served(kernel: Kernel) -> Mapping[int, Served]:
    """The reductions that follow from moments, where a walk is saved by it; nothing else."""
    body, stages = kernel.body, kernel.body.stages
    if 0 in kernel.domain:
        return {}
    walks = plan_passes(kernel, hold=False).passes
    found: dict[int, Served] = {}
    for walk in walks[1:]:
        if not walk.reductions:
            continue
        each = {value: _distance(kernel, value) for value in walk.reductions}
        if any(of is None or stages[of.value] for of in each.values()):
            return {}
        found |= {value: of for value, of in each.items() if of is not None}
    values = {of.value for of in found.values()}
    for number, line in enumerate(body.lines):
        if line.op == "scalar.sum" and found and line.args[0] in values:
            found[len(body.args) + number] = Served(line.args[0], 0)
    return found


def _distance(kernel: Kernel, value: int) -> Served | None:
    """The sum of distances, or of their squares, that a reduction is; None for any other."""
    line = line_of(kernel, value)
    assert line is not None
    if line.op != "scalar.sum" or line.type not in ("f32", "f64"):
        return None
    term, power = line.args[0], 1
    of = line_of(kernel, term)
    if of is not None and of.op == "arith.mulf" and of.args[0] == of.args[1]:
        of, power = line_of(kernel, of.args[0]), 2
    if of is None or of.op != "arith.subf":
        return None
    x, near = of.args
    return Served(x, power, near) if kernel.wide[x] and not kernel.wide[near] else None


@lru_cache(maxsize=256)
def rounds_of(kernel: Kernel) -> tuple[Round, ...]:
    """The walks, from first to last. The last one may have nothing to do for elements."""
    by_moments = served(kernel)
    walks = plan_passes(kernel, hold=False).passes
    found: list[Round] = []
    written: dict[int, int] = {}
    for stage, walk in enumerate(walks):
        moments = tuple(sorted({of.value for of in by_moments.values()})) if stage == 0 else ()
        left = tuple(value for value in walk.reductions if value not in by_moments)
        last = stage == len(walks) - 1
        if left or moments or walk.written or last:
            found.append(_round(kernel, stage, walk, left, moments, written))
        written |= {value: number for value, number in _held(kernel).items() if number in walk.written}
    return tuple(found)


def _held(kernel: Kernel) -> dict[int, int]:
    """The values that some result has, exactly as they are computed, by the number of the result."""
    count, first = len(kernel.body.lines), len(kernel.body.args)
    found = {first + n: kernel.holding(first + n) for n in range(count) if kernel.wide[first + n]}
    return {value: number for value, number in found.items() if number is not None}


def _round(
    kernel: Kernel,
    stage: int,
    walk: Walk,
    reductions: tuple[int, ...],
    moments: tuple[int, ...],
    written: Mapping[int, int],
) -> Round:
    arguments = [line.args[0] for value in reductions if (line := line_of(kernel, value))]
    targets = [*arguments, *moments, *(kernel.body.results[n] for n in walk.written)]
    needed = closure(kernel, targets, written)
    used = {
        *targets,
        *(arg for v in needed if kernel.wide[v] and (line := line_of(kernel, v)) for arg in line.args),
    }
    return Round(
        stage,
        reductions,
        moments,
        walk.written,
        tuple(v for v in needed if kernel.wide[v]),
        tuple((v, written[v]) for v in sorted(used & written.keys())),
        tuple(sorted(v for v in used if not kernel.wide[v])),
    )
