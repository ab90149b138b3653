"""Faults that trained on in silence once, planted again: what was changed against each is taken out, its verifier included.

A row says how a fault is planted, in which program it shows, and what a comparison with torch must name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from in_place_steps import Writer, batch_of, loss_of, sgd
from torch import Tensor, nn
from xdsl.builder import Builder
from xdsl.dialects.builtin import TensorType
from xdsl.ir import SSAValue
from xdsl.rewriter import InsertPoint

from aicf_mlir import compile_step, compile_train_step
from aicf_mlir.dialects import nn as ops
from aicf_mlir.dialects.kernel_op import KernelOp, tensor_spec
from aicf_mlir.dialects.nn.attention import AttentionBase, AttentionGradOp
from aicf_mlir.frontend import export, gradient_cuts, source
from aicf_mlir.frontend.effects import Writes
from aicf_mlir.frontend.recorder import Recorder, is_cut_off, tensors
from aicf_mlir.ir import roundings
from aicf_mlir.ir.body import COMPUTE
from aicf_mlir.ir.formula import trace
from aicf_mlir.passes import keep_scores
from aicf_mlir.passes.fuse import rounding
from aicf_mlir.passes.fuse.loops import members
from aicf_mlir.passes.fuse.loops.cluster import Cluster
from aicf_mlir.passes.fuse.loops.clusters import Clustering

Batch = dict[str, Tensor]


@dataclass(frozen=True)
class Fault:
    """What is planted, and what finds it."""

    plant: Callable[[pytest.MonkeyPatch], None]
    compiled: Callable[[], tuple[Any, Batch]]
    """A step in which the fault shows, and its batch."""
    named: tuple[str, ...]
    """Tensors that the comparison with torch must say are wrong."""
    layer: str | None = None
    """The first layer that it must say differs."""
    elsewhere: str | None = None
    """What the check "reference" of the certificate must say; None for a fault of the trace, which it cannot see."""
    form: Callable[[pytest.MonkeyPatch], None] = lambda patch: None
    """How the program is compiled with the fault and without it."""


# ---- a detach was appended to each result without a gradient, and an in-place write went through it ----


def detached_results(patch: pytest.MonkeyPatch) -> None:
    run = Recorder._run  # pyright: ignore[reportPrivateUsage]

    def detached(result: Any) -> Any:
        if type(result) in (list, tuple):
            return type(result)(map(detached, result))
        return result.detach() if isinstance(result, Tensor) and is_cut_off(result) else result

    def recorded(self: Recorder, location: Any, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        made = run(self, location, func, name, args, kwargs)
        carries_gradient = any(each.requires_grad for each in tensors((args, kwargs)))
        return source.call_at(location, detached, made) if carries_gradient else made

    patch.setattr(Recorder, "_run", recorded)
    patch.setattr(export, "cut_as_torch", lambda exported: exported)


def gathered(model: Any, x: Tensor, h: Tensor) -> Tensor:
    """Written into a tensor that has no gradient at first; the second layer has one anyhow."""
    total = torch.zeros_like(h)
    total[:, 0] = h[:, 1]
    return total.add_(h) * model.two(x)


def writer(body: Any, kind: str = "train step") -> tuple[Any, Batch]:
    model, batch = Writer(body), batch_of(torch.float64)
    optimizer = sgd(model)
    if kind == "train step":
        return compile_train_step(model, optimizer, loss_fn=loss_of, example=batch, device="cpu"), batch

    def one_step(batch: Any) -> Tensor:
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        optimizer.step()
        return loss

    return compile_step(one_step, example=batch, device="cpu"), batch


# ---- a value of 16 bits was rounded where it was stored, and not where a fused body read it on ----


def placed(self: Clustering, member: members.LoopMember) -> None:
    """With any operand computed again that nothing else reads then, also where another access still reads what is stored."""
    alone = member
    for again, _ in [(member, set[SSAValue]()), *self.with_sources(member)]:
        if self.join(again):
            return
        gone = {access.root for access in member.operands} - {access.root for access in again.operands}
        readers = [reader for root in gone for reader in (*self.readers(root), *self.again.get(root, ()))]
        alone = again if all(reader is member.op for reader in readers) else alone
    own = Cluster([], self.position[member.op])
    own.add(alone, is_narrow=False)
    self.take(own)


def unrounded_values(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rounding, "NARROW", ())
    patch.setattr(roundings, "NARROW", ())  # check_read finds nothing then
    patch.setattr(members, "compares_elements", lambda reader, index: False)
    patch.setattr(Clustering, "place", placed)


def values_rounded_by_casts_alone(patch: pytest.MonkeyPatch) -> None:
    def cast(op: KernelOp) -> Any:
        before, after = tensor_spec(op.operands[0])[0], tensor_spec(op.results[0])[0]
        if before == after:
            return None
        body = trace([COMPUTE[before]], lambda x: x.rounded(before).cast(COMPUTE[after]))
        return members._map(op, body, [members.resolve(op.operands[0])])  # pyright: ignore[reportPrivateUsage]

    unrounded_values(patch)
    patch.setattr(members, "_cast", cast)


class Order(nn.Module):
    """The sorted values of weighted inputs, and where they stood."""

    def __init__(self, dtype: torch.dtype, largest: int | None):
        super().__init__()
        torch.manual_seed(0)
        self.weight, self.largest = nn.Parameter(torch.randn(16).to(dtype)), largest

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = x * self.weight
        if self.largest is None:
            return torch.sort(y, dim=-1, stable=True)
        return torch.topk(y, self.largest, -1)


def ordered(dtype: torch.dtype, largest: int | None) -> tuple[Any, Batch]:
    def loss(model: Any, batch: Any) -> Any:
        values, places = model(batch["x"])
        weights = torch.linspace(-1, 1, values.shape[-1])
        return (values.float() * weights).sum(), {"values": values, "places": places}

    model = Order(dtype, largest)
    x = torch.randn(8, 16, generator=torch.Generator().manual_seed(1)).to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return compile_train_step(model, optimizer, loss_fn=loss, example={"x": x}, device="cpu"), {"x": x}


def probabilities() -> tuple[Any, Batch]:
    """Some round to 1: binary cross entropy divides by 1e-12 there, and the sigmoid's gradient is 0."""

    def loss(model: Any, batch: Any) -> Tensor:
        y = model(batch["x"])
        with torch.autocast("cpu", enabled=False):
            return F.binary_cross_entropy(y.float(), batch["t"], reduction="sum")

    torch.manual_seed(0)
    linear = nn.Linear(8, 4)
    with torch.no_grad():
        linear.weight.mul_(8)
    model = nn.Sequential(linear, nn.Sigmoid())
    batch = {"x": torch.randn(16, 8) * 3, "t": torch.rand(16, 4).round()}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = compile_train_step(model, optimizer, loss_fn=loss, example=batch, device="cpu", precision="bf16")
    return step, batch


