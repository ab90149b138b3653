"""Branches at run time: the order of streams, what is refused, and on a GPU the bits of eager steps."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import children
import numpy as np
import pytest
import torch
from branched import Transformer, class_loss, stages
from fusion_rules import leave_out
from models import mlp, mse, regression

import aicf_mlir
from aicf_mlir import _C, CompiledTrainStep, PlanError, compile_eval_step
from aicf_mlir.dialects.plan import find_program
from aicf_mlir.machine.environment import BRANCHES
from aicf_mlir.passes.fuse.small_updates import SmallUpdateFusion
from aicf_mlir.reports.describe import describe, to_table
from aicf_mlir.runtime.program import load_program
from aicf_mlir.step.options.branching import Branching

ROOT = Path(__file__).parents[3]
SLOT = ("temp", 0, "f32", (4,))


def test_launches_wait_for_what_they_must_on_streams_that_are_threads(tmp_path: Path) -> None:
    program = tmp_path / "branch_streams"
    sources = [ROOT / "tests/cpp/branch_streams.cpp", ROOT / "csrc/device/branches.cpp"]
    command = ["c++", "-std=c++17", "-pthread", f"-I{ROOT / 'csrc'}", "-o", program, *sources]
    children.run(command, check=True)
    done = children.run([program])
    expected = (0, "every launch waited for what it must\n")
    assert (done.returncode, done.stdout) == expected, done.stdout + done.stderr


def launch(offset: int, branch: int, after: list[int], kernel: str = "relu_cpu") -> dict[str, Any]:
    """One of a chain, or beside others: from the first slot to that at `offset`."""
    return {
        "op": "relu",
        "kernel_id": kernel,
        "inputs": [SLOT],
        "outputs": [("temp", offset, "f32", (4,))],
        "counts": None,
        "attrs": {},
        "workspace": None,
        "after": after,
        "branch": branch,
    }


@pytest.mark.parametrize(
    ("branch", "message"),
    [
        (1, "the CPU runs launches one after another; leave `branch` away"),
        (-1, "a branch is a number from 0 to 15, got -1"),
        (16, "a branch is a number from 0 to 15, got 16"),
    ],
)
def test_a_branch_that_cannot_be_is_refused(branch: int, message: str) -> None:
    rows: list[Any] = [launch(256, branch, [])]
    with pytest.raises(Exception, match=rf"launch 0 \(relu, kernel relu_cpu\): {message}"):
        _C.Executor("cpu", {"temp": _C.Arena("cpu", 1024)}, rows)


def test_the_executor_is_told_the_branches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of prebuilt kernels alone: others would be compiled for the GPU."""
    leave_out(monkeypatch, "fuse-losses", "fuse-narrow-products")
    module = stages.__wrapped__("4x8x3")["plan"]
    program, rows = find_program(module), load_program(module).launches
    assert [row.get("branch") for row in rows] == [each.branch_number for each in program.launches]
    assert any(row.get("branch") for row in rows)


def test_a_description_names_branches() -> None:
    program = find_program(stages("4x8x3")["plan"])
    described = describe(program)
    assert [each.branch for each in described] == [each.branch_number for each in program.launches]
    paragraphs = to_table(described).split("\n\n")
    for text, each in zip(paragraphs, program.launches, strict=True):
        assert (f"     on branch {each.branch_number}\n" in text) == (each.branch is not None)


