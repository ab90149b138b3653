"""Processes that are the ranks of one group, each running a program of `rank_programs.py`; none outlives its time.

python ranks.py        starts the ranks that it is asked for, a line of JSON each; they are its forks, so all is imported once
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import traceback
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

from children import interruptible

PATIENCE_S = 300
"""After which a rank counts as hanging: the machine may be busy."""


@dataclass(frozen=True)
class Ended:
    """How a rank ended: its exit status, what it has found, and what it wrote to stderr."""

    status: int
    found: Any
    errors: str


@cache
def starter() -> subprocess.Popen[str]:
    """The process that forks the ranks of all tests; it ends with its input."""
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    with interruptible():
        return subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )


def run_ranks_of(program: str, count: int, folder: Path) -> list[Ended]:
    """Run a program on so many ranks; they meet by a file."""
    process = starter()
    assert process.stdin is not None
    assert process.stdout is not None
    print(json.dumps([program, count, str(folder)]), file=process.stdin, flush=True)
    statuses = json.loads(process.stdout.readline())
    return [_ended(folder / f"{program}-{rank}", status) for rank, status in enumerate(statuses)]


def _ended(path: Path, status: int) -> Ended:
    found = json.loads(path.read_text()) if path.exists() else None
    return Ended(status, found, path.with_suffix(".err").read_text())


def _forked(program: str, rank: int, count: int, folder: Path) -> int:
    """Start a rank, and give its id back."""
    if child := os.fork():
        return child
    signal.alarm(PATIENCE_S)
    os.environ["AICF_TEST_FOLDER"] = str(folder)
    path = folder / f"{program}-{rank}"
    os.dup2(os.open(path.with_suffix(".err"), os.O_WRONLY | os.O_CREAT), 2)
    os.dup2(2, 1)
    try:
        dist.init_process_group(
            "gloo",
            init_method=f"file://{folder}/{program}-store",
            rank=rank,
            world_size=count,
            timeout=timedelta(seconds=60),
        )
        path.write_text(json.dumps(vars(rank_programs)[program](rank, count)))
    except BaseException:  # noqa: BLE001  # the test shows it
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)  # a group that is lost is not taken down


if __name__ == "__main__":
    import rank_programs
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    for line in sys.stdin:
        name, ranks, at = json.loads(line)
        children = [_forked(name, each, ranks, Path(at)) for each in range(ranks)]
        print(
            json.dumps([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]), flush=True
        )
