"""`step.scalars()` and the analysis behind it: every scalar is live, guarded or a constant with its source."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from models import CONTRACT_OPTIMIZERS, OPTIMIZERS, OptimizerConfig, Setup, classification, compiled, mlp, mse
from torch import nn
from xdsl.dialects.builtin import ModuleOp, UnknownLoc
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.analysis.scalars import Scalar, scalars, table
from aicf_mlir.dialects import nn as nn_dialect
from aicf_mlir.ir.diagnostics import Source
from aicf_mlir.stages import STAGE_NAMES
from aicf_mlir.text.parsing import make_context, parse_source

ADAM = CONTRACT_OPTIMIZERS[3]
FUNCTIONS = STAGE_NAMES[: STAGE_NAMES.index("buffers")]


class Scaled(nn.Module):
    """A guarded number, literals, and a number that Python computes."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.scale, self.power = nn.Linear(8, 8), 3.5, 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x) * self.scale + 0.25
        weights = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])
        return y * (self.scale**self.power) * weights


def line_of(text: str) -> str:
    """The place of a line of `Scaled`."""
    lines, first = inspect.getsourcelines(Scaled)
    return f"{__file__}:{first + next(i for i, line in enumerate(lines) if text in line)}"


def rows_of(setup: Setup) -> dict[tuple[str, Any], Scalar]:
    return {(row.name, row.value): row for row in setup.step.scalars()}


def stages_of(setup: Setup) -> Any:
    """The step after each stage."""
    return setup.step._built.stages[0]  # pyright: ignore[reportPrivateUsage]


def test_every_kind() -> None:
    rows = rows_of(compiled(ADAM, model=Scaled()))
    guarded, literal = rows["model.scale", 3.5], rows["nn.constant", 0.25]
    assert (guarded.kind, guarded.source) == ("guarded", line_of("+ 0.25"))
    assert guarded.used_by == ("nn.mul",)
    assert (literal.kind, literal.source) == ("literal", line_of("+ 0.25"))
    assert (rows["nn.constant", 12.25].kind, rows["nn.constant", 12.25].source) == (
        "computed",
        line_of("* weights"),
    )
    assert rows["constant.0", "tensor<8xf32>"].kind == "literal"
    assert rows["lr", "live"] == Scalar(
        "lr", "live", "host_scalar", "the optimizer or the host", ("optim.adam",)
    )
    assert rows["param_groups[0].amsgrad", "false"].kind == "guarded"


def test_without_guards_a_number_of_python_is_computed() -> None:
    rows = scalars(stages_of(compiled(ADAM, model=Scaled()))["step"])
    assert [row.kind for row in rows if (row.name, row.value) == ("nn.constant", 3.5)] == ["computed"]


def test_a_number_that_is_a_meta_slot_is_no_constant() -> None:
    rows = rows_of(compiled(ADAM, model=Scaled(), meta=["model.scale"]))
    assert rows["model.scale", "live"] == Scalar("model.scale", "live", "host_scalar", "Python", ("nn.mul",))
    assert not [row for row in rows.values() if row.value in (3.5, 12.25)]


def test_attributes_of_ops_count() -> None:
    def loss(model: Any, batch: Any) -> torch.Tensor:
        return nn.functional.cross_entropy(model(batch["x"]), batch["t"], label_smoothing=0.125)

    setup = compiled(ADAM, model=mlp(8, 17, 4), batch=classification(), loss_fn=loss)
    rows = rows_of(setup)
    assert rows["nn.cross_entropy label_smoothing", 0.125].kind == "literal"
    assert rows["nn.cross_entropy ignore_index", -100].kind == "default"


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=str)
def test_hyperparameters_are_live_and_flags_are_guarded(optimizer: OptimizerConfig) -> None:
    setup = compiled(optimizer)
    rows = setup.step.scalars()
    live = {row.name for row in rows if row.kind == "host_scalar"}
    assert {name for name in setup.step.meta if name != "step"} <= live
    assert {row.kind for row in rows} <= {"host_scalar", "guarded", "computed", "literal"}


def test_every_stage_is_proved() -> None:
    setup = compiled(OPTIMIZERS[8], model=Scaled(), loss_fn=lambda model, batch: 0.5 * mse(model, batch))
    stages = stages_of(setup)
    for stage in FUNCTIONS:
        assert 0.5 in [row.value for row in scalars(stages[stage])], stage


def test_the_table_names_the_source() -> None:
    text = table(compiled(ADAM, model=Scaled()).step.scalars())
    assert text.splitlines()[0].split("  ")[0] == "name"
    (row,) = [line.split() for line in text.splitlines() if line.startswith("model.scale")]
    assert row == ["model.scale", "3.5", "guarded", line_of("+ 0.25"), "nn.mul"]


def parsed(text: str) -> ModuleOp:
    return parse_source(make_context(), Source("text", text)).module


def without_source(module: ModuleOp) -> ModuleOp:
    for op in module.walk():
        op.location = UnknownLoc()
    return module


def test_a_constant_that_nobody_wrote_is_refused() -> None:
    text = """
func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %c = nn.constant {value = 0.125} : tensor<f32>
  %y = nn.mul %x, %c : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  func.return %y : tensor<4xf32>
}"""
    assert [row.source for row in scalars(parsed(text))] == ["text:3"]
    with pytest.raises(VerifyException, match=r"expected a known source of the constant 0\.125, got none"):
        scalars(without_source(parsed(text)))


def test_an_attribute_that_nobody_wrote_is_refused() -> None:
    text = """
func.func @f(%x: tensor<2x4xf32>, %t: tensor<2xi64>) -> tensor<f32> {
  %loss = nn.cross_entropy %x, %t {ignore_index = 3} : (tensor<2x4xf32>, tensor<2xi64>) -> tensor<f32>
  func.return %loss : tensor<f32>
}"""
    with pytest.raises(VerifyException, match="expected a known source of the ignore_index 3, got none"):
        scalars(without_source(parsed(text)))


def test_a_hyperparameter_that_is_baked_into_a_compiled_step_is_refused() -> None:
    setup = compiled(ADAM)
    module = stages_of(setup)["step"].clone()
    update = next(op for op in module.walk() if op.name == "optim.adam")
    lr = nn_dialect.ConstantOp(0.01, update.operands[4].type)  # pyright: ignore[reportArgumentType]
    lr.location = update.location
    assert update.parent is not None
    update.parent.insert_op_before(lr, update)
    update.operands[4] = lr.result
    with pytest.raises(VerifyException, match=r"expected lr to be a host scalar.*got the constant 0\.01"):
        scalars(module)
