"""An f16 that overflows between two ops is infinite for the second, whatever computes both: as in torch, and as unfused.

So a loss is finite where torch's is, and a step is skipped, and its loss scale falls, where torch's does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from chained_models import chained
from costs import Some
from edited_plans import Trained
from kernel_programs import launches, random_arguments, random_function
from models import Batch
from programs import run_by_name, run_pipeline, step_function
from torch import nn
from xdsl.dialects.builtin import ModuleOp
from xdsl.pattern_rewriter import PatternRewriteWalker

from aicf_mlir import LossScale, compile_eval_step, compile_train_step
from aicf_mlir.dialects import kernel
from aicf_mlir.interpreters.numerics import round_to, widen
from aicf_mlir.ir.element_types import NARROW, OVERFLOWING
from aicf_mlir.ir.printing import to_text
from aicf_mlir.passes.fuse import FusePass
from aicf_mlir.passes.fuse.bias import FuseBias
from aicf_mlir.passes.fuse.loops.members import resolve
from aicf_mlir.text.parsing import make_context, parse_module

ROWS = 4
LARGE = 7e4
"""Beyond 65520, from where on an f16 is infinite."""


class Layers(nn.Module):
    """Two linear layers: the first gives `value` and a bias everywhere, of which a function makes what the second takes."""

    def __init__(
        self, between: Callable[[torch.Tensor], torch.Tensor], value: float, bias: float, last: float
    ):
        super().__init__()
        self.first, self.between, self.last = nn.Linear(16, 16), between, nn.Linear(16, 8)
        with torch.no_grad():
            self.first.weight.fill_(value / 16)
            self.last.weight.fill_(last)
            self.first.bias.fill_(bias)
            self.last.bias.zero_()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.between(self.first(x)))


def summed(model: Any, batch: Batch) -> torch.Tensor:
    return model(batch["x"]).float().sum() * 2.0**-9


@dataclass(frozen=True)
class Case:
    """What lies between the two layers, and what overflows."""

    between: Callable[[torch.Tensor], torch.Tensor]
    value: float
    """Of the first layer, everywhere."""
    bias: float = 0.0
    """Which it adds."""
    last: float = 0.25
    """The weights of the second layer."""
    scale: float = 1.0

    def trained(self, device: str, rows: int = ROWS) -> Trained:
        return Trained(
            lambda: Layers(self.between, self.value, self.bias, self.last),
            lambda model: torch.optim.SGD(model.parameters(), lr=1e-6),
            summed,
            {"x": torch.ones(rows, 16)},
            device,
            {"precision": "f16", "loss_scale": LossScale(self.scale)},
        )

    def in_torch(self, device: str, rows: int = ROWS) -> tuple[float, float]:
        """The loss, and the scale behind the step."""
        run = self.trained(device, rows)
        scaler = torch.amp.GradScaler(device, init_scale=self.scale)
        with torch.autocast(device, torch.float16):
            loss = run.loss_fn(run.model, run.batch)
        scaler.scale(loss).backward()
        scaler.step(run.trained_by)
        scaler.update()
        return loss.item(), scaler.get_scale()


FORWARD = {
    "quotient": Case(lambda h: h * 100 / 100 / 1e3, 1e3),
    "reciprocal": Case(lambda h: h.reciprocal(), LARGE),
    "residual": Case(lambda h: (h - 6e4) * 1e-4, LARGE),
    "logarithm": Case(torch.log, LARGE),
    "leaky relu": Case(lambda h: F.leaky_relu(h, 1e-5), -LARGE),
    "hardswish": Case(F.hardswish, -LARGE),
    "mish": Case(F.mish, -LARGE),
    "silu": Case(F.silu, -LARGE),
    "gelu": Case(F.gelu, -LARGE),
    "gelu by tanh": Case(lambda h: F.gelu(h, approximate="tanh"), -LARGE),
    "tanh": Case(torch.tanh, LARGE),
    "clamp": Case(lambda h: h.clamp(-1, 1), LARGE),
    "relu": Case(F.relu, -LARGE),
    "bias": Case(lambda h: h * 1e-4, LARGE, bias=-1e4),
    "f32": Case(lambda h: h.float() / LARGE, LARGE),
    "softmax": Case(lambda h: torch.softmax(h, -1), LARGE),
    "mean of rows": Case(lambda h: h / h.mean(-1, keepdim=True), LARGE),
}
"""An activation overflows, and what is made of it may not."""

BACKWARD = {
    name: Case(between, value, last=64.0, scale=2.0**18)
    for name, (between, value) in {
        "tanh": (torch.tanh, 2.0),
        "sigmoid": (torch.sigmoid, 3.0),
        "gelu": (F.gelu, -2.0),
        "silu": (F.silu, -3.0),
        "relu": (F.relu, 1.0),
        "relu at rest": (F.relu, -1.0),
        "leaky relu": (lambda h: F.leaky_relu(h, 0.1), -2.0),
        "elu": (F.elu, -2.0),
        "product": (lambda h: h * 0.125, 0.5),
        "two": (lambda h: torch.tanh(h) * 0.125 * h, 0.5),
    }.items()
}
"""The gradient of what lies between is 2**18, and that of the first layer may be small."""


def same(ours: tuple[float, float], torchs: tuple[float, float]) -> None:
    (loss, scale), (expected, falls) = ours, torchs
    assert (math.isfinite(loss), scale) == (math.isfinite(expected), falls), f"{ours}, torch {torchs}"


@pytest.mark.parametrize("name", FORWARD)
def test_an_activation_overflows_where_it_does_in_torch(name: str, device: str) -> None:
    case = FORWARD[name]
    run = case.trained(device)
    step = run.compiled()
    same((step.train_step(run.batch).item(), step.loss_scale.item()), case.in_torch(device))


@pytest.mark.parametrize("name", FORWARD)
def test_an_evaluation_overflows_where_it_does_in_torch(name: str, device: str) -> None:
    """No gradient needs what lies before an activation here, so that it is not written."""
    case = FORWARD[name]
    run = case.trained(device)
    step = compile_eval_step(run.model, loss_fn=summed, example=run.batch, device=device, precision="f16")
    assert math.isfinite(step.eval_step(run.batch).item()) == math.isfinite(case.in_torch(device)[0])


@pytest.mark.parametrize("name", BACKWARD)
def test_a_gradient_overflows_where_it_does_in_torch(name: str, device: str) -> None:
    """One row: of several the gradient of the weight would overflow in any case."""
    case = BACKWARD[name]
    run = case.trained(device, rows=1)
    step = run.compiled()
    torchs = case.in_torch(device, rows=1)
    same((step.train_step(run.batch).item(), step.loss_scale.item()), torchs)
    assert step.skipped == (torchs[1] < case.scale)


@pytest.mark.parametrize("name", BACKWARD)
def test_a_gradient_overflows_in_a_chain(name: str, tmp_path: Path) -> None:
    case, path = BACKWARD[name], tmp_path / "chained.mlir"
    run = case.trained("cpu", rows=1)
    stages = chained(run.plan("lowered"), rows=1)
    assert any(isinstance(op, kernel.BackToBackOp) for op in stages["fused"].walk())
    path.write_text(stages.text("plan"))
    step = run.compiled(plan=path)
    same((step.train_step(run.batch).item(), step.loss_scale.item()), case.in_torch("cpu", rows=1))


class Away(nn.Module):
    """From the mean of the row, in units of its standard deviation."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        deviation, mean = torch.std_mean(x, -1, keepdim=True)
        return (x - mean) / deviation


