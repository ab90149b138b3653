"""Every op of nn and optim is lowered to launches that mean the same."""

from __future__ import annotations

import numpy as np
import pytest
from costs import Some
from plans import PlanMemory, make_plan
from programs import run_pipeline, step_function
from samples import NN_SAMPLES, SAMPLES, Sample, sweep
from samples.collectives import WRITTEN_BEFORE
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from aicf_mlir.dialects.kernel_op import KernelOp
from aicf_mlir.dialects.nn import NN
from aicf_mlir.dialects.optim import Optim
from aicf_mlir.errors import LoweringError
from aicf_mlir.interpreters import run_function
from aicf_mlir.interpreters.numerics import Array, widen
from aicf_mlir.ir.generated import GeneratedInterface
from aicf_mlir.ir.interfaces import DecomposableInterface
from aicf_mlir.ir.signature import return_op
from aicf_mlir.passes.lower import RULES, LowerPass
from aicf_mlir.text.parsing import make_context, parse_module

UNITS = {"float64": 1e-12, "float32": 2.0**-22, "float16": 2.0**-9, "bfloat16": 2.0**-6}
"""Two units in the last place, integers exactly: linear rounds once more, and a mean multiplies by 1 / count."""


def assert_same(found: Array, expected: Array) -> None:
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    unit = UNITS.get(expected.dtype.name, 0.0)
    scale = np.max(np.abs(widen(expected)), initial=0.0, where=np.isfinite(widen(expected)))
    np.testing.assert_allclose(widen(found), widen(expected), rtol=unit, atol=unit * min(scale, 1.0))


@pytest.mark.parametrize("op", [*NN.operations, *Optim.operations], ids=lambda op: op.name)
def test_every_op_has_a_rule(op: type[Operation]) -> None:
    assert op in RULES or op in WRITTEN_BEFORE or issubclass(op, DecomposableInterface | GeneratedInterface)


def test_there_is_no_rule_for_anything_else() -> None:
    composed = {op for op in NN.operations if issubclass(op, DecomposableInterface)}
    both = (*NN.operations, *Optim.operations)
    generated = {op for op in both if issubclass(op, GeneratedInterface)}
    assert set(RULES) | composed | generated | WRITTEN_BEFORE == {*both}
    assert not (set(RULES) | composed | generated) & WRITTEN_BEFORE
    assert not set(RULES) & composed, "an op is taken apart, or has a rule"


@sweep(SAMPLES)
def test_launches_mean_the_same(sample: Sample) -> None:
    for element in ("f64", "bf16") if sample in NN_SAMPLES else ("f32",):  # step counters are f32
        module, values = sample.module(element), sample.values(element)
        lowered = run_pipeline(module, "decompose,lower")
        expected = run_function(module, values)
        for found, wanted in zip(run_function(lowered, values), expected, strict=True):
            assert_same(found, wanted)


@sweep(SAMPLES)
def test_plans_mean_the_same(sample: Sample) -> None:
    """All the way down: slots, constants and aliases of one op."""
    module, values = sample.module(), sample.values()
    memory = PlanMemory(make_plan(module))
    memory.fill({f"arg{index}": value for index, value in enumerate(values)})
    memory.run()
    found = memory.named("output")
    for index, wanted in enumerate(run_function(module, values)):
        assert_same(found["output", f"result{index}"], wanted)


def test_one_op_is_one_launch(some: Some) -> None:
    """Except linear with a bias, which is two, and what computes nothing, which needs a copy to be a result.

    A split copies each part, a join each operand.
    """
    for sample in some(SAMPLES):
        lowered = run_pipeline(sample.module(), "decompose,lower")
        launches = [op for op in lowered.walk() if isinstance(op, KernelOp)]
        if issubclass(sample.op_type(), DecomposableInterface):
            continue
        with_bias = sample.op_type().name == "nn.linear" and len(sample.operands) == 3
        name, parts = sample.op_type().name, len(return_op(step_function(lowered)).operands)
        moved = parts if name == "nn.split" else len(sample.operands) if name == "nn.concat" else 1
        assert len(launches) == (2 if with_bias else moved), sample.name


def test_lowering_twice_changes_nothing(some: Some) -> None:
    for sample in some(SAMPLES):
        lowered = run_pipeline(sample.module(), "decompose,lower")
        assert str(run_pipeline(lowered, "lower")) == str(lowered)


def test_locations_are_kept() -> None:
    module = parse_module(
        "func.func @f(%x: tensor<2x4x4xf32>, %w: tensor<4x4xf32>) -> tensor<2x4x4xf32> {\n"
        "  %y = nn.linear %x, %w : (tensor<2x4x4xf32>, tensor<4x4xf32>) -> tensor<2x4x4xf32>"
        ' loc("model.py":7:3)\n'
        "  func.return %y : tensor<2x4x4xf32>\n"
        "}"
    )
    lowered = run_pipeline(module, "decompose,lower")
    locations = {str(op.location) for op in lowered.walk() if op.name.startswith("kernel.")}
    assert locations == {'loc("model.py":7:3)'}


def test_an_op_without_a_rule_is_named_with_all_rules() -> None:
    context = make_context(allow_unregistered=True)
    module = parse_module('%x = "toy.op"() : () -> tensor<4xf32>', context=context)
    with pytest.raises(LoweringError, match=r"'toy.op' has no lowering .* nn.add, .* optim.sgd"):
        LowerPass().apply(context, module)


def test_a_declaration_is_left_alone() -> None:
    module = parse_module("func.func private @f(tensor<4xf32>) -> tensor<4xf32>")
    assert isinstance(module, ModuleOp)
    assert str(run_pipeline(module, "lower,fuse")) == str(module)
