"""Uses before definitions that a faulty pass can make and xDSL does not notice."""

from __future__ import annotations

import pytest
from programs import step_function
from xdsl.dialects.builtin import ModuleOp, StringAttr, TensorType, UnitAttr, f32
from xdsl.rewriter import Rewriter
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.ir.verify import Verifier, verify_module
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


def test_a_module_is_verified_again_exactly_if_it_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[ModuleOp] = []
    monkeypatch.setattr("aicf_mlir.ir.verify.verify_module", seen.append)
    module = parse_module("""
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  %z = nn.gelu %x {approximate = "none"} : tensor<4xf32>
  func.return %z : tensor<4xf32>
}
""")
    seen.clear()
    function = step_function(module)
    gelu, returned = function.body.block.ops

    def operand() -> None:
        gelu.operands[0] = function.args[1]

    def attribute() -> None:
        gelu.attributes["note"] = UnitAttr()

    def prop() -> None:
        gelu.properties["approximate"] = StringAttr("tanh")

    def type_of_a_result() -> None:
        returned.operands[0] = Rewriter.replace_value_with_new_type(gelu.results[0], TensorType(f32, [5]))

    def argument() -> None:
        function.body.block.insert_arg(f32, 2)

    def removed() -> None:
        returned.detach()

    verifier = Verifier()
    verifier(module)
    for changed, change in enumerate((operand, attribute, prop, type_of_a_result, argument, removed), 1):
        verifier(module)
        assert len(seen) == changed
        change()
        verifier(module)
        assert len(seen) == changed + 1


def test_a_refused_module_is_refused_again() -> None:
    module = parse_module("""
func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = nn.neg %x : tensor<4xf32>
  func.return %y : tensor<4xf32>
}
""")
    verifier = Verifier()
    verifier(module)
    step_function(module).body.block.insert_arg(f32, 1)
    for _ in range(2):
        with pytest.raises(VerifyException):
            verifier(module)
