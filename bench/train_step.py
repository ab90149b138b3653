"""Time of whole train steps (forward, loss, backward, optimizer) on the CPU: AICF beside its peers, in one run.

    python bench/train_step.py                          # torch eager, Inductor, JAX jit, AICF
    python bench/train_step.py --threads 1              # all of them on one processor
    python bench/train_step.py --busy                   # each row also beside a busy process
    python bench/train_step.py --only GPT 1024          # rows whose name has one of these
    python bench/train_step.py --contenders JAX AICF    # contenders whose name has one of these
    python bench/train_step.py --threads 1 --clock cpu  # on a machine that others use, too: time of the processor

Median over rounds of windows of at least 0.1 s of steps. Every round runs one window of each contender, so that a
drifting machine drifts for all. All contenders start from the same weights, and their losses after the first steps
are compared. Prints microseconds a step, and the ratio of AICF's `replay()`, one call of Python a step as the peers
make, to the fastest peer. On a GPU it is `rows_gpu.py`.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import torch
from aicf_step import captured_step
from contender import Contender, describe_machine, timed
from jax_peer import jax_peer
from torch_peers import torch_peers
from workloads import WORKLOADS, Batch, Workload

WINDOW_S = 0.1
QUIET_S = 0.03
COMPARED = 3
"""Steps after which the losses are compared."""
Times = dict[str, float]
"""Microseconds a step by contender."""


def aicf(workload: Workload, batch: Batch) -> Iterator[Contender]:
    """One call of Python a step, and many steps in one call."""
    for name in ("AICF replay()", "AICF replay(n)"):
        step, _ = captured_step(workload, batch, "cpu")

        def one(n: int, step=step) -> float:
            for _ in range(n - 1):
                step.replay()
            return float(step.replay(sync=True))

        def many(n: int, step=step) -> float:
            return float(step.replay(n, sync=True))

        yield Contender(name, one if name == "AICF replay()" else many, ours=True)


def compare_losses(contenders: list[Contender], tolerance: float) -> None:
    """Run each for a few steps; raises `SystemExit` where one trains something else."""
    losses = {contender.name: contender.run(COMPARED) for contender in contenders}
    expected = statistics.median(losses.values())
    if any(not abs(loss - expected) <= tolerance * abs(expected) for loss in losses.values()):
        raise SystemExit(f"the losses after {COMPARED} steps differ: {losses}")


CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}
"""Seconds; `cpu` counts those of all threads, also where they wait by spinning."""


def window(contender: Contender, n: int, clock: Callable[[], float]) -> float:
    time.sleep(QUIET_S)  # threads of the contender before stop looking for work
    contender.run(1)  # those of this one wake
    return timed(contender, n, clock)


def measure(
    contenders: list[Contender],
    rounds: int,
    busy: subprocess.Popen[bytes] | None,
    clock: Callable[[], float] = time.perf_counter,
) -> list[Times]:
    """The medians, quiet, and with `busy` those beside it."""
    counts: dict[str, int] = {}
    for contender in contenders:
        contender.run(5)
        counts[contender.name] = max(3, int(WINDOW_S * 1e6 / window(contender, 5, time.perf_counter)))
    samples: list[dict[str, list[float]]] = [
        {one.name: [] for one in contenders} for _ in range(1 + bool(busy))
    ]
    for _ in range(rounds):
        for beside, found in enumerate(samples):
            if busy:
                os.kill(busy.pid, signal.SIGCONT if beside else signal.SIGSTOP)
            for contender in contenders:
                found[contender.name].append(window(contender, counts[contender.name], clock))
    if busy:
        os.kill(busy.pid, signal.SIGSTOP)
    return [{name: statistics.median(values) for name, values in found.items()} for found in samples]


@contextlib.contextmanager
def busy_process(wanted: bool) -> Iterator[subprocess.Popen[bytes] | None]:
    """A process that computes without end when it is continued; it is stopped now, and killed at the end."""
    if not wanted:
        yield None
        return
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        os.kill(process.pid, signal.SIGSTOP)
        yield process
    finally:
        process.kill()
        process.wait()


def report(title: str, contenders: list[Contender], times: Times) -> str:
    """A line of the table, with the ratio to the fastest peer where both are measured."""
    cells = [f"{one.name} {times[one.name]:.1f}" for one in contenders]
    peers = [one.name for one in contenders if not one.ours]
    if peers and (ours := times.get("AICF replay()")) is not None:
        fastest = min(peers, key=lambda name: times[name])
        cells.append(f"{ours / times[fastest]:.2f} of {fastest}")
    return f"| {title} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--threads", type=int, help="processors that all contenders run on, and threads of each"
    )
    parser.add_argument("--busy", action="store_true", help="measure beside a busy process, too")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", nargs="+", default=[""], metavar="TEXT")
    parser.add_argument("--contenders", nargs="+", default=[""], metavar="TEXT")
    parser.add_argument("--clock", choices=list(CLOCKS), default="wall")
    options = parser.parse_args()
    if options.threads:
        # JAX and AICF take as many threads as there are processors, and are not imported or not started yet.
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])
        torch.set_num_threads(options.threads)
    print(describe_machine("cpu"), "; microseconds a step", sep="", flush=True)
    slowdowns: list[str] = []
    with busy_process(options.busy) as busy:
        for workload in WORKLOADS:
            if not any(text in workload.name for text in options.only):
                continue
            torch.manual_seed(1)
            batch = workload.batch()
            has_jax = workload.forward and importlib.util.find_spec("jax")
            jax_peers = [jax_peer(workload, batch)] if has_jax else []
            made = [*torch_peers(workload, batch), *jax_peers, *aicf(workload, batch)]
            contenders = [one for one in made if any(text in one.name for text in options.contenders)]
            compare_losses(contenders, workload.tolerance)
            found = measure(contenders, options.rounds, busy, CLOCKS[options.clock])
            for title, times in zip(("", ", beside a busy process"), found, strict=False):
                print(report(workload.name + title, contenders, times), flush=True)
            if len(found) == 2:
                ratios = {one.name: found[1][one.name] / found[0][one.name] for one in contenders}
                cells = ", ".join(f"{name} {value:.2f}" for name, value in ratios.items())
                slowdowns.append(f"{workload.name}: {cells}")
    if slowdowns:
        print("times as long beside the busy process:", *slowdowns, sep="\n  ")


if __name__ == "__main__":
    main()
