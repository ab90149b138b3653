"""The schedules of kernels on a GPU, as texts."""

from __future__ import annotations

from aicf_mlir.codegen.cuda import across_schedules, chain_forms, column_schedules, gemm_maps, maps, row_forms
from aicf_mlir.kernels.kernel import Kernel
from aicf_mlir.kernels.schedule_text import Schedules


def _of_map(kernel: Kernel) -> str:
    return maps.schedule(kernel).text


def _maps(kernel: Kernel) -> list[str]:
    return [plan.text for plan in maps.candidates(kernel)]


def _of_rows(kernel: Kernel) -> str:
    return row_forms.schedule_of(kernel).text


def _rows(kernel: Kernel) -> list[str]:
    return [plan.text for plan in row_forms.candidates(kernel)]


def _of_columns(kernel: Kernel) -> str:
    form = across_schedules if kernel.goes_on else column_schedules
    return form.schedule(kernel).text


def _columns(kernel: Kernel) -> list[str]:
    if not kernel.goes_on:
        return [plan.text for plan in column_schedules.candidates(kernel)]
    first = across_schedules.chosen(kernel)
    return [plan.text for plan in (first, *across_schedules.candidates(kernel, first))]


FORMS = {
    "map": Schedules(
        _of_map,
        _maps,
    ),
    "rowwise": Schedules(
        _of_rows,
        _rows,
    ),
    "colwise": Schedules(
        _of_columns,
        _columns,
    ),
    "gemm_map": Schedules(
        gemm_maps.text_of,
        gemm_maps.candidates,
    ),
    "back_to_back": Schedules(
        chain_forms.text_of,
        chain_forms.candidates,
    ),
}
"""By the kind of a kernel; others have one schedule."""
