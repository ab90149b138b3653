"""`step.check` of models that compute layers again in their backward (torch.utils.checkpoint): those see what the forward saw."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
import torch.utils.checkpoint
from torch import Tensor, nn

from aicf_mlir import compile_step, compile_train_step
from aicf_mlir.errors import UncomparedError

D = 8


class Blocks(nn.Module):
    """Two blocks that are computed again, the second inside of the first where they are nested."""

    def __init__(self, inner: nn.Module | None = None, nested: bool = False, keeps_random: bool = True):
        super().__init__()
        torch.manual_seed(0)
        middle = [nn.Tanh()] if inner is None else [inner]
        self.first, self.last = nn.Linear(D, D), nn.Linear(D, 4)
        self.one = nn.Sequential(nn.Linear(D, D), *middle, nn.Linear(D, D))
        self.two = nn.Sequential(nn.Linear(D, D), nn.GELU(), nn.Dropout(0.3), nn.Linear(D, D))
        self.nested = nested
        self.again: Any = partial(
            torch.utils.checkpoint.checkpoint, use_reentrant=False, preserve_rng_state=keeps_random
        )

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        if self.nested:
            return self.last(self.again(lambda h: self.one(self.again(self.two, h)), h))
        return self.last(self.again(self.two, self.again(self.one, h)))


def batch_of(seed: int = 1) -> dict[str, Tensor]:
    return {"x": torch.randn(4, D, generator=torch.Generator().manual_seed(seed))}


def loss_of(model: Any, batch: Any) -> Tensor:
    return model(batch["x"]).float().square().mean()


def step_of(model: nn.Module, **options: Any) -> Any:
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    return compile_train_step(model, optimizer, loss_fn=loss_of, example=batch_of(), device="cpu", **options)


CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "layers": (Blocks, {}),
    "dropout": (partial(Blocks, nn.Dropout(0.2)), {}),
    "nested": (partial(Blocks, nn.Dropout(0.2), nested=True), {}),
    "in bf16": (partial(Blocks, nn.AlphaDropout(0.2)), {"precision": "bf16"}),
    "micro-batches": (partial(Blocks, nn.RReLU()), {"accumulate": 2}),
}


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_an_honest_step_is_equal(name: str, exact: bool) -> None:
    model, options = CASES[name]
    step = step_of(model(), **options)
    batch: Any = [batch_of(), batch_of(2)] if "accumulate" in options else batch_of()
    found = step.check(batch, steps=2, exact=exact)
    assert found.equal, str(found)


def test_a_loop_body_is_equal() -> None:
    model = Blocks(nn.Dropout(0.2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def body(batch: Any) -> Tensor:
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        optimizer.step()
        return loss

    found = compile_step(body, example=batch_of(), device="cpu").check(batch_of(), steps=2)
    assert found.equal, str(found)


def test_other_numbers_when_computed_again_are_said() -> None:
    """The gradient of torch's own step is then of another dropout than its loss."""
    step = step_of(Blocks(keeps_random=False))
    with pytest.raises(UncomparedError, match="torch draws more often than the compiled step, 1 times"):
        step.check(batch_of())


def test_statistics_that_torch_updates_again_are_updated_again() -> None:
    """The layer runs twice in torch, and so do its updates."""
    found = step_of(Blocks(nn.BatchNorm1d(D))).check(batch_of())
    assert found.equal, str(found)
