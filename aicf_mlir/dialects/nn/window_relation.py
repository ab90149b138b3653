"""The relation between the elements of a tensor [N, C, *spatial] and the windows, and the positions of the elements in them.

In each spatial dimension element i, window o and position k belong together where `i * spread = o * stride + k * dilation - low`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from xdsl.dialects.builtin import DenseArrayBase

from aicf_mlir.ir.formula import Scalar
from aicf_mlir.ir.properties import ints_attr


@dataclass(frozen=True)
class Windows:
    """The relation, a number for each spatial dimension."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    low: tuple[int, ...]
    spread: tuple[int, ...]

    @staticmethod
    def of(
        kernel: Sequence[int],
        stride: Sequence[int] | None = None,
        dilation: Sequence[int] | None = None,
        low: Sequence[int] | None = None,
    ) -> Windows:
        """The windows in torch's terms: strides and dilations are 1, and there is no padding before the first element, unless
        given.
        """
        ones, zeros = (1,) * len(kernel), (0,) * len(kernel)
        return Windows(
            tuple(kernel), tuple(stride or ones), tuple(dilation or ones), tuple(low or zeros), ones
        )

    @property
    def rank(self) -> int:
        """Spatial dimensions."""
        return len(self.kernel)

    @property
    def transposed(self) -> Windows:
        """The same relation with windows and elements exchanged."""
        dilation, low = (tuple(-n for n in each) for each in (self.dilation, self.low))
        return Windows(self.kernel, self.spread, dilation, low, self.stride)

    def properties(self) -> dict[str, DenseArrayBase]:
        """The properties as an op has them."""
        return {name: ints_attr(getattr(self, name)) for name in NUMBERS}

    def is_cut(self, d: int) -> bool:
        """True if only every `spread`-th position can have an element, counted from one that depends on the window."""
        return self.spread[d] > 1 and self.stride[d] == 1 and self.dilation[d] == -1

    @property
    def positions(self) -> tuple[int, ...]:
        """The number of positions that each window looks at, in each dimension."""
        return tuple(-(-k // self.spread[d]) if self.is_cut(d) else k for d, k in enumerate(self.kernel))

    def places(
        self, here: Sequence[Scalar], looks: Sequence[Index], sizes: Sequence[int], counts: Sequence[int]
    ) -> tuple[list[Index], list[Scalar], Scalar | None]:
        """The elements of a window at one of its `positions`: the position in the kernel, the element, and a condition that it
        exists.

        The condition is None if the element always exists. `sizes` are those of the tensor, and `counts` is the number of
        windows.
        """
        positions: list[Index] = []
        elements: list[Scalar] = []
        holds: list[Scalar] = []
        for d, (o, look) in enumerate(zip(here, looks, strict=True)):
            if not self.is_cut(d):
                positions.append(look)
                elements.append(self.element(d, o, look, sizes[d], counts[d], holds))
                continue
            spread, low = self.spread[d], self.low[d]
            at = plus(o, -low)
            whole = at.apply("arith.divsi" if low <= 0 else "arith.floordivsi", spread)
            rest = at - whole * spread
            position = rest + look * spread
            positions.append(position)
            found = whole - look
            elements.append(found)
            last = (counts[d] - 1 - low) // spread
            if self.kernel[d] % spread:
                holds.append(position < self.kernel[d])
            inside(found, -low // spread - self.positions[d] + 1, last, sizes[d], holds)
        return positions, elements, every(holds)

    def element(self, d: int, o: Scalar, k: Index, size: int, count: int, holds: list[Scalar]) -> Scalar:
        """The element at position k of window o in one dimension; adds to `holds` the conditions for it to exist."""
        stride, dilation, low, spread = (n[d] for n in (self.stride, self.dilation, self.low, self.spread))
        at = o * stride if stride != 1 else o
        if isinstance(k, int):
            at, first = plus(at, k * dilation - low), k * dilation - low
            last = first
        else:
            at = plus(at if self.kernel[d] == 1 else at + k * dilation if dilation != 1 else at + k, -low)
            far = (self.kernel[d] - 1) * dilation
            first, last = min(far, 0) - low, max(far, 0) - low
        last += (count - 1) * stride
        if spread != 1:
            whole = at.apply("arith.floordivsi", spread)
            holds.append((whole * spread).equal(at))
            at, first, last = whole, first // spread, last // spread
        inside(at, first, last, size, holds)
        return at


Index = Scalar | int

Place = TypeVar("Place", Scalar, Index)


def plus(x: Scalar, number: int) -> Scalar:
    """The sum."""
    return x + number if number > 0 else x - -number if number else x


def row_major(places: Sequence[Place], sizes: Sequence[int]) -> Place:
    """The number of a place among all of these sizes."""
    number = places[0]
    for place, size in zip(places[1:], sizes[1:], strict=True):
        number = number * size + place
    return number


def inside(at: Scalar, first: int, last: int, size: int, holds: list[Scalar]) -> None:
    """Add the conditions for an index, between `first` and `last`, to be one of `size`."""
    if first < 0:
        holds.append(at >= 0)
    if last >= size:
        holds.append(at < size)


def every(conditions: Sequence[Scalar]) -> Scalar | None:
    """True if all conditions hold; None if there are none."""
    condition: Scalar | None = None
    for each in conditions:
        condition = each if condition is None else condition & each
    return condition


NUMBERS = ("kernel", "stride", "dilation", "low", "spread")
