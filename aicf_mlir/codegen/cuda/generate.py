"""CUDA C++ from a kernel, by its kind and schedule."""

from __future__ import annotations

from dataclasses import replace

from aicf_mlir.codegen.chain_parts import chain_workspace
from aicf_mlir.codegen.cuda import (
    across_rows,
    across_schedules,
    back_to_back,
    back_to_back_parts,
    chain_forms,
    columns,
    gemm_maps,
    horizontal,
    maps,
    row_forms,
    rows,
    rows_and_columns,
    rows_beside,
    segment_rows,
    segments,
    split_rows,
)
from aicf_mlir.codegen.cuda.across_schedules import AcrossSchedule
from aicf_mlir.codegen.cuda.dependency import are_many, without_wait
from aicf_mlir.codegen.cuda.pieces import with_pieces
from aicf_mlir.kernels.back_to_back import BackToBackKernel
from aicf_mlir.kernels.column_sums import apart, has_column_sums
from aicf_mlir.kernels.horizontal import HorizontalKernel
from aicf_mlir.kernels.kernel import Code, Kernel
from aicf_mlir.kernels.segments import EachKernel, RowEachKernel


def generate(kernel: Kernel) -> Code:
    """The text of a kernel and its launches; the same for the same kernel, always."""
    code = _code(kernel)
    blocks = max((phase.count for phase in code.phases), default=0)
    alone = code.together is not None or are_many(
        blocks, kernel.target
    )  # started after all earlier launches have ended
    return replace(code, source=with_pieces(without_wait(code.source) if alone else code.source))


def _code(kernel: Kernel) -> Code:
    match kernel.kind:
        case "map":
            return maps.code(kernel, maps.schedule(kernel))
        case "multi_tensor_map" if isinstance(kernel, EachKernel):
            return segments.code(kernel)
        case "multi_tensor_rowwise" if isinstance(kernel, RowEachKernel):
            return segment_rows.code(kernel)
        case "horizontal" if isinstance(kernel, HorizontalKernel):
            return horizontal.code(kernel)
        case "gemm_map":
            return gemm_maps.code(kernel)
        case "back_to_back" if isinstance(kernel, BackToBackKernel):
            if chain_forms.is_in_parts(kernel):
                return back_to_back_parts.code(kernel, workspace(kernel))
            return back_to_back.code(kernel)
        case "colwise" if kernel.goes_on:
            return across_rows.code(kernel, across_schedules.schedule(kernel))
        case "colwise":
            return columns.code(kernel)
        case _ if has_column_sums(kernel):
            return _with_column_sums(kernel)
        case _:
            plan = row_forms.schedule_of(kernel)
            if isinstance(plan, AcrossSchedule):
                return across_rows.code(kernel, plan)
            form = split_rows if plan.parts > 1 else rows_beside if plan.side > 1 else rows
            return form.code(kernel, plan)


def _with_column_sums(kernel: Kernel) -> Code:
    """The code in one walk if registers hold the rows, else the sums and then the rows; each finds the workspace free."""
    if (found := rows_and_columns.schedule(kernel)) is not None:
        return rows_and_columns.code(*found)
    codes = [_code(part) for part in apart(kernel)]
    return Code(
        "\n".join(code.source for code in codes),
        tuple(phase for code in codes for phase in code.phases),
        max(code.workspace for code in codes),
    )


def workspace(kernel: Kernel) -> int:
    """`generate(kernel).workspace` without the text."""
    match kernel.kind:
        case "colwise" if kernel.goes_on:
            return across_rows.workspace(kernel, across_schedules.schedule(kernel))
        case "colwise":
            return columns.workspace(kernel)
        case "horizontal" if isinstance(kernel, HorizontalKernel):
            horizontal.groups_of(kernel)  # or it is refused
            return 0
        case "gemm_map":
            gemm_maps.check_ahead(kernel)
            return 0
        case "multi_tensor_rowwise" if isinstance(kernel, RowEachKernel):
            return segment_rows.workspace(kernel)
        case "back_to_back" if isinstance(kernel, BackToBackKernel):
            if chain_forms.is_in_parts(kernel):
                return chain_workspace(kernel, back_to_back_parts.workspace_of)
            return back_to_back.workspace(kernel)
        case "rowwise" if has_column_sums(kernel):
            if (found := rows_and_columns.schedule(kernel)) is not None:
                return rows_and_columns.workspace(*found)
            return max(workspace(part) for part in apart(kernel))
        case "rowwise":
            plan = row_forms.schedule_of(kernel)
            if isinstance(plan, AcrossSchedule):
                return across_rows.workspace(kernel, plan)
            return split_rows.workspace(kernel, plan)
        case _:
            return 0