# ---- attention's gradient took its weights from a rounded logsumexp ----


def one_logarithm(patch: pytest.MonkeyPatch) -> None:
    """The gradient is handed largest + log(total) and 1, so that its weights are exp(score - logsumexp)."""
    vjp = AttentionBase.vjp_in_parts

    def of_logarithm(self: AttentionBase, builder: Builder, cotangents: Any) -> Any:
        found = vjp(self, builder, cotangents)
        grad = found[0].owner if isinstance(found[0], SSAValue) else None
        assert isinstance(grad, AttentionGradOp) and isinstance(grad.total.type, TensorType)
        before = Builder(InsertPoint.before(grad))
        log = before.insert(ops.LogOp(grad.total)).results[0]
        values = {
            grad.largest: before.insert(ops.AddOp(grad.largest, log)).results[0],
            grad.total: before.insert(ops.ConstantOp(1.0, grad.total.type)).results[0],
        }
        grad.operands = [values.get(operand, operand) for operand in grad.operands]
        return found

    patch.setattr(AttentionBase, "vjp_in_parts", of_logarithm)


def as_one_op(patch: pytest.MonkeyPatch) -> None:
    """Attention is the launch that keeps no scores, as it is where there are many."""
    patch.setattr(keep_scores, "keeps_scores", lambda op, target: False)


