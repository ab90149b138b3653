"""Old names are refused with the new one, and each of these exists."""

from __future__ import annotations

import pytest

from aicf_mlir.errors import VerifyError
from aicf_mlir.ir import registry
from aicf_mlir.ir.renamed import RENAMED, now_called
from aicf_mlir.passes import FLAGS
from aicf_mlir.text.parsing import parse_module

OPS = {old: new for old, new in RENAMED.items() if new in registry.schemas()}


def test_each_new_name_is_one() -> None:
    others = {"back-to-back-rows", "host_scalar", "predicate not"}
    assert {*RENAMED.values()} - {*OPS.values(), *FLAGS} == others
    assert now_called("gemm") is None
    assert now_called("--keep-copies") == "it is now called --persistent-weights"


@pytest.mark.parametrize("old", OPS)
def test_text_with_an_old_op_is_told_the_new_one(old: str) -> None:
    op = f"%y = kernel.{old} x(%x) : (tensor<2xf32>) -> tensor<2xf32>"
    text = (
        "func.func @f(%x: tensor<2xf32>) -> tensor<2xf32> {\n  "
        + op
        + "\n  func.return %y : tensor<2xf32>\n}"
    )
    with pytest.raises(VerifyError, match=f"it is now called kernel.{OPS[old]}"):
        parse_module(text)
    launch = f'plan.launch @k0 "" {old} x(@x) -> y(@y)'
    with pytest.raises(VerifyError, match=f"there is no op '{old}'; it is now called {OPS[old]}"):
        parse_module('plan.program @p target "cpu" {\n  ' + launch + "\n}")


def plan(*lines: str) -> str:
    return "\n".join(['plan.program @p target "cpu" {', *lines, "}"])


def test_text_with_an_old_role_is_told_the_new_one() -> None:
    slot = 'plan.slot @lr : memref<f64> {} "lr"'
    parse_module(plan(slot.format("host_scalar")))
    with pytest.raises(
        VerifyError, match=r"the role of @lr must be .*; got meta; it is now called host_scalar"
    ):
        parse_module(plan(slot.format("meta")))
    with pytest.raises(VerifyError, match=r"named after a role, .*; got @meta; it is now called host_scalar"):
        parse_module(plan("plan.arena @meta 256"))
    function = 'func.func @f(%x: tensor<f64> {{aicf.role = "{}", aicf.name = "lr"}}) {{ func.return }}'
    parse_module(function.format("host_scalar"))
    with pytest.raises(VerifyError, match=r'expected aicf.role .*, got "meta"; it is now called host_scalar'):
        parse_module(function.format("meta"))


def test_a_plan_with_the_old_word_for_a_predicate_is_told_the_new_one() -> None:
    lines = (
        'plan.slot @n : memref<2xf32> state "n"',
        'plan.slot @s : memref<3xi64> status "failed"',
        'plan.launch @k0 "advance_cpu" advance step(@n) -> step(@n) {} @s',
    )
    parse_module(plan(*lines).replace("{}", "predicate not"))
    with pytest.raises(VerifyError, match="`unless` is unknown; it is now called predicate not"):
        parse_module(plan(*lines).replace("{}", "unless"))
    with pytest.raises(VerifyError, match=r"[Ee]xpected 'not'"):
        parse_module(plan(*lines).replace("{}", "predicate"))
