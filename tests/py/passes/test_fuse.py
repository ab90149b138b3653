"""Fusion never changes what a function computes; what is fused is in tests/lit/passes/fuse*.mlir."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from costs import Some
from kernel_programs import launches, random_arguments, random_function
from programs import run_by_name

from aicf_mlir.dialects import kernel
from aicf_mlir.dialects.kernel_op import tensor_spec
from aicf_mlir.ir.verify import verify_module
from aicf_mlir.passes.fuse import FusePass
from aicf_mlir.text.parsing import make_context, parse_module


@pytest.mark.parametrize("block", range(10))
def test_random_functions_compute_the_same(block: int) -> None:
    """In f64 a fused result differs from the unfused one by less than a few roundings."""
    for seed in range(block * 20, block * 20 + 20):
        module = random_function(seed)
        verify_module(module)
        before = run_by_name(module, values := random_arguments(module, seed))
        count = len(launches(module))
        FusePass().apply(make_context(), module)
        verify_module(module)
        after = run_by_name(module, values)
        assert len(launches(module)) <= count
        assert before.keys() == after.keys()
        for name, expected in before.items():
            scale = np.abs(expected).max()
            np.testing.assert_allclose(
                after[name], expected, rtol=1e-9, atol=1e-12 * scale, err_msg=f"{seed} {name}"
            )


def test_random_functions_provoke_every_fusion() -> None:
    """The test above is worth something: each kind of fusion occurs in it, and each is also refused."""
    fused = {"bias", "act", "pre", "act_grad", "bias_grad", "updates", "narrow gradient"}
    single = {"gemm", "bias_add", "relu", "relu_bwd", "reduce_sum", "sgd_step"}
    seen: set[str] = set()
    refused: set[str] = set()
    for seed in range(200):
        module = random_function(seed)
        FusePass().apply(make_context(), module)
        for op in launches(module):
            if isinstance(op, kernel.GemmEpilogueOp):
                seen |= {*op.attrs, *(name for name, values in {**op.ins, **op.outs}.items() if values)}
            if isinstance(op, kernel.SgdStepOp) and len(op.results) > 1:
                seen.add("updates")
            if isinstance(op, kernel.SgdStepOp) and tensor_spec(op.ins["g"][0])[0] == "bf16":
                seen.add("narrow gradient")
            refused.add(op.op_name)
        if seen >= fused and refused >= single:
            return
    raise AssertionError(f"{fused - seen} {single - refused}")


def test_fusion_is_deterministic_and_complete(some: Some) -> None:
    """The same text each time, and nothing is left to a second run."""
    for seed in some(range(60)):
        module = random_function(seed)
        again = module.clone()
        FusePass().apply(make_context(), module)
        FusePass().apply(make_context(), again)
        assert str(module) == str(again)
        FusePass().apply(make_context(), again)
        assert str(module) == str(again), f"seed {seed}"


def test_locations_are_kept() -> None:
    module = parse_module(
        "func.func @f(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {\n"
        '  %y = kernel.gemm a(%x) b(%x) : tensor<4x4xf32> loc("model.py":7:3)\n'
        "  %z = kernel.relu x(%y) : tensor<4x4xf32>\n"
        "  func.return %z : tensor<4x4xf32>\n"
        "}"
    )
    FusePass().apply(make_context(), module)
    (fused,) = launches(module)
    assert str(fused.location) == 'loc(fused["model.py":7:3, "<text>":3:8])'


def test_work_grows_with_the_number_of_ops() -> None:
    """Eight times the ops take about eight times as many calls, not sixty-four times."""

    def calls(ops: int) -> int:
        module, count = random_function(1, ops), 0

        def counted(*_: object) -> None:
            nonlocal count
            count += 1

        sys.setprofile(counted)
        try:
            FusePass().apply(make_context(), module)
        finally:
            sys.setprofile(None)
        return count

    assert calls(1200) < 16 * calls(150)
