"""Estimates of launch durations on a GPU, accurate enough to decide which launches are worth running in parallel.

From the text of the plan alone, so that one plan has the same branches wherever it is made.
"""

from __future__ import annotations

from aicf_mlir.analysis.launches import Work, work_of
from aicf_mlir.dialects.plan import ProgramOp
from aicf_mlir.dialects.plan.collective_rules import COLLECTIVES
from aicf_mlir.ir.chips import Chip, chip_of

LAUNCH = 1.0
"""Microseconds of an empty launch in a graph."""

EXCHANGED = 0.3e6
"""Bytes that an exchange with other GPUs reads and writes in a microsecond; not measured."""

STEP = 0.5
"""Microseconds to which estimates are rounded: smaller differences mean nothing."""


def microseconds_of(program: ProgramOp) -> list[float]:
    """The estimated microseconds of each launch, in order."""
    exchanges, chip = exchanges_of(program), chip_of(program.target.data)
    return [
        _microseconds(work, chip, EXCHANGED if position in exchanges else chip.copied)
        for position, work in enumerate(work_of(program))
    ]


def exchanges_of(program: ProgramOp) -> set[int]:
    """The positions of launches that wait for other GPUs, and need few processors of this one."""
    return {index for index, launch in enumerate(program.launches) if launch.op.data in COLLECTIVES}


def _microseconds(work: Work, chip: Chip, moved: float) -> float:
    computing = (work.flops or 0) / chip.computed(work.element)
    return LAUNCH + round(max(work.nbytes / moved, computing) / STEP) * STEP
