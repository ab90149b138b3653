"""A rowwise kernel of few long rows: blocks share a row and pass partial results on; a warp adds those of its row.

A row is split only if all reductions are of one level and no result of the domain's shape follows one: such results are written
on the way. The number of blocks follows from the shapes.
"""

from __future__ import annotations

from aicf_mlir.codegen.cuda.access import Coordinates, signature
from aicf_mlir.codegen.cuda.columns import places, reductions
from aicf_mlir.codegen.cuda.passes import Walk
from aicf_mlir.codegen.cuda.row_schedules import THREADS, WARP, RowSchedule
from aicf_mlir.codegen.cuda.row_schedules import schedule as whole_rows
from aicf_mlir.codegen.cuda.rows import RowWriter
from aicf_mlir.codegen.cuda.text import Text, reduction
from aicf_mlir.kernels.kernel import Code, Kernel, Phase

BLOCKS = 528
"""Blocks that fill a large chip."""
LEAST_VECTORS = 2
"""The fewest vectors of a thread; with fewer, one block has the row."""
LEAST_BLOCKS = 8
"""The fewest blocks of a row; fewer gain less than the second launch costs, and one block has the row."""
SHARED_BY = 512
"""Threads of a block of the first phase."""


def parts(kernel: Kernel, plan: RowSchedule) -> int:
    """Blocks that share a row; 1 where the rows are not split."""
    stages = kernel.body.stages
    behind = any(kernel.is_whole(n) and stages[value] for n, value in enumerate(kernel.body.results))
    if behind or max(stages, default=0) != 1 or not plan.count:
        return 1
    found = min(BLOCKS // plan.count, plan.vectors // (SHARED_BY * LEAST_VECTORS))
    return found if found >= LEAST_BLOCKS else 1


def workspace(kernel: Kernel) -> int:
    """Bytes of partial results."""
    plan = whole_rows(kernel)
    count = parts(kernel, plan)
    return places(kernel, count * plan.count)[1] if count > 1 else 0


def code(kernel: Kernel, plan: RowSchedule) -> Code:
    """The text and its two launches."""
    count = parts(kernel, plan)
    text = Text()
    first, second = f"{kernel.id}_parts", f"{kernel.id}_rows"
    split = plan.walked(SHARED_BY)
    with text.block(signature(kernel, first, split.threads)):
        PartWriter(kernel, split, text, count).write()
    warps = plan.walked(WARP)
    with text.block(signature(kernel, second, warps.threads)):
        SumWriter(kernel, warps, text, count).write()
    return Code(
        str(text),
        (
            Phase(first, plan.count * count, threads=split.threads),
            Phase(second, -(-plan.count // warps.rows_per_block), threads=THREADS),
        ),
        workspace(kernel),
    )


class PartWriter(RowWriter):
    """The first phase: a block has a part of a row."""

    def __init__(self, kernel: Kernel, plan: RowSchedule, text: Text, count: int):
        super().__init__(kernel, plan, text)
        self.count = count

    def _row(self) -> Coordinates:
        each = -(-self.plan.vectors // self.count)
        self.text.add(f"const unsigned part = blockIdx.x % {self.count}u;")
        self.text.add(f"const unsigned begin = part * {each}u;")
        size = self.plan.vectors
        self.text.add(f"const unsigned end = begin + {each}u < {size}u ? begin + {each}u : {size}u;")
        self.span = ("begin + lane", "end")
        self.first_row = f"blockIdx.x / {self.count}u"
        return super()._row()

    def _row_results(self, stage: int) -> None:
        if stage == 0:
            return
        starts, _ = places(self.kernel, self.count * self.plan.count)
        with self.text.block("if (lane == 0)"):
            for start, value in zip(starts, reductions(self.kernel), strict=True):
                of = reduction(self.kernel, value)
                self.text.add(
                    f"partial<{of.type}>(workspace, {start}ll)[row * {self.count}u + part] = v{value};"
                )


class SumWriter(RowWriter):
    """The second phase: a warp adds the parts of a row."""

    def __init__(self, kernel: Kernel, plan: RowSchedule, text: Text, count: int):
        super().__init__(kernel, plan, text)
        self.count = count

    def _pass(self, number: int, item: Walk) -> None:
        starts, _ = places(self.kernel, self.count * self.plan.count)
        where = dict(zip(reductions(self.kernel), starts, strict=True))
        for value in item.reductions:
            of = reduction(self.kernel, value)
            self.text.add(f"{of.type} s{value} = {of.identity};")
            with self.text.block(f"for (unsigned part = lane; part < {self.count}u; part += {WARP}u)"):
                at = f"partial<{of.type}>(workspace, {where[value]}ll)[row * {self.count}u + part]"
                self.text.add(f"s{value} = {of.combine}{{}}(s{value}, {at});")
        self._combine(item.reductions)
