"""`memory_limit`: a step that needs more memory is refused before it takes any."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from aicf_mlir.errors import BindError
from aicf_mlir.runtime.program import Program
from aicf_mlir.step.options.option import Effect


@dataclass(frozen=True)
class MemoryLimit(Effect):
    """The most bytes that the arenas of a plan may have; None for no limit."""

    most: int | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        most: object = given["memory_limit"]
        if most is not None and (type(most) is not int or most < 1):
            raise BindError(f"memory_limit must be a whole number of bytes, 1 or more, got {most!r}")
        return cls(most)

    def check_program(self, step: str, program: Program) -> None:
        if self.most is not None and program.peak > self.most:
            parts = ", ".join(f"{name} {size}" for name, size in program.arenas.items())
            raise BindError(
                f"{step}: the plan needs {program.peak} bytes ({parts}), and memory_limit is {self.most}; "
                "take a smaller batch, with accumulate=k for the same update"
            )
