"""The rounding of an interpreter: as the levels are defined, none, or disturbed, to measure the effect of rounding."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

import numpy as np

from aicf_mlir.interpreters.numerics import (
    FLOATS,
    NUMPY_TYPES,
    Array,
    by_blocks,
    compute_type,
    precision,
    round_to,
    widen,
)


class Arithmetic:
    """The meaning of every level: operands in float64, and results rounded once to the type that the op declares."""

    pads = False
    """Whether a convolution multiplies the zeros that it is padded with: 0 · inf is a NaN."""
    moves = False
    """Whether `widen` moves operands. Those that an op compares as they are stay: else no element would be the largest."""

    def widen(self, operand: Array) -> Array:
        """An operand as the op computes with it: floats as float64, integers and booleans as they are."""
        return widen(operand)

    def operands(self, given: Sequence[Array], compared: Collection[int]) -> list[Array]:
        """All operands as an op computes with them; those of `compared`, by number, it compares as they are."""
        return [widen(x) if number in compared else self.widen(x) for number, x in enumerate(given)]

    def factor(self, operand: Array) -> Array:
        """An operand, widened, of a product that may round it to TF32: unchanged, for its meaning is the exact product."""
        return operand

    def factors(self, operands: Sequence[Array], allow_tf32: bool) -> list[Array]:
        """The operands of a product, widened; the first two are multiplied."""
        return [*map(self.factor, operands[:2]), *operands[2:]] if allow_tf32 else list(operands)

    def inner(self, values: Array, dtype: np.dtype[Any]) -> Array:
        """What an op of several parts computes in between, in float64, where kernels compute it in this type: as it is."""
        del dtype
        return values

    def narrow_factor(self, values: Array, dtype: np.dtype[Any]) -> Array:
        """What an op of several parts multiplies by operands of this type, to which kernels round it then: as it is."""
        del dtype
        return values

    def round(self, values: Array, element: str) -> Array:
        """A result of the element type, from the value that the op computed."""
        return round_to(values, element)

    def dtype(self, element: str) -> np.dtype[Any]:
        """The dtype that `round` returns for an element type."""
        return NUMPY_TYPES[element]


class Exact(Arithmetic):
    """The arithmetic without roundings: floats are float64 from the arguments to the results."""

    def round(self, values: Array, element: str) -> Array:
        """Floats stay as computed."""
        return np.asarray(values, self.dtype(element)) if element in FLOATS else round_to(values, element)

    def dtype(self, element: str) -> np.dtype[Any]:
        """float64 for every float."""
        return NUMPY_TYPES["f64" if element in FLOATS else element]


def compute_epsilon(dtype: np.dtype[Any]) -> float:
    """The unit in the last place of the type that kernels compute in."""
    return precision(compute_type(dtype))[0]


TF32_EPSILON = 2.0**-11
"""The largest relative error of rounding to nearest in TF32; twice as large if the other bits are cut off."""


class InTF32(Arithmetic):
    """The arithmetic of kernels with `allow_tf32`: factors move by as much as a rounding to TF32 may move them."""

    def __init__(self, seed: int):
        self._generator = np.random.default_rng(seed)

    def factor(self, operand: Array) -> Array:
        """The operand, moved; whole numbers that TF32 holds stay."""
        return _moved(operand, TF32_EPSILON, 1.0 / TF32_EPSILON, self._random_steps)

    def _random_steps(self, values: Array) -> Array:
        """The step of each element, from 0 to 4."""
        return self._generator.integers(5, size=values.shape, dtype=np.uint8)


def _moved(values: Array, epsilon: float, exact: float, steps: Callable[[Array], Array]) -> Array:
    """The float64 values, each but whole numbers up to `exact` moved by -2 to 2 times `epsilon`, as the steps 0 to 4 say."""
    scales = 1.0 + epsilon * np.arange(-2, 3)

    def move(part: Array) -> Array:
        near = np.rint(part)
        whole = near == part
        whole &= np.abs(near, out=near) <= exact
        scale = scales.take(steps(part), mode="clip")
        scale[whole] = 1.0
        return part * scale

    with np.errstate(all="ignore"):
        return by_blocks(move, values, np.float64)


MIXER = np.uint64(0x9E3779B97F4A7C15)
"""Odd, of 64 bits that look random: a product with it has in its upper half a bit of every bit of the other factor."""


class Disturbed(InTF32):
    """The arithmetic of another order of summation: operands move by up to two units in the last place of float32.

    The unit is that of float64 for operands of float64. Kernels compute in these types, so results move to a neighbour here and
    there. Small whole numbers are exact and stay: counters, masks, ones. Each element moves by itself, or, with `alike`, equal
    ones move alike: a value in many places was rounded once, and its error counts as often. Kernels may multiply paddings, as
    some of torch's do.
    """

    pads = True
    moves = True

    def __init__(self, seed: int, alike: bool = False):
        super().__init__(seed)
        self._alike = alike

    def widen(self, operand: Array) -> Array:
        """The operand, moved a little."""
        values = widen(operand)
        return self.inner(values, operand.dtype) if values.dtype == np.float64 else values

    def inner(self, values: Array, dtype: np.dtype[Any]) -> Array:
        """The values, moved as operands of this type are."""
        epsilon = compute_epsilon(dtype)
        return _moved(values, epsilon, 0.125 / epsilon, self._steps())

    def narrow_factor(self, values: Array, dtype: np.dtype[Any]) -> Array:
        """The values, moved by up to half a unit in the last place of a type of 16 bits; for others they stay."""
        if dtype.itemsize > 2:
            return values
        epsilon = precision(dtype)[0]
        return _moved(values, epsilon / 4, 1 / epsilon, self._steps())

    def _steps(self) -> Callable[[Array], Array]:
        """The steps of one array's elements."""
        if self._alike:
            return partial(_steps_alike, self._generator.integers(1 << 63, dtype=np.uint64))
        return self._random_steps


def _steps_alike(mix: np.uint64, values: Array) -> Array:
    """The step of each element, from 0 to 4: that of its bits."""
    mixed: Array = values.view(np.uint64) * MIXER + mix
    return (mixed >> np.uint64(32)) % np.uint64(5)


ROUNDED = Arithmetic()
EXACT = Exact()
