"""The standard description of launches: as text and as JSON, of a step and by aicf-opt, of a plan and of a function."""

from __future__ import annotations

import json
import linecache
from typing import Any

import pytest
import torch
from torch import nn

from aicf_mlir.errors import VerifyError
from aicf_mlir.ir.registry import schemas
from aicf_mlir.passes.pipeline import parse_passes, run_passes
from aicf_mlir.reports import describe
from aicf_mlir.stages import make_context
from aicf_mlir.step.compile import compile_train_step
from aicf_mlir.step.compiled_step import CompiledTrainStep
from aicf_mlir.text.parsing import parse_module
from aicf_mlir.tools import aicf_opt

FUNCTION = """
func.func @f(%x: tensor<4x3xf32>, %w: tensor<5x3xf32>, %b: tensor<5xf32>) -> tensor<4xf32> {
  %0 = kernel.gemm_epilogue a(%x) b(%w) bias(%b) -> out {trans_b = true}
    : (tensor<4x3xf32>, tensor<5x3xf32>, tensor<5xf32>) -> tensor<4x5xf32>
  %sums = kernel.reduce_sum x(%0) {dims = array<i64: 1>} : (tensor<4x5xf32>) -> tensor<4xf32>
  func.return %sums : tensor<4xf32>
}
"""


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.head = nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.encoder(x)))  # the line of the model


def compiled(device: str = "cpu") -> CompiledTrainStep:
    model = Model().to(device)
    batch = {"x": torch.randn(4, 8, device=device), "t": torch.randint(0, 3, (4,), device=device)}
    return compile_train_step(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        device=device,
        example=batch,
        loss_fn=lambda net, b: nn.functional.cross_entropy(net(b["x"]), b["t"]),
    )


def line(comment: str) -> int:
    lines = linecache.getlines(__file__)
    return next(number for number, text in enumerate(lines, 1) if text.rstrip().endswith(f"# {comment}"))


def launches(text: str) -> list[dict[str, Any]]:
    """The rows of the JSON."""
    document = json.loads(text)
    assert list(document) == ["version", "launches"] and document["version"] == 1
    return document["launches"]


def test_a_function_as_text() -> None:
    first, second = schemas()["gemm_epilogue"], schemas()["reduce_sum"]
    text = describe.to_table(describe.describe(parse_module(FUNCTION)))
    assert [part.rstrip() for part in text.split("\n")] == [
        "%0 = gemm_epilogue, no kernel yet",
        f"  {first.doc}",
        f"  {first.numerics}",
        "  <- a         %x f32[4, 3] dense",
        "  <- b         %w f32[5, 3] dense",
        "  <- bias      %b f32[5] dense",
        "  -> out       %0 f32[4, 5] dense",
        "     trans_a = false",
        "     trans_b = true",
        "     allow_tf32 = false",
        '     act = "none"',
        '     act_grad = "none"',
        "  at <text>:3",
        "",
        "%sums = reduce_sum, no kernel yet",
        f"  {second.doc}",
        f"  {second.numerics}",
        "  <- x %0 f32[4, 5] dense",
        "  -> y %sums f32[4] dense",
        "     dims = [1]",
        "     divisor = 1.0",
        "  at <text>:5",
    ]


def test_the_plan_of_a_step_as_json(device: str) -> None:
    """Every key is there, in this order; the first launch stands for the encoder and the relu behind it."""
    step = compiled(device)
    rows = launches(step.describe(json=True))
    assert [row["kernel_id"] for row in rows] == step.planned_kernels()
    first = rows[1 if rows[0]["op"].startswith("check") else 0]
    assert list(first) == [
        *("launch", "op", "kernel_id", "doc", "numerics", "operands", "results"),
        *("attributes", "workspace", "branch", "source"),
    ]
    schema = schemas()["gemm_epilogue"]
    assert (first["op"], first["doc"], first["numerics"]) == (schema.name, schema.doc, schema.numerics)
    assert first["launch"].startswith("@k")
    assert [operand["name"] for operand in first["operands"]] == ["a", "b", "bias", "saved"]
    x = {"name": "@x", "dtype": "f32", "shape": [4, 8], "layout": "dense"}
    assert first["operands"][0]["tensors"] == [x] and first["operands"][3]["tensors"] == []
    assert first["attributes"] == {
        "trans_a": False,
        "trans_b": True,
        "allow_tf32": False,
        "act": "relu",
        "act_grad": "none",
    }
    where = {"file": __file__, "line": line("the line of the model")}
    assert first["source"] == [where | {"layer": "encoder: Linear"}, where | {"layer": "Model"}]


def test_the_text_of_a_step_names_line_and_layer() -> None:
    text = compiled().describe()
    assert f"  at {__file__}:{line('the line of the model')}, layer encoder: Linear\n" in text


def test_an_operand_of_many_tensors_and_an_absent_attribute() -> None:
    """The optimizer's one launch has all parameters; check_index has no ignore_index unless the loss has one."""
    rows = {row["op"]: row for row in launches(compiled().describe(json=True))}
    update = rows["sgd_step"]["operands"][0]
    assert update["name"] == "p" and len(update["tensors"]) == 4
    assert rows["sgd_step"]["attributes"]["indices"] is None
    assert rows["check_index"]["attributes"].keys() == {"classes", "ignore_index", "code"}


def test_workspaces_and_kernels_are_the_same_in_function_and_plan() -> None:
    module = parse_module(FUNCTION)
    run_passes(make_context(), module, parse_passes('select-kernels{target="sm_90"}'))
    function = describe.describe(module)
    run_passes(make_context(), module, parse_passes("bufferize,plan-memory"))
    plan = describe.describe(module)
    assert [row.launch for row in plan] == ["@k0", "@k1"]
    for one, other in zip(function, plan, strict=True):
        assert (one.kernel_id, one.workspace, one.source) == (other.kernel_id, other.workspace, other.source)


def test_what_is_not_lowered_is_refused() -> None:
    module = parse_module(
        "func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {\n"
        "  %y = nn.relu %x : tensor<4xf32>\n  func.return %y : tensor<4xf32>\n}"
    )
    with pytest.raises(VerifyError, match=r"'nn\.relu' is no launch: .* run the stage 'lowered'"):
        describe.describe(module)


@pytest.mark.parametrize("form", ["--describe", "--describe=text", "--describe=json"])
def test_aicf_opt_prints_the_same(
    form: str, tmp_path: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f.mlir").write_text(FUNCTION)
    assert aicf_opt.main([form, "f.mlir"]) == 0
    rows = describe.describe(parse_module(FUNCTION, "f.mlir"))
    write = describe.to_json if form.endswith("json") else describe.to_table
    assert capsys.readouterr().out == f"{write(rows)}\n"
