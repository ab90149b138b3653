"""A policy that keeps its last distribution, as those of stable-baselines3 do: it is there after each step, as in torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Categorical, Distribution, Independent, Normal

from aicf_mlir import compile_step

Batch = dict[str, Tensor]
KINDS: dict[str, Callable[[Tensor], Distribution]] = {
    "normal": lambda x: Normal(x, torch.ones_like(x) * 0.5),
    "categorical": lambda x: Categorical(logits=x),
    "independent": lambda x: Independent(Normal(x, x.exp()), 1),
}


class Policy:
    """A layer, and the distribution of its last call."""

    def __init__(self, kind: str):
        torch.manual_seed(0)
        self.net = nn.Linear(4, 3)
        self.make = KINDS[kind]
        self.last: Any = None

    def __call__(self, batch: Batch, kind: str) -> Tensor:
        self.last = self.make(self.net(batch["x"]))
        taken = batch["index"] if kind == "categorical" else batch["action"]
        return -self.last.log_prob(taken).mean()


def looped(kind: str) -> tuple[Policy, Callable[[Batch], Tensor]]:
    policy = Policy(kind)
    optimizer = torch.optim.SGD(policy.net.parameters(), lr=0.1)

    def body(batch: Batch) -> Tensor:
        optimizer.zero_grad()
        loss = policy(batch, kind)
        loss.backward()
        optimizer.step()
        return loss

    return policy, body


def batch() -> Batch:
    return {
        "x": torch.randn(5, 4),
        "action": torch.randn(5, 3),
        "index": torch.randint(3, (5,)),
    }


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_kept_after_each_step(kind: str) -> None:
    torch.manual_seed(1)
    given = [batch() for _ in range(3)]
    policy, body = looped(kind)
    other, eager = looped(kind)
    step = compile_step(body, example=given[0], device="cpu")
    for each in given:
        torch.testing.assert_close(step.train_step(each), eager(each).detach())
        kept, wanted = policy.last, other.last
        assert type(kept) is type(wanted)
        assert type(kept.batch_shape) is torch.Size and kept.batch_shape == wanted.batch_shape
        assert kept.event_shape == wanted.event_shape
        torch.testing.assert_close(kept.mean, wanted.mean.detach(), equal_nan=True)
        torch.testing.assert_close(kept.entropy(), wanted.entropy().detach())
        assert kept.sample().shape == wanted.sample().shape
