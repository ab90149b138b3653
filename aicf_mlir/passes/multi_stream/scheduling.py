"""Assignment of launches to branches: list scheduling in the order of the plan, which stays unchanged."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Paths:
    """The longest paths through launches of known lengths."""

    tails: Sequence[float]
    """The time from the start of each launch to the end of the plan."""
    critical: frozenset[int]
    """The launches of a longest path; of equal ones that with the first launches of the plan."""


def paths(lengths: Sequence[float], edges: Sequence[Collection[int]]) -> Paths:
    """The paths through launches that wait for the launches `edges`."""
    ends = ends_of(lengths, edges)
    tails = list(lengths)
    for index in reversed(range(len(edges))):
        for early in edges[index]:
            tails[early] = max(tails[early], lengths[early] + tails[index])
    if not ends:
        return Paths(tails, frozenset())
    at = max(range(len(ends)), key=lambda index: (ends[index], -index))
    found = [at]
    while edges[at]:
        at = max(edges[at], key=lambda index: (ends[index], -index))
        found.append(at)
    return Paths(tails, frozenset(found))


def ends_of(lengths: Sequence[float], edges: Sequence[Collection[int]]) -> list[float]:
    """The completion time of each launch if it starts as soon as the launches that it waits for are complete."""
    ends: list[float] = []
    for length, before in zip(lengths, edges, strict=True):
        ends.append(length + max((ends[early] for early in before), default=0.0))
    return ends


def assign(
    lengths: Sequence[float],
    edges: Sequence[Collection[int]],
    most: int,
    longest: float,
    aside: Collection[int] = (),
) -> list[int]:
    """The branch of each launch, of at most `most`; branch 0 has the longest path, and all launches longer than `longest` that
    are not `aside`.

    Any other launch goes to the branch on which the plan is expected to end first. That is the branch that is free first, or
    among equal ones the branch of a launch that it waits for. It goes to branch 0 if the longest path loses nothing by it.

    A launch `aside` takes longer than estimated where it waits for others. So it is not on branch 0 in front of launches that
    could run meanwhile, even if it is of the longest path.
    """
    known = paths(lengths, edges)
    apart = {index for index in aside if most > 1 and not all_wait_for(index, edges)}
    ahead = _still_critical(known)
    free = [0.0] * most
    ends: list[float] = []
    branches: list[int] = []
    for index, (length, before) in enumerate(zip(lengths, edges, strict=True)):
        ready = max((ends[early] for early in before), default=0.0)
        waited = {branches[early] for early in before}
        choices: list[tuple[float, float, bool, int]] = []
        for branch in range(most):
            end = max(ready, free[branch]) + length
            rest = known.tails[index] - length
            if branch == 0:
                choices.append((end + max(rest, ahead[index]), 0.0, False, 0))
            else:
                choices.append((end + rest, end, branch not in waited, branch))
        stays = index in known.critical or (length > longest and index not in aside)
        branch = min(choices[1:])[-1] if index in apart else 0 if stays else min(choices)[-1]
        ends.append(max(ready, free[branch]) + length)
        free[branch] = ends[index]
        branches.append(branch)
    return branches


def all_wait_for(early: int, edges: Sequence[Collection[int]]) -> bool:
    """Whether every launch after `early` in the order of the plan waits for it."""
    waiting = {early}
    for index in range(early + 1, len(edges)):
        if waiting.isdisjoint(edges[index]):
            return False
        waiting.add(index)
    return True


def _still_critical(known: Paths) -> list[float]:
    """For each launch, the length of the longest path's part that comes after it in the order of the plan."""
    ahead: list[float] = []
    rest = 0.0
    for index in reversed(range(len(known.tails))):
        ahead.append(rest)
        if index in known.critical:
            rest = known.tails[index]
    return ahead[::-1]
