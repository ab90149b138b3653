"""Chains of products: what a step computes with them, by the interpreter and by the code of a device, beside the step without."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from chained_models import CASES, ROWS, Case, chained
from edited_plans import Trained
from models import mlp, regression
from precise_training import assert_near
from programs import step_function
from random_chains import random_chain
from xdsl.dialects.builtin import ModuleOp

from aicf_mlir.analysis.operations import of_kernel
from aicf_mlir.codegen import nvrtc
from aicf_mlir.codegen.cuda.back_to_back import reason
from aicf_mlir.codegen.schedule import generate
from aicf_mlir.dialects import kernel
from aicf_mlir.dialects.generated import GeneratedOp, Selection
from aicf_mlir.dialects.plan import find_program
from aicf_mlir.dialects.plan.kernels import generated_kernels
from aicf_mlir.errors import SelectionError, VerifyError
from aicf_mlir.interpreters import run_function
from aicf_mlir.interpreters.arithmetic import EXACT
from aicf_mlir.interpreters.numerics import NUMPY_TYPES, Array
from aicf_mlir.ir.dtypes import element_name
from aicf_mlir.ir.printing import to_text
from aicf_mlir.ir.signature import result_labels
from aicf_mlir.ir.tensor_op import element_type, shape_of
from aicf_mlir.ir.verify import verify_module
from aicf_mlir.kernels.back_to_back import BackToBackKernel
from aicf_mlir.passes.fuse import back_to_back
from aicf_mlir.passes.fuse.back_to_back import MOST_LINKS
from aicf_mlir.step.compiled_step import CompiledTrainStep
from aicf_mlir.text.parsing import parse_module
from aicf_mlir.tools.aicf_run import main as aicf_run

cases = pytest.mark.parametrize("name", CASES)
LOW = {"bf16": torch.bfloat16, "f16": torch.float16}


@pytest.mark.parametrize("block", range(6))
def test_random_chains(block: int, device: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On a GPU some need more registers or shared memory than there are: those are refused, which fuse asks beforehand."""
    path, refused = tmp_path / "f.mlir", 0
    for seed in range(block * 10, block * 10 + 10):
        module = random_chain(seed, tiled=device == "cuda")
        verify_module(module)
        path.write_text(to_text(module))
        code = aicf_run([str(path), "--device", device, "--compare=interp", "--seed", str(seed)])
        said = capsys.readouterr()
        why = reason(kernel_of(path.read_text(), "sm_90")) if device == "cuda" else ""
        assert code == (1 if why else 0) and why in said.err, f"seed {seed}: {said}\n{path.read_text()}"
        refused += bool(why)
    assert refused <= 5


def lengths(module: ModuleOp) -> tuple[int, ...]:
    """The links of each chain."""
    chains = (op for op in module.walk() if isinstance(op, GeneratedOp) and op.op_name == "back_to_back")
    return tuple(len(op.bodies) for op in chains)


def arguments(module: ModuleOp) -> list[Array]:
    """Numbers for the arguments of a step, as exact arithmetic takes them: second moments and scales are not negative."""
    generator = np.random.default_rng(7)
    found: list[Array] = []
    for value in step_function(module).args:
        type_, shape = NUMPY_TYPES[element_name(element_type(value))], shape_of(value)
        if type_.kind in "iub":
            found.append(generator.integers(0, 2, shape).astype(type_))
        else:
            found.append(generator.normal(0.0, 0.3, shape) ** 2)
    return found


@cases
def test_a_chain_computes_what_its_launches_did(name: str) -> None:
    """In exact arithmetic the step is the same, but for constants that bodies have in f32."""
    lowered = parse_module(text := CASES[name].trained("bf16").plan("lowered"))
    stages = chained(text)
    assert lengths(stages["fused"]) == CASES[name].chains
    given = arguments(lowered)
    before, after = (run_function(module, given, EXACT) for module in (lowered, stages["fused"]))
    labels = [f"{label.role} {label.name}" for label in result_labels(step_function(lowered))]
    for label, ours, expected in zip(labels, after, before, strict=True):
        scale = np.abs(expected).max(initial=0.0)
        np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-6 * scale, err_msg=label)


def test_a_long_chain_is_divided() -> None:
    """There are 30 products forward, and 29 backward."""
    deep = Case((MOST_LINKS, MOST_LINKS, 59 - 2 * MOST_LINKS), lambda: mlp(*[16] * 31))
    assert lengths(chained(deep.trained("bf16").plan("lowered"))["fused"]) == deep.chains


