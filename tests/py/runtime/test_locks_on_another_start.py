"""Locks that one process has measured and others obey: on the CPU, and on a GPU with the algorithms of cuBLASLt."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import children
import pytest
import torch
from locked_training import BATCH, made
from models import to_device

from aicf_mlir import AicfError, LockError
from aicf_mlir.tuning.lock import Lock
from aicf_mlir.tuning.machine import machine_of

PROGRAM = Path(children.SUPPORT) / "locked_training.py"


def started(device: str, precision: str, *more: str | Path) -> dict[str, Any]:
    """What a new process runs and trains."""
    command = [sys.executable, PROGRAM, device, precision, *more]
    return json.loads(children.run(command, check=True).stdout)


def measured(folder: Path, device: str, precision: str) -> tuple[Path, dict[str, Any]]:
    """The lock of a step, and what the step does without one: new processes, one that plans and one that measures."""
    plan, lock = folder / "step.mlir", folder / "aicf.lock"
    unlocked = started(device, precision, "--plan", plan)
    children.run([sys.executable, "-m", "aicf_mlir.tools.aicf_tune", plan, "-o", lock], check=True)
    return lock, unlocked


@pytest.mark.parametrize(
    ("device", "precision"),
    [
        ("cpu", "bf16"),
        *(pytest.param("cuda", each, marks=pytest.mark.gpu) for each in ("f32", "tf32", "bf16", "f16")),
    ],
)
def test_it_is_obeyed_on_another_start_with_the_same_bits(
    tmp_path: Path, device: str, precision: str
) -> None:
    path, unlocked = measured(tmp_path, device, precision)
    lock = Lock.read(path)
    first, second = (started(device, precision, "--lock", path) for _ in range(2))
    assert first == second
    assert set(first["kernels"]) <= {row.kernel for row in lock.rows.values()} | lock.generated
    torch.testing.assert_close(first["loss"], unlocked["loss"], rtol=1e-2, atol=1e-3)


@pytest.mark.gpu
@pytest.mark.cublaslt
@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_an_edited_algorithm_is_obeyed_or_refused(tmp_path: Path, precision: str) -> None:
    """Every one that the lock has rejected; then one that there is not, and a lock of another GPU."""
    path, _ = measured(tmp_path, "cuda", precision)
    lock, batch = Lock.read(path), to_device(BATCH, "cuda")
    wanted = made("cuda", precision)[0].train_step(batch)
    others = {
        use: [told.rpartition(":")[0] for told in row.rejected if told.endswith(" us")]
        for use, row in lock.rows.items()
    }
    for turn in range(max(map(len, others.values()))):
        chosen = {use: kernels[turn] for use, kernels in others.items() if turn < len(kernels)}
        rows = {use: replace(row, kernel=chosen.get(use, row.kernel)) for use, row in lock.rows.items()}
        path.write_text(replace(lock, rows=rows).text)
        step, *_ = made("cuda", precision, path)
        torch.testing.assert_close(step.train_step(batch), wanted, rtol=1e-2, atol=1e-3)
        assert step.executed_kernels() == step.planned_kernels()
        assert set(chosen.values()) <= set(step.executed_kernels())
        assert step.capture(batch, verify="bitwise").equal
        step.close()
    use, kernel = next((use, k) for use, kernels in others.items() for k in kernels if "_cublaslt[" in k)
    missing = kernel.partition("[")[0] + "[id 9999, tile 0]"
    rows = {**lock.rows, use: replace(lock.rows[use], kernel=missing)}
    path.write_text(replace(lock, rows=rows).text)
    with pytest.raises(
        AicfError, match=r"cannot choose \[id 9999, tile 0\] for these operands; it can choose"
    ):
        made("cuda", precision, path)
    path.write_text(replace(lock, machine={**lock.machine, "device": "NVIDIA H100 80GB HBM3"}).text)
    with pytest.raises(LockError, match=r'- device = "NVIDIA H100 80GB HBM3"') as refused:
        made("cuda", precision, path)
    assert f'+ device = "{machine_of("cuda:0")["device"]}"' in str(refused.value)
