"""Trains a small model in a process of its own, by a lock where one is given, and prints what ran and what came out as JSON.

python tests/py/support/locked_training.py DEVICE PRECISION [--lock FILE] [--plan FILE]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from pathlib import Path

import torch
from models import mlp, regression, to_device, values
from torch import nn

from aicf_mlir import compile_train_step
from aicf_mlir.step.compiled_step import CompiledTrainStep

BATCH = regression(512, 256)


def made(
    device: str, precision: str, lock: str | Path | None = None
) -> tuple[CompiledTrainStep, nn.Module, torch.optim.Optimizer]:
    """The step with its model and optimizer, built from a seed."""
    model = mlp(256, 256, 256).to(device)
    optimizer = torch.optim.Adam(model.parameters())
    batch = to_device(BATCH, device)
    step = compile_train_step(
        model, optimizer, example=batch, device=device, precision=precision, loss_scale=None, lock=lock
    )
    return step, model, optimizer


def main() -> None:
    """Three steps and three replays."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("device")
    parser.add_argument("precision")
    parser.add_argument("--lock")
    parser.add_argument("--plan", type=Path, help="where the plan is written")
    given = parser.parse_args()
    step, model, optimizer = made(given.device, given.precision, given.lock)
    if given.plan:
        given.plan.write_text(step.ir("plan"))
    batch = to_device(BATCH, given.device)
    for _ in range(3):
        loss = step.train_step(batch)
    certificate = step.capture(batch, verify="bitwise")
    if not certificate.equal:
        sys.exit(str(certificate))
    loss = step.replay(3, sync=True)
    digest = hashlib.sha256()
    for name, value in sorted(values(model, optimizer).items()):
        digest.update(
            name.encode() + value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        )
    found = {
        "kernels": step.executed_kernels(),
        "loss": float(loss),
        "digest": digest.hexdigest(),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
