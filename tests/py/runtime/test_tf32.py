"""precision="tf32": which products may round their operands; on the CPU the bits of f32, on a GPU those of TF32."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from models import Batch, mlp, mse, regression, to_device
from oracle import assert_same_bits, root_mean_square
from precise_training import CASES, Training, adam, assert_near
from product_cases import rounded_to_tf32
from torch import nn
from written_optimizers import Written
from xdsl.dialects.builtin import f32

from aicf_mlir import OpKind, compile_eval_step, compile_step, compile_train_step, op_call
from aicf_mlir.codegen.schedule import generate
from aicf_mlir.dialects import kernel
from aicf_mlir.dialects import nn as nn_ops
from aicf_mlir.dialects.kernel_op import KernelOp
from aicf_mlir.dialects.plan import find_program
from aicf_mlir.dialects.plan.kernels import generated_kernels
from aicf_mlir.interpreters import run_function
from aicf_mlir.interpreters.arithmetic import Arithmetic
from aicf_mlir.interpreters.numerics import Array
from aicf_mlir.ir.properties import is_true
from aicf_mlir.ir.registry import Use
from aicf_mlir.ir.tensor_op import element_type
from aicf_mlir.runtime.certificate.reference import interpret
from aicf_mlir.stages import run_stages
from aicf_mlir.step.built_step import BuiltStep
from aicf_mlir.text.parsing import make_context, parse_module
from aicf_mlir.tools.compare import Reference, compare
from aicf_mlir.tuning.obeyed import text_of

STEPS = 3


def marks(step: BuiltStep, stage: str = "step") -> list[bool]:
    """Of each product of f32 operands in a stage of nn ops or launches, in order: whether it may round them."""
    found: list[bool] = []
    for op in parse_module(step.ir(stage)).walk():
        if isinstance(op, nn_ops.MatmulOp | nn_ops.LinearOp) and element_type(op.result) == f32:
            found.append(is_true(op.allow_tf32))
        elif isinstance(op, KernelOp) and op.op_name in ("gemm", "gemm_epilogue", "gemm_map"):
            found.append(op.attrs.get("allow_tf32") is True)
    return found


@pytest.mark.parametrize("case", CASES)
def test_on_the_cpu_it_has_the_bits_of_f32(case: str) -> None:
    trained = [Training(case, "cpu", adam) for _ in range(2)]
    for each, precision in zip(trained, ("f32", "tf32"), strict=True):
        step = each.compiled(precision=precision)
        each.losses += [step.train_step(each.batch).clone() for _ in range(STEPS)]
    assert_same_bits(trained[1].values(), trained[0].values())
    assert torch.equal(*(torch.stack(each.losses) for each in trained))


@pytest.mark.parametrize("case", CASES)
def test_all_products_of_the_model_and_their_gradients_may_round(case: str, device: str) -> None:
    """A CPU computes attention by products, which stay f32: no kernel of attention rounds its operands."""
    allowed, plain = (Training(case, device).compiled(precision=given) for given in ("tf32", "f32"))
    for stage in ("nn", "step", "fused", "kernel"):
        found = marks(allowed, stage)
        is_split = (case, device) == ("attention", "cpu") and stage in ("fused", "kernel")
        assert found.count(False) == (6 if is_split else 0)
        assert len(found) == len(marks(plain, stage))
        assert len(found) > 1
        assert not any(marks(plain, stage))


def test_replays_evaluation_and_later_sizes_have_it_too(device: str) -> None:
    ours = Training("mlp", device, adam)
    step = ours.compiled(precision="tf32", further_sizes=1)
    step.warmup(ours.batch)
    assert step.capture(ours.batch, verify="bitwise").equal
    step.replay(2, inputs=ours.batch)
    step.train_step(to_device(regression(5), device))
    assert all(marks(step, "kernel"))
    step.recompile()
    assert all(marks(step, "kernel"))
    evaluated = compile_eval_step(
        ours.model, loss_fn=mse, example=ours.batch, device=device, precision="tf32"
    )
    assert marks(evaluated, "kernel") == [True, True, True]
    torch.testing.assert_close(
        evaluated.eval_step(ours.batch), mse(ours.model, ours.batch), rtol=1e-3, atol=1e-4
    )


class Orthogonal(Written):
    """An update with products of its own, as the orthogonal steps of Muon have."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        for p, grad, _, group in self.entries():
            p.add_(grad @ grad.T @ grad, alpha=-group["lr"])


def square() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(8, 8, bias=False)


def test_products_of_an_optimizer_stay_f32(device: str) -> None:
    model, batch = square().to(device), to_device(regression(16), device)
    step = compile_train_step(
        model, Orthogonal(model.parameters(), lr=0.1), example=batch, device=device, precision="tf32"
    )
    assert marks(step) == [True, True, False, False]  # forward, the weight's gradient, the update
    assert marks(step, "kernel") == marks(step)


