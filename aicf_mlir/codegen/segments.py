"""A map over many tensors in one launch: segments that have one body, and each its own tensors and size.

Every operand of a segment lies without gaps, element by element, or is one element that all points read; which of them it
is, is the same in all segments, so one text walks them all. The addresses are a table: those that the segments read, the
first segment's first, then those that they write.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from xdsl.utils.exceptions import VerifyException

from aicf_mlir.codegen.kernel import Kernel, Tensor, elements
from aicf_mlir.ir.body import is_table
from aicf_mlir.ir.layouts import Layout

MOST_ADDRESSES = 3750
"""Of one launch. CUDA hands a kernel 32,764 bytes at most (from 12.1 on): these are 30,000 of them."""


def steps_of(layout: Layout) -> set[int]:
    """How far the next point is, in elements: 1 without gaps, 0 for one element, both where there is one point."""
    strides = layout.significant
    holds = {
        0: not any(stride for _, stride in strides),
        1: strides == Layout.dense(layout.shape).significant,
    }
    return {step for step in holds if holds[step] or layout.count <= 1}


@dataclass(frozen=True)
class EachKernel(Kernel):
    """A map_each. Its domain counts its segments; operands and results are those of one segment after the other."""

    @property
    def segments(self) -> int:
        """How many there are."""
        return self.domain[0]

    @property
    def is_map(self) -> bool:
        return True

    @cached_property
    def parts(self) -> tuple[Kernel, ...]:
        """What each segment would be as a launch of its own."""
        read, written = len(self.operands) // self.segments, len(self.results) // self.segments
        found: list[Kernel] = []
        for number in range(self.segments):
            operands = self.operands[number * read : (number + 1) * read]
            results = self.results[number * written : (number + 1) * written]
            found.append(Kernel("map", self.target, self.body, results[0].shape, 0, operands, results))
        return tuple(found)

    @property
    def counts(self) -> tuple[int, ...]:
        """The points of each segment."""
        return tuple(elements(part.domain) for part in self.parts)

    @cached_property
    def longest(self) -> Kernel:
        """All segments as one map over as many points as the longest has: what the text of every segment is made of."""
        count = max(self.counts)
        sides = (
            tuple(self._common(same, count) for same in zip(*tensors, strict=True))
            for tensors in ([part.operands for part in self.parts], [part.results for part in self.parts])
        )
        operands, results = sides
        return Kernel("map", self.target, self.body, (count,), 0, operands, results)

    @staticmethod
    def _common(tensors: Sequence[Tensor], count: int) -> Tensor:
        """What is true of a tensor in every segment; raises VerifyException where no one text walks them."""
        steps = {0, 1}.intersection(*(steps_of(tensor.layout) for tensor in tensors))
        if not steps:
            raise VerifyException(
                "expected an operand of a map_each to lie without gaps in all segments, or to be one element in all,"
                f" got strides {' and '.join(str(list(tensor.strides)) for tensor in tensors[:2])}"
            )
        alignment = min((tensor.alignment for tensor in tensors if tensor.layout.count > 1), default=1)
        return Tensor(tensors[0].element, (count,), (max(steps),), alignment)

    def verify(self) -> None:
        if self.segments < 1 or not self.results or len(self.results) % self.segments:
            raise VerifyException(
                f"expected as many results for each of {self.segments} segments, got {len(self.results)}"
            )
        if any(map(is_table, self.body.args)) or self.body.dims:
            raise VerifyException("the body of a map_each takes no table and asks for no index; use map")
        for part in self.parts:
            part.verify()
        if (count := len(self.operands) + len(self.results)) > MOST_ADDRESSES:
            raise VerifyException(f"one launch takes {MOST_ADDRESSES} tensors at most, got {count}")
        _ = self.longest

    @cached_property
    def in_place(self) -> frozenset[tuple[int, int]]:
        return frozenset(self._pairs())

    def _pairs(self) -> Iterator[tuple[int, int]]:
        """Each segment by itself: no other one reads or writes what it does."""
        for number, part in enumerate(self.parts):
            first_result, first_operand = number * len(part.results), number * len(part.operands)
            for result, operand in part.in_place:
                yield first_result + result, first_operand + operand

    def addresses(self, segment: int) -> tuple[int, ...]:
        """Where in the table those of a segment stand, operands before results."""
        part = self.parts[segment]
        read, written = len(part.operands), len(part.results)
        first = len(self.operands) + segment * written
        return (*range(segment * read, (segment + 1) * read), *range(first, first + written))
