"""The memory of a plan, known to the byte before anything runs."""

from __future__ import annotations

from dataclasses import dataclass

from aicf_mlir.ir.layouts import ALIGNMENT
from aicf_mlir.runtime.program import Program


@dataclass(frozen=True)
class MemoryReport:
    """Arena sizes and slots of a plan, in bytes."""

    name: str
    target: str
    peak: int
    """The sum of all arenas: the memory that the step holds while it runs."""
    arenas: dict[str, int]
    slots: list[tuple[str, str, int, int]]
    """The slots as (arena, slot, offset, size) in address order."""
    unshared: int
    """The size of the temporaries if no two of them shared memory."""

    def __str__(self) -> str:
        lines = [f"{self.name} on {self.target}: peak {self.peak:,} bytes"]
        for role, size in self.arenas.items():
            note = f"   ({self.unshared:,} without reuse)" if role == "temp" else ""
            lines.append(f"  {role:<8} {size:>14,}{note}")
        return "\n".join(lines)


def memory_report(program: Program) -> MemoryReport:
    """The report of a planned program."""
    slots = sorted((s.arena, s.offset, symbol, s.nbytes) for symbol, s in program.slots.items())
    temporaries = sum(
        -(-s.nbytes // ALIGNMENT) * ALIGNMENT for s in program.slots.values() if s.role == "temp"
    )
    return MemoryReport(
        name=program.name,
        target=program.target,
        peak=sum(program.arenas.values()),
        arenas=dict(program.arenas),
        slots=[(arena, symbol, offset, size) for arena, offset, symbol, size in slots],
        unshared=temporaries,
    )
