"""Schedules of generated row, column and map kernels beside the one that is chosen by itself, in one run.

    python bench/tune_generated_gpu.py [--only TEXT ...] [--csv FILE] [--count] [--compiled]

The jobs of bench/generated_gpu.py; every schedule is compared with float64 and timed in a CUDA graph: cold, with buffers
in turns that are larger than the L2 cache together, and warm, on the same buffers again. The best are measured again in
turns. A kernel that spills registers is left out.
"""

from __future__ import annotations

import argparse
import csv
import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from generated_gpu import DTYPES, TURNS, Generated, Job, Set, Tensor, applied, in_turns, jobs, microseconds

from aicf_mlir.codegen.cuda import generate, maps, row_schedules, rows
from aicf_mlir.codegen.cuda.pieces import with_pieces
from aicf_mlir.codegen.cuda.rows_and_columns import PROCESSORS, SHARED, WalkSchedule, code, shared
from aicf_mlir.codegen.nvrtc import compile_cuda, compile_with_report
from aicf_mlir.kernels.column_sums import has_column_sums, together
from aicf_mlir.kernels.kernel import Code, Kernel

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "gpu"))

from cuda_driver import Driver

REGISTER_FILE, MOST_THREADS = 65536, 2048
"""Of a multiprocessor."""
BEST = 4
"""Schedules that are measured again."""
CALL = 32
"""Bytes of local memory that a call may need."""


@dataclass(frozen=True)
class Choice:
    """One schedule of a job's kernels."""

    label: str
    make: Callable[[], tuple[Code, ...]]
    slices: tuple[tuple[int, ...], ...]


