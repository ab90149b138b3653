"""The schedules of kernels on a CPU, as texts."""

from __future__ import annotations

from aicf_mlir.codegen.llvm import maps, row_forms
from aicf_mlir.codegen.llvm.columns import Columns, column_candidates
from aicf_mlir.kernels.schedule_text import Schedules

FORMS = {
    "map": Schedules(
        lambda kernel: maps.schedule(kernel).text,
        lambda kernel: [plan.text for plan in maps.candidates(kernel)],
    ),
    "rowwise": Schedules(row_forms.text_of, row_forms.candidates),
    "colwise": Schedules(lambda kernel: Columns.of(kernel).text, column_candidates),
}
"""By the kind of a kernel; others have one schedule."""
