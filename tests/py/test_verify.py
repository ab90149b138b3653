"""Uses before definitions that a faulty pass can make and xDSL does not notice."""

from __future__ import annotations

import pytest
from programs import step_function
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.ir.verify import verify_module
from aicf_mlir.text.parsing import parse_module


def test_an_op_moved_behind_its_user() -> None:
    module = parse_module("""
func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = nn.neg %x : tensor<4xf32>
  %z = nn.relu %y : tensor<4xf32>
  func.return %z : tensor<4xf32>
}
""")
    block = step_function(module).body.block
    negation, relu, _ = block.ops
    negation.detach()
    block.insert_op_after(negation, relu)
    module.verify()  # xDSL itself does not notice
    with pytest.raises(VerifyException, match=r"'nn\.relu' uses %y before 'nn\.neg' defines it"):
        verify_module(module)


def test_an_argument_of_a_later_region() -> None:
    module = parse_module("""
%x = "test.op"() ({
^bb0(%a: tensor<4xf32>):
  "test.termop"(%a) : (tensor<4xf32>) -> ()
}, {
^bb0(%b: tensor<4xf32>):
  "test.termop"(%b) : (tensor<4xf32>) -> ()
}) : () -> tensor<4xf32>
""")
    (outer,) = module.body.block.ops
    (user,), (argument,) = outer.regions[0].block.ops, outer.regions[1].block.args
    user.operands[0] = argument
    with pytest.raises(VerifyException, match=r"'test\.termop' uses %b before it is defined"):
        verify_module(module)
