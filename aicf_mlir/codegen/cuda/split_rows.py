"""A rowwise kernel of few long rows: blocks share a row, with a launch for each walk over it.

Each launch combines the partial results of those in front of it, and leaves partial results of its own or writes elements.
Where nothing is left but results of a row, a warp combines them. The number of blocks follows from the shapes.
"""

from __future__ import annotations

from aicf_mlir.codegen.cuda.access import Coordinates, signature
from aicf_mlir.codegen.cuda.column_schedules import reductions
from aicf_mlir.codegen.cuda.columns import places
from aicf_mlir.codegen.cuda.passes import Walk, plan_passes
from aicf_mlir.codegen.cuda.row_schedules import MOST_THREADS, THREADS, WARP, RowSchedule
from aicf_mlir.codegen.cuda.rows import RowWriter
from aicf_mlir.codegen.cuda.text import Text, reduction
from aicf_mlir.ir.chips import chip_of
from aicf_mlir.kernels.kernel import Code, Kernel, Phase

LEAST_VECTORS = 2
"""The fewest vectors of a thread; with fewer, one block has the row."""
LEAST_BLOCKS = 8
"""The fewest blocks of a row; fewer gain less than the second launch costs, and one block has the row."""
LONG = 32
"""Vectors of a thread, in the one block that had the row, from which on any other block gains more than a launch costs."""
SHARED_BY = 512
"""Threads of a block of the first phase."""


def parts(kernel: Kernel, plan: RowSchedule) -> int:
    """Blocks that should share a row; 1 where the rows are not split, as where one block holds a row."""
    if not can_split(kernel, plan):
        return 1
    found = min(
        4 * chip_of(kernel.target).processors // plan.count, plan.vectors // (SHARED_BY * LEAST_VECTORS)
    )
    long = plan.vectors >= LONG * MOST_THREADS and not plan.strips
    return found if found >= (2 if long else LEAST_BLOCKS) else 1


def can_split(kernel: Kernel, plan: RowSchedule) -> bool:
    """True unless one block holds a row with more than one walk, or a result of such a row takes the place of what other blocks
    read.
    """
    stages = kernel.body.stages
    walks = max(stages, default=0) + any(
        kernel.is_whole(n) and stages[value] > 0 for n, value in enumerate(kernel.body.results)
    )
    if max(stages, default=0) == 0 or not plan.count:
        return False
    narrow = any(not kernel.is_whole(result) for result, _ in kernel.in_place)
    return walks <= 1 or not (plan.chunks or narrow)


def workspace(kernel: Kernel, plan: RowSchedule) -> int:
    """Bytes of partial results."""
    return places(kernel, plan.parts * plan.count)[1] if plan.parts > 1 else 0


def code(kernel: Kernel, plan: RowSchedule) -> Code:
    """The text and its launches."""
    count, text = plan.parts, Text()
    phases: list[Phase] = []
    split, warps = plan.walked(SHARED_BY), plan.walked(WARP)
    walks = plan_passes(kernel, hold=False).passes
    for number, walk in enumerate(walks):
        name = f"{kernel.symbol}_walk{number}"
        if walk.reductions or walk.written:
            with text.block(signature(kernel, name, split.threads)):
                PartWriter(kernel, split, text, count, number).write()
            phases.append(Phase(name, plan.count * count, threads=split.threads))
            continue
        with text.block(signature(kernel, name, warps.threads)):
            SumWriter(kernel, warps, text, count).write()
        phases.append(Phase(name, -(-plan.count // warps.rows_per_block), threads=THREADS))
    return Code(str(text), tuple(phases), workspace(kernel, plan))


class SumWriter(RowWriter):
    """The last launch where no elements are left to write: a warp combines what there is of a row."""

    def __init__(self, kernel: Kernel, plan: RowSchedule, text: Text, count: int):
        super().__init__(kernel, plan, text)
        self.count = count
        found = reductions(kernel)
        self.starts = dict(zip(found, places(kernel, count * plan.count)[0], strict=True))

    def _partial(self, value: int, part: str) -> str:
        """The result of a reduction in one part of the row."""
        kind = reduction(self.kernel, value).type
        return f"partial<{kind}>(workspace, {self.starts[value]}ll)[row * {self.count}u + {part}]"

    def _pass(self, number: int, item: Walk) -> None:
        for value in item.reductions:
            of = reduction(self.kernel, value)
            self.text.add(f"{of.type} s{value} = {of.identity};")
            lanes = f"unsigned other = lane; other < {self.count}u; other += {self.plan.lanes}u"
            with self.text.block(f"for ({lanes})"):
                self.text.add(f"s{value} = {of.combine}{{}}(s{value}, {self._partial(value, 'other')});")
        self._combine(item.reductions)


class PartWriter(SumWriter):
    """One launch: a block has a part of a row, over which it walks as `walk` says."""

    def __init__(self, kernel: Kernel, plan: RowSchedule, text: Text, count: int, walk: int):
        super().__init__(kernel, plan, text, count)
        self.walk = walk
        self.writer = "lane == 0 && part == 0"

    def _row(self) -> Coordinates:
        each = -(-self.plan.vectors // self.count)
        self.text.add(f"const unsigned part = blockIdx.x % {self.count}u;")
        self.text.add(f"const unsigned begin = part * {each}u;")
        size = self.plan.vectors
        self.text.add(f"const unsigned end = begin + {each}u < {size}u ? begin + {each}u : {size}u;")
        self.span = ("begin + lane", "end")
        self.first_row = f"blockIdx.x / {self.count}u"
        return super()._row()

    def _pass(self, number: int, item: Walk) -> None:
        if number < self.walk:
            super()._pass(number, item)
        if number != self.walk:
            return
        RowWriter._pass(self, number, item)
        if item.reductions:
            with self.text.block("if (lane == 0)"):
                for value in item.reductions:
                    self.text.add(f"{self._partial(value, 'part')} = v{value};")

    def _row_results(self, stage: int) -> None:
        if self.walk == len(self.passes.passes) - 1:  # all of them are known
            super()._row_results(stage)
