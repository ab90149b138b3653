"""One kernel call and how it is judged, and the arrays that calls are made of."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from aicf_mlir.interpreters.numerics import NUMPY_TYPES
from aicf_mlir.ir.registry import Counts, Use
from kernel_cases.places import Place

Array = npt.NDArray[Any]
Spec = tuple[str, tuple[int, ...]]

NAMES = {dtype: name for name, dtype in NUMPY_TYPES.items()}

FLOATS = ("f32", "f64", "f16", "bf16")
DIMS = (1, 2, 3, 15, 16, 17, 31, 33, 64, 65, 127, 129)
SPECIALS = (0.0, -0.0, 1e-40, 1e-8, 0.5, 1.0, -1.0, 3.0, -3.0, 10.0, -10.0, 88.0, -88.0, 104.0, -104.0, 1e3, -1e3)  # fmt: skip
NON_FINITE = (math.inf, -math.inf, math.nan)


@dataclass(frozen=True, eq=False)
class Case:
    """One call, and how its results are judged.

    `exact`: equal to the rounded reference. `each`: every element by itself, not their root mean square.
    `scale`: the least scale of the values, where results may cancel to nothing. `inner_units`: how many units in the last
    place of f16 and bf16 may come from what a kernel rounds to them on the way.
    """

    label: str
    inputs: Sequence[Array]
    outputs: Sequence[Spec]
    attrs: dict[str, Any] = field(default_factory=dict[str, Any])
    counts: Counts | None = None
    """How many tensors each operand and each result has; None where each has one."""
    places: tuple[Place | None, ...] = ()
    """Of inputs, then of outputs; None, and where there are no more: dense."""
    exact: bool = False
    each: bool = False
    scale: float = 0.0
    inner_units: float = 0.0
    inner_type: str | None = None
    """The type that a kernel rounds to on the way, where it is not that of a result."""

    def use(self, op: str) -> Use:
        """As the registry takes it."""
        types: list[Any] = [
            spec if place is None else (*spec, place.strides)
            for spec, place in zip(self.specs, self.all_places, strict=True)
        ]
        count = len(self.inputs)
        return Use.of(op, types[:count], types[count:], self.attrs, self.counts)

    @property
    def specs(self) -> list[Spec]:
        """Of inputs, then of outputs."""
        return [*((NAMES[array.dtype], array.shape) for array in self.inputs), *self.outputs]

    @property
    def all_places(self) -> list[Place | None]:
        """As many as there are operands and results."""
        missing = len(self.inputs) + len(self.outputs) - len(self.places)
        return [*self.places, *[None] * missing]


class Maker:
    """Arrays of one element type, the same in every run."""

    def __init__(self, dtype: str):
        self.dtype = dtype
        self.random = np.random.default_rng(7)

    def cast(self, values: Any) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(values, dtype=np.float64).astype(NUMPY_TYPES[self.dtype])

    def normal(self, *shape: int) -> Array:
        return self.cast(self.random.standard_normal(shape))

    def integers(self, *shape: int, limit: int = 1) -> Array:
        """Small enough for sums of a few hundred products to be exact in every float type."""
        return self.cast(self.random.integers(-limit, limit + 1, shape))

    def special(self) -> Array:
        return self.cast([*SPECIALS, *NON_FINITE])

    def out(self, *shape: int) -> Spec:
        return self.dtype, shape


Generator = Callable[[Maker], Iterable[Case]]