def test_a_loop_body_has_it_outside_of_its_optimizers(device: str) -> None:
    model, batch = square().to(device), to_device(regression(16), device)
    optimizer = Orthogonal(model.parameters(), lr=0.1)

    def body(batch: Batch) -> torch.Tensor:
        optimizer.zero_grad()
        loss = mse(model, batch)
        loss.backward()
        optimizer.step()
        return loss

    step = compile_step(body, example=batch, device=device, precision="tf32")
    assert marks(step) == [True, True, False, False]


def test_an_autocast_in_the_loss_goes_before(device: str) -> None:
    def loss(model: Any, batch: Batch) -> torch.Tensor:
        with torch.autocast(device, torch.bfloat16):
            low = model(batch["x"])
        return mse(model, batch) + low.float().square().mean()

    step = Training("mlp", device).compiled(loss_fn=loss, precision="tf32")
    assert all(marks(step))  # those of f32; one of bf16 with the mark would be refused
    assert "xbf16>" in step.ir("nn")


def test_the_switches_of_torch_are_not_followed(device: str) -> None:
    """They are of the process: what a step computes in is said where it is compiled."""
    before = torch.get_float32_matmul_precision()
    wanted = {given: Training("mlp", device).compiled(precision=given).ir() for given in (None, "tf32")}
    try:
        for switch, allows in (("high", True), ("highest", False)):
            torch.set_float32_matmul_precision(switch)
            assert torch.backends.cuda.matmul.allow_tf32 == allows
            for given, text in wanted.items():
                assert Training("mlp", device).compiled(precision=given).ir() == text
    finally:
        torch.set_float32_matmul_precision(before)


def test_a_profile_compares_such_products_with_one_of_their_own(device: str) -> None:
    ours = Training("mlp", device)
    profile = ours.compiled(precision="tf32").profile(1, ours.batch)
    assert "tf32" in profile.rates.products
    assert all(rate is not None and rate > 0 for rate in profile.rates.products.values())


PRODUCT = """
func.func @f(%a: tensor<48x64xf32> {{aicf.name = "a"}}, %b: tensor<64x32xf32> {{aicf.name = "b"}})
    -> (tensor<48x32xf32> {{aicf.role = "output", aicf.name = "y"}}) {{
  %y = {op} {attrs} : (tensor<48x64xf32>, tensor<64x32xf32>) -> tensor<48x32xf32>
  func.return %y : tensor<48x32xf32>
}}
"""
KEY = ("output", "y")


class ToNearest(Arithmetic):
    """As gemm_tf32_tc multiplies."""

    def factor(self, operand: Array) -> Array:
        return rounded_to_tf32(operand)


class CutOff(Arithmetic):
    """As tensor cores take what nobody has rounded."""

    def factor(self, operand: Array) -> Array:
        return (operand.astype(np.float32).view(np.uint32) & ~np.uint32(0x1FFF)).view(np.float32)


@pytest.mark.parametrize("op", ["nn.matmul %a, %b", "kernel.gemm a(%a) b(%b)"])
@pytest.mark.parametrize("arithmetic", [ToNearest(), CutOff()])
def test_how_far_rounding_may_carry_is_told_by_the_mark(op: str, arithmetic: Arithmetic) -> None:
    """By aicf-run --compare as by the certificate; what the op means is the exact product."""
    random = np.random.default_rng(0)
    arguments = [random.standard_normal(shape).astype(np.float32) for shape in ((48, 64), (64, 32))]
    named = dict(zip((("input", "a"), ("input", "b")), arguments, strict=True))
    marked, plain = (
        parse_module(PRODUCT.format(op=op, attrs=attrs)) for attrs in ("{allow_tf32 = true}", "")
    )
    (ours,) = run_function(marked, arguments, arithmetic)
    (exact,) = run_function(marked, arguments)
    assert exact.tobytes() == run_function(plain, arguments)[0].tobytes() != ours.tobytes()
    for module, agrees in ((marked, True), (plain, False)):

        def values(rounding: Arithmetic, module: Any = module) -> dict[tuple[str, str], Array]:
            given = [rounding.widen(each).astype(rounding.dtype("f32")) for each in arguments]
            return {KEY: run_function(module, given, rounding)[0]}

        assert compare({KEY: ours}, Reference.of(values), {KEY: "y"})[1] == agrees
        assert (interpret(module, named).fault(KEY, ours) is None) == agrees


def test_whole_numbers_that_tf32_holds_are_exact() -> None:
    random = np.random.default_rng(0)
    arguments = [random.integers(-2048, 2049, shape).astype(np.float32) for shape in ((48, 64), (64, 32))]
    named = dict(zip((("input", "a"), ("input", "b")), arguments, strict=True))
    marked = parse_module(PRODUCT.format(op="nn.matmul %a, %b", attrs="{allow_tf32 = true}"))
    found = interpret(marked, named)
    for results, _ in found.others:
        assert results[KEY].tobytes() == found.results[KEY].tobytes()


