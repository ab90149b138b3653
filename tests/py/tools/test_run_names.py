"""aicf-run tells tensors apart by role and name: what two roles call alike has a value of its own."""

from __future__ import annotations

import sys
from io import StringIO
from pathlib import Path

import numpy as np
import pytest

from aicf_mlir.ir.signature import argument_keys, result_keys
from aicf_mlir.text.parsing import parse_module
from aicf_mlir.tools import aicf_opt, aicf_run
from aicf_mlir.tools.tensors import shown_names

SAME_NAME = """
func.func @step(%a: tensor<4xf32> {aicf.role = "param", aicf.name = "w"},
                %b: tensor<2xf32> {aicf.role = "input", aicf.name = "w"},
                %c: tensor<4xf32> {aicf.role = "state", aicf.name = "w"})
    -> (tensor<2xf32> {aicf.role = "output", aicf.name = "w"}, tensor<4xf32> {aicf.role = "grad", aicf.name = "w"},
        tensor<4xf32> {aicf.role = "update", aicf.name = "w", aicf.of = "param"},
        tensor<4xf32> {aicf.role = "update", aicf.name = "w", aicf.of = "state"},
        tensor<2xf32> {aicf.role = "output", aicf.name = "w.grad"}) {
  %y = kernel.neg x(%b) : tensor<2xf32>
  %g = kernel.neg x(%a) : tensor<4xf32>
  %p = kernel.add x(%a) y(%c) : tensor<4xf32>
  %s = kernel.add x(%c) y(%g) : tensor<4xf32>
  %z = kernel.relu x(%b) : tensor<2xf32>
  func.return %y, %g, %p, %s, %z : tensor<2xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<2xf32>
}
"""
UNLABELLED = """
func.func @f(%x: tensor<4xf32>, %x_1: tensor<2xf32>, %2: tensor<3xf32>, %arg2: tensor<5xf32>)
    -> (tensor<4xf32>, tensor<2xf32>, tensor<3xf32>, tensor<5xf32>) {
  func.return %x, %x_1, %2, %arg2 : tensor<4xf32>, tensor<2xf32>, tensor<3xf32>, tensor<5xf32>
}
"""
TO_PLAN = "lower,select-kernels,bufferize,plan-memory"


def results_of(path: Path, *arguments: str) -> dict[str, np.ndarray]:
    out = path.parent / "out.npz"
    assert aicf_run.main([str(path), "-o", str(out), *arguments]) == 0
    with np.load(out) as archive:
        return dict(archive)


def levels(text: str, folder: Path) -> list[Path]:
    """The text and its plan, as files."""
    (folder / "a.mlir").write_text(text)
    assert aicf_opt.main([str(folder / "a.mlir"), "-p", TO_PLAN, "-o", str(folder / "plan.mlir")]) == 0
    return [folder / "a.mlir", folder / "plan.mlir"]


def test_one_name_in_every_role(tmp_path: Path) -> None:
    values: dict[str, np.ndarray] = {
        "param:w": np.array([1, 2, 3, 4], np.float32),
        "input:w": np.array([-5, 6], np.float32),
        "state:w": np.array([10, 20, 30, 40], np.float32),
    }
    np.savez(tmp_path / "in.npz", allow_pickle=False, **values)
    for path in levels(SAME_NAME, tmp_path):
        found = results_of(path, "--inputs", str(tmp_path / "in.npz"))
        assert {name: value.tolist() for name, value in found.items()} == {
            "output:w": [5, -6],
            "grad:w": [-1, -2, -3, -4],
            "param:w": [11, 22, 33, 44],
            "state:w": [9, 18, 27, 36],
            "output:w.grad": [0, 6],
        }
        assert aicf_run.main([str(path), "--compare=interp", "--steps", "3"]) == 0


def test_arguments_without_labels_have_names_of_their_own(tmp_path: Path) -> None:
    (function,) = parse_module(UNLABELLED).body.block.ops
    assert argument_keys(function) == [
        ("input", "x"),
        ("input", "x_1"),
        ("input", "arg2"),
        ("input", "arg2_3"),
    ]
    assert result_keys(function) == [("output", f"result{i}") for i in range(4)]
    text, plan = levels(UNLABELLED, tmp_path)
    ours, theirs = results_of(text), results_of(plan)
    assert list(ours) == list(theirs)
    assert all((ours[name] == theirs[name]).all() for name in ours)
    assert aicf_run.main([str(plan), "--compare=interp"]) == 0


def test_a_long_name_is_always_understood(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = 'func.func @f(%x: tensor<1xf32> {aicf.role = "input", aicf.name = "x"}) -> tensor<1xf32> {\n'
    (tmp_path / "a.mlir").write_text(text + "  func.return %x : tensor<1xf32>\n}")
    for name in ("x", "input:x"):
        np.savez(tmp_path / "in.npz", allow_pickle=False, **{name: np.full(1, 7, np.float32)})
        found = results_of(tmp_path / "a.mlir", "--inputs", str(tmp_path / "in.npz"))
        assert found["result0"].tolist() == [7]
    np.savez(tmp_path / "in.npz", allow_pickle=False, **{"param:x": np.full(1, 7, np.float32)})
    assert aicf_run.main([str(tmp_path / "a.mlir"), "--inputs", str(tmp_path / "in.npz")]) == 1
    assert "no argument is named 'param:x'; arguments: x" in capsys.readouterr().err


def test_shown_names_never_meet() -> None:
    keys = [
        ("param", "w"),
        ("grad", "w"),
        ("output", "w.grad"),
        ("input", "param:w"),
        ("input", "x"),
        ("host_scalar", "x"),
    ]
    assert shown_names(keys) == {
        ("param", "w"): "w",
        ("grad", "w"): "grad:w",
        ("output", "w.grad"): "output:w.grad",
        ("input", "param:w"): "input:param:w",
        ("input", "x"): "input:x",
        ("host_scalar", "x"): "host_scalar:x",
    }


def test_the_label_of_a_plan_may_be_that_of_another_role(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A renamed label once wrote a tensor of another size into the slot: loss 1.4e21, and --compare said ok."""
    plan = levels(SAME_NAME.replace('"input", aicf.name = "w"', '"input", aicf.name = "x"'), tmp_path)[1]
    before = results_of(plan)
    plan.write_text(plan.read_text().replace('input "x"', 'input "w"'))
    assert results_of(plan).keys() == before.keys()
    stream = StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    assert aicf_run.main([str(plan), "--compare=interp"]) == 0
    assert "DIFFERS" not in stream.getvalue()
