"""`example`, `B` and `D`: the shapes of batches that a step is compiled for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from aicf_mlir.errors import BindError
from aicf_mlir.frontend.structure import Batch, several, shapes_of
from aicf_mlir.runtime.micro_batches import shapes_of_parts
from aicf_mlir.step.options.accumulate import Accumulation
from aicf_mlir.step.options.option import Effect

ShapeGroup = tuple[Batch | None, int | None]
"""The form that a plan is compiled for: a batch, or a size of "x" and "t"."""


@dataclass(frozen=True, eq=False)
class Shapes(Effect):
    """The shapes that were named when the step was requested."""

    example: Batch | Sequence[Batch] | None = None
    B: int | Sequence[int] | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        example = given["example"]
        if "accumulate" in given and Accumulation.of(given).count is not None:
            example = shapes_of_parts(example)
        return cls(shapes_of(example), given.get("B"))

    def groups(self) -> list[ShapeGroup]:
        """Return one group for each plan. Raises BindError if there is none, and for shapes that are given twice."""
        if self.example is not None:
            if self.B is not None:
                raise BindError("give the shapes once: either example= or B= and D=")
            batches = several(self.example)
            if not batches:
                raise BindError("example= is an empty list; give at least one batch")
            return [(batch, None) for batch in batches]
        if isinstance(self.B, Sequence):
            if not self.B:
                raise BindError("B= is an empty list; give at least one batch size")
            return [(None, size) for size in self.B]
        return [(None, self.B)]
