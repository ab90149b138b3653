"""`python -m tests.real.family DEVICE FAMILY PART PARTS PATTERN...`: some cases of one family, each in a process of its own.

The family is imported once; every case is a fork of that process, so no case sees what another has left. With CUDA, which no
fork may go on with, it is a process of its own. A line of JSON each.
"""

from __future__ import annotations

import importlib
import json
import resource
import signal
import subprocess
import sys
import time
from fnmatch import fnmatchcase
from glob import escape

import torch

from tests.py.support.children import fork
from tests.real.case import Make
from tests.real.harness import judged
from tests.real.torchvision_ops import declare

CASE_S = 120
"""Seconds of the processor that a case may take."""
WAITING_S = 3600
"""Seconds in all: a case that waits for ever ends too, and a slow machine ends none."""
COMMAND = (sys.executable, "-m", "tests.real.family")
MARK = "REAL "
"""What begins a line that is a result: packages print too."""


def answer(make: Make, device: str) -> str:
    resource.setrlimit(resource.RLIMIT_CPU, (CASE_S, CASE_S))
    signal.alarm(WAITING_S)
    begun = time.process_time()
    result = judged(make, device)
    return json.dumps([result.outcome, result.detail, round(time.process_time() - begun, 1)])


def main() -> None:
    device, family, part, parts, *only = sys.argv[1:]
    torch.set_num_threads(1)
    torch.backends.cudnn.allow_tf32 = (
        False  # torch rounds convolutions and recurrent layers to TF32 otherwise
    )
    declare()
    cases: dict[str, Make] = importlib.import_module(f"tests.real.{family}_models").CASES
    chosen = [name for name in cases if any(fnmatchcase(f"{family}/{name}", pattern) for pattern in only)]
    if device == "cuda" and len(chosen) > 1:
        for name in chosen[int(part) :: int(parts)]:
            subprocess.run([*COMMAND, device, family, "0", "1", f"{family}/{escape(name)}"], check=False)
        return
    for name in chosen[int(part) :: int(parts)]:
        begun = time.perf_counter()
        result = (
            answer(cases[name], device)
            if device == "cuda"
            else fork(lambda make=cases[name]: answer(make, device))
        )
        if not result.startswith("["):
            after = time.perf_counter() - begun
            result = json.dumps(
                ["crash", f"the process ended without an answer after {after:.0f} s: {result}", 0.0]
            )
        print(f"\n{MARK}{family}/{name}\t{result}", flush=True)


if __name__ == "__main__":
    main()
