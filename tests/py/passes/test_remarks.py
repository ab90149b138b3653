"""Remarks tell what passes left undone; they change nothing, and reach only who listens."""

from __future__ import annotations

import threading

import pytest
from programs import run_pipeline
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from aicf_mlir import _C
from aicf_mlir.dialects.kernel_op import KernelOp
from aicf_mlir.errors import SelectionError
from aicf_mlir.ir import registry, remarks
from aicf_mlir.passes.select_kernels import declined, kernel_for, reason_of
from aicf_mlir.text.parsing import parse_module

USED = """
func.func @f(%x: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %y = kernel.gemm a(%x) b(%x) : tensor<64x64xf32>
  %s = kernel.softmax x(%y) : tensor<64x64xf32>
  %t = kernel.reduce_sum x(%s) {dims = array<i64: 0>} : (tensor<64x64xf32>) -> tensor<64xf32>
  %z = kernel.bias_add x(%y) bias(%t) : (tensor<64x64xf32>, tensor<64xf32>) -> tensor<64x64xf32>
  func.return %z : tensor<64x64xf32>
}
"""
PASSES = "fuse,select-kernels{target=sm_90}"


class Heard(list[str]):
    """A listener that keeps what it is told, and sees that the op still stands in its module."""

    def __call__(self, op: Operation, message: str, notes: tuple[remarks.Note, ...]) -> None:
        assert op.parent_op() is not None
        assert all(other.parent_op() is not None for other, _ in notes)
        self.append(f"{op.name} {message}")


def test_remarks_change_nothing() -> None:
    module = parse_module(USED)
    with remarks.heard_by(heard := Heard()):
        told = run_pipeline(module, PASSES)
    assert str(told) == str(run_pipeline(module, PASSES))
    assert sum("is not fused into kernel.gemm" in text for text in heard) == 1
    assert sum("kernel gemm_f32_tiled_128x64 declined" in text for text in heard) == 1


def test_nobody_hears_what_is_said_before_after_or_in_another_thread() -> None:
    heard = Heard()
    module = parse_module(USED)
    with remarks.heard_by(heard):
        assert remarks.wanted()
        thread = threading.Thread(target=run_pipeline, args=(module, PASSES))
        thread.start()
        thread.join()
    assert not remarks.wanted()
    run_pipeline(module, PASSES)
    assert heard == []


def test_an_error_ends_the_listening() -> None:
    with pytest.raises(RuntimeError), remarks.heard_by(Heard()):
        raise RuntimeError
    assert not remarks.wanted()


def launches(module: ModuleOp) -> list[KernelOp]:
    return [op for op in module.walk() if isinstance(op, KernelOp)]


@pytest.mark.parametrize("target", ["cpu", "sm_90"])
def test_the_declined_kernels_are_those_before_the_chosen_one(target: str) -> None:
    names = [variant["name"] for variant in _C.kernel_variants()]
    for launch in launches(parse_module(USED)):
        chosen, _ = kernel_for(launch, target)
        for name, reason in declined(launch, target, chosen):
            assert names.index(name) < names.index(chosen)
            assert reason and name not in reason, "the reason alone, in a few words"
            with pytest.raises(SelectionError, match=name):
                kernel_for(launch, target, name)


def test_a_reason_of_another_form_is_told_whole() -> None:
    assert reason_of(SelectionError("too few"), "cpu") == "too few"
    assert reason_of(SelectionError("kernel 'k' cannot run f() on sm_90: too few"), "sm_90") == "too few"


def test_kernels_of_an_op_are_listed_by_preference() -> None:
    names = [variant["name"] for variant in registry.kernels_of("relu")]
    assert names == [variant["name"] for variant in _C.kernel_variants() if variant["op"] == "relu"] != []
    assert registry.kernels_of("reluu") == []