KEYS = 48
"""Rounding may choose any of them in a row of equal huge scores; of few keys that moves a gradient as much as the fault does."""


class Hidden(nn.Module):
    """Attention whose second row of scores, and every fourth, is the least number of the type."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.query, self.key, self.value = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        mask = torch.zeros(KEYS, KEYS)
        mask[1::4] = torch.finfo(torch.float32).min
        self.register_buffer("mask", mask)

    def forward(self, x: Tensor) -> Tensor:
        heads = (
            layer(x).unflatten(-1, (2, 4)).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        return F.scaled_dot_product_attention(*heads, attn_mask=self.mask).transpose(1, 2).flatten(2)


def attended() -> tuple[Any, Batch]:
    model, batch = Hidden(), {"x": torch.randn(2, KEYS, 8, generator=torch.Generator().manual_seed(1))}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = compile_train_step(
        model,
        optimizer,
        loss_fn=lambda model, batch: model(batch["x"]).square().mean(),
        example=batch,
        device="cpu",
    )
    return step, batch


# ---- an op whose result nobody reads was dropped, with what it wrote ----


class NoWrites(Writes):
    """Sees nothing."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def unseen_writes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(gradient_cuts, "Writes", NoWrites)


def batch_normalized(model: Any, x: Tensor, h: Tensor) -> Tensor:
    F.batch_norm(h, model.mean, model.variance, training=True)
    return h * model.two(x)


def instance_normalized(model: Any, x: Tensor, h: Tensor) -> Tensor:
    """Of this one torch keeps the op whole in a loop body too."""
    F.instance_norm(h.reshape(2, 3, 2), model.mean, model.variance, use_input_stats=True)
    return h * model.two(x)


FUSED = "stage 'fused' says something else than stage 'lowered'"
ONE = ("parameter 'one.weight'", "parameter 'one.bias'")
STATISTICS = ("buffer 'mean'", "buffer 'variance'")
IN_ORDER = ("loss", "output 'values'", "output 'places'", "parameter 'weight'")
LAYERS = ("query", "key", "value")

FAULTS: Mapping[str, Fault] = {
    "a gradient that a write loses": Fault(
        detached_results, partial(writer, gathered), ONE, "one: Linear, in its gradient"
    ),
    "a gradient that a write loses in a loop body": Fault(
        detached_results, partial(writer, gathered, "loop body"), ONE, "one: Linear, in its gradient"
    ),
    **{
        f"an order of {dtype} by {how}": Fault(
            unrounded_values, partial(ordered, dtype, largest), IN_ORDER, "Order, in its gradient", FUSED
        )
        for dtype in (torch.bfloat16, torch.float16)
        for how, largest in (("sort", None), ("topk", 5))
    },
    "a probability that is two numbers": Fault(
        values_rounded_by_casts_alone,
        probabilities,
        ("parameter '0.weight'", "parameter '0.bias'"),
        "0: Linear, in its gradient",
        FUSED,
    ),
    "attention by a rounded logsumexp": Fault(
        one_logarithm,
        attended,
        tuple(f"parameter '{layer}.weight'" for layer in LAYERS),
        "value: Linear, in its gradient",
        "its kernel computes it wrongly",
        as_one_op,
    ),
    "statistics of a result that nobody reads": Fault(
        unseen_writes, partial(writer, batch_normalized), STATISTICS
    ),
    "statistics of a loop body": Fault(
        unseen_writes, partial(writer, instance_normalized, "loop body"), STATISTICS
    ),
}
"""By what is wrong."""
