"""The schedules of kernels on a CPU, as texts."""

from __future__ import annotations

from aicf_mlir.codegen.llvm import maps, row_forms
from aicf_mlir.codegen.llvm.columns import Columns, column_candidates
from aicf_mlir.kernels.kernel import Kernel
from aicf_mlir.kernels.schedule_text import Schedules
from aicf_mlir.kernels.turned import turned


def _of_map(kernel: Kernel) -> str:
    return maps.schedule(kernel).text


def _maps(kernel: Kernel) -> list[str]:
    return [plan.text for plan in maps.candidates(kernel)]


def _of_columns(kernel: Kernel) -> str:
    return row_forms.text_of(turned(kernel)) if kernel.goes_on else Columns.of(kernel).text


def _columns(kernel: Kernel) -> list[str]:
    return row_forms.candidates(turned(kernel)) if kernel.goes_on else column_candidates(kernel)


FORMS = {
    "map": Schedules(
        _of_map,
        _maps,
    ),
    "rowwise": Schedules(row_forms.text_of, row_forms.candidates),
    "colwise": Schedules(_of_columns, _columns),
}
"""By the kind of a kernel; others have one schedule."""
