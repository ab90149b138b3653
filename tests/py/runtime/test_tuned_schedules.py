"""Schedules of generated kernels that are measured, and obeyed by the lock."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from models import regression
from tool_calls import called
from torch import nn

from aicf_mlir import SelectionError, compile_train_step
from aicf_mlir.tools import aicf_tune
from aicf_mlir.tuning.lock import Lock
from aicf_mlir.tuning.measure import is_near


def test_schedules_of_generated_kernels_are_measured_on_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, lock = tmp_path / "step.mlir", tmp_path / "aicf.lock"
    model, batch = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, 1)), regression(500, 8)
    kept = copy.deepcopy(model.state_dict())

    def made(**options: Any) -> Any:
        model.load_state_dict(kept)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        return compile_train_step(
            model,
            optimizer,
            example=batch,
            device="cpu",
            loss_fn=lambda m, b: m(b["x"]).square().mean(),
            **options,
        )

    own = made()
    plan.write_text(own.ir("plan"))
    want = own.train_step(batch).clone()
    assert called(aicf_tune.main, ["--schedules", str(plan), "-o", str(lock)], capsys) == (0, "", "")
    rows = {use: row for use, row in Lock.read(lock).rows.items() if use.startswith("gen_")}
    assert rows
    for use, row in rows.items():
        names = [row.kernel, *(text.partition(": ")[0] for text in row.rejected)]
        assert len(set(names)) == len(names) > 1, "the schedule that is taken, and those beside it"
        assert all(name.startswith(f"{use}[") for name in names)
    step = made(lock=lock)
    step.train_step(batch)
    assert {row.kernel for row in rows.values()} <= set(step.executed_kernels())
    use, row = next((use, row) for use, row in rows.items() if "[columns " in row.kernel)
    other = f"{use}[columns rows=4 strip=512]"
    lock.write_text(lock.read_text().replace(f'kernel = "{row.kernel}"', f'kernel = "{other}"'))
    edited = made(lock=lock)
    assert torch.allclose(edited.train_step(batch), want)
    assert other in edited.executed_kernels()
    lock.write_text(lock.read_text().replace('rows=4 strip=512]"\nmicro', 'rows=5 strip=512]"\nmicro'))
    with pytest.raises(SelectionError, match=r"columns rows=5 strip=512.*expected rows in \[1, 2, 4,"):
        made(lock=lock)


def test_schedules_next_to_one_differ_in_one_number() -> None:
    one = "rows width=4 lanes=32 chunks=2 block=64"
    assert is_near(one, one)
    assert is_near(one, "rows width=4 lanes=32 chunks=2 block=128")
    assert is_near(one, "rows width=4 lanes=32 chunks=2 block=64 once=1")
    assert is_near(one, "rows width=4 lanes=64 chunks=1")
    assert is_near(one, "rows width=4 lanes=512 parts=8")
    assert not is_near(one, "rows width=2 lanes=64 chunks=2")
    assert is_near("rows", "split block=512")