@pytest.mark.parametrize(("value", "asked"), [("1", True), ("0", False), (None, True)])
def test_the_environment_may_leave_branches_out(
    value: str | None, asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(BRANCHES, raising=False)
    if value is not None:
        monkeypatch.setenv(BRANCHES, value)
    assert Branching.of({}).passes("cpu") == ({"multi-stream": ""} if asked else {})


def test_a_request_keeps_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(BRANCHES, "0")
    step = compile_eval_step(mlp(8, 8), B=4, D=8, device="cpu")
    monkeypatch.delenv(BRANCHES)
    assert step._request.anew().effect(Branching) == Branching(False)  # pyright: ignore[reportPrivateUsage]
    again = compile_eval_step(mlp(8, 8), B=4, D=8, device="cpu")
    assert again._request.effect(Branching) == Branching(True)  # pyright: ignore[reportPrivateUsage]


def compiled(device: str) -> tuple[CompiledTrainStep, torch.nn.Module, dict[str, torch.Tensor]]:
    model = mlp(64, 64, 64, 64).to(device)
    optimizer = torch.optim.Adam(model.parameters())
    batch = {name: value.to(device) for name, value in regression(32, 64, 64).items()}
    return (
        aicf_mlir.compile_train_step(model, optimizer, loss_fn=mse, example=batch, device=device),
        model,
        batch,
    )


def test_a_step_is_compiled_as_it_was_asked_for(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The word counts when the step is made, and for all that is compiled of it later."""
    monkeypatch.setattr(SmallUpdateFusion, "write", lambda self: None)  # a chain of launches has no branches
    monkeypatch.delenv(BRANCHES, raising=False)
    step, _, _ = compiled(device)
    text = step.ir("plan")
    assert (" branch 1" in text) == (device == "cuda")
    monkeypatch.setenv(BRANCHES, "0")
    step.recompile()
    assert step.ir("plan") == text
    without, _, _ = compiled(device)
    assert " branch 1" not in without.ir("plan")
    assert device == "cuda" or text == without.ir("plan")


@pytest.mark.gpu
def test_replays_on_branches_equal_eager_steps_bitwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(BRANCHES, "1")
    step, _, batch = compiled("cuda")
    step.train_step(batch)
    assert step.capture(batch, verify="bitwise", steps=5).equal


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["mlp", "transformer"])
def test_twenty_runs_give_one_digest(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each captures anew and replays; all give the bits of eager steps without branches."""

    monkeypatch.setattr(SmallUpdateFusion, "write", lambda self: None)  # a chain of launches has no branches

    def trained(branches: str, replayed: bool) -> str:
        monkeypatch.setenv(BRANCHES, branches)
        torch.manual_seed(0)
        if name == "mlp":
            step, model, batch = compiled("cuda")
        else:
            model = Transformer(64).cuda()
            batch = {key: torch.arange(64).reshape(4, 16).cuda() % 11 for key in ("x", "t")}
            optimizer = torch.optim.AdamW(model.parameters())
            step = aicf_mlir.compile_train_step(model, optimizer, loss_fn=class_loss, example=batch)
        assert (" branch 1" in step.ir("plan")) == (branches == "1")
        step.train_step(batch)
        if replayed:
            step.capture(batch)
            step.replay(49)
        else:
            for _ in range(49):
                step.train_step(batch)
        step.synchronize()
        digest = hashlib.sha256()
        for value in model.state_dict().values():
            digest.update(value.detach().cpu().numpy().tobytes())
        step.close()
        return digest.hexdigest()

    expected = trained("0", replayed=False)
    assert {trained("1", replayed=True) for _ in range(20)} == {expected}


@pytest.mark.gpu
def test_a_class_index_out_of_range_skips_updates_on_branches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(BRANCHES, "1")
    model = Transformer(64).cuda()
    batch = {key: torch.ones(4, 16, dtype=torch.int64).cuda() for key in ("x", "t")}
    step = aicf_mlir.compile_train_step(
        model, torch.optim.AdamW(model.parameters()), loss_fn=class_loss, example=batch
    )
    step.train_step(batch)
    step.capture(batch)
    step.synchronize()
    before = [value.detach().clone() for value in model.parameters()]
    wrong = {"x": batch["x"], "t": torch.full_like(batch["t"], 99)}
    with pytest.raises(aicf_mlir.OutOfRangeError):
        step.replay(3, inputs=wrong)
        step.synchronize()
        step.replay()
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


@pytest.mark.gpu
def test_captures_leave_nothing_behind() -> None:
    """Streams and events of a capture go with its end; another one follows, and one whose order is nonsense is refused."""
    arena = _C.Arena("cuda", 256 * 6)
    start = np.array([-1, 2, -3, 4], np.float32)
    rows: list[Any] = [launch(256 * (i + 1), i % 4, [], "relu_f32_vec4") for i in range(5)]
    executor = _C.Executor("cuda", {"temp": arena}, rows)
    executor.run()
    for _ in range(50):
        executor.capture()
        arena.fill(0xFF)
        arena.write(0, start.tobytes())
        executor.replay(3)
        for i in range(5):
            got = np.frombuffer(arena.read(256 * (i + 1), 16), np.float32)
            np.testing.assert_array_equal(got, np.maximum(start, 0))
        executor.reset()
    rows[1]["after"] = [3]
    with pytest.raises(PlanError, match=r"launch 1 waits for launch 3, which is no earlier one"):
        _C.Executor("cuda", {"temp": arena}, rows)
