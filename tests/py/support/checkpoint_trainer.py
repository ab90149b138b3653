"""A process that trains and saves after every step, made to be killed: `python checkpoint_trainer.py FILE`.

For each line on standard input it forks a trainer, prints "trainer PID", and "dead" when it is gone. A trainer goes on from the
checkpoint in FILE and prints "saved N" when the checkpoint after step N is acknowledged.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import torch
from children import fork
from models import CONTRACT_OPTIMIZERS, Batch, Setup, compiled, mlp, regression

ADAM = CONTRACT_OPTIMIZERS[4]
LIFETIME = 60
"""Seconds after which a trainer ends by itself; their parent does when its standard input ends."""


def new_setup() -> Setup:
    """The step that is trained, from its start."""
    return compiled(ADAM, model=mlp(8, 64, 8))


def batch_of(step: int) -> Batch:
    """The batch of each step, counted from 1."""
    return regression(5, seed=step)


def train(path: Path) -> None:
    signal.alarm(LIFETIME)
    setup = new_setup()
    if path.exists():
        setup.step.load(path)
    done = int(setup.step.meta["step"])
    while True:
        done += 1
        setup.step.train_step(batch_of(done))
        setup.step.save(path)
        say(f"saved {done}")


def say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


def main(path: Path) -> None:
    torch.set_num_threads(1)
    new_setup()  # what only the first compilation loads is loaded once
    for _ in sys.stdin:
        fork(lambda: train(path), started=lambda child: say(f"trainer {child}"))
        say("dead")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