def row_choices(job: Job) -> Iterator[Choice]:
    """A row for some lanes, blocks of some size, operands that need not stay in the caches."""
    kernel = job.kernels[0]
    plan = row_schedules.schedule(kernel)
    for lanes in (32, 64, 128, 256):
        chunks = -(-plan.vectors // lanes)
        for block in (64, 128, 256) if lanes == 32 else (lanes,):
            for once in (False, True):
                if chunks <= 16 and lanes < 2 * plan.vectors:
                    chosen = replace(plan, lanes=lanes, chunks=chunks, block=block, read_once=once)
                    yield Choice(
                        f"lanes {lanes} block {block}{' once' * once}",
                        lambda c=chosen: (finished(rows.code(kernel, c)),),
                        job.slices,
                    )


def walk_choices(job: Job, pool: ThreadPoolExecutor) -> Iterator[Choice]:
    """Rows and the sums of their columns in one walk: as many blocks as the registers allow, and half of them."""
    both = together(job.kernels[0])
    plan = replace(row_schedules.schedule(both.rows), read_once=False)
    drafts: list[WalkSchedule] = []
    for lanes in (32, 64, 128, 256):
        for threads in (128, 256, 512):
            row = replace(plan, lanes=lanes, chunks=-(-plan.vectors // lanes))
            groups = threads // lanes
            if not groups or lanes > plan.vectors or shared(both, row, groups) > SHARED:
                continue
            drafts += [
                WalkSchedule(row, groups, PROCESSORS, a, k) for a in (False, True) for k in (False, True)
            ]
    used = pool.map(lambda draft: registers(code(both, draft), both.rows), drafts)
    for draft, count in zip(drafts, used, strict=True):
        most = min(REGISTER_FILE // (count * draft.threads), MOST_THREADS // draft.threads)
        for each in sorted({most, -(-most // 2)} - {0}):
            chosen = replace(draft, blocks=PROCESSORS * each)
            how = " ahead" * draft.ahead + " keep" * draft.keep
            yield Choice(
                f"walk lanes {draft.rows.lanes} threads {draft.threads} x{each}{how}",
                lambda c=chosen: (finished(code(both, c)),),
                job.slices,
            )


def registers(made: Code, kernel: Kernel) -> int:
    """Of a thread of the first launch, as a multiple of 8; a spill counts as all."""
    report = compile_with_report(with_pieces(made.source), kernel.target)[1]
    function, found = made.phases[0].function, 256
    part = report[report.index(f"'{function}'") :]
    if "0 bytes spill stores, 0 bytes spill loads" in part.partition("Used ")[0]:
        found = int(part.partition("Used ")[2].split()[0])
    return -(-found // 8) * 8


def map_choices(job: Job) -> Iterator[Choice]:
    """Vectors of a thread, threads of a block, registers for some blocks."""
    kernel = job.kernels[0]
    plan = maps.schedule(kernel)
    for vectors in (1, 2, 4):
        for threads in (128, 256, 512):
            for resident in (0, 1024 // threads, 1536 // threads, 2048 // threads):
                chosen = replace(plan, vectors=vectors, threads=threads, resident=resident)
                yield Choice(
                    f"vectors {vectors} threads {threads} resident {resident}",
                    lambda c=chosen: (finished(maps.code(kernel, c)),),
                    job.slices,
                )


def choices(job: Job, pool: ThreadPoolExecutor) -> list[Choice]:
    """The schedule that is chosen by itself, then the others."""
    own = Choice("as it is", lambda: tuple(generate(kernel) for kernel in job.kernels), job.slices)
    if has_column_sums(job.kernels[0]):
        return [own, *walk_choices(job, pool)]
    return [own, *(map_choices(job) if job.kernels[0].kind == "map" else row_choices(job))]


def build(made: tuple[Code, ...], target: str) -> list[tuple[Code, bytes]]:
    """Compiled."""
    return [(code, compile_cuda(code.source, target)) for code in made]


def finished(made: Code) -> Code:
    """With the pieces of text that it names."""
    return replace(made, source=with_pieces(made.source))


def error(launches: Generated, job: Job, tensors: Set, wanted: Sequence[Tensor]) -> float:
    """The largest difference from `wanted`, relative to the larger of 1 and the value."""
    for tensor in tensors[job.inputs :]:
        tensor.fill_(float("nan"))
    launches(tensors)
    worst = 0.0
    for got, want in zip(tensors[job.inputs :], wanted, strict=False):
        off = float(((got.double() - want).abs() / want.abs().clamp(min=1)).max())
        worst = off if math.isnan(off) else max(worst, off)
    return worst


def tune(job: Job, driver: Driver, pool: ThreadPoolExecutor, compiled: bool) -> list[list[object]]:
    """Rows of the table, best first: label, cold, warm, error, registers."""
    target = driver.target()
    first = job.operands()
    moved = sum(tensor.nbytes for tensor in first)
    sets = [first, *(job.operands() for _ in range(TURNS // moved))]
    wanted = job.torch(*(tensor.double() for tensor in first[: job.inputs]))
    found = choices(job, pool)
    made = [(choice, pool.submit(build, choice.make(), target)) for choice in found]

    timed: list[tuple[float, str, Generated]] = []
    limit = 0.03 if first[0].dtype == torch.bfloat16 else 1e-3 if has_column_sums(job.kernels[0]) else 1e-4
    for choice, future in made:
        launches = Generated(driver, future.result(), choice.slices)
        if launches.local_bytes > CALL:
            continue
        if not (off := error(launches, job, first, wanted)) <= limit:
            print(f"WRONG {job.name} {choice.label}: {off:.1e}", flush=True)
            continue
        timed.append((microseconds(launches, sets, 5, 2), choice.label, launches))
    best = sorted(timed[1:], key=lambda item: item[0])[:BEST]
    finals = [(label, launches) for _, label, launches in (timed[0], *best)]
    contenders: list[Callable[[Set], object]] = [launches for _, launches in finals]
    if compiled:
        torch.compiler.reset()
        contenders.append(applied(torch.compile(job.torch, dynamic=False), job.inputs))
    cold, warm = (in_turns(contenders, some, 15, 5) for some in (sets, sets[:1]))
    table: list[list[object]] = [
        [label, cold[n], warm[n], error(launches, job, first, wanted), launches.registers]
        for n, (label, launches) in enumerate(finals)
    ]
    if compiled:
        table.append(["torch.compile", cold[-1], warm[-1], float("nan"), []])
    everything = [[f"all: {label}", time, float("nan"), 0.0, item.registers] for time, label, item in timed]
    return [table[0], *sorted(table[1:], key=lambda row: float(str(row[1]))), *everything]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="*", default=[""], metavar="TEXT")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="all times, those of the first round too")
    parser.add_argument("--compiled", action="store_true", help="torch.compile beside them")
    parser.add_argument("--count", action="store_true", help="compile everything for sm_90, on any machine")
    options = parser.parse_args()
    workers = ThreadPoolExecutor(os.cpu_count() or 1)
    sizes = [(32768, 768), (4096, 1024)]
    if options.count:
        for shape in sizes:
            for element in DTYPES:
                for job in jobs(element, *shape, "sm_90"):
                    if any(text in job.name for text in options.only):
                        futures = [
                            workers.submit(build, choice.make(), "sm_90") for choice in choices(job, workers)
                        ]
                        print(f"{job.name}: {sum(bool(future.result()) for future in futures)}", flush=True)
        return
    torch.manual_seed(0)
    torch.zeros(1, device="cuda")
    driver = Driver()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    file = csv.writer(options.csv.open("w")) if options.csv else None
    for shape in sizes:
        for element in DTYPES:
            for job in jobs(element, *shape, driver.target()):
                if not any(text in job.name for text in options.only):
                    continue
                table = tune(job, driver, workers, options.compiled)
                print(job.name)
                for label, cold, warm, off, used in table:
                    if file:
                        file.writerow([job.name, label, cold, warm, off, used])
                    if not str(label).startswith("all:"):
                        print(f"    {label!s:52} {cold:7.2f} {warm:7.2f}  {off:.0e}  {used}", flush=True)


if __name__ == "__main__":
    main()