class Units(nn.Module):
    """In units of the standard deviation of all."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x / x.std()


@pytest.mark.parametrize("make", [Away, Units, lambda: nn.BatchNorm1d(16), lambda: nn.GroupNorm(4, 16)])
def test_a_variance_inside_of_an_op_does_not_overflow(make: Callable[[], nn.Module], device: str) -> None:
    """A model of f16, whose variances are beyond 65504 and whose deviations are not: torch rounds these alone."""
    torch.manual_seed(3)
    layer = make().to(device, torch.float16)
    model = nn.Sequential(nn.Linear(16, 16).to(device, torch.float16), layer, nn.Tanh())
    batch = {"x": torch.randn(64, 16, device=device).mul(2000).half()}

    def squared(model: Any, batch: Batch) -> torch.Tensor:
        return model(batch["x"]).float().square().mean()

    expected = squared(model, batch).item()
    step = compile_train_step(
        model, torch.optim.SGD(model.parameters(), lr=0.0), loss_fn=squared, example=batch
    )
    assert expected > 0.1 and step.train_step(batch).item() == pytest.approx(expected, rel=0.01)
    for name, value in model.named_buffers():
        assert value.isfinite().all() == (name != "1.running_var")  # an f16, as in torch


SMALLEST = {"f16": 0.0, "bf16": 2.0**-40}
"""What counts as 0: the tail of gelu, which the interpreter knows better as an op than as a body, and an f16 has not."""


def with_biases(text: str) -> ModuleOp | None:
    """A function with the biases of its products added to their sums; None where a product has another reader."""
    module = parse_module(text)
    PatternRewriteWalker(FuseBias(), apply_recursively=False).rewrite_region(step_function(module).body)
    biases = (op for op in launches(module) if isinstance(op, kernel.BiasAddOp))
    shared = any(isinstance(resolve(op.operands[0]).root.owner, kernel.GemmOp) for op in biases)
    return None if shared else module


@pytest.mark.parametrize("block", range(4))
@pytest.mark.parametrize("element", NARROW)
def test_a_fused_function_of_16_bits_has_the_bits_of_its_ops(element: str, block: int, some: Some) -> None:
    """By the meaning of each launch, for each target; some numbers are large, and some results infinite."""
    passes = [FusePass(target=target) for target in ("cpu", "sm_90", "sm_90+cublaslt")]
    passes.append(FusePass(back_to_back_rows=1))
    seen: set[str] = set()
    count = infinite = 0
    seeds = range(block, 200, 4)
    enough = seeds[len(some(seeds)) - 1]
    kinds = {"back_to_back", "gemm_map", "gemm_epilogue", "map"}
    for seed in seeds:
        written = run_pipeline(random_function(seed), "dce")
        text = to_text(written).replace("xf64", f"x{element}")
        if (before := with_biases(text)) is None:
            continue
        values = {
            name: round_to(value * (3, 20, 60)[seed % 3], element)
            if value.dtype == np.float64 and value.ndim
            else value
            for name, value in random_arguments(written, seed).items()
        }
        expected = run_by_name(before, values)
        infinite += any(not np.isfinite(widen(value)).all() for value in expected.values())
        for fuse in passes:
            module = parse_module(text)
            fuse.apply(make_context(), module)
            seen |= {op.op_name for op in launches(module)}
            for name, value in run_by_name(module, values).items():
                wanted = widen(expected[name])
                np.testing.assert_allclose(
                    widen(value), wanted, 0.0, SMALLEST[element], err_msg=f"seed {seed} {fuse} {name}"
                )
            count += 1
        if seed >= enough and seen >= kinds and bool(infinite) == (element in OVERFLOWING):
            return
    assert count > 100 and bool(infinite) == (element in OVERFLOWING)
    assert seen >= kinds


LOSSES: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "mean of squares": F.mse_loss,
    "sum of squares": lambda y, t: F.mse_loss(y, t, reduction="sum"),
    "squares": lambda y, t: F.mse_loss(y, t, reduction="none").mean(),
    "Huber": lambda y, t: F.huber_loss(y, t, delta=500.0),
    "smooth L1": lambda y, t: F.smooth_l1_loss(y, t, beta=1e4) + (y - t).abs().mul(150).mean(),
}


@pytest.mark.parametrize("rows", [64, 16384])
@pytest.mark.parametrize("name", LOSSES)
def test_the_loss_of_one_element_overflows_where_it_does_in_torch(name: str, rows: int, device: str) -> None:
    """Of an f16 that is far from its target among many that are not: the mean alone is small."""
    loss, found = LOSSES[name], list[bool]()
    for beyond in (200.0, 500.0):
        torch.manual_seed(3)
        model = nn.Linear(8, 4).to(device, torch.float16)
        batch = {
            "x": torch.randn(rows, 8, device=device).mul(0.01).half(),
            "t": torch.zeros(rows, 4, device=device).half(),
        }
        batch["t"][5, 1] = beyond

        def of(model: Any, batch: Batch) -> torch.Tensor:
            return loss(model(batch["x"]), batch["t"])

        expected = of(model, batch)
        step = compile_train_step(
            model, torch.optim.SGD(model.parameters(), lr=0.0), loss_fn=of, example=batch
        )
        torch.testing.assert_close(step.train_step(batch), expected.detach(), rtol=2e-3, atol=1e-3)
        found.append(bool(expected.isfinite()))
    assert found == [True, False]
