"""What a failed status means, at every level: the interpreters, the plan, the executor, the tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from plans import PlanMemory, make_plan
from programs import run_by_name
from xdsl.dialects.builtin import ModuleOp

from aicf_mlir import _C, OpKind, PlanError
from aicf_mlir.text.parsing import parse_module
from aicf_mlir.tools import aicf_run

STEP = """
func.func @step(
    %x: tensor<4x3xf32> {aicf.role = "input", aicf.name = "x"},
    %t: tensor<4xi64> {aicf.role = "input", aicf.name = "t"},
    %w: tensor<3x3xf32> {aicf.role = "param", aicf.name = "w"},
    %m: tensor<3x3xf32> {aicf.role = "state", aicf.name = "m"},
    %s: tensor<3xi64> {aicf.role = "status", aicf.name = "failed"})
    -> (tensor<f32> {aicf.role = "loss", aicf.name = "loss"},
        tensor<3x3xf32> {aicf.role = "update", aicf.name = "m"},
        tensor<3xi64> {aicf.role = "status", aicf.name = "failed"},
        tensor<3x3xf32> {aicf.role = "update", aicf.name = "w"}) {
  %early = nn.neg %m : tensor<3x3xf32>
  %y = nn.matmul %x, %w : (tensor<4x3xf32>, tensor<3x3xf32>) -> tensor<4x3xf32>
  %l = nn.cross_entropy %y, %t : (tensor<4x3xf32>, tensor<4xi64>) -> tensor<f32>
  %s1 = nn.check_index %s, %t {classes = 3, code = 1, ignore_index = -100} : (tensor<3xi64>, tensor<4xi64>) -> tensor<3xi64>
  %s2 = nn.check_finite %s1, %l, %y {code = 2} : (tensor<3xi64>, tensor<f32>, tensor<4x3xf32>) -> tensor<3xi64>
  %w1 = nn.add %w, %early : tensor<3x3xf32>
  func.return %l, %early, %s2, %w1 : tensor<f32>, tensor<3x3xf32>, tensor<3xi64>, tensor<3x3xf32>
}
"""
"""An update that is computed before the checks, and is read after them; and one behind them."""


def step() -> ModuleOp:
    return parse_module(STEP)


def values(**changed: Any) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    given: dict[str, Any] = {
        "x": rng.standard_normal((4, 3)).astype(np.float32),
        "t": np.array([0, 2, -100, 1]),
        "w": rng.standard_normal((3, 3)).astype(np.float32),
        "m": rng.standard_normal((3, 3)).astype(np.float32),
        "failed": np.zeros(3, np.int64),
    }
    return {**given, **changed}


NAN = np.full((4, 3), np.nan, np.float32)
CASES: list[tuple[str, dict[str, Any], list[int]]] = [
    ("fine", {}, [0, 0, 0]),
    ("index", {"t": np.array([0, 2, 3, 1])}, [1, 2, 3]),
    ("number", {"x": NAN}, [2, 0, 0]),
    ("index before number", {"t": np.array([0, -2, 0, 1]), "x": NAN}, [1, 1, -2]),
    ("failed before", {"failed": np.array([7, 8, 9])}, [7, 8, 9]),
]


@pytest.mark.parametrize(("changed", "status"), [case[1:] for case in CASES], ids=[c[0] for c in CASES])
def test_every_level_updates_nothing_where_a_check_fails(changed: dict[str, Any], status: list[int]) -> None:
    given = values(**changed)
    results = run_by_name(step(), given)
    failed = status[0] != 0
    assert results["status", "failed"].tolist() == status
    assert np.array_equal(results["update", "m"], given["m"] if failed else -given["m"])
    assert np.array_equal(results["update", "w"], given["w"] if failed else given["w"] - given["m"])
    memory = PlanMemory(make_plan(step()))
    memory.fill(given)
    for slot in memory.program.slots.values():
        if slot.role == "status":
            memory.view(slot)[...] = given["failed"]
    memory.run()
    kept = memory.named("param", "state", "status")
    assert np.array_equal(kept["status", "failed"], results["status", "failed"])
    assert np.array_equal(kept["state", "m"], results["update", "m"])
    assert np.array_equal(kept["param", "w"], results["update", "w"])


@pytest.mark.parametrize("flags", [[], ["--replay"], ["--steps", "3"], ["--replay", "--steps", "3"]])
@pytest.mark.parametrize("changed", [case[1] for case in CASES], ids=[case[0] for case in CASES])
def test_aicf_run_agrees_with_the_interpreter(
    changed: dict[str, Any], flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, inputs = str(tmp_path / "step.mlir"), str(tmp_path / "inputs.npz")
    Path(path).write_text(STEP)
    np.savez(inputs, **values(**changed))
    assert aicf_run.main([path, "--inputs", inputs, "--compare=interp", *flags]) == 0
    assert "DIFFERS" not in capsys.readouterr().out


STATUS = ("status", 0, "i64", (3,))
TARGET = ("input", 0, "i64", (4,))
COUNTER = ("state", 0, "f32", (1,))


def launches() -> list[_C.Launch]:
    check: _C.Launch = {
        "op": OpKind.CheckIndex,
        "kernel_id": "check_index_cpu",
        "inputs": [STATUS, TARGET],
        "outputs": [STATUS],
        "counts": ((1, 1), (1,)),
        "attrs": {"classes": [3], "code": 4},
        "workspace": None,
    }
    count: _C.Launch = {
        "op": OpKind.Advance,
        "kernel_id": "advance_cpu",
        "inputs": [COUNTER],
        "outputs": [COUNTER],
        "counts": ((1, 0, 0, 0, 0), (1, 0, 0)),
        "attrs": {},
        "workspace": None,
        "predicate": STATUS,
    }
    return [check, count]


def arenas(*, visible: bool = True) -> dict[str, _C.Arena]:
    return {
        "status": _C.Arena("cpu", 256, visible=visible),
        "input": _C.Arena("cpu", 256),
        "state": _C.Arena("cpu", 256),
    }


def counter(memory: dict[str, _C.Arena]) -> float:
    return float(np.frombuffer(memory["state"].read(0, 4), np.float32)[0])


def test_the_executor_skips_until_the_status_is_cleared() -> None:
    memory = arenas()
    executor = _C.Executor("cpu", memory, launches(), STATUS)
    assert executor.run() == executor.failed == 0
    assert counter(memory) == 1
    memory["input"].write(0, np.array([0, 1, 2, 3]).tobytes())
    assert executor.run() == executor.failed == 4
    memory["input"].fill(0)
    assert executor.run() == 4
    assert counter(memory) == 1
    memory["status"].fill(0)
    assert executor.run() == 0
    assert counter(memory) == 2


def test_a_replay_ends_at_the_step_that_fails() -> None:
    memory = arenas()
    executor = _C.Executor("cpu", memory, launches(), STATUS)
    executor.capture()
    assert executor.replay(5) == 0
    assert (executor.replayed, counter(memory)) == (5, 5)
    memory["input"].write(8, np.array([-1]).tobytes())
    assert executor.replay(5) == 4
    assert (executor.replayed, counter(memory)) == (1, 5)
    assert np.frombuffer(memory["status"].read(0, 24), np.int64).tolist() == [4, 1, -1]


def test_an_executor_without_a_status_reports_none() -> None:
    executor = _C.Executor("cpu", arenas(), launches()[:1])
    assert executor.run() == 0


@pytest.mark.parametrize(
    ("status", "visible", "message"),
    [
        (("status", 0, "i32", (3,)), True, r"a status is i64\[3\], contiguous, got i32\[3\]"),
        (("status", 0, "i64", (4,)), True, r"a status is i64\[3\], contiguous, got i64\[4\]"),
        (STATUS, False, "the arena 'status' of a status must be visible to the host"),
        (("nowhere", 0, "i64", (3,)), True, "no arena is called 'nowhere'"),
    ],
)
def test_a_status_that_is_none_is_refused(status: Any, visible: bool, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        _C.Executor("cpu", arenas(visible=visible), launches()[:1], status)
    check, count = launches()
    with pytest.raises(PlanError, match=rf"launch 1 \(advance, kernel \S*\): {message}"):
        _C.Executor("cpu", arenas(visible=visible), [check, {**count, "predicate": status}])


@pytest.mark.gpu
def test_a_cuda_kernel_that_does_not_look_at_the_status_is_refused() -> None:
    memory = {name: _C.Arena("cuda", 256, visible=name == "status") for name in ("status", "input", "output")}
    launch: _C.Launch = {
        "op": OpKind.EltwiseNeg,
        "kernel_id": "neg_f32",
        "inputs": [("input", 0, "f32", (3,))],
        "outputs": [("output", 0, "f32", (3,))],
        "counts": None,
        "attrs": {},
        "workspace": None,
        "predicate": STATUS,
    }
    with pytest.raises(Exception, match="kernel 'neg_f32' does not look at a status; leave `predicate` away"):
        _C.Executor("cuda", memory, [launch])