def behind(case: Case, target: str) -> list[str]:
    """The products over rows beside the one chain of a step."""
    module = chained(case.trained("bf16").plan("lowered"), target=target)["fused"]
    (op,) = (op for op in module.walk() if isinstance(op, kernel.BackToBackOp))
    return list(map(str, op.attrs.get("behind", ())))


def test_the_products_over_rows_that_fit_leave_the_fewest_bytes_to_be_moved() -> None:
    """All of them on the CPU. Of 128 columns there is room for one: the last layer's, whose sides nobody else reads; of 96 the
    first layer's, with which the batch is rounded where it is read."""
    assert behind(CASES["of 128 columns"], "cpu") == ["y3.T y2", "y5.T y1", "y6.T y0", "y7.T a"]
    assert behind(CASES["of 128 columns"], "sm_90") == ["y3.T y2"]
    of_96 = Case((7,), lambda: mlp(*[96] * 5), batch=lambda: regression(ROWS, 96))
    assert behind(of_96, "sm_90") == ["y7.T a"]


@pytest.mark.nvrtc
@pytest.mark.parametrize("name", CASES)
def test_the_chains_of_a_plan_for_a_gpu_compile(name: str) -> None:
    """As many as on the CPU: registers and shared memory hold these."""
    stages = chained(CASES[name].trained("f16").plan("lowered"), target="sm_90")
    assert lengths(stages["fused"]) == CASES[name].chains
    kernels = generated_kernels(find_program(stages["plan"])).values()
    found = [generate(made).source for made in kernels if isinstance(made, BackToBackKernel)]
    assert found and all(nvrtc.compile_cuda(source, "sm_90") for source in found)


def with_chains(trained: Trained, folder: Path, monkeypatch: pytest.MonkeyPatch) -> CompiledTrainStep:
    """Its step: on a GPU with chains from fewer rows on; on the CPU its plan is exchanged for one with chains, an edited plan."""
    if trained.device == "cuda":
        if torch.cuda.get_device_capability() != (9, 0):
            pytest.skip("fusion builds chains for capability 9.0 alone: others have them in parts")
        monkeypatch.setattr(back_to_back, "CHAIN_ROWS", ROWS)
        return trained.compiled()
    path = folder / "chained.mlir"
    path.write_text(chained(trained.plan("lowered")).text("plan"))
    return trained.compiled(plan=path)


