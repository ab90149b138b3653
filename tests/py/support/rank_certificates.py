"""What ranks do in tests of certificates; see `rank_programs.py`."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

import torch.distributed as dist
from rank_programs import adam, batch, digest, loss_of, model, told_by
from torch import nn

from aicf_mlir import compile_train_step
from aicf_mlir.runtime.certificate import Subject


def certified(rank: int, count: int) -> dict[str, Any]:
    """Certificates of all ranks, and of memory that is wrong on one of them after each replay, or after each step."""
    found: dict[str, Any] = {}
    cases: dict[str, dict[str, Any]] = {
        "mesh": {},
        "checks": {"clip_grad_norm": 0.5, "check_finite": True, "accumulate": 2},
        "zero=1": {"zero": 1},
        "zero=2": {"zero": 2, "clip_grad_norm": 0.5, "check_finite": True},
        "replay": {},
        "step": {},
        "fails": {},
    }
    for name, options in cases.items():
        ours = nn.SyncBatchNorm.convert_sync_batchnorm(model()) if name == "checks" else model()
        parts = options.get("accumulate", 1)
        given = [batch(part, rank) for part in range(parts)] if parts > 1 else batch(0, rank)
        step = compile_train_step(
            ours, adam(ours), loss_fn=loss_of, example=batch(0, rank), mesh=dist.group.WORLD, **options
        )
        step.train_step(given)
        bits = digest(ours)
        certificates: list[Any] = []
        with wrong_memory(name if rank == 1 else ""):
            failed = told_by(lambda: certificates.append(step.capture(given, verify="bitwise", steps=2)))  # noqa: B023
        same = digest(ours) == bits
        told = told_by(partial(step.replay, 2))
        text = str(certificates[0]) if certificates else failed
        found[name] = {"text": text, "same": same, "told": told, "digest": digest(ours)}
    return found


@contextmanager
def wrong_memory(where: str) -> Generator[None]:
    """One byte of the parameters of a certificate's step is another after each replay, or after each step; or a step fails."""
    before = Subject.run, Subject.replay

    def changed(subject: Subject) -> None:
        (value,) = subject.arenas["param"].read(6, 1, subject.stream)
        subject.arenas["param"].write(6, bytes([value ^ 1]), subject.stream)

    def run(subject: Subject) -> None:
        before[0](subject)
        if where == "step":
            changed(subject)
        if where == "fails":
            raise ValueError("no memory")

    def replay(subject: Subject, n: int = 1) -> None:
        for _ in range(n):
            before[1](subject, 1)
            if where in ("step", "replay"):
                changed(subject)

    with patch.multiple(Subject, run=run, replay=replay):
        yield
