"""Processes that are the ranks of one group, each running a program of `rank_programs.py`; none outlives its time.

python ranks.py PROGRAM RANK COUNT FILE        what a rank runs; its result is a line of JSON
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from children import Child

PATIENCE = 300.0
"""Wall seconds after which a rank counts as hanging: the machine may be busy."""


@dataclass(frozen=True)
class Ended:
    """How a rank ended: its exit status, what it has found, and what it wrote to stderr."""

    status: int
    found: Any
    errors: str


def run_ranks_of(program: str, count: int, folder: Path) -> list[Ended]:
    """Run a program on so many ranks; each starts alone and they meet by a file."""
    store = folder / f"store-{program}"
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    children = [
        Child(
            [sys.executable, __file__, program, str(rank), str(count), str(store)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for rank in range(count)
    ]
    ended: list[Ended] = []
    for child in children:
        out, errors = child.communicate(timeout=PATIENCE)
        lines = [line for line in out.splitlines() if line.startswith("{")]
        ended.append(Ended(child.returncode, json.loads(lines[-1]) if lines else None, errors))
    return ended


if __name__ == "__main__":
    import torch
    import torch.distributed as dist

    name, rank, count, path = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{path}", rank=rank, world_size=count, timeout=timedelta(seconds=60)
    )
    import rank_programs

    print(json.dumps(vars(rank_programs)[name](rank, count)), flush=True)
    os._exit(0)  # a group that is lost is not taken down
