"""Each op and its gradient, in sizes from tiny to large, skewed, odd and strided, beside torch eager: where are the cliffs?

    python bench/sweep_gpu.py [--only mm sort …] [--without cumprod …] [--types f32 bf16] [--budget 580] [--gpus 1] [--workers 8]
                              [--json FILE]
    python bench/sweep_gpu.py --device cpu --largest 1000000 [--most 3]

The ops and sizes are those of `sweep_ops.py`. AICF's time is that of a captured step which computes the op, and one which
computes its gradients too, each time from the operands; torch's that of the same lines, eager. The floor is the bytes of operands
and results over the rate of a copy, or the operations over the rate of a product. Results are compared. Several processes trace
and compile; one measures at a time. What is slow is measured again at the end, by one process alone.

Prints the worst ratios to torch of what takes longer than 10 µs there, the ops whose time grows faster than their floor from
one size to a larger one, what is refused and what differs. With the budget of seconds spent, the rest is not measured, and a
line says what. So does one of a case that ends its process, or that is not done then. The exit status is 1 if results differ,
or if such a case has none.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from contender import describe_machine
from sweep_ops import Op, Shape, bytes_of, ops, seen
from sweep_workers import side_by_side
from torch import Tensor, nn

from aicf_mlir import AicfError, compile_eval_step
from aicf_mlir.passes import persistent_weights

TYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
UNITS = {"f32": 1e-4, "bf16": 3e-2}
"""How far results may be off, as a part of the largest."""
COPIED = {"cuda": 3.0e6, "cpu": 1.0e4}
COMPUTED = {"cuda": {"f32": 5e7, "bf16": 7e8}, "cpu": {"f32": 2e5, "bf16": 2e5}}
"""Bytes and operations in a microsecond, of an H100 and of two cores; for orders of magnitude."""
LONG, SLOW, GROWS = 10.0, 1.5, 3.0
"""Microseconds from which on a ratio counts, the ratio that is worth a line, and so many times the growth of the floor."""
WINDOWS, SECONDS, AGAIN = 5, 0.004, 3
"""Of a measurement, and how often one of a slow op is repeated: other work of the machine slows a window."""
ALONE = 0.15
"""The part of the budget for what is measured again."""

Task = tuple[str, str] | tuple[str, str, Shape, str]
"""An op and an element type; and a size and a kind, or all of them."""


@dataclass
class Found:
    """One op in one size and type, forward or with its gradients; times in µs."""

    op: str
    size: Shape
    element: str
    kind: str
    ours: float = math.inf
    torch: float = math.inf
    floor: float = math.nan
    launches: int = 0
    refused: str = ""
    wrong: str = ""

    @property
    def ratio(self) -> float:
        return self.ours / self.torch

    @property
    def is_long(self) -> bool:
        return not self.refused and LONG < max(self.ours, self.torch) < math.inf

    @property
    def is_slow(self) -> bool:
        return self.is_long and self.ratio > SLOW

    @property
    def title(self) -> str:
        return f"{self.op} {'x'.join(map(str, self.size))} {self.element} {self.kind}"


def called(op: Op, size: Shape, given: Sequence[Tensor]) -> Tensor:
    return op.call(*(seen(x, size) if x.is_floating_point() else x for x in given))


def with_gradients(
    op: Op, size: Shape, leaves: Sequence[Tensor], rest: Sequence[Tensor], g: Tensor
) -> list[Tensor]:
    y = called(op, size, [*leaves, *rest])
    return [y.detach(), *torch.autograd.grad(y, list(leaves), g)]


def median(run: Callable[[int], object], device: str) -> float:
    """Microseconds of one of n runs."""

    def window(n: int) -> float:
        start = time.perf_counter()
        run(n)
        if device == "cuda":
            torch.cuda.synchronize()
        return (time.perf_counter() - start) / n * 1e6

    window(1)
    count = max(1, min(500, math.ceil(SECONDS * 1e6 / window(2))))
    return statistics.median(window(count) for _ in range(WINDOWS))


@contextmanager
def computed_each_time() -> Generator[None]:
    """Compile steps whose replays leave out nothing that follows from the operands alone."""
    room, persistent_weights.ROOM = persistent_weights.ROOM, 0
    try:
        yield
    finally:
        persistent_weights.ROOM = room


def measure(op: Op, size: Shape, element: str, kind: str, options: argparse.Namespace, lock: Any) -> Found:
    found, device = Found(op.name, size, element, kind), options.device
    torch.manual_seed(0)
    given = [x.to(device) for x in op.make(size, TYPES[element])]
    smooth = op.smooth if kind == "gradient" else 0
    with torch.no_grad():
        g = torch.rand_like(called(op, size, given), dtype=None) if smooth else torch.zeros((), device=device)
    batch = {f"x{n}": x for n, x in enumerate(given)} | {"g": g}

    def loss(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        xs = [batch[f"x{n}"] for n in range(len(given))]
        if smooth:
            made = with_gradients(
                op, size, [x.requires_grad_() for x in xs[:smooth]], xs[smooth:], batch["g"]
            )
        else:
            made = [called(op, size, xs)]
        return batch["g"].flatten()[0].float(), {f"y{n}": y for n, y in enumerate(made)}

    def eager(wide: bool = False) -> list[Tensor]:
        """The same lines in torch; `wide` in f64, of the same numbers."""
        xs = [x.double() if wide and x.is_floating_point() else x for x in given]
        if not smooth:
            with torch.no_grad():
                return [called(op, size, xs)]
        leaves = [x.detach().requires_grad_() for x in xs[:smooth]]
        return with_gradients(op, size, leaves, xs[smooth:], g.double() if wide else g)

    try:
        with computed_each_time():
            step = compile_eval_step(nn.Module(), loss_fn=loss, example=batch, device=device)
        step.eval_step(batch)
        step.capture(batch)
    except AicfError as error:
        found.refused = str(error).splitlines()[0].partition(": ")[2][:110]
        return found
    expected, made = eager(), [step.outputs[f"y{n}"] for n in range(1 + smooth)]
    found.launches = len(step.executed_kernels())
    moved = bytes_of([*given, *expected, *([g] if smooth else [])])
    found.floor = max(
        moved / COPIED[device], (1 + 2 * bool(smooth)) * op.flops(size) / COMPUTED[device][element]
    )
    if not op.drawn:
        found.wrong = differing(op, element, made, expected, lambda: eager(wide=True))
    with lock:
        for _ in range(AGAIN):
            ours = median(lambda n: step.replay(n, sync=True), device)
            theirs = median(lambda n: [eager() for _ in range(n)], device)
            found.ours, found.torch = min(ours, found.ours), min(theirs, found.torch)
            if found.ratio <= SLOW:
                break
    step.close()
    return found


def differing(
    op: Op,
    element: str,
    made: Sequence[Tensor],
    expected: Sequence[Tensor],
    exact: Callable[[], list[Tensor]],
) -> str:
    """The first result that is further from torch's than rounding explains, empty if none is.

    Where they differ by more, both are compared with f64: torch may be as far from it, as a small variance of 16-bit numbers is.
    """
    for number, (mine, theirs) in enumerate(zip(made, expected, strict=True)):
        if op.tied and (number or not theirs.is_floating_point()):
            continue
        allowed = UNITS[element] * max(1.0, largest(theirs.double()))
        if (off := distance(mine, theirs)) <= allowed:
            continue
        truth = exact()[number].double()
        if not distance(mine, truth) <= allowed + 4 * distance(theirs, truth):
            return f"result {number} is off by {off:.2g}"
    return ""


def distance(x: Tensor, y: Tensor) -> float:
    """The largest difference; infinite where one is no number or infinite, and the other is another."""
    x, y = x.double(), y.double()
    same = (x == y) | (x.isnan() & y.isnan())
    off = torch.where(same, 0.0, (x - y).abs()).nan_to_num(math.inf, math.inf)
    return float(off.max()) if off.numel() else 0.0


def largest(x: Tensor) -> float:
    """The largest size of its numbers; what is none, and infinities, do not count."""
    return float(x.abs().nan_to_num(0.0, 0.0, 0.0).max()) if x.numel() else 0.0


def begin(place: int, options: argparse.Namespace, locks: Sequence[Any], threads: int, end: float) -> Any:
    """In each process: those that measure on one GPU share its lock."""
    gpu = place % len(locks)
    if len(locks) > 1:
        visible = [number for number in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if number]
        os.environ["CUDA_VISIBLE_DEVICES"] = visible[gpu] if visible else str(gpu)
    warnings.simplefilter("ignore")
    torch.set_num_threads(threads)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    return partial(work, options, locks[gpu], end)


def work(options: argparse.Namespace, lock: Any, end: float, task: Task) -> Iterator[str | Found]:
    """The cases of a task, as long as there is time: the title of each, then what was found."""
    name, element = task[:2]
    (op,) = (op for op in ops() if op.name == name)
    for size, kind in [task[2:]] if len(task) == 4 else cases_of(op, options):
        if time.time() >= end:
            return
        found = Found(name, size, element, kind)
        yield found.title
        try:
            yield measure(op, size, element, kind, options, lock)
            if options.device == "cuda":  # or the processes together keep all of its memory
                torch.cuda.empty_cache()
        except Exception as error:  # noqa: BLE001 - a fault of one case is a line of the table
            found.wrong = f"{type(error).__name__}: {str(error)[:120]}"
            yield found


def cases_of(op: Op, options: argparse.Namespace) -> Iterator[tuple[Shape, str]]:
    """The sizes of an op that are asked for, each forward and with its gradients."""
    sizes = [size for size in op.sizes if math.prod(map(abs, size)) <= options.largest]
    for size in sizes[:: max(1, len(sizes) // options.most)] if options.most else sizes:
        yield size, "forward"
        if op.smooth:
            yield size, "gradient"


def measured_alone(found: list[Found], options: argparse.Namespace, locks: Sequence[Any], end: float) -> None:
    """Measure what is slow again in one process, as long as there is time, and keep the smaller ratio."""
    places = {(one.op, one.element, one.size, one.kind): n for n, one in enumerate(found) if one.is_slow}
    arguments = (options, locks[:1], torch.get_num_threads(), end)
    for one in side_by_side(begin, arguments, list(places), 1, end).found:
        place = places[one.op, one.element, one.size, one.kind]
        if one.wrong or one.ratio < found[place].ratio:
            found[place] = one


def growing(found: Sequence[Found]) -> list[tuple[float, Found]]:
    """What takes more for each microsecond of its floor than a smaller size did, by how much."""
    rows: list[tuple[float, Found]] = []
    families: dict[tuple[str, str, str], list[Found]] = {}
    for one in found:
        if not one.refused and one.ours > LONG:
            families.setdefault((one.op, one.element, one.kind), []).append(one)
    for family in families.values():
        family.sort(key=lambda one: one.floor)
        for number, one in enumerate(family[1:], 1):
            before = min(each.ours / each.floor for each in family[:number])
            rows.append((one.ours / one.floor / before, one))
    return sorted(rows, key=lambda row: -row[0])


def report(found: Sequence[Found], lines: int) -> None:
    def row(one: Found, first: str) -> str:
        return (
            f"{first:>7} {one.title:56} {one.ours:12.1f} {one.torch:12.1f} {one.floor:10.1f} {one.launches:5}"
        )

    timed = [one for one in found if not one.refused and math.isfinite(one.ours)]
    heading = f"{'':7} {'op, size, type':56} {'AICF µs':>12} {'torch µs':>12} {'floor':>10} launches"
    slow = sorted((one for one in timed if one.is_long), key=lambda one: -one.ratio)
    count = sum(one.is_slow for one in slow)
    print(
        f"\n{len(timed)} measured; {count} of {len(slow)} of more than {LONG:.0f} µs are slower than {SLOW} times torch\n"
    )
    print(heading, *(row(one, f"{one.ratio:.2f}") for one in slow[:lines]), sep="\n")
    grown = [pair for pair in growing(timed) if pair[0] > GROWS]
    print(
        f"\n{len(grown)} take more than {GROWS:.0f} times as much for each µs of their floor as a smaller size\n"
    )
    print(heading, *(row(one, f"{times:.1f}") for times, one in grown[:lines]), sep="\n")
    for title, name in (("refused", "refused"), ("differ from torch", "wrong")):
        those = [one for one in found if getattr(one, name)]
        print(f"\n{len(those)} {title}")
        first = {(one.op, one.kind) if name == "refused" else one.title: one for one in reversed(those)}
        for one in list(first.values())[:lines]:
            print(f"        {one.title}: {getattr(one, name)}")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--only", nargs="*", default=[""], help="ops whose name contains one of these texts")
    parser.add_argument("--without", nargs="*", default=[], help="and none of these")
    parser.add_argument("--types", nargs="*", choices=TYPES, default=list(TYPES))
    parser.add_argument(
        "--largest", type=float, default=math.inf, help="the most elements that a size multiplies to"
    )
    parser.add_argument("--most", type=int, default=0, help="about so many sizes of each op")
    parser.add_argument("--budget", type=float, default=580.0, help="seconds for all of it")
    parser.add_argument("--gpus", type=int, default=1, help="so many of the visible ones")
    parser.add_argument(
        "--workers", type=int, default=0, help="processes; default: 8 for each GPU, 1 for a CPU"
    )
    parser.add_argument("--lines", type=int, default=40, help="of each table")
    parser.add_argument("--json", type=Path, metavar="FILE", help="all that was found")
    options = parser.parse_args()
    start = time.time()
    tasks = [
        (op.name, element)
        for op in ops()
        for element in options.types
        if any(t in op.name for t in options.only) and not any(t in op.name for t in options.without)
    ]
    gpus = options.gpus if options.device == "cuda" else 1
    workers = options.workers or (8 * gpus if options.device == "cuda" else 1)
    context = get_context("spawn")
    threads = torch.get_num_threads() if workers == 1 else 1
    locks = [context.Lock() for _ in range(gpus)]
    end = start + options.budget * (1 if workers == 1 else 1 - ALONE)
    outcome = side_by_side(begin, (options, locks, threads, end), tasks, workers, end)
    found: list[Found] = outcome.found
    if workers > 1:
        measured_alone(found, options, locks, start + options.budget)
    found.sort(key=lambda one: (one.op, one.element, one.kind))
    if options.json:
        options.json.write_text(json.dumps([asdict(one) for one in found], indent=1))
    print(describe_machine(options.device))
    report(found, options.lines)
    for title in outcome.unfinished:
        print(f"\nno result of the sizes from here on: {title}")
    if outcome.untouched:
        names = ", ".join(" ".join(task) for task in outcome.untouched)
        print(f"\nnot measured, the budget of {options.budget:.0f} s is spent: {names}")
    return int(any(one.wrong for one in found) or bool(outcome.unfinished))


if __name__ == "__main__":
    sys.exit(main())
