"""The sums of a chain over all rows: of the threads of a block, then of all blocks, in an order that is always the same."""

from __future__ import annotations

from aicf_mlir.codegen.cuda.access import begin, pointer
from aicf_mlir.codegen.cuda.back_to_back_plan import ChainSchedule, outer_registers, sum_registers
from aicf_mlir.codegen.cuda.scalars import stored
from aicf_mlir.codegen.cuda.text import Text
from aicf_mlir.ir.element_types import NARROW
from aicf_mlir.kernels.back_to_back import BackToBackKernel, Outer

LANES = 32
STRANDS = 8
"""Threads that add a column of the partial sums."""


def hand_on(text: Text, kernel: BackToBackKernel, plan: ChainSchedule) -> None:
    """Add the sums of all threads of the block, in an order that is always the same, and write them."""
    if not plan.summed:
        return
    text.add("float* const slots = reinterpret_cast<float*>(shared);")
    for value, start in plan.sums:
        owner, made = kernel.values[value]
        n = kernel.links[owner].n
        text.add("__syncthreads();")
        if value in plan.by_products:
            slots = plan.warpgroups // plan.shares
            mine = "" if plan.divided else f"warp / 4 * {n} + "
            with text.each("i", 2 * -(-n // 64) // plan.shares):
                block = block_of("i / 2", plan)
                text.add(f"const int column = {block} * 64 + warp % 4 * 16 + i % 2 * 8 + lane / 4;")
                inside = f" && column < {n}" if n % 64 else ""
                text.add(f"if (lane % 4 == 0{inside}) slots[{mine}column] = s{value}[2 * i];")
        elif made.element in NARROW:
            strip, down = f"aicf::chain::Strip<{n}>", 256 // n
            slots = 4 * plan.warpgroups * down
            with text.block(f"if (lane < {strip}::kLanes)"), text.each("i", 8):
                at = f"(warp * {down} + lane / {n // 8}) * {n} + lane % {n // 8} * 8 + i"
                text.add(f"slots[{at}] = s{value}[i];")
        else:
            slots = 4 * plan.warpgroups
            fold = f"aicf::chain::Fold<{n}>"
            with text.block(f"if ({fold}::owns())"), text.each("i", sum_registers("f32", n)):
                text.add(f"slots[warp * {n} + {fold}::column(i)] = s{value}[i];")
        text.add("__syncthreads();")
        with text.block(f"if (threadIdx.x < {n})"):
            text.add("float sum = slots[threadIdx.x];")
            text.add(f"for (int i = 1; i < {slots}; ++i) sum += slots[i * {n} + threadIdx.x];")
            text.add(
                f"static_cast<float*>(workspace)[blockIdx.x * {plan.summed} + {start} + threadIdx.x] = sum;"
            )
    for number, outer in enumerate(kernel.outers):
        _hand_on_outer(text, plan, number, outer)


def block_of(share: str, plan: ChainSchedule) -> str:
    """The block of 64 rows of an outer product that is the `share`th of a warpgroup."""
    return f"({share} * {plan.shares} + warp / 4)" if plan.divided else share


def _hand_on_outer(text: Text, plan: ChainSchedule, number: int, outer: Outer) -> None:
    """Add an outer product's sums of all warpgroups, the first one's first, and write them."""
    n, k = outer.result.shape
    start = f"static_cast<float*>(workspace) + blockIdx.x * {plan.summed} + {plan.outer_starts[number]}"
    write = f"*reinterpret_cast<float2*>({start} + at) = make_float2(d{number}[2 * i], d{number}[2 * i + 1]);"

    def each(work: str) -> None:
        with text.each("i", outer_registers(outer.result, plan.shares) // 2):
            block = block_of(f"i / {k // 4}", plan)
            text.add(f"const int row = {block} * 64 + warp % 4 * 16 + i % 2 * 8 + lane / 4;")
            text.add(f"const int at = row * {k} + i % {k // 4} / 2 * 8 + lane % 4 * 2;")
            with text.block(f"if (row < {n})" if n % 64 else ""):
                text.add(work)

    if plan.divided:
        each(write)
        return
    for group in range(1, plan.warpgroups):
        place = f"slots + {(group - 1) * n * k} + at"
        text.add("__syncthreads();" if group == 1 else "")
        with text.block(f"if (warp / 4 == {group})"):
            each(
                f"*reinterpret_cast<float2*>({place}) = make_float2(d{number}[2 * i], d{number}[2 * i + 1]);"
            )
    text.add("__syncthreads();")
    with text.block("if (warp < 4)"):
        for group in range(1, plan.warpgroups):
            place = f"slots[{(group - 1) * n * k} + at"
            each(f"d{number}[2 * i] += {place}], d{number}[2 * i + 1] += {place} + 1];")
        each(write)


def add_partial_sums(text: Text, kernel: BackToBackKernel, plan: ChainSchedule) -> None:
    """Write the second phase: each strand adds blocks with a fixed stride, then the strands are added in order."""
    begin(text)
    text.add(
        f"const int lane = threadIdx.x % {LANES}, strand = threadIdx.x / {LANES};",
        f"const int column = blockIdx.x * {LANES} + lane;",
        f"const bool inside = column < {plan.summed};",
        "float sum = 0.0f;",
    )
    with text.block("if (inside)"):
        text.add("#pragma unroll 8")
        with text.block(f"for (int part = strand; part < {plan.blocks}; part += {STRANDS})"):
            text.add(f"sum += static_cast<const float*>(workspace)[part * {plan.summed} + column];")
    text.add(
        f"__shared__ float sums[{STRANDS}][{LANES}];",
        "sums[strand][lane] = sum;",
        "__syncthreads();",
        "if (strand != 0 || !inside) return;",
    )
    with text.block(f"for (int other = 1; other < {STRANDS}; ++other)"):
        text.add("sum += sums[other][lane];")
    ends: list[tuple[int, int, int]] = []
    for value, start in plan.sums:
        number = kernel.places[value][1]
        assert number is not None
        ends.append((start, kernel.links[kernel.values[value][0]].n, number))
    behind = len(kernel.results) - len(kernel.outers)
    for number, (start, outer) in enumerate(zip(plan.outer_starts, kernel.outers, strict=True)):
        ends.append((start, outer.result.shape[0] * outer.result.shape[1], behind + number))
    for start, count, number in ends:
        tensor = kernel.results[number]
        step = "" if len(tensor.shape) > 1 or tensor.strides[0] == 1 else f" * {tensor.strides[0]}"
        target = pointer(kernel, len(kernel.operands) + number)
        text.add(
            f"if (column >= {start} && column < {start + count}) "
            f"{target}[(column - {start}){step}] = {stored(tensor.element, 'sum')};"
        )