@cases
@pytest.mark.parametrize("precision", LOW)
def test_a_chain_trains_as_torch_does(
    name: str, precision: str, device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eager and replayed it has the same bits."""
    case = CASES[name]
    ours, theirs = case.trained(precision, device), case.trained(precision, device)
    began = {label: p.detach().clone() for label, p in theirs.model.named_parameters()}
    step = with_chains(ours, tmp_path, monkeypatch)
    assert "back_to_back" in [
        launch.op.data for launch in find_program(parse_module(step.ir("plan"))).launches
    ]
    for _ in range(3):
        loss = step.train_step(ours.batch)
        with torch.autocast(device, LOW[precision]):
            expected = theirs.loss_fn(theirs.model, theirs.batch)
        expected = expected[0] if isinstance(expected, tuple) else expected
        theirs.trained_by.zero_grad()
        expected.backward()
        if case.options.get("clip_grad_norm"):
            torch.nn.utils.clip_grad_norm_(theirs.model.parameters(), 0.5)
        theirs.trained_by.step()
        torch.testing.assert_close(loss, expected.detach().float(), rtol=0.02, atol=0.02)
    moved, expected_to = (
        {label: p.detach() - began[label] for label, p in trained.model.named_parameters()}
        for trained in (ours, theirs)
    )
    assert_near(moved, expected_to, 0.1)
    step.reset()
    step.warmup(ours.batch)
    certificate = step.capture(ours.batch, verify="bitwise", steps=2)
    for (
        finding
    ) in certificate.findings:  # that the plan is one of a file, and has no op of the model's own plan
        assert finding.message.startswith("with these values the step is what the model says"), certificate


def kernel_of(text: str, target: str) -> BackToBackKernel:
    """The kernel of the one chain of a module."""
    module = parse_module(text)
    (op,) = (op for op in module.walk() if isinstance(op, kernel.BackToBackOp))
    made = Selection(module, target).generated(op.use)
    assert isinstance(made, BackToBackKernel)
    return made


TEXT = """
scalar.body @relu(%z: f32, %b: f32) -> f32 {
  %0 = arith.addf %z, %b : f32
  %1 = arith.constant 0.0 : f32
  %2 = arith.maximumf %0, %1 : f32
  scalar.yield %2 : f32
}
scalar.body @both(%z: f32, %t: f32) -> (f32, f32) {
  %d = arith.subf %z, %t : f32
  %n = arith.truncf %d : f32 to bf16
  %0 = arith.extf %n : bf16 to f32
  %1 = arith.mulf %0, %0 : f32
  scalar.yield %d, %1 : f32, f32
}
func.func @f(%a: tensor<96x16xbf16>, %w: tensor<32x16xbf16>, %t: tensor<96x16xf32>, %b: tensor<96x32xbf16>)
    -> (tensor<96x32xbf16>, tensor<96x16xbf16>, tensor<16xf32>) {
  %h, %d, %s = kernel.back_to_back a(%a) b(%w) x(%b, %t)
    {bodies = [@relu, @both], links = ["b0.T x0 -> write next", "b0 x1 -> write, sum"]}
    : (tensor<96x16xbf16>, tensor<32x16xbf16>, tensor<96x32xbf16>, tensor<96x16xf32>)
    -> (tensor<96x32xbf16>, tensor<96x16xbf16>, tensor<16xf32>)
  func.return %h, %d, %s : tensor<96x32xbf16>, tensor<96x16xbf16>, tensor<16xf32>
}
"""

BEHIND = (
    TEXT.replace("{bodies", '{behind = ["y1.T y0", "y0.T a"], bodies')
    .replace("tensor<16xf32>)", "tensor<16xf32>, tensor<16x32xf32>, tensor<32x16xbf16>)")
    .replace("%h, %d, %s =", "%h, %d, %s, %u, %v =")
    .replace("%h, %d, %s :", "%h, %d, %s, %u, %v :")
    .replace("tensor<16xf32>\n}", "tensor<16xf32>, tensor<16x32xf32>, tensor<32x16xbf16>\n}")
)
"""With two products over rows."""

WRONG = {
    "no such body": ("@relu, @both", "@relu, @none", "there is no scalar.body @none in this module"),
    "too few arguments": (
        "b0.T x0 ->",
        "b0.T ->",
        "link 0: the body takes 2 operands, got the product and 0 others",
    ),
    "too few values": ("write, sum", "write sum", "link 1: the body gives 2 values, got uses of 1"),
    "of another type": ("%b: f32) -> f32 {", "%b: i64) -> f32 {", "the body takes i64, got elements of bf16"),
    "a reduction": (
        "arith.mulf %0, %0 : f32",
        "scalar.sum %0 : f32",
        "takes no table, asks for no index, and reduces nothing",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_refuses_bodies_that_do_not_fit(name: str) -> None:
    old, new, message = WRONG[name]
    assert TEXT.count(old) == 1
    text = TEXT.replace(old, new)
    if name == "of another type":
        text = text.replace("arith.addf %z, %b : f32", "arith.addf %z, %z : f32")
    with pytest.raises(VerifyError, match=message.replace("[", r"\[")):
        kernel_of(text, "cpu")


def test_a_target_without_tiles_says_why_and_has_it_in_parts() -> None:
    module = parse_module(TEXT)
    (op,) = (op for op in module.walk() if isinstance(op, kernel.BackToBackOp))
    selection = Selection(module, "sm_80")
    found, _ = selection.select(op.use)
    symbol = found.removesuffix("[parts]")
    assert found == f"{symbol}[parts]" == selection.select(op.use, symbol)[0] + "[parts]"
    with pytest.raises(SelectionError, match=r"schedule 'tiles': needs compute capability 9\.0, got sm_80"):
        selection.select(op.use, f"{symbol}[tiles]")
    on_hopper = Selection(module, "sm_90")
    chosen, _ = on_hopper.select(op.use)
    assert chosen.endswith("[tiles]")
    in_parts = chosen.replace("tiles", "parts")
    assert on_hopper.select(op.use, in_parts)[0] == in_parts


def test_its_name_says_what_its_code_depends_on() -> None:
    """Not what bodies are called; but what they compute, what is done with it, and on which target."""
    other = TEXT.replace("maximumf", "minimumf")
    texts = [(TEXT, "cpu"), (TEXT, "sm_90"), (other, "cpu"), (BEHIND, "cpu")]
    assert len({kernel_of(text, target).id for text, target in texts}) == len(texts)
    assert kernel_of(TEXT.replace("@relu", "@other"), "cpu").id == kernel_of(TEXT, "cpu").id


def test_its_work_is_that_of_its_links() -> None:
    """Products of 2 m n k, an addition and a maximum, a difference, a square and a sum."""
    of_links = 96 * (32 * (2 * 16 + 2) + 16 * (2 * 32 + 2 + 1))
    assert of_kernel(kernel_of(TEXT, "cpu")) == of_links
    assert of_kernel(kernel_of(BEHIND, "cpu")) == of_links + 2 * 96 * 16 * 32 * 2
