"""The schedules that a row kernel may have on a CPU: whole rows, rows in parts, rows side by side."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from aicf_mlir.codegen.llvm.rows import row_phases, row_plan, row_workspace
from aicf_mlir.codegen.llvm.rows_beside import RowsBeside, beside, beside_phases, pays
from aicf_mlir.codegen.llvm.split import (
    BLOCK,
    FEW,
    RowSplit,
    can_split,
    divided,
    split_phases,
    split_workspace,
)
from aicf_mlir.codegen.llvm.text import Function
from aicf_mlir.errors import SelectionError
from aicf_mlir.kernels.kernel import Kernel, Phase
from aicf_mlir.kernels.schedule_text import ScheduleText, expect

BLOCKS, STRIPS = range(9, 17), range(2, 13)
"""The powers of two that a block and a strip may be."""
FORMS = {"rows": (), "split": ("block",), "beside": ("strip",)}


def schedule_of(kernel: Kernel) -> RowSplit | RowsBeside | None:
    """The schedule that a kernel names, or else the one that is chosen for it; None for whole rows."""
    plan = row_plan(kernel)
    if not kernel.schedule:
        if (side := beside(kernel)) is not None and pays(kernel, side):
            return side
        few = can_split(plan) and prod(kernel.kept) < FEW and plan.extent >= 2 * BLOCK
        return divided(plan, BLOCK) if few else None
    found = ScheduleText.parse(kernel.schedule, FORMS)
    if found.form == "rows":
        return None
    if found.form == "beside":
        expect(kernel.schedule, "strip", found["strip"], [1 << n for n in STRIPS])
        if (side := beside(kernel, found["strip"])) is None:
            raise SelectionError(f"schedule {kernel.schedule!r}: there are no rows side by side")
        return side
    if not can_split(plan):
        raise SelectionError(f"schedule {kernel.schedule!r}: a row has several levels of reductions")
    expect(kernel.schedule, "block", found["block"], [1 << n for n in BLOCKS])
    return divided(plan, found["block"])


def text_of(kernel: Kernel) -> str:
    """What the kernel id says of the rows."""
    found = schedule_of(kernel)
    if found is None:
        return "rows"
    return f"split block={found.block}" if isinstance(found, RowSplit) else f"beside strip={found.strip}"


def candidates(kernel: Kernel) -> list[str]:
    """The schedule that is chosen, then others."""
    own = replace(kernel, schedule="")
    others = [f"split block={1 << n}" for n in BLOCKS] if can_split(row_plan(own)) else []
    others += [f"beside strip={1 << n}" for n in STRIPS if beside(own, 1 << n) is not None]
    return list(dict.fromkeys([text_of(own), "rows", *others]))


def workspace_of(kernel: Kernel) -> int:
    """The bytes of values that wait, or of partial results."""
    found = schedule_of(kernel)
    if found is None:
        return row_workspace(kernel)
    return split_workspace(kernel, found) if isinstance(found, RowSplit) else 0


def phases_of(kernel: Kernel) -> list[tuple[Phase, Function]]:
    """The phases of a row kernel."""
    found = schedule_of(kernel)
    if found is None:
        return row_phases(kernel)
    return split_phases(kernel, found) if isinstance(found, RowSplit) else beside_phases(kernel, found)
