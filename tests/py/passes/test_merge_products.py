"""Products of one x as one product, and gradients of slices as one join: the same values and gradients, in fewer ops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from programs import run_by_name, run_pipeline
from torch import nn
from xdsl.dialects.builtin import ModuleOp

from aicf_mlir import compile_train_step, trace
from aicf_mlir.dialects import kernel
from aicf_mlir.dialects import nn as ops
from aicf_mlir.frontend.precision import Precision
from aicf_mlir.passes import merge_products
from aicf_mlir.stages import Snapshots, run_stages
from aicf_mlir.text.parsing import make_context

ROWS, LENGTH, WIDTH, HEADS = 3, 5, 16, 2
Batch = dict[str, torch.Tensor]


class Block(nn.Module):
    """Grouped queries turned by their positions, and a gate whose two sides share their input."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 8), nn.Linear(WIDTH, 8)
        self.gate, self.up, self.down = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3))
        self.register_buffer("angle", torch.rand(128, 4))

    def turned(self, x: torch.Tensor, heads: int) -> torch.Tensor:
        x = x.view(*x.shape[:2], heads, 8).transpose(1, 2)
        cos, sin = (of(self.angle[: x.shape[2]]) for of in (torch.cos, torch.sin))
        left, right = x[..., :4], x[..., 4:]
        return torch.cat([left * cos - right * sin, right * cos + left * sin], -1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key = self.turned(self.query(x), HEADS), self.turned(self.key(x), 1)
        value = self.value(x).view(*x.shape[:2], 1, 8).transpose(1, 2)
        x = x + F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True).transpose(
            1, 2
        ).reshape(x.shape)
        return x + self.down(F.silu(self.gate(x)) * self.up(x))


def loss(model: Any, batch: Batch) -> torch.Tensor:
    return F.mse_loss(model(batch["x"]), batch["t"])


def drawn(rows: int, length: int) -> Batch:
    generator = torch.Generator().manual_seed(1)
    return {name: torch.randn(rows, length, WIDTH, generator=generator) for name in ("x", "t")}


def count(module: ModuleOp, kind: type) -> int:
    return sum(isinstance(op, kind) for op in module.walk())


@pytest.mark.parametrize("stage", ["differentiated", "launches", "on views"])
def test_values_and_gradients_are_those_of_torch(stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge_products, "LEAST_ROWS", 1)
    torch.manual_seed(0)
    model, batch = Block().double(), {name: x.double() for name, x in drawn(ROWS, LENGTH).items()}
    module = trace(model, loss, batch).module
    passes = "merge-products{target=sm_90},autodiff,canonicalize,cse,dce"
    if stage != "differentiated":
        passes += ",keep-scores,decompose,lower,fuse{target=sm_90},dce"
    if stage == "on views":
        passes += ",elide-copies{target=sm_90}"
    made = run_pipeline(module, passes)
    if stage == "differentiated":
        assert count(module, ops.LinearOp) == 6
        assert count(made, ops.LinearOp) == 3
    values = {name: p.detach().numpy() for name, p in model.state_dict().items()}
    found = run_by_name(made, values | {name: x.numpy() for name, x in batch.items()})
    loss(model, batch).backward()
    for name, p in model.named_parameters():
        assert p.grad is not None
        np.testing.assert_allclose(found["grad", name], p.grad.numpy(), rtol=1e-9, atol=1e-12)


