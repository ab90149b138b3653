"""A profile: the launches of a step with their times, to be read, written as JSON, or looked at as a trace.

The JSON is one object, stable from version to version; keys are added, never changed while `version` stays:

    {"version": 1, "step", "device", "threads", "runs",
     "rates": {"copy", "products": {"f32": …}}, "seconds", "least", "marked", "launches": [LAUNCH, …]}
                step            the name of the step; of a file, that of its plan.program
                device          "cpu", "cuda:0"
                threads         the threads that share the loops of CPU kernels; null on a GPU
                runs            the number of steps measured with marks between the launches, and as many without
                rates           this machine: bytes a second of a copy, operations a second of a product by element type,
                                null if no kernel multiplies such elements (aicf_mlir/profiling/rates.py)
                seconds, least  a step without marks between its launches: the mean of the faster half of the runs; the least
                marked          a step with marks, in the same way, less the time of the marks: the seconds of the launches add up
                                to it
                launches        in the order in which they run
    LAUNCH      launch          "@k3": its name in the plan
                op              "gemm_epilogue": its name in the kernel dialect
                kernel_id       "gemm_epilogue_cpu_blas"
                kernel          the same, with its choices in brackets, as the runtime reports that it ran
                source          [{"file", "line", "layer"}, …], as in aicf_mlir/reports/describe.py
                seconds, least  the mean of the faster half of the steps, the same ones for every launch; the shortest
                bytes           read and written (aicf_mlir/analysis/launches.py)
                flops           floating-point operations (aicf_mlir/analysis/operations.py); null if the number is unknown
                floor           the seconds of the bytes or of the operations at the rates, whichever is longer
                share           floor / seconds; null for a launch too short for the clock
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Literal

from aicf_mlir.machine.atomic_file import write_file
from aicf_mlir.profiling.rates import Rates
from aicf_mlir.profiling.table import table
from aicf_mlir.profiling.trace import to_trace
from aicf_mlir.reports.describe import UserLine

VERSION = 1
"""The version of the JSON."""


@dataclass(frozen=True)
class LaunchProfile:
    """One launch of a step, measured."""

    launch: str
    """ "@k3": its name in the plan."""
    op: str
    kernel_id: str
    kernel: str
    """The kernel id, with the choices of the kernel in brackets, as the runtime reports that it ran."""
    source: tuple[UserLine, ...]
    nbytes: int
    """Read and written."""
    flops: int | None
    """Floating-point operations; None if the number is unknown."""
    floor: float
    """The seconds of the bytes or of the operations at the rates of the machine, whichever is longer."""
    seconds: float
    """The mean of the faster half of the steps, the same ones for every launch: they add up to those steps."""
    samples: tuple[float, ...] = field(repr=False)
    """Seconds in each run."""

    @property
    def least(self) -> float:
        """The shortest."""
        return min(self.samples)

    @property
    def share(self) -> float | None:
        """The share of its time that the floor takes. More than 1 if caches hold its operands and results."""
        return self.floor / self.seconds if self.seconds else None

    @property
    def layer(self) -> str:
        """The layer that it stands for, by its path in the model; empty if there is none."""
        return self.source[0].layer if self.source else ""

    @property
    def place(self) -> str:
        """`model.py:12`; empty if it is not known."""
        return f"{self.source[0].file}:{self.source[0].line}" if self.source else ""


@dataclass(frozen=True)
class Profile:
    """The launches of a step in the order in which they run, and the step as a whole; `print` shows them by time."""

    step: str
    device: str
    threads: int | None
    rates: Rates
    launches: tuple[LaunchProfile, ...]
    seconds: float
    """The seconds of a step without marks between its launches: the mean of the faster half of the runs."""
    samples: tuple[float, ...] = field(repr=False)
    """Seconds of each step without marks between its launches."""

    @property
    def runs(self) -> int:
        """The number of steps that were measured with marks, and as many without."""
        return len(self.samples)

    @property
    def least(self) -> float:
        """The shortest of them."""
        return min(self.samples)

    @cached_property
    def of_run(self) -> tuple[float, ...]:
        """The seconds of each step with marks, which are the sum of its launches."""
        return tuple(sum(launch.samples[run] for launch in self.launches) for run in range(self.runs))

    @property
    def marked(self) -> float:
        """The seconds of a step with marks: the sum of its launches."""
        return sum(launch.seconds for launch in self.launches)

    def table(self, order: Literal["time", "plan"] = "time") -> str:
        """The launches, the longest first or in the order of the plan; then the time of each op and each layer."""
        return table(self, order)

    def __str__(self) -> str:
        return self.table()

    def to_json(self) -> str:
        """The JSON that this module describes, two columns of indent a level."""
        document: dict[str, Any] = {
            "version": VERSION,
            "step": self.step,
            "device": self.device,
            "threads": self.threads,
            "runs": self.runs,
            "rates": {"copy": self.rates.copy, "products": dict(self.rates.products)},
            "seconds": self.seconds,
            "least": self.least,
            "marked": self.marked,
            "launches": [_launch(launch) for launch in self.launches],
        }
        return json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False)

    def to_trace(self) -> str:
        """Every measured step as trace events (aicf_mlir/profiling/trace.py), for Perfetto and chrome://tracing."""
        return to_trace(self)

    def save_json(self, path: str | os.PathLike[str]) -> None:
        """Write `to_json` to a file that appears whole or not at all."""
        _write(path, self.to_json())

    def save_trace(self, path: str | os.PathLike[str]) -> None:
        """Write `to_trace` to a file that appears whole or not at all."""
        _write(path, self.to_trace())


def _write(path: str | os.PathLike[str], document: str) -> None:
    """Write JSON as UTF-8; characters without UTF-8, as in the name of a source file of other bytes, as JSON's own escapes."""
    write_file(path, f"{document}\n".encode(errors="backslashreplace"))


def _launch(launch: LaunchProfile) -> dict[str, Any]:
    return {
        "launch": launch.launch,
        "op": launch.op,
        "kernel_id": launch.kernel_id,
        "kernel": launch.kernel,
        "source": [asdict(source) for source in launch.source],
        "seconds": launch.seconds,
        "least": launch.least,
        "bytes": launch.nbytes,
        "flops": launch.flops,
        "floor": launch.floor,
        "share": launch.share,
    }
