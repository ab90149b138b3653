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
    assert {*RENAMED.values()} - {*OPS.values(), *FLAGS} == {"back-to-back-rows"}
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