class Gated(nn.Module):
    """One product reaches the loss as a constant: its weight has no gradient, so that nothing decays it."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right, self.gate = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.left(x) * self.right(x) * self.gate(x).detach().sigmoid()


def test_a_weight_without_a_gradient_stays_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge_products, "LEAST_ROWS", 1)
    model = Gated()
    traced = trace(model, loss, drawn(2, 4), optimizer=torch.optim.AdamW(model.parameters()))
    stages = Snapshots()
    run_stages(traced.module, make_context(), target="sm_90", after_each=stages)
    assert count(stages["grad"], ops.LinearOp) == 2
    assert "gate.weight.exp_avg" not in stages.text("plan")
    assert "left.weight.exp_avg" in stages.text("plan")


def test_products_of_a_gradient_inside_stay_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge_products, "LEAST_ROWS", 1)

    def penalty(net: Any, batch: Batch) -> torch.Tensor:
        x = batch["x"].requires_grad_()
        (found,) = torch.autograd.grad((net.left(x) * net.right(x)).sum(), x, create_graph=True)
        return found.square().mean()

    made = run_pipeline(trace(Gated(), penalty, drawn(2, 4)).module, "merge-products{target=sm_90}")
    assert count(made, ops.LinearOp) == 2


def test_nothing_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Casts of weights are written below each other, and gradients beside each other, those of turned halves too."""
    monkeypatch.setattr(merge_products, "LEAST_ROWS", 1)
    precision = Precision("bf16", torch.device("cpu"))
    traced = trace(Block(), loss, drawn(2, 64), precision=precision)
    run_stages(traced.module, make_context(), target="sm_90+cublaslt+cudnn", until="kernel")
    assert count(traced.module, kernel.AttentionGradOp) == 1
    assert not count(traced.module, kernel.CopyOp)


@pytest.mark.gpu
@pytest.mark.parametrize("precision", [None, "bf16"])
def test_on_a_gpu_it_trains_as_torch_does(precision: Any) -> None:
    torch.manual_seed(0)
    model, batch = Block().cuda(), {name: x.cuda() for name, x in drawn(16, 96).items()}
    start = [p.detach().clone() for p in model.parameters()]
    step = compile_train_step(
        model,
        torch.optim.SGD(model.parameters(), 0.1),
        loss_fn=loss,
        example=batch,
        device="cuda",
        precision=precision,
    )
    assert step.ir("grad").count("nn.linear") == 3
    for _ in range(3):
        step.train_step(batch)
    assert step.capture(batch, verify="bitwise").equal
    ours = [p.detach().clone() for p in model.parameters()]
    for p, before in zip(model.parameters(), start, strict=True):
        p.data.copy_(before)
    double = Block().cuda().double()
    double.load_state_dict(model.state_dict())
    optimizer = torch.optim.SGD(double.parameters(), 0.1)
    for _ in range(3):
        optimizer.zero_grad()
        loss(double, {name: x.double() for name, x in batch.items()}).backward()
        optimizer.step()
    allowed = 3e-2 if precision else 1e-4
    for mine, theirs, before in zip(ours, double.parameters(), start, strict=True):
        moved = (theirs.detach() - before).abs().max()
        assert (mine - theirs).abs().max() <= allowed * moved


SLICES = {
    "each by itself": (lambda x: x[0].sin() + x[1].cos() * x[2] + x[3], 1),
    "the rest last": (lambda x: x[0] * x[1:].sum(0), 1),
    "with a gap": (lambda x: x[1].exp() + x[3], 1),
    "overlapping": (lambda x: (x[:3] * x[1:].sin()).sum(0), 2),
}
"""A function of the rows, and how many joins its gradient needs: where two meet they are added."""


@pytest.mark.parametrize("name", SLICES)
def test_gradients_of_slices_are_joined(name: str) -> None:
    function, joins = SLICES[name]

    class Rows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.x = nn.Parameter(torch.randn(4, 6, dtype=torch.float64))

        def forward(self, batch: Batch) -> torch.Tensor:
            return (function(self.x * self.x) * batch["u"]).sum()

    torch.manual_seed(0)
    model, batch = Rows(), {"u": torch.randn(6, dtype=torch.float64)}
    made = run_pipeline(
        trace(model, lambda net, given: net(given), batch).module, "autodiff,canonicalize,cse,dce"
    )
    found = run_by_name(made, {"x": model.x.detach().numpy(), "u": batch["u"].numpy()})
    model(batch).backward()
    assert model.x.grad is not None
    np.testing.assert_allclose(found["grad", "x"], model.x.grad.numpy(), rtol=1e-12)
    assert count(made, ops.ConcatOp) == joins