MAP = """
scalar.body @shifted(%z: f32) -> f32 {{
  %c = arith.constant 1.0 : f32
  %y = arith.addf %z, %c : f32
  scalar.yield %y : f32
}}
func.func @f(%a: tensor<48x64xf32>, %b: tensor<64x32xf32>) -> tensor<48x32xf32> {{
  %y = kernel.gemm_map a(%a) b(%b) {{body = @shifted{attrs}}} : (tensor<48x64xf32>, tensor<64x32xf32>) -> tensor<48x32xf32>
  func.return %y : tensor<48x32xf32>
}}
"""


@pytest.mark.parametrize("target", ["cpu", "sm_90", "sm_90+cublaslt"])
def test_a_generated_product_rounds_where_there_are_tensor_cores(target: str) -> None:
    """On the CPU its code is that of f32, under the same name."""
    ids, texts = list[str](), list[str]()
    for attrs in ("", ", allow_tf32 = true"):
        module = parse_module(MAP.format(attrs=attrs))
        run_stages(module, make_context(), target=target, first="kernel")
        ((id_, generated),) = generated_kernels(find_program(module)).items()
        text = generate(generated).source
        ids.append(id_)
        texts.append(text if target == "cpu" else text.partition('extern "C"')[2])
    if target == "cpu":
        assert ids[0] == ids[1]
        assert texts[0] == texts[1]
        return
    assert ids[0] != ids[1]
    assert ["aicf::gemm::TF32," in text for text in texts] == [False, True]
    assert ["aicf::gemm::TF32TensorPanel16," in text for text in texts] == [False, True]


def test_it_is_another_use_of_a_product() -> None:
    """So a lock has a row of its own for it."""
    square = ("f32", (64, 64))
    uses = [Use.of("gemm", [square] * 2, [square], attrs) for attrs in ({}, {"allow_tf32": True})]
    texts = [text_of(use) for use in uses]
    assert texts[0] != texts[1]
    assert texts[1].endswith("{allow_tf32 = true}")
    kinds = (kernel.GemmOp, kernel.GemmEpilogueOp, kernel.GemmMapOp)
    assert all("allow_tf32" in {row.name for row in kind.schema_of().attrs} for kind in kinds)


@pytest.mark.gpu
@pytest.mark.parametrize(
    "library", [False, pytest.param(True, marks=pytest.mark.cublaslt)], ids=["own", "cublaslt"]
)
def test_on_a_gpu_products_are_of_tf32(library: bool) -> None:
    """Off from f32 by as much as TF32 is, and no more: the tensor cores were used."""
    draw = torch.Generator("cuda").manual_seed(0)
    a, b = (torch.randn(512, 512, generator=draw, device="cuda") for _ in range(2))
    name = "cublaslt" if library else "tc"
    out, plain = torch.empty_like(a), torch.empty_like(a)
    attrs = {"allow_tf32": True, "trans_b": True}
    assert op_call(OpKind.Gemm, [a, b], [out], attrs, f"gemm_tf32_{name}").startswith(f"gemm_tf32_{name}")
    op_call(OpKind.Gemm, [a, b], [plain], {"trans_b": True}, "gemm_f32_tiled_64x32")
    exact = a.double() @ b.double().T
    scale = exact.square().mean().sqrt()
    off, plain_off = ((each.double() - exact).square().mean().sqrt() / scale for each in (out, plain))
    assert plain_off < 1e-6 < 1e-4 < off < 2 * 2.0**-10


@pytest.mark.gpu
def test_on_a_gpu_it_trains_as_torch_does_in_tf32(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch's own TF32 is the measure: as close to it as two orders of summation, and no farther from f32 than it is."""
    batch = to_device(regression(256, 256), "cuda")
    trained: dict[str, dict[str, torch.Tensor]] = {}
    for who in ("f32", "tf32", "torch in f32", "torch in tf32"):
        torch.manual_seed(0)
        model = mlp(256, 256, 256).to("cuda")
        began = {name: p.detach().clone() for name, p in model.named_parameters()}
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        if who.startswith("torch"):
            monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", who.endswith("tf32"))
            for _ in range(STEPS):
                optimizer.zero_grad()
                mse(model, batch).backward()
                optimizer.step()
        else:
            step = compile_train_step(model, optimizer, example=batch, device="cuda", precision=who)
            for _ in range(STEPS):
                step.train_step(batch)
            assert ("allow_tf32" in step.ir("plan")) == (who == "tf32")
            assert step.capture(batch, verify="bitwise").equal
        trained[who] = {name: p.detach() - began[name] for name, p in model.named_parameters()}
    assert any(not torch.equal(trained["tf32"][name], value) for name, value in trained["f32"].items())
    assert_near(trained["tf32"], trained["torch in tf32"], 2.0**-10)
    allowed = {
        name: 1.25 * far for name, far in distances(trained["torch in tf32"], trained["torch in f32"]).items()
    }
    found = distances(trained["tf32"], trained["f32"])
    assert all(far <= allowed[name] for name, far in found.items()), (found, allowed)


def distances(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> dict[str, float]:
    """The root-mean-square difference of each tensor, as a part of its own."""
    return {
        name: root_mean_square(found[name] - value) / root_mean_square(value)
        for name, value in expected.items()
    }
