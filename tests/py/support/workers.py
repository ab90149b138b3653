"""A child process that works through numbered jobs; each is measured, and none outlives its time.

python workers.py plans|texts|edited|bombs        reads a seed or a name a line, answers with a line of JSON each
"""

from __future__ import annotations

import json
import resource
import select
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from children import Child

MEGABYTES = 512.0
"""Peak memory that one job may take; its child included."""
PATIENCE = 120.0
"""Wall seconds after which a job counts as hanging: the machine may be busy."""

JOBS = 1000
"""That one child does."""


@dataclass(frozen=True)
class Outcome:
    """What became of one job."""

    job: str
    outcome: str
    """One word, or `fault: …`."""
    seconds: float
    megabytes: float

    @property
    def fault(self) -> str | None:
        """Why this is a failure, or None."""
        if self.outcome.startswith("fault"):
            return f"{self.job}: {self.outcome}"
        if self.megabytes > MEGABYTES:
            return f"{self.job}: {self.seconds:.2f} s, {self.megabytes:.0f} MB ({self.outcome})"
        return None


class Worker:
    """One child process of a kind."""

    def __init__(self, kind: str):
        command = [sys.executable, __file__, kind]
        self.process = Child(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, job: str) -> Outcome:
        """The outcome of one job; a child that dies or hangs is a fault."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{job}\n")
        self.process.stdin.flush()
        ready, _, _ = select.select([self.process.stdout], [], [], PATIENCE)
        line = self.process.stdout.readline() if ready else ""
        if not line:
            self.close()
            return Outcome(job, f"fault: the child {'died' if ready else 'hangs'}", 0.0, 0.0)
        return Outcome(job, **json.loads(line))

    def close(self) -> None:
        """End the child."""
        self.process.kill()
        self.process.communicate(timeout=PATIENCE)


def run_all(kind: str, jobs: Iterable[str]) -> Iterator[Outcome]:
    """The outcome of every job, in a child that is replaced when it has died, and long before its own time is up."""
    worker = Worker(kind)
    try:
        for number, job in enumerate(jobs, start=1):
            if number % JOBS == 0:
                worker.close()
            if worker.process.poll() is not None:
                worker = Worker(kind)
            yield worker.run(job)
    finally:
        worker.close()


def summary(outcomes: Iterable[Outcome]) -> tuple[dict[str, int], list[str]]:
    """How many jobs ended how, and the faults; prints the former, and the most that a job took (`pytest -rP`)."""
    counts: dict[str, int] = {}
    faults: list[str] = []
    seconds = megabytes = 0.0
    for outcome in outcomes:
        seconds, megabytes = max(seconds, outcome.seconds), max(megabytes, outcome.megabytes)
        word = outcome.outcome.split(":")[0]
        counts[word] = counts.get(word, 0) + 1
        if outcome.fault is not None:
            faults.append(outcome.fault)
    print(f"{counts}; at most {seconds:.2f} s of processor time and {megabytes:.0f} MB each")
    return counts, faults


def _peak_megabytes() -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def _seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main(kind: str) -> None:
    """Serve jobs until standard input ends."""
    job_of: Any
    if kind == "plans":
        from mutated_plans import run_job as job_of
    elif kind == "texts":
        from mutated_texts import run_job as job_of
    elif kind == "edited":
        from edited_plans import run_job as job_of
    else:
        from bombs import run_job as job_of
    out = sys.stdout
    for line in sys.stdin:
        Path("/proc/self/clear_refs").write_text("5")  # the peak is counted anew
        before = _seconds()
        try:
            outcome = job_of(line.strip())
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is the outcome
            outcome = f"fault: {type(error).__name__}: {error}"
        spent = _seconds() - before
        out.write(json.dumps({"outcome": outcome, "seconds": spent, "megabytes": _peak_megabytes()}) + "\n")
        out.flush()


if __name__ == "__main__":
    main(sys.argv[1])
