"""bench/models_gpu.py and bench/sweep_gpu.py on the CPU, in sizes of a few elements: what they measure, and what they compare."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections import Counter
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import children
import pytest
import torch
from costs import Some

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "bench"))

import kernel_rows
import models_gpu
import sweep_gpu
from sweep_gpu import Found, growing

from aicf_mlir.op_call import op_call


def run(script: Any, *options: object) -> Any:
    command = [sys.executable, script.__file__, "--device", "cpu", *map(str, options)]
    return children.run(command, timeout=240, env={**os.environ, "OMP_NUM_THREADS": "1"})


ROWS = ["gpt2:8x4", "sac", "gnn"]
"""One with dropout, clip and micro-batches, one with a body of its own, one with indices."""


def test_models_train_as_in_torch(tmp_path: Path, some: Some) -> None:
    names, found = some(ROWS), tmp_path / "rows.json"
    options = (
        "--tiny",
        "--certify",
        "--seconds",
        "0.005",
        "--contenders",
        "aicf,eager,graph",
        "--json",
        found,
    )
    done = run(models_gpu, *options, "--rows", ",".join(names))
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(found.read_text())["rows"]
    assert sorted(rows) == sorted(names)
    for title, row in rows.items():
        assert row["graph"]["error"] == "ValueError: a CUDA graph needs --device cuda"
        assert row["aicf"]["us"] > 0 and row["eager"]["us"] > 0
        rel = 0.02 if models_gpu.ROWS[title].drawn else 5e-3
        assert row["aicf"]["loss"] == pytest.approx(row["eager"]["loss"], rel=rel)
    assert all(title in done.stdout for title in names)


def test_a_tuned_model_obeys_its_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The step is made twice: to be measured, and with what was measured."""
    options = argparse.Namespace(device="cpu", tiny=True, tune=True, schedules=False, limit=120)
    made, locks = models_gpu.our_step, list[str]()

    def noted(row: Any, options: Any, lock: Path | None = None) -> Any:
        locks.append("" if lock is None else lock.read_text())
        return made(row, options, lock)

    monkeypatch.setattr(models_gpu, "our_step", noted)
    contender = models_gpu.ours(models_gpu.ROWS["ppo"], options)
    assert locks[0] == "" and "microseconds = " in locks[1]
    assert math.isfinite(contender.run(1))


def test_every_row_has_tiny_sizes() -> None:
    """Each can be made; the batch fits the model."""
    for title, row in models_gpu.ROWS.items():
        case = row.of(tiny=True)
        assert sum(x.numel() for x in case.model().parameters()) < 5_000_000, title
        assert (case.loss is None) == (case.body is not None) and case.batch()


@pytest.mark.parametrize(
    "options, said", [(("--budget", "0"), "the budget of 0 s is spent"), (("--rows", "gpt5"), "got gpt5")]
)
def test_what_is_not_measured_is_said(options: tuple[str, ...], said: str) -> None:
    done = run(models_gpu, "--tiny", "--contenders", "aicf", *options)
    assert said in done.stdout + done.stderr


def test_another_loss_is_seen() -> None:
    row = models_gpu.ROWS["tab"]
    peer = {"first": 2.0, "loss": 1.0}
    for loss, off in ((1.0, False), (1.003, False), (1.3, True), (math.nan, True)):
        assert models_gpu.is_off(row, {"aicf": {"first": 2.0, "loss": loss}, "eager": peer}) == off


def test_a_sweep_finds_times_and_floors(tmp_path: Path, some: Some) -> None:
    ops, found = some(["relu6", "index_put"]), tmp_path / "found.json"
    options = (
        "--only",
        *ops,
        "--largest",
        "5000",
        "--most",
        "2",
        "--json",
        found,
    )
    done = run(sweep_gpu, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(found.read_text())
    assert {row["op"] for row in rows} == {*ops}
    assert {row["element"] for row in rows} == {"f32", "bf16"}
    assert {row["kind"] for row in rows} == {"forward", "gradient"}
    for row in rows:
        assert not row["wrong"] and (row["refused"] or min(row["ours"], row["torch"], row["floor"]) > 0), row
    assert "0 differ from torch" in done.stdout


def test_what_is_slow_is_measured_again_alone() -> None:
    slow = Found("relu6", (1000,), "f32", "forward", 1e6, 20.0, 1.0)
    fast = Found("relu6", (7,), "f32", "forward", 21.0, 20.0, 1.0)
    found = [fast, slow]
    options = argparse.Namespace(device="cpu")
    sweep_gpu.measured_alone(found, options, [get_context("spawn").Lock()], time.time() + 100)
    assert found[0] is fast
    assert found[1].title == slow.title and found[1].ratio < slow.ratio


def test_a_cliff_is_what_grows_faster_than_its_floor() -> None:
    rows = [
        Found("op", (n,), "f32", "forward", ours, 1.0, n)
        for n, ours in ((10, 20.0), (100, 200.0), (1000, 90_000.0))
    ]
    (worst, one), (even, _) = growing(rows)
    assert one.size == (1000,) and worst == pytest.approx(45.0) and even == pytest.approx(1.0)


def test_every_op_has_twelve_sizes() -> None:
    sizes = Counter[str]()
    for op in sweep_gpu.ops():  # a convolution of a network has a name of its own
        sizes[op.name.partition("convolution ")[0] or "convolution"] += len(op.sizes)
    for name, count in sizes.items():
        assert count >= (11 if name == "batch_norm" else 12), name


def test_rows_of_single_kernels_are_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of attention, orders, running results and scatters: each runs, and so does what stands beside it."""
    monkeypatch.setattr(kernel_rows, "DEVICE", "cpu")
    monkeypatch.setattr(kernel_rows, "HEADS", ((2, 4, 2, 33, 16),))
    monkeypatch.setattr(kernel_rows, "LINES", ((3, 50), (1, 200)))
    monkeypatch.setattr(kernel_rows, "SCATTERED", ((10, 3, 40),))
    ran: set[str] = set()
    for row in kernel_rows.index_rows():
        ran.add(op_call(row.kind, row.inputs, row.outputs, row.attrs, ""))
        assert row.peer is None or row.peer() is not None
    assert {
        "attention_cpu",
        "attention_grad_cpu",
        "argsort_cpu",
        "scan_cpu",
        "scatter_add_cpu",
        "scatter_rows_cpu",
    } <= ran


def test_a_wrong_result_is_told_from_a_rounded_one() -> None:
    (op,) = (op for op in sweep_gpu.ops() if op.name == "mm")
    truth = [torch.tensor([1.0, 2.0], dtype=torch.float64)]
    off, near = [torch.tensor([1.0, 2.5])], [torch.tensor([1.0, 2.4])]
    assert sweep_gpu.differing(op, "f32", truth, truth, lambda: truth) == ""
    assert sweep_gpu.differing(op, "f32", off, truth, lambda: truth) == "result 0 is off by 0.5"
    assert sweep_gpu.differing(op, "f32", off, near, lambda: truth) == "", (
        "torch is as far from what is right"
    )
    none, endless = [torch.tensor([1.0, math.nan])], [torch.tensor([1.0, math.inf])]
    for made in (none, endless):
        assert sweep_gpu.differing(op, "f32", made, truth, lambda: truth) == "result 0 is off by inf"
        assert sweep_gpu.differing(op, "f32", made, made, lambda made=made: made) == ""
