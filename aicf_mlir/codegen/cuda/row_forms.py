"""The schedules that a rowwise kernel may have: the one that it names or that is chosen, and the others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from aicf_mlir.codegen.cuda import across_schedules
from aicf_mlir.codegen.cuda.across_schedules import AcrossSchedule
from aicf_mlir.codegen.cuda.beside_schedules import SIDE, beside, draft_beside, exchanges, sides
from aicf_mlir.codegen.cuda.passes import plan_passes, registers
from aicf_mlir.codegen.cuda.row_schedules import (
    MOST_AHEAD,
    MOST_THREADS,
    WARP,
    RowSchedule,
    draft,
    early,
    in_shared,
    schedule,
)
from aicf_mlir.codegen.cuda.split_rows import SHARED_BY, can_split, parts
from aicf_mlir.errors import SelectionError
from aicf_mlir.ir.chips import chip_of
from aicf_mlir.kernels.kernel import Kernel
from aicf_mlir.kernels.schedule_text import ScheduleText, expect, powers

NAMES = ("width", "lanes", "chunks", "block", "ahead", "once", "shared", "side", "parts")
ROOM = 64
"""Registers of a thread for its part of a row; the compiler has no more than it needs for the rest of 1024 threads."""
LONG = 1024
"""Elements of few rows that lie across from which on blocks share them."""


def schedule_of(kernel: Kernel) -> RowSchedule | AcrossSchedule:
    """The schedule that a kernel of rows names, or else the one that is chosen for it."""
    return given(kernel, kernel.schedule) if kernel.schedule else chosen(kernel)


def chosen(kernel: Kernel) -> RowSchedule | AcrossSchedule:
    """The schedule by the chip."""
    if across_schedules.has_across(kernel):
        across = across_schedules.chosen(kernel)
        if across.height >= LONG and 2 * across.breadth <= SIDE * chip_of(kernel.target).processors:
            return across
    plan = schedule(kernel)
    if (count := parts(kernel, plan)) > 1:
        return replace(plan.walked(SHARED_BY), parts=count)
    return beside(kernel) or plan


def given(kernel: Kernel, text: str) -> RowSchedule | AcrossSchedule:
    """The schedule of this text; SelectionError where the kernel has none such."""
    found = ScheduleText.parse(text, {"rows": NAMES, "across": across_schedules.NAMES})
    if found.form == "across":
        return across_schedules.given(kernel, text)
    widest = draft(kernel)
    expect(text, "side", found["side"], [0, *sides(1)] if widest.rows and widest.columns else [0])
    widest = draft_beside(kernel) if found["side"] else widest
    expect(text, "width", found["width"], list(powers(widest.width)), " for these tensors")
    plan = replace(widest, width=found["width"], read_once=bool(found["once"]), side=max(found["side"], 1))
    most = MOST_THREADS // plan.side
    expect(text, "lanes", found["lanes"], list(powers(most)))
    whole = max(1, -(-plan.vectors // found["lanes"]))
    expect(text, "chunks", found["chunks"], [0, whole], f" for {found['lanes']} lanes")
    once = len(early(kernel, plan)) == 1 and not found["side"]
    expect(text, "once", found["once"], range(1 + once), " for these operands")
    expect(text, "shared", found["shared"], [0] if found["chunks"] or found["side"] else [0, 1])
    plan = replace(plan, lanes=found["lanes"], chunks=found["chunks"])
    if found["side"] or found["lanes"] > WARP:
        expect(text, "block", found["block"], [0], f" beside {found['lanes']} lanes")
    else:
        expect(text, "block", found["block"], list(powers(MOST_THREADS, WARP)))
        plan = replace(plan, block=found["block"])
    if found["chunks"] or found["parts"]:
        expect(text, "ahead", found["ahead"], [0], " where a row is read once")
    else:
        expect(text, "ahead", found["ahead"], list(powers(MOST_AHEAD)))
        plan = replace(plan, ahead=found["ahead"])
    if found["shared"]:
        kept = in_shared(kernel, plan, early(kernel, plan))
        expect(text, "shared", 1, [0, 1] if kept.strips else [0], ", there is no room or nothing to keep")
        plan = replace(kept, lanes=plan.lanes)
    if found["parts"]:
        able = can_split(kernel, plan) and found["lanes"] == SHARED_BY
        expect(text, "parts", found["parts"], range(2, plan.vectors + 1) if able else [0])
        plan = replace(plan, parts=found["parts"])
    if why := fault(kernel, plan):
        raise SelectionError(f"schedule {text!r}: {why}")
    return plan


def fault(kernel: Kernel, plan: RowSchedule) -> str:
    """The reason why there is no code for a schedule of this form; "" if there is."""
    needed = registers(kernel, plan_passes(kernel, hold=True), early(kernel, plan))
    if plan.chunks * needed * plan.width > ROOM:
        return f"a thread has {ROOM} registers for elements, and needs {plan.chunks * needed * plan.width:g}"
    if plan.side > 1 and not exchanges(kernel, plan):
        return "the lanes of a row exchange more than there is shared memory"
    return ""


def candidates(kernel: Kernel) -> Iterator[RowSchedule | AcrossSchedule]:
    """The schedule that is chosen, then others."""
    first = chosen(kernel)
    yield first
    if across_schedules.has_across(kernel):
        across = across_schedules.chosen(kernel)
        yield from (
            found for found in (across, *across_schedules.candidates(kernel, across)) if found != first
        )
    for text in dict.fromkeys(_texts(kernel, first.parts)):
        if text != first.text:
            try:
                yield given(kernel, text)
            except SelectionError:
                continue


def _texts(kernel: Kernel, parts: int) -> Iterator[str]:
    """Texts, some of which the kernel cannot have."""
    widest = draft(kernel)

    def text(**numbers: int) -> str:
        return str(ScheduleText("rows", {name: numbers.get(name, 0) for name in NAMES}))

    for width in powers(widest.width):
        vectors = replace(widest, width=width).vectors
        for lanes in powers(MOST_THREADS):
            if lanes > 1 and lanes >= 2 * vectors:
                break
            chunks = max(1, -(-vectors // lanes))
            for block in (64, 128, 256) if lanes <= WARP else (0,):
                for once in (0, 1):
                    yield text(width=width, lanes=lanes, chunks=chunks, block=block, once=once)
                for ahead in (4, 8):
                    yield text(width=width, lanes=lanes, block=block, ahead=ahead)
            yield text(width=width, lanes=lanes, ahead=4, shared=1)
        for shared_by in (2, 8, 33, parts):
            yield text(width=width, lanes=SHARED_BY, parts=shared_by)
    widest = draft_beside(kernel)
    for width, lanes in product(powers(widest.width), powers(WARP)):
        if lanes == 1 or lanes < 2 * widest.vectors:
            side, chunks = max(SIDE, 4 * SIDE // lanes), max(1, -(-widest.vectors // lanes))
            yield text(width=width, lanes=lanes, chunks=chunks, side=side)
            for ahead in (4, MOST_AHEAD):
                yield text(width=width, lanes=lanes, ahead=ahead, side=side)
