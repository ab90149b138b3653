"""Launches of generated kernels as text: they read back and run at every stage, and an edited body is its own or refused."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from models import mse, regression
from torch import Tensor, nn, optim

from aicf_mlir.dialects.kernel_op import KernelOp
from aicf_mlir.frontend import trace
from aicf_mlir.interpreters import run_function
from aicf_mlir.ir.diagnostics import LocatedError
from aicf_mlir.ir.printing import to_text
from aicf_mlir.ir.verify import verify_module
from aicf_mlir.stages import Snapshots, run_stages
from aicf_mlir.text.parsing import make_context, parse_module
from aicf_mlir.tools.aicf_run import main as aicf_run

NORM = """\
func.func @f(%x: tensor<6x40xf32>, %h: tensor<6x40xf32>) -> (tensor<6x40xf32>, tensor<6x40xf32>) {
  %s = nn.add %x, %h : tensor<6x40xf32>
  %e = nn.exp %s : tensor<6x40xf32>
  %y = nn.softmax %e : tensor<6x40xf32>
  func.return %s, %y : tensor<6x40xf32>, tensor<6x40xf32>
}
"""


@pytest.fixture(name="stages", scope="module")
def lowered_stages() -> Snapshots:
    """A chain with a reduction after each stage."""
    stages = Snapshots()
    run_stages(parse_module(NORM), make_context(), first="lowered", after_each=stages)
    return stages


def test_each_stage_reads_back_and_means_the_same(stages: Snapshots) -> None:
    rng = np.random.default_rng(0)
    x, h = (rng.standard_normal((6, 40)).astype(np.float32) for _ in range(2))
    expected = run_function(parse_module(NORM), [x, h])
    for name in stages:
        text = stages.text(name)
        module = parse_module(text)
        verify_module(module)
        assert to_text(module) == text
        if name in ("lowered", "fused", "kernel"):
            for found, wanted in zip(run_function(module, [x, h]), expected, strict=True):
                np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-7)


def test_the_plan_runs_and_agrees_with_the_interpreter(
    stages: Snapshots, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "plan.mlir"
    path.write_text(stages.text("plan"))
    assert aicf_run([str(path), "--compare=interp"]) == 0, capsys.readouterr()


EDITS = {
    "another body, the old id": (r"math\.exp ", "math.sin ", "is not the kernel of @"),
    "no such body": (r"body = @\w+", "body = @nowhere", "there is no scalar.body @nowhere in this module"),
    "too few operands": (r"x\((@\w+), @\w+\)", r"x(\1)", "the body takes 2 operands, got 1"),
    "another type": (
        r"(?s)scalar\.body @(\w+)\(.*?\n  \}",
        r"scalar.body @\1(%x: f64, %h: f64) -> (f64, f64) {\n    scalar.yield %x, %h : f64, f64\n  }",
        "operand 0: the body takes f64, got elements of f32",
    ),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_that_does_not_fit_is_refused_at_its_launch(name: str, stages: Snapshots) -> None:
    pattern, new, message = EDITS[name]
    text, count = re.subn(pattern, new, stages.text("plan"))
    assert count
    with pytest.raises(LocatedError, match=re.escape(message)) as caught:
        parse_module(text)
    assert "^" in str(caught.value)
    assert "plan.launch" in str(caught.value)


def test_an_edited_body_is_computed_where_the_kernel_is_selected_anew(stages: Snapshots) -> None:
    module = parse_module(stages.text("fused").replace("math.exp ", "math.sin "))
    run_stages(module, make_context(), first="kernel")
    assert to_text(module) != stages.text("plan")


class Residual(nn.Module):
    """Layer norm of a sum."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.skip = nn.Parameter(self.norm.weight.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x + self.skip * x)


class Block(nn.Module):
    """A pre-LN residual MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 32), nn.Linear(32, 8)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


LAUNCHES = {
    # forward; the loss and its gradient; backward; the update
    "layer norm of a sum": (Residual, ["rowwise", "mse_loss", "mse_grad", "rowwise", "colwise", "sgd_step"]),
    "softmax": (
        lambda: nn.Sequential(nn.Linear(8, 8), nn.Softmax(-1)),
        [
            *("gemm_epilogue", "rowwise", "mse_loss", "mse_grad", "rowwise"),
            *("gemm_epilogue", "sgd_step"),
        ],
    ),
    "block": (
        Block,
        [
            *("rowwise", "gemm_epilogue", "gemm_map", "mse_loss", "mse_grad"),
            *("gemm_epilogue", "gemm_epilogue", "gemm", "gemm_epilogue", "colwise", "sgd_step"),
        ],
    ),
}


@pytest.mark.parametrize("name", LAUNCHES)
def test_how_many_launches_a_step_has(name: str) -> None:
    make, expected = LAUNCHES[name]
    model, stages = make(), Snapshots()
    traced = trace(model, mse, regression(5, 8), optimizer=optim.SGD(model.parameters(), lr=0.1))
    run_stages(traced.module, make_context(), after_each=stages)
    assert [op.op_name for op in stages["kernel"].walk() if isinstance(op, KernelOp)] == expected
    for stage in stages:
        assert to_text(parse_module(stages.text(stage))) == stages.text(stage)
