"""What a value is called in the user's model or text, it is called at every stage, down to the slots of the plan."""

from __future__ import annotations

import deep
import pytest
import torch
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp

from aicf_mlir.dialects.plan import ProgramOp, SlotOp
from aicf_mlir.frontend import trace
from aicf_mlir.ir.names import printed_names
from aicf_mlir.ir.printing import to_text
from aicf_mlir.passes.bufferize.slots import legal_symbol
from aicf_mlir.passes.pipeline import parse_passes, run_passes
from aicf_mlir.stages import STAGE_NAMES, Snapshots, run_stages
from aicf_mlir.text.parsing import make_context, parse_module

FUNCTIONS = STAGE_NAMES[: STAGE_NAMES.index("buffers")]


def step_of(module: ModuleOp) -> func.FuncOp:
    return next(op for op in module.ops if isinstance(op, func.FuncOp))


def slots_of(module: ModuleOp) -> dict[str, SlotOp]:
    return next(op for op in module.ops if isinstance(op, ProgramOp)).slots


class Residual(torch.nn.Module):
    """Rows of three dimensions, a value with two users, and a parameter that is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = torch.nn.Linear(8, 8)
        self.scale = torch.nn.Parameter(torch.ones(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x + self.lin(x).tanh() * self.scale) * self.scale


def residual() -> Snapshots:
    model, snapshots = Residual(), Snapshots()
    batch = {"x": torch.randn(2, 3, 8), "t": torch.randn(2, 3, 8)}
    traced = trace(model, None, batch, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    run_stages(traced.module, make_context(), after_each=snapshots)
    return snapshots


@pytest.mark.parametrize("stage", FUNCTIONS)
def test_every_value_of_a_traced_step_has_a_name(stage: str) -> None:
    for module in (residual()[stage], deep.stages(20)[stage]):
        step = step_of(module)
        assert len(printed_names(step)) == len(step.args) + sum(len(op.results) for op in step.body.block.ops)


@pytest.mark.parametrize("stage", FUNCTIONS)
def test_the_names_are_those_of_the_text(stage: str) -> None:
    module = residual()[stage]
    names = printed_names(step_of(module))
    assert len(set(names.values())) == len(names)
    text = to_text(module)
    for op in step_of(module).body.block.ops:
        if op.results:
            assert f"{', '.join('%' + names[result] for result in op.results)} = {op.name} " in " ".join(
                text.split()
            )


def test_the_gradient_of_a_value_is_called_after_it() -> None:
    text = residual().text("grad")
    for name in ("linear", "tanh", "add", "scale", "lin.weight", "lin.bias"):
        assert f"%d{name} = " in text
    assert "%dlinear1 = nn.relu_grad" in deep.stages(3).text("grad")


def test_the_number_of_a_name_survives_a_text() -> None:
    """%linear1, not %linear_1: xDSL drops such an ending, and numbers anew."""
    text = deep.stages(3).text("nn")
    assert "%linear1 = nn.linear %relu," in text
    assert printed_names(step_of(parse_module(text))).keys() and to_text(parse_module(text)) == text


def test_slots_are_called_as_the_values_written_to_them() -> None:
    stages = residual()
    values = {legal_symbol(name) for name in printed_names(step_of(stages["kernel"])).values()}
    temporaries = [slot for slot in slots_of(stages["plan"]).values() if slot.role.data == "temp"]
    assert temporaries
    assert {slot.symbol for slot in temporaries if not slot.symbol.endswith(".workspace")} <= values


TAKEN = """
func.func @taken(%input: tensor<4xf32> {aicf.role = "input", aicf.name = "a"}) -> tensor<4xf32> {
  %temp = kernel.relu x(%input) id "relu_cpu" : tensor<4xf32>
  %a = kernel.neg x(%temp) id "neg_cpu" : tensor<4xf32>
  %0 = kernel.add x(%temp) y(%a) id "add_cpu" : tensor<4xf32>
  %a_1 = kernel.mul x(%0) y(%a) id "mul_cpu" : tensor<4xf32>
  %b = kernel.add x(%a_1) y(%temp) id "add_cpu" : tensor<4xf32>
  %c = kernel.mul x(%b) y(%0) id "mul_cpu" : tensor<4xf32>
  func.return %c : tensor<4xf32>
}
"""


def test_a_name_that_is_taken_gets_a_number() -> None:
    """By an arena, by a slot of the user's, or by another value; what has no name is @v0, @v1, …"""
    module = parse_module(TAKEN)
    run_passes(make_context(), module, parse_passes("select-kernels,bufferize"))
    assert list(slots_of(module)) == ["a", "result0", "temp_2", "a_2", "v0"]
