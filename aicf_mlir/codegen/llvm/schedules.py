"""The schedules of kernels on a CPU, as texts."""

from __future__ import annotations

from aicf_mlir.codegen.llvm import maps, row_forms
from aicf_mlir.codegen.llvm.columns import Columns, column_candidates
from aicf_mlir.kernels.kernel import Kernel
from aicf_mlir.kernels.schedule_text import Schedules


def _of_map(kernel: Kernel) -> str:
    return maps.schedule(kernel).text


def _maps(kernel: Kernel) -> list[str]:
    return [plan.text for plan in maps.candidates(kernel)]


def _of_columns(kernel: Kernel) -> str:
    return Columns.of(kernel).text


FORMS = {
    "map": Schedules(
        _of_map,
        _maps,
    ),
    "rowwise": Schedules(row_forms.text_of, row_forms.candidates),
    "colwise": Schedules(_of_columns, column_candidates),
}
"""By the kind of a kernel; others have one schedule."""
