"""Steps of small launches that are no chain: two networks beside each other, and networks that are trained in turn.

Their launches are written level by level. What the plans compute is compared with torch in f64, and with separate launches.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from models import Batch, mlp
from oracle import assert_same_bits
from small_steps import apart, launches, trained
from torch import nn
from xdsl.parser import Parser

from aicf_mlir import compile_step
from aicf_mlir.dialects.plan import ProgramOp, find_program
from aicf_mlir.stages import make_context, run_stages

Body = Callable[[Batch], torch.Tensor]
AdamW = partial(torch.optim.AdamW, lr=1e-2, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1)


class ActorCritic(nn.Module):
    """With a parameter whose gradient is no product, nor the sum of rows alone."""

    def __init__(self) -> None:
        super().__init__()
        self.critic, self.actor = (
            mlp(17, 64, 64, 1, activation=nn.Tanh),
            mlp(17, 64, 64, 6, activation=nn.Tanh),
        )
        self.log_std = nn.Parameter(torch.zeros(1, 6))


def actor_critic(model: Any) -> Body:
    optimizer = AdamW(model.parameters())

    def body(batch: Batch) -> torch.Tensor:
        mean, std = model.actor(batch["x"]), model.log_std.exp()
        ratio = (-((batch["action"] - mean) ** 2) / (2 * std**2) - model.log_std).sum(1).exp()
        gain = (batch["gain"] - batch["gain"].mean()) / (batch["gain"].std() + 1e-8)
        value = model.critic(batch["x"]).view(-1)
        loss = (
            torch.max(-gain * ratio, -gain * ratio.clamp(0.8, 1.2)).mean()
            + ((value - batch["goal"]) ** 2).mean()
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return body


class TwoInTurn(nn.Module):
    """A critic and an actor, each trained by what the other gives, and a target that follows the critic."""

    def __init__(self) -> None:
        super().__init__()
        self.critic, self.actor = mlp(17, 32, 1), mlp(17, 32, 17, activation=nn.Tanh)
        self.target = copy.deepcopy(self.critic).requires_grad_(requires_grad=False)


def in_turn(model: Any) -> Body:
    first, second = AdamW(model.critic.parameters()), AdamW(model.actor.parameters())

    def body(batch: Batch) -> torch.Tensor:
        x = batch["x"]
        with torch.no_grad():
            goal = batch["goal"] + 0.9 * model.target(model.actor(x))[:, 0]
        loss = ((model.critic(x)[:, 0] - goal) ** 2).mean()
        first.zero_grad()
        loss.backward()
        first.step()
        other = -model.critic(model.actor(x)).mean()
        second.zero_grad()
        other.backward()
        second.step()
        with torch.no_grad():
            for old, new in zip(model.target.parameters(), model.critic.parameters(), strict=True):
                old.lerp_(new, 0.05)
        return loss

    return body


STEPS: dict[str, tuple[type[nn.Module], Callable[[Any], Body], int]] = {
    "two networks beside each other": (ActorCritic, actor_critic, 9),
    "two networks in turn": (TwoInTurn, in_turn, 13),
}
"""The most launches of each."""


def batch_of(rows: int = 48) -> Batch:
    generator = torch.Generator().manual_seed(3)
    shapes = {"x": (rows, 17), "action": (rows, 6), "gain": (rows,), "goal": (rows,)}
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def made(name: str) -> tuple[nn.Module, Any, Batch]:
    torch.manual_seed(0)
    kind, body_of, _ = STEPS[name]
    model, batch = kind(), batch_of()
    used = batch if kind is ActorCritic else {key: batch[key] for key in ("x", "goal")}
    return model, body_of, used


def planned(name: str) -> ProgramOp:
    """The plan of a step for a GPU, which none is needed for."""
    model, body_of, batch = made(name)
    context = make_context()
    module = Parser(
        context, compile_step(body_of(model), example=batch, device="cpu").ir("nn")
    ).parse_module()
    run_stages(module, context, target="sm_90+cublaslt+cudnn")
    return find_program(module)


@pytest.mark.parametrize("name", STEPS)
def test_trains_as_torch(name: str) -> None:
    program = planned(name)
    assert len(program.launches) <= STEPS[name][2], launches(program)
    assert any("of_product" in str(launch.bodies) for launch in program.launches)
    model, body_of, batch = made(name)
    found = trained(program, {**dict(model.named_parameters()), **batch}, steps=3)
    exact = model.double()
    body, wide = body_of(exact), {key: value.double() for key, value in batch.items()}
    for _ in range(3):
        body(wide)
    for key, value in exact.named_parameters():
        ours = found.get(f"param {key}", found.get(f"buffer {key}"))
        assert ours is not None, found.keys()
        np.testing.assert_allclose(ours, value.detach().numpy(), rtol=2e-4, atol=2e-5, err_msg=key)


@pytest.mark.parametrize("name", STEPS)
def test_computes_what_separate_launches_do(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    together = planned(name)
    apart(monkeypatch)
    separate = planned(name)
    assert len(separate.launches) > len(together.launches)
    model, _, batch = made(name)
    tensors = {**dict(model.named_parameters()), **batch}
    expected = trained(separate, tensors)
    for key, value in trained(together, tensors).items():
        np.testing.assert_allclose(value, expected[key], rtol=1e-4, atol=1e-5, err_msg=key)


@pytest.mark.gpu
@pytest.mark.parametrize("name", STEPS)
def test_replay_has_the_bits_of_eager_on_a_gpu(name: str) -> None:
    def compiled() -> tuple[Any, nn.Module, Batch]:
        model, body_of, batch = made(name)
        model, batch = model.cuda(), {key: value.cuda() for key, value in batch.items()}
        return compile_step(body_of(model), example=batch, device="cuda"), model, batch

    eager, first, batch = compiled()
    for _ in range(6):
        eager.train_step(batch)
    replayed, second, _ = compiled()
    replayed.train_step(batch)
    replayed.capture(batch)
    replayed.replay(5, sync=True)
    eager.synchronize()
    assert_same_bits(dict(first.named_parameters()), dict(second.named_parameters()))
