"""The schedules of kernels on a CPU, as texts."""

from __future__ import annotations

from aicf_mlir.codegen.llvm import maps, row_forms
from aicf_mlir.codegen.llvm.columns import Columns, column_candidates
from aicf_mlir.kernels.column_sums import has_column_sums
from aicf_mlir.kernels.kernel import Kernel


def text_of(kernel: Kernel) -> str:
    """The schedule that a kernel has, its own or the one that is chosen; "" where there is one alone.

    Raises SelectionError for one that it cannot have.
    """
    match kernel.kind:
        case "map":
            return maps.schedule(kernel).text
        case "colwise":
            return Columns.of(kernel).text
        case "rowwise" if not has_column_sums(kernel):
            return row_forms.text_of(kernel)
        case _:
            return ""


def candidates(kernel: Kernel) -> list[str]:
    """All that are worth measuring, the one that is chosen first; none where there is one alone."""
    match kernel.kind:
        case "map":
            return [plan.text for plan in maps.candidates(kernel)]
        case "colwise":
            return column_candidates(kernel)
        case "rowwise" if not has_column_sums(kernel):
            return row_forms.candidates(kernel)
        case _:
            return []
