"""Many tensors in one launch: segments that have one body, and each its own tensors and size.

Every operand of a segment has no gaps, element by element, or is one element that all points read. Each operand is of the same
sort in all segments, so one text walks them all. The addresses are a table: those that the segments read, the first segment's
first, then those that they write. A segment is a map, or all of it is reduced to a number for each result.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from xdsl.utils.exceptions import VerifyException

from aicf_mlir.ir.body import is_table
from aicf_mlir.ir.layouts import Layout
from aicf_mlir.kernels.kernel import Kernel, Tensor, elements

MOST_ADDRESSES = 3750
"""The most addresses of one launch. CUDA passes a kernel 32,764 bytes at most (from 12.1 on): these are 30,000 of them."""


def steps_of(layout: Layout) -> set[int]:
    """The possible distances to the next point, in elements: 1 without gaps, 0 for one element, both if there is one point."""
    strides = layout.significant
    holds = {
        0: not any(stride for _, stride in strides),
        1: strides == Layout.dense(layout.shape).significant,
    }
    return {step for step in holds if holds[step] or layout.count <= 1}


@dataclass(frozen=True)
class SegmentedKernel(Kernel, abc.ABC):
    """A kernel over many segments. Its domain counts them; operands and results are those of one segment after the other."""

    @property
    def segments(self) -> int:
        """The number of segments."""
        return self.domain[0]

    @property
    def read(self) -> int:
        """Operands of a segment."""
        return len(self.operands) // self.segments

    @property
    def written(self) -> int:
        """Results of a segment."""
        return len(self.results) // self.segments

    def of_segment(self, number: int) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """The operands and the results of a segment."""
        read, written = self.read, self.written
        operands = self.operands[number * read : (number + 1) * read]
        return operands, self.results[number * written : (number + 1) * written]

    @cached_property
    def parts(self) -> tuple[Kernel, ...]:
        """The kernel that each segment would be as a launch of its own."""
        return tuple(self.part(*self.of_segment(number)) for number in range(self.segments))

    @abc.abstractmethod
    def part(self, operands: tuple[Tensor, ...], results: tuple[Tensor, ...]) -> Kernel:
        """One segment as a launch of its own."""

    @property
    def counts(self) -> tuple[int, ...]:
        """The points of each segment."""
        return tuple(elements(part.domain) for part in self.parts)

    @cached_property
    def common(self) -> tuple[Tensor, ...]:
        """The properties of each operand that all segments share, over as many points as the longest has."""
        return self._common([part.operands for part in self.parts])

    def _common(self, tensors: Sequence[Sequence[Tensor]]) -> tuple[Tensor, ...]:
        count = max(self.counts)
        return tuple(self._same(same, count) for same in zip(*tensors, strict=True))

    def _same(self, tensors: Sequence[Tensor], count: int) -> Tensor:
        """The properties of a tensor that all segments share; raises VerifyException if no single text walks them."""
        steps = {0, 1}.intersection(*(steps_of(tensor.layout) for tensor in tensors))
        if not steps:
            raise VerifyException(
                f"expected an operand of a {self.kind} to lie without gaps in all segments, or to be one element in all,"
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
            alone = self.kind.removeprefix("multi_tensor_")
            raise VerifyException(
                f"the body of a {self.kind} takes no table and asks for no index; use {alone}"
            )
        for part in self.parts:
            part.verify()
        if (count := len(self.operands) + len(self.results)) > MOST_ADDRESSES:
            raise VerifyException(f"one launch takes {MOST_ADDRESSES} tensors at most, got {count}")
        _ = self.common

    @cached_property
    def in_place(self) -> frozenset[tuple[int, int]]:
        return frozenset(self._pairs())

    def _pairs(self) -> Iterator[tuple[int, int]]:
        """Pairs of each segment by itself: no other segment reads or writes its memory."""
        for number, part in enumerate(self.parts):
            for result, operand in part.in_place:
                yield number * self.written + result, number * self.read + operand

    def addresses(self, segment: int) -> tuple[int, ...]:
        """The positions of a segment's addresses in the table, operands before results."""
        first = len(self.operands) + segment * self.written
        reads = range(segment * self.read, (segment + 1) * self.read)
        return (*reads, *range(first, first + self.written))


@dataclass(frozen=True)
class EachKernel(SegmentedKernel):
    """A multi_tensor_map."""

    @property
    def is_map(self) -> bool:
        return True

    def part(self, operands: tuple[Tensor, ...], results: tuple[Tensor, ...]) -> Kernel:
        return Kernel("map", self.target, self.body, results[0].shape, 0, operands, results)

    @cached_property
    def longest(self) -> Kernel:
        """All segments as one map over as many points as the longest has: the text of every segment is made from it."""
        results = self._common([part.results for part in self.parts])
        return Kernel("map", self.target, self.body, (max(self.counts),), 0, self.common, results)


@dataclass(frozen=True)
class RowEachKernel(SegmentedKernel):
    """A multi_tensor_rowwise: every segment is one row, of its elements in their order. One level of reductions."""

    def part(self, operands: tuple[Tensor, ...], results: tuple[Tensor, ...]) -> Kernel:
        count = elements(operands[0].shape)
        flat = [Tensor(t.element, (count,), (self._step(t),), t.alignment) for t in operands]
        return Kernel("rowwise", self.target, self.body, (count,), 1, tuple(flat), results)

    def _step(self, tensor: Tensor) -> int:
        if not (steps := steps_of(tensor.layout)):
            raise VerifyException(
                f"expected an operand of a {self.kind} to lie without gaps, or to be one element, got strides"
                f" {list(tensor.strides)}"
            )
        return max(steps)

    @cached_property
    def longest(self) -> Kernel:
        """One row as long as the longest, of two elements or more: the text of every segment is made from it."""
        count = max(2, *self.counts)
        operands = tuple(Tensor(t.element, (count,), t.strides, t.alignment) for t in self.common)
        return Kernel("rowwise", self.target, self.body, (count,), 1, operands, self.of_segment(0)[1])

    def verify(self) -> None:
        if not self.operands or len(self.operands) % max(self.segments, 1):
            raise VerifyException(
                f"expected as many operands for each of {self.segments} segments, got {len(self.operands)}"
            )
        super().verify()
        if max(self.body.stages, default=0) > 1:
            raise VerifyException(f"a {self.kind} has one level of reductions; use rowwise")
        if any(self.longest.wide[value] for value in self.body.results):
            raise VerifyException(f"the results of a {self.kind} are what segments are reduced to")
