"""Kernel ids come from the registry of the runtime, for devices that are here and for others."""

from __future__ import annotations

import pytest
from plans import make_plan
from programs import run_pipeline
from samples import NN_SAMPLES, SAMPLES, Sample, sweep

from aicf_mlir import _C
from aicf_mlir.dialects.generated import GeneratedOp
from aicf_mlir.dialects.kernel_op import KernelOp
from aicf_mlir.errors import SelectionError, VerifyError
from aicf_mlir.passes.select_kernels import SelectKernelsPass
from aicf_mlir.text.parsing import make_context, parse_module

VARIANTS = {variant["name"]: variant for variant in _C.kernel_variants()}

RELU = """
func.func @f(%x: tensor<4x3xf16>) -> tensor<4x3xf16> {{
  %y = kernel.relu x(%x) {id} : tensor<4x3xf16>
  func.return %y : tensor<4x3xf16>
}}
"""


@sweep(SAMPLES)
def test_every_op_has_a_kernel_on_every_target(sample: Sample) -> None:
    """Also where there is no such device; the id is one of the op, and of the device."""
    for element in ("f64", "f32", "f16", "bf16") if sample in NN_SAMPLES else ("f32",):
        lowered = run_pipeline(sample.module(element), "decompose,lower")
        for target, device in (("cpu", "cpu"), ("sm_80", "cuda")):
            for op in run_pipeline(lowered, f'select-kernels{{target="{target}"}}').walk():
                if isinstance(op, KernelOp):
                    assert op.kernel_id is not None
                    if isinstance(op, GeneratedOp):
                        assert op.kernel_id.data.startswith(f"gen_{op.op_name}_")
                        continue
                    variant = VARIANTS[op.kernel_id.data]
                    assert (variant["op"], variant["device"]) == (op.op_name, device)


@pytest.mark.parametrize("target", ["cpu", "sm_80", "sm_90"])
def test_a_plan_is_made_without_the_device(target: str) -> None:
    plan = make_plan(
        parse_module(RELU.format(id="")), f'select-kernels{{target="{target}"}},bufferize,plan-memory'
    )
    assert plan.target.data == target


def test_an_id_that_is_there_is_kept() -> None:
    module = parse_module(RELU.format(id='id "relu_cpu"'))
    SelectKernelsPass().apply(make_context(), module)
    assert 'id "relu_cpu"' in str(module)


@pytest.mark.parametrize(
    ("kernel_id", "target", "reason"),
    [
        ("relu_f16_half2", "sm_90", "needs an even last dimension"),
        ("relu_cpu", "sm_90", "runs on cpu"),
        ("relu_f16", "cpu", "runs on cuda"),
        ("neg_f16", "sm_90", "runs neg"),
        ("relu_fast", "sm_90", "no kernel is called 'relu_fast'"),
    ],
)
def test_an_id_that_cannot_run_the_op_is_refused_with_the_reason(
    kernel_id: str, target: str, reason: str
) -> None:
    module = parse_module(RELU.format(id=f'id "{kernel_id}"'))
    with pytest.raises(SelectionError, match=reason):
        SelectKernelsPass(target).apply(make_context(), module)


@pytest.mark.parametrize("target", ["", "gpu", "sm_", "sm_9x", "cuda", "sm_90a"])
def test_an_unknown_target_is_refused(target: str) -> None:
    with pytest.raises(VerifyError, match=r"there is no target .*; there are cpu, sm_75, sm_80"):
        SelectKernelsPass(target).apply(make_context(), parse_module(RELU.format(id="")))


def test_a_device_that_is_too_old_lists_every_candidate() -> None:
    module = parse_module(
        "func.func @f(%x: tensor<4x4xf16>) -> tensor<4x4xf16> {\n"
        "  %y = kernel.gemm a(%x) b(%x) : tensor<4x4xf16>\n  func.return %y : tensor<4x4xf16>\n}"
    )
    with pytest.raises(SelectionError) as caught:
        SelectKernelsPass("sm_75").apply(make_context(), module)
    for name, variant in VARIANTS.items():
        assert (name in str(caught.value)) == (variant["op"] == "gemm"), name


def test_a_stale_workspace_is_removed() -> None:
    module = parse_module(RELU.format(id='id "relu_cpu" workspace 512'))
    SelectKernelsPass().apply(make_context(), module)
    assert "workspace" not in str(module)
