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
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import cache, partial
from pathlib import Path
from typing import Any

from children import Child, begin

ALL_TESTS_S = 7200
"""Far above what all tests take that share the process."""


@dataclass(frozen=True)
class Ended:
    """How a rank ended: its exit status, what it has found, and what it wrote to stderr."""

    status: int
    found: Any
    errors: str


@cache
def starter() -> Child:
    """The process that forks the ranks of all tests; it ends with its input."""
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return Child([sys.executable, __file__], limit_s=ALL_TESTS_S, env=environment, **pipes)


def run_ranks_of(program: str, count: int, folder: Path) -> list[Ended]:
    """Run a program on so many ranks; they meet by a file."""
    process = starter()
    assert process.stdin is not None
    assert process.stdout is not None
    print(json.dumps([program, count, str(folder)]), file=process.stdin, flush=True)
    return [Ended(*each) for each in json.loads(process.stdout.readline())]


def _rank(program: str, rank: int, count: int, folder: str) -> str:
    """What a rank has found, as JSON. Its group is not taken down: it may be lost."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.dup2(os.open(f"{folder}/{program}-{rank}", os.O_WRONLY | os.O_CREAT), 2)
    os.dup2(2, 1)
    os.environ["AICF_TEST_FOLDER"] = folder
    try:
        dist.init_process_group(
            "gloo",
            init_method=f"file://{folder}/{program}-store",
            rank=rank,
            world_size=count,
            timeout=timedelta(seconds=60),
        )
        return json.dumps(PROGRAMS[program](rank, count))
    except BaseException:  # noqa: BLE001  # the test shows it
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


def _ended(
    program: str, rank: int, folder: str, child: int, answer: Callable[[], str]
) -> tuple[int, Any, str]:
    text = answer()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return status, json.loads(text) if text else None, Path(f"{folder}/{program}-{rank}").read_text()


if __name__ == "__main__":
    import rank_certificates
    import rank_exchanges
    import rank_faults
    import rank_norms
    import rank_programs
    import rank_wrapped
    import rank_zero
    import torch
    import torch.distributed as dist

    PROGRAMS = {
        **vars(rank_programs),
        **vars(rank_certificates),
        **vars(rank_exchanges),
        **vars(rank_norms),
        **vars(rank_wrapped),
        **vars(rank_zero),
        **rank_zero.PROGRAMS,
        **rank_faults.PROGRAMS,
    }
    torch.set_num_threads(1)
    for line in sys.stdin:
        name, ranks, at = json.loads(line)
        forks = [begin(partial(_rank, name, each, ranks, at)) for each in range(ranks)]
        print(json.dumps([_ended(name, each, at, *fork) for each, fork in enumerate(forks)]), flush=True)
