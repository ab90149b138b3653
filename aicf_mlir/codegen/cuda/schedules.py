"""The schedules of kernels on a GPU, as texts."""

from __future__ import annotations

from aicf_mlir.codegen.cuda import column_schedules, maps, row_forms
from aicf_mlir.kernels.schedule_text import Schedules

FORMS = {
    "map": Schedules(
        lambda kernel: maps.schedule(kernel).text,
        lambda kernel: [plan.text for plan in maps.candidates(kernel)],
    ),
    "rowwise": Schedules(
        lambda kernel: row_forms.schedule_of(kernel).text,
        lambda kernel: [plan.text for plan in row_forms.candidates(kernel)],
    ),
    "colwise": Schedules(
        lambda kernel: column_schedules.schedule(kernel).text,
        lambda kernel: [plan.text for plan in column_schedules.candidates(kernel)],
    ),
}
"""By the kind of a kernel; others have one schedule."""
