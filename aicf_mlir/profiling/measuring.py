"""Runs an executor to measure it, and joins its measurements with the text of its plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from aicf_mlir import _C
from aicf_mlir.analysis.launches import work_of
from aicf_mlir.dialects.plan import ProgramOp
from aicf_mlir.errors import BindError
from aicf_mlir.profiling.profile import LaunchProfile, Profile
from aicf_mlir.profiling.rates import rates_of
from aicf_mlir.reports.describe import describe


def expect_runs(name: str, n: object) -> None:
    """Raise BindError unless the step called `name` can be measured `n` times."""
    if type(n) is not int or n < 1:
        raise BindError(f"{name}: profile(n) needs a positive integer, got {n!r}")


@dataclass
class Measured:
    """The runs of a step so far, with marks between the launches and without, by turns."""

    executor: _C.Executor
    stream: int = 0
    launches: list[list[tuple[str, float]]] = field(default_factory=list[list[tuple[str, float]]])
    """For each run with marks, each launch: its kernel, and seconds."""
    steps: list[float] = field(default_factory=list[float])
    """The seconds of each run without marks."""

    def run(
        self,
        n: int,
        put_back: Callable[[], None],
        batch: tuple[int, ...] = (),
        waiting: Sequence[object] = (),
    ) -> bool:
        """Load `batch` and measure until there are `n` runs of each kind, or until something is `waiting`.

        Before each run `put_back` undoes the one before, so that all do the same. The first finds the caches cold, and is not
        measured. False if a check of a step has failed.
        """
        self.executor.time_step(self.stream, batch)
        while not self.executor.failed:
            put_back()
            launches = self.executor.time_launches(self.stream)
            if self.executor.failed:
                break
            put_back()
            step = self.executor.time_step(self.stream)
            if self.executor.failed:
                break
            self.launches.append(launches)
            self.steps.append(step)
            if len(self.steps) >= n or waiting:
                return True
        return False


def profiled(name: str, program: ProgramOp, device: str, measured: Measured) -> Profile:
    """The profile of the step called `name`, with the plan `program`, on `device` ("cpu", "cuda:0")."""
    works = work_of(program)
    rates = rates_of(device, {work.element for work in works if work.element is not None and work.flops})
    calm = faster_half([sum(seconds for _, seconds in run) for run in measured.launches])
    profiles: list[LaunchProfile] = []
    for number, (row, work) in enumerate(zip(describe(program), works, strict=True)):
        samples = tuple(run[number][1] for run in measured.launches)
        seconds = fmean(samples[run] for run in calm)
        kernel_id, kernel = row.kernel_id or "", measured.launches[0][number][0]
        floor = rates.floor(work.nbytes, work.flops, work.element)
        profiles.append(
            LaunchProfile(
                row.launch,
                row.op,
                kernel_id,
                kernel,
                row.source,
                work.nbytes,
                work.flops,
                floor,
                seconds,
                samples,
            )
        )
    threads = _C.threads() if device == "cpu" else None
    seconds = fmean(measured.steps[run] for run in faster_half(measured.steps))
    return Profile(name, device, threads, rates, tuple(profiles), seconds, tuple(measured.steps))


def faster_half(seconds: Sequence[float]) -> list[int]:
    """The runs to look at: on a busy machine the slower ones measure other work, each in another launch."""
    order = sorted(range(len(seconds)), key=seconds.__getitem__)
    return order[: (len(order) + 1) // 2]
