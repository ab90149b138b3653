"""Verification between passes: uses before definitions, which xDSL does not notice, and only what has changed."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from programs import step_function
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr, UnitAttr, f32
from xdsl.ir import Operation
from xdsl.passes import ModulePass
from xdsl.rewriter import Rewriter
from xdsl.utils.exceptions import VerifyException

from aicf_mlir import compile_train_step
from aicf_mlir.dialects.plan import SlotOp
from aicf_mlir.errors import LoweringError
from aicf_mlir.ir.tensor_op import TensorOp
from aicf_mlir.ir.verify import Verifier, verify_module
from aicf_mlir.passes.pipeline import PassTable, available_passes, parse_passes
from aicf_mlir.stages import STAGE_NAMES, STAGES, run_stages
from aicf_mlir.text.parsing import make_context, parse_module

EXAMPLES = Path(__file__).parents[3] / "examples"


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


def test_an_op_is_verified_again_exactly_if_it_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    verify = Operation.verify

    def counted(op: Operation, verify_nested_ops: bool = True) -> None:
        seen.append(op.name)
        verify(op, verify_nested_ops)

    module = parse_module("""
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  %z = nn.gelu %x {approximate = "none"} : tensor<4xf32>
  %u = nn.neg %y : tensor<4xf32>
  %v = nn.add %z, %u : tensor<4xf32>
  func.return %v : tensor<4xf32>
}
""")
    monkeypatch.setattr(Operation, "verify", counted)
    function = step_function(module)
    gelu, negation, addition, _ = function.body.block.ops
    around = ["func.return", "func.func", "builtin.module"]

    def operand() -> None:
        gelu.operands[0] = function.args[1]

    def attribute() -> None:
        gelu.attributes["note"] = UnitAttr()

    def prop() -> None:
        gelu.properties["approximate"] = StringAttr("tanh")

    def of_a_known_form() -> None:
        negation.detach()
        function.body.block.insert_op_before(negation, gelu)

    def removed() -> None:
        addition.results[0].replace_all_uses_with(gelu.results[0])
        addition.detach()

    verifier = Verifier(whole=False)
    verifier(module)
    assert sorted(seen) == sorted(["nn.gelu", "nn.neg", "nn.add", *around])
    cases = {
        operand: around,  # which ops the values come from, the form of an op does not tell
        attribute: ["nn.gelu", *around],
        prop: ["nn.gelu", *around],
        of_a_known_form: around,
        removed: around,
    }
    for change, verified in cases.items():
        verifier(module)
        change()
        seen.clear()
        verifier(module)
        assert seen == verified, change.__name__
    seen.clear()
    verifier(module)
    assert not seen
    verifier.forget()
    verifier(module)
    assert sorted(seen) == sorted(["nn.gelu", "nn.neg", *around])


def edited(module: ModuleOp, draw: random.Random) -> str:
    """Change one op at random, as a faulty pass might; what was done."""
    ops = [op for op in module.walk() if op.parent_op() not in (None, module)]
    values = [value for op in ops for value in op.results] + [
        argument for op in ops for region in op.regions for argument in region.block.args
    ]
    kind = draw.choice(["operand", "type", "property", "no property", "attribute", "remove", "move", "twice"])
    op = draw.choice([each for each in ops if each.operands or kind != "operand"] or ops)
    match kind:
        case "operand" if op.operands:
            op.operands[draw.randrange(len(op.operands))] = draw.choice(values)
        case "type" if op.results:
            other = draw.choice(values).type
            Rewriter.replace_value_with_new_type(draw.choice(op.results), other)
        case "property":
            op.properties[draw.choice(["bogus", *op.properties])] = draw.choice(
                [StringAttr("bogus"), *op.properties.values()]
            )
        case "no property" if op.properties:
            del op.properties[draw.choice([*op.properties])]
        case "attribute":
            op.attributes[draw.choice(["note", *op.attributes])] = draw.choice(
                [UnitAttr(), *op.attributes.values()]
            )
        case "remove" if not any(result.uses for result in op.results):
            op.detach()
        case "move" | "twice":
            block = op.parent
            assert block is not None
            moved = op if kind == "move" else op.clone()
            others = [each for each in block.ops if each is not op]
            if others:
                if kind == "move":
                    op.detach()
                block.insert_op_before(moved, draw.choice(others))
        case _:
            pass
    return f"{kind} of {op.name}"


def refusal(verify: Callable[[ModuleOp], None], module: ModuleOp) -> type[Exception] | None:
    """What kind of error the module is refused with."""
    try:
        verify(module)
    except Exception as error:  # noqa: BLE001 - whichever it is
        return type(error)
    return None


@pytest.mark.parametrize("stage", STAGE_NAMES)
def test_what_has_changed_is_judged_as_the_whole_is(stage: str) -> None:
    module = parse_module((EXAMPLES / "train_step.mlir").read_text())
    run_stages(module, make_context(), until=stage)
    verifier = Verifier(whole=False)
    refused: set[bool] = set()
    for seed in range(25):
        draw, copy = random.Random(seed), module.clone()
        verifier(copy)
        done = edited(copy, draw)
        expected = refusal(verify_module, copy)
        assert refusal(verifier, copy) is expected, (seed, done)
        refused.add(expected is None)
        if expected is None:  # and once more, on top of what was good
            done = f"{done}, {edited(copy, draw)}"
            assert refusal(verifier, copy) is refusal(verify_module, copy), (seed, done)
    assert refused == {True, False}


PIPELINE = [(stage.name, flag) for stage in STAGES for flag in dict.fromkeys(stage.passes) if "?" not in flag]


@pytest.mark.parametrize(("stage", "flag"), PIPELINE, ids=lambda name: name.partition("{")[0])
def test_an_invalid_op_of_any_pass_is_refused_before_anything_runs(
    stage: str, flag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = flag.partition("{")[0]
    loaded = available_passes()[name]()
    apply = loaded.apply
    at_stage: list[str] = []

    def faulty(self: ModulePass, context: Context, module: ModuleOp) -> None:
        apply(self, context, module)
        if at_stage[-1] == stage:
            made = [op for op in module.walk() if isinstance(op, TensorOp | SlotOp)]
            made[len(made) // 2].properties["planted"] = UnitAttr()

    def followed(text: str, passes: PassTable | None = None) -> tuple[ModulePass, ...]:
        at_stage.append(next(each.name for each in STAGES[len(at_stage) :]))
        return parse_passes(text, passes)

    monkeypatch.setattr(loaded, "apply", faulty)
    monkeypatch.setattr("aicf_mlir.stages.parse_passes", followed)
    monkeypatch.setattr(Verifier, "WHOLE", False)
    net = torch.nn.Linear(3, 2)
    adam = torch.optim.Adam(net.parameters())
    before = {key: (value.data_ptr(), value.clone()) for key, value in net.state_dict().items()}
    said = f"property 'planted' is not defined .* found after pass '{name}': a fault of AICF"
    with pytest.raises(LoweringError, match=said):
        compile_train_step(net, adam, B=4, D=3, device="cpu", loss_fn=lambda m, b: m(b["x"]).square().mean())
    assert at_stage[-1] == stage and not adam.state
    for key, value in net.state_dict().items():
        assert value.data_ptr() == before[key][0] and torch.equal(value, before[key][1])


def test_a_refused_module_is_refused_again() -> None:
    module = parse_module("""
func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = nn.neg %x : tensor<4xf32>
  func.return %y : tensor<4xf32>
}
""")
    verifier = Verifier(whole=False)
    verifier(module)
    step_function(module).body.block.insert_arg(f32, 1)
    for _ in range(2):
        with pytest.raises(VerifyException):
            verifier(module)
