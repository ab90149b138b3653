"""Running plans by the meaning of their launches, and plans as plain data for the runtime."""

from __future__ import annotations

import numpy as np
import pytest
from plans import PlanMemory, make_plan

from aicf_mlir.dialects.plan import ProgramOp, find_program
from aicf_mlir.errors import PlanError
from aicf_mlir.interpreters import run_plan
from aicf_mlir.runtime.program import load_program
from aicf_mlir.text.parsing import parse_module

TEXT = """
plan.program @p target "cpu" peak 1536 {
  plan.arena @input 512
  plan.arena @param 256
  plan.arena @const 256
  plan.arena @temp 256
  plan.arena @output 256
  plan.slot @x in @input[256] : memref<2x2xf32> input "the x"
  plan.slot @v0 in @input[256] : memref<4xf32> input alias @x
  plan.slot @p0 in @param[0] : memref<4xbf16> param "p"
  plan.slot @c0 in @const[0] : memref<f32> const 0.5
  plan.slot @v1 in @temp[0] : memref<4xf32> temp live 0..2
  plan.slot @y in @output[0] : memref<4xf32> output "y"
  plan.launch @k0 "mul_cpu" mul x(@v0) y(@c0) -> z(@v1)
  plan.launch @k1 "neg_cpu" neg x(@v1) -> y(@v1) after @k0
  plan.launch @k2 "copy_cpu" copy x(@v1) -> y(@p0) after @k1
  plan.launch @k3 "copy_cpu" copy x(@v0) -> y(@y)
}
"""


def plan() -> ProgramOp:
    return find_program(parse_module(TEXT))


def test_a_step_runs_in_the_arenas() -> None:
    memory = PlanMemory(plan())
    memory.fill({"the x": np.array([[1, 2], [3, 4]], np.float32), "p": np.zeros(4)})
    memory.run()
    np.testing.assert_array_equal(memory.named("output")["output", "y"], [1, 2, 3, 4])
    np.testing.assert_array_equal(memory.named("param")["param", "p"].astype(float), [-0.5, -1, -1.5, -2])
    np.testing.assert_array_equal(np.frombuffer(memory.arenas["temp"], np.float32, 4), [-0.5, -1, -1.5, -2])
    assert np.frombuffer(memory.arenas["const"], np.float32, 1) == 0.5
    assert memory.arenas["input"][:256] == b"\xff" * 256, "only slots are written"


def test_a_plan_is_plain_data() -> None:
    program = load_program(plan())
    assert (program.name, program.target, program.peak) == ("p", "cpu", 1536)
    assert program.arenas == {"input": 512, "param": 256, "const": 256, "temp": 256, "output": 256}
    assert list(program.slots) == ["x", "p0", "c0", "v1", "y"]
    x, constant = program.slots["x"], program.slots["c0"]
    assert (x.role, x.name, x.arena, x.offset, x.dtype, x.shape) == (
        "input",
        "the x",
        "input",
        256,
        "f32",
        (2, 2),
    )
    assert (x.value, x.nbytes, constant.value, constant.name) == (None, 16, 0.5, "c0")
    assert program.launches[0] == {
        "symbol": "k0",
        "op": "mul",
        "kernel_id": "mul_cpu",
        "inputs": [("input", 256, "f32", (4,)), ("const", 0, "f32", ())],
        "outputs": [("temp", 0, "f32", (4,))],
        "counts": None,
        "attrs": {},
        "after": [],
        "branch": 0,
        "first_step_only": False,
        "workspace": None,
        "predicate": None,
        "origin": "<text>:14",
        "code": None,
    }


def test_workspace_and_attributes_of_a_launch() -> None:
    text = """
    plan.program @p target "cpu" peak 1024 {
      plan.arena @input 256
      plan.arena @temp 512
      plan.arena @output 256
      plan.slot @x in @input[0] : memref<4xf32> input "x"
      plan.slot @w in @temp[256] : memref<100xi8> temp live 0..0
      plan.slot @y in @output[0] : memref<f32> output "y"
      plan.launch @k0 "reduce_sum_cpu" reduce_sum x(@x) -> y(@y) {dims = array<i64: 0>, divisor = 2.0} workspace @w
    }
    """
    (launch,) = load_program(parse_module(text)).launches
    assert launch["workspace"] == ("temp", 256, 100)
    assert launch["attrs"] == {"dims": [0], "divisor": 2.0}


def test_plans_without_addresses_are_refused() -> None:
    module = parse_module(
        "func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {\n"
        "  %y = kernel.relu x(%x) : tensor<4xf32>\n  func.return %y : tensor<4xf32>\n}"
    )
    unplanned = make_plan(module, "select-kernels,bufferize")
    with pytest.raises(PlanError, match="@f has no addresses yet; run plan-memory first"):
        load_program(unplanned)
    with pytest.raises(PlanError, match="has no address; run plan-memory first"):
        run_plan(unplanned, {})


def test_modules_without_exactly_one_plan_are_refused() -> None:
    with pytest.raises(PlanError, match=r"expected a module with one plan\.program, got 0"):
        load_program(parse_module("func.func private @f()"))
    with pytest.raises(PlanError, match=r"expected a module with one plan\.program, got 2"):
        run_plan(parse_module('plan.program @a target "cpu" {}\nplan.program @b target "cpu" {}'), {})


def test_arenas_that_are_missing_or_small_are_refused() -> None:
    memory = PlanMemory(plan())
    with pytest.raises(PlanError, match="arena 'temp' needs 256 bytes, got 0"):
        run_plan(memory.plan, {name: data for name, data in memory.arenas.items() if name != "temp"})
    with pytest.raises(PlanError, match="arena 'input' needs 512 bytes, got 511"):
        run_plan(memory.plan, {**memory.arenas, "input": bytearray(511)})
