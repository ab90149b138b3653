"""The plan of a chain, or the reason why there is none: the contents of its registers and its shared memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

from aicf_mlir.codegen.cuda.back_to_back_places import lay_out, panels, ready
from aicf_mlir.codegen.cuda.back_to_back_plan import (
    ROWS,
    ChainSchedule,
    Fetch,
    Flags,
    is_scalar,
    is_tile,
    is_vector,
    outer_blocks,
    outer_registers,
    sum_registers,
)
from aicf_mlir.ir.body import Body
from aicf_mlir.ir.chips import chip_of
from aicf_mlir.ir.element_types import NARROW
from aicf_mlir.ir.registry import capability, is_cpu
from aicf_mlir.kernels.back_to_back import BackToBackKernel

WIDEST = 128
STEP = 16
REGISTERS = {4: 128, 3: 168, 2: 255}
"""The registers of a thread, by the warpgroups of a block."""
OTHER_REGISTERS = 56
"""The registers for addresses, counters, and values in flight."""


def flags_of(body: Body, argument: int) -> tuple[int, ...] | None:
    """The truth values that a body makes of an argument and of constants, if it does nothing else with it."""
    first = len(body.args)
    alone, used = {argument}, False
    constant = {first + n for n, line in enumerate(body.lines) if line.op == "arith.constant"}
    found: set[int] = set()
    for number, line in enumerate(body.lines):
        value = first + number
        if alone & set(line.args) and set(line.args) <= alone | constant:
            alone.add(value)
    inner = {value for value in alone if value >= first and body.type(value) == "i1"}
    for number, line in enumerate(body.lines):
        for arg in line.args:
            if arg in alone and first + number not in alone:
                used = True
                found.add(arg)
    found |= alone & set(body.results)
    return tuple(sorted(found)) if used and found <= inner else None


@cache
def plan_of(kernel: BackToBackKernel) -> ChainSchedule | str:
    """The schedule, or the reason why there is none."""
    if fault := next(_faults(kernel), ""):
        return fault
    fault = "needs more registers than there are"
    for warpgroups, divided in ((groups, divided) for groups in REGISTERS for divided in (False, True)):
        if divided and not can_divide(kernel, warpgroups):
            continue
        if _registers(kernel, warpgroups if divided else 1) <= REGISTERS[warpgroups]:
            for alone in (True, False):
                plan = _lay_out(kernel, warpgroups, alone, divided)
                if plan.shared <= (most := chip_of(kernel.target).shared_of_block):
                    return plan
            fault = f"its weights and tiles need {plan.shared} bytes of shared memory, there are {most}"
    return fault


def _faults(kernel: BackToBackKernel) -> Iterator[str]:
    if is_cpu(kernel.target) or capability(kernel.target) != 90:
        yield f"needs compute capability 9.0, got {kernel.target}"
        return
    if not kernel.rows:
        yield "has no rows"
    if not is_tile(kernel.a):
        yield f"a: expected rows without gaps, aligned to 16 bytes, got {kernel.a}"
    if kernel.a_rounded is not None and not is_tile(kernel.a_rounded):
        yield f"a: expected rows without gaps, aligned to 16 bytes, where it is written, got {kernel.a_rounded}"
    for number, link in enumerate(kernel.links):
        for size in (link.n, link.k):
            if size % STEP or not 0 < size <= WIDEST:
                yield f"link {number}: expected widths up to {WIDEST} in steps of {STEP}, got {size}"
        if link.b.strides != (link.b.shape[1], 1) or link.b.alignment % 16:
            yield f"link {number}: expected b by rows without gaps, aligned to 16 bytes"
    for number, (_, made) in enumerate(kernel.values):
        if made.element not in (*NARROW, "f32"):
            yield f"y{number}: expected elements of f16, bf16 or f32, got {made.element}"
        if made.wide is not None and not is_tile(made.wide):
            yield f"y{number}: expected rows without gaps, aligned to 16 bytes, where it is written"


def _flags(kernel: BackToBackKernel) -> tuple[tuple[Flags, ...], tuple[int, ...]]:
    """The kept parts of values that later links take: bits if these suffice for all of them, or else the values."""
    bits: list[Flags] = []
    kept: list[int] = []
    for value in sorted(kernel.taken):
        found = [
            Flags(value, number, argument, lines)
            for number, link in enumerate(kernel.links)
            for argument, take in enumerate(link.takes, 1)
            if take == ("y", value) and (lines := flags_of(link.body, argument)) is not None
        ]
        takers = sum(link.takes.count(("y", value)) for link in kernel.links)
        if len(found) == takers:
            bits += found
        else:
            kept.append(value)
    return tuple(bits), tuple(kept)


def words(kernel: BackToBackKernel, flags: Flags) -> int:
    """Registers of the bits of one truth value."""
    return -(-kernel.links[flags.link].n // 64)


def _registers(kernel: BackToBackKernel, shares: int) -> int:
    """The approximate registers of a thread if the sums of outer products are divided into these shares."""
    flags, kept = _flags(kernel)

    def size(value: int) -> int:
        link, made = kernel.values[value]
        return kernel.links[link].n // (2 if made.element == "f32" else 4)

    by_products = {outer.left for outer in kernel.outers}
    sums = sum(
        sum_registers(made.element, kernel.links[link].n, shares if number in by_products else 0)
        for number, (link, made) in enumerate(kernel.values)
        if made.column_sum is not None
    )
    sums += sum(outer_registers(outer.result, shares) for outer in kernel.outers)
    widest = max(link.n // 2 + max(link.k, link.n) // 4 for link in kernel.links)
    bits = sum(words(kernel, f) * len(f.lines) for f in flags)
    return widest + sum(map(size, kept)) + bits + sums + OTHER_REGISTERS


def _lay_out(kernel: BackToBackKernel, warpgroups: int, alone: bool, divided: bool) -> ChainSchedule:
    used = 0
    weights: list[tuple[int, int]] = []
    for number, link in enumerate(kernel.links):
        if link.same_b == number:
            weights.append((number, used))
            used += panels(-(-link.b.shape[1] // 64) * link.b.shape[0] * 128)
    first = 1 + kernel.b_count
    vectors: list[tuple[int, int]] = []
    for number, tensor in enumerate(kernel.xs):
        if is_vector(tensor):
            vectors.append((first + number, used))
            used += 4 * tensor.shape[1]
    by_products = tuple(sorted({outer.left for outer in kernel.outers if summed_by(kernel, outer.left)}))
    ones = used
    used = panels(used + (256 if by_products else 0))
    fetches = list(_fetches(kernel))
    places, staged, strip = lay_out(kernel, fetches, alone, divided)
    fetches = [replace(fetch, place=place) for fetch, place in zip(fetches, places, strict=True)]
    sums: list[tuple[int, int]] = []
    summed = scratch = 0
    warps = 4 * warpgroups
    for number, (owner, made) in enumerate(kernel.values):
        if made.column_sum is not None:
            n = kernel.links[owner].n
            sums.append((number, summed))
            summed += n
            scratch = max(scratch, 4 * n * warps * (256 // n if made.element in NARROW else 1))
    starts: list[int] = []
    for outer in kernel.outers:
        starts.append(summed)
        count = outer.result.shape[0] * outer.result.shape[1]
        summed += count
        scratch = max(scratch, 0 if divided else 4 * count * (warpgroups - 1))
    flags, kept = _flags(kernel)
    return ChainSchedule(
        warpgroups,
        min(chip_of(kernel.target).processors, -(-kernel.rows // (ROWS * warpgroups if divided else ROWS))),
        tuple(weights),
        tuple(vectors),
        tuple(fetches),
        alone,
        used,
        strip,
        flags,
        kept,
        tuple(sums),
        max(used + warps * strip, scratch),
        summed,
        tuple(staged.items()),
        divided,
        tuple(ready(kernel, outer) for outer in kernel.outers),
        tuple(starts),
        by_products,
        ones,
    )


def summed_by(kernel: BackToBackKernel, value: int) -> bool:
    """True if a value has a column sum."""
    return kernel.values[value][1].column_sum is not None


def can_divide(kernel: BackToBackKernel, warpgroups: int) -> bool:
    """True if each warpgroup of a block can have as many sums of every outer product."""
    return bool(kernel.outers) and all(
        outer_blocks(outer.result) % warpgroups == 0 for outer in kernel.outers
    )


def _fetches(kernel: BackToBackKernel) -> Iterator[Fetch]:
    yield Fetch(0, -1, kernel.links[0].k, kernel.a.element)
    first = 1 + kernel.b_count
    for number, link in enumerate(kernel.links):
        for operand in dict.fromkeys(index for kind, index in link.takes if kind == "x"):
            tensor = kernel.xs[operand]
            if is_tile(tensor) and not is_vector(tensor) and not is_scalar(tensor):
                yield Fetch(first + operand, number, link.n, tensor.element)
