"""Where the elements of an operand lie: strides and an offset, in elements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Place:
    """Other than dense from an aligned address on."""

    strides: tuple[int, ...]
    offset: int = 0
    """Of the first element, from an address that every access fits."""

    def elements(self, shape: tuple[int, ...]) -> int:
        """From the aligned address to the end of the last element."""
        if 0 in shape:
            return self.offset
        return self.offset + 1 + sum((n - 1) * s for n, s in zip(shape, self.strides, strict=True))

    def view(self, memory: npt.NDArray[Any], shape: tuple[int, ...]) -> npt.NDArray[Any]:
        """The elements in a memory of as many, in order."""
        size = memory.itemsize
        strides = tuple(stride * size for stride in self.strides)
        return np.lib.stride_tricks.as_strided(memory[self.offset :], shape, strides)

    def once(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The values, made one where they share one element."""
        firsts = tuple(slice(0, 1) if stride == 0 else slice(None) for stride in self.strides)
        return np.broadcast_to(values[firsts], values.shape).copy()


def placed(
    shape: tuple[int, ...], order: Sequence[int] | None = None, gap: int = 0, step: int = 1, offset: int = 0
) -> Place:
    """Dimensions in the `order` of memory, outermost first: neighbours `step` apart, `gap` elements behind every run."""
    strides, apart = [0] * len(shape), step
    for d in reversed(range(len(shape)) if order is None else order):
        strides[d] = apart
        apart = max(apart * shape[d], 1) + gap
    return Place(tuple(strides), offset)


def repeated(place: Place, *dims: int) -> Place:
    """The same elements all along the dimensions."""
    return Place(tuple(0 if d in dims else stride for d, stride in enumerate(place.strides)), place.offset)
