"""`keep_gradients=True` leaves the gradients of a step as `p.grad`, as torch does; without it, a step by hand warns once."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from aicf_mlir import DataError, compile_train_step

Batch = dict[str, Tensor]


def loss_fn(model: Any, batch: Batch) -> Tensor:
    return F.cross_entropy(model(batch["x"]), batch["t"])


def batch(device: str, seed: int = 0) -> Batch:
    random = torch.Generator().manual_seed(seed)
    x, t = torch.randn(6, 4, generator=random), torch.randint(0, 3, (6,), generator=random)
    return {"x": x.to(device), "t": t.to(device)}


class Net(nn.Module):
    """With a parameter that the loss does not reach."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
        self.unused = nn.Parameter(torch.ones(2))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


def pair(device: str, kind: Any = torch.optim.SGD, **options: Any) -> tuple[Any, Any, Any, Any, Any]:
    """The compiled step, its model and optimizer, and a twin of both in torch."""
    model = Net().to(device)
    twin = copy.deepcopy(model)
    mine, theirs = (kind(each.parameters(), lr=0.1) for each in (model, twin))
    example = options.pop("example", batch(device))
    step = compile_train_step(
        model, mine, loss_fn=loss_fn, example=example, device=device, keep_gradients=True, **options
    )
    return step, model, mine, twin, theirs


def assert_alike(model: nn.Module, twin: nn.Module, tolerance: float = 1e-5) -> None:
    """Parameters and their gradients."""
    for (name, ours), theirs in zip(model.named_parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)
        assert (ours.grad is None) == (theirs.grad is None), name
        if theirs.grad is not None:
            torch.testing.assert_close(ours.grad, theirs.grad, rtol=tolerance, atol=tolerance)


def in_torch(model: Any, optimizer: Any, *batches: Batch, limit: float | None = None) -> None:
    optimizer.zero_grad()
    for each in batches:
        (loss_fn(model, each) / len(batches)).backward()
    if limit is not None:
        nn.utils.clip_grad_norm_(model.parameters(), limit)
    optimizer.step()


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam])
def test_they_are_torchs_and_a_step_by_hand_counts(kind: Any, device: str) -> None:
    step, model, mine, twin, theirs = pair(device, kind)
    for seed in range(3):
        step.train_step(batch(device, seed))
        in_torch(twin, theirs, batch(device, seed))
        assert_alike(model, twin)
        nn.utils.clip_grad_norm_(model.parameters(), 0.01)
        nn.utils.clip_grad_norm_(twin.parameters(), 0.01)
        mine.step()
        theirs.step()
        assert_alike(model, twin)
        mine.zero_grad()
        assert all(p.grad is None for p in model.parameters())


def test_of_a_replay_and_kept_ones_stay(device: str) -> None:
    step, model, _, twin, theirs = pair(device)
    step.train_step(batch(device))
    kept = model.layers[0].weight.grad
    before = kept.clone()
    step.capture(batch(device))
    step.replay(2)
    for _ in range(3):
        in_torch(twin, theirs, batch(device))
    assert_alike(model, twin)
    assert torch.equal(kept, before) and kept is not model.layers[0].weight.grad
    model.layers[0].weight.grad.fill_(7.0)
    step.replay(inputs=batch(device, 4))
    in_torch(twin, theirs, batch(device, 4))
    assert_alike(model, twin)


def test_with_options(device: str) -> None:
    """Limited, averaged over micro-batches, of a scaled loss."""
    step, model, _, twin, theirs = pair(device, clip_grad_norm=0.05)
    step.train_step(batch(device))
    in_torch(twin, theirs, batch(device), limit=0.05)
    assert_alike(model, twin)
    step, model, _, twin, theirs = pair(device, accumulate=2, loss_scale=64.0)
    step.train_step([batch(device, 1), batch(device, 2)])
    in_torch(twin, theirs, batch(device, 1), batch(device, 2))
    assert_alike(model, twin)


@pytest.mark.parametrize("precision", ["bf16", "f16"])
def test_in_half_precision(precision: Any, device: str) -> None:
    step, model, _, twin, theirs = pair(device, precision=precision)
    step.train_step(batch(device))
    in_torch(twin, theirs, batch(device))
    assert_alike(model, twin, 2e-2)
    assert model.layers[0].weight.grad.dtype is torch.float32


def test_a_failed_step_publishes_nothing(device: str) -> None:
    step, model, *_ = pair(device)
    step.train_step(batch(device))
    before = {name: p.grad for name, p in model.named_parameters()}
    bad = batch(device, 1)
    bad["t"][0] = 9
    with pytest.raises(DataError):
        step.train_step(bad)
    assert all(p.grad is before[name] for name, p in model.named_parameters())
    snapshot = step.snapshot()
    step.warmup(batch(device, 2))
    step.restore(snapshot)
    assert all(p.grad is before[name] for name, p in model.named_parameters())
    step.close()
    assert all(p.grad is before[name] for name, p in model.named_parameters())


def test_a_step_by_hand_without_gradients_warns_once() -> None:
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = compile_train_step(model, optimizer, loss_fn=loss_fn, example=batch("cpu"), device="cpu")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        step.train_step(batch("cpu"))
        assert not seen
        optimizer.step()
        optimizer.step()
    (warning,) = seen
    assert "SGD.step() found no gradient and did nothing" in str(warning.message)
    assert "keep_gradients=True" in str(warning.message) and warning.filename == __file__
    step.close()
    assert not {"_aicf_step", "_optimizer_step_code"} & vars(optimizer).keys()


def test_a_step_by_hand_with_gradients_warns_not() -> None:
    step, model, optimizer, *_ = pair("cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        step.train_step(batch("cpu"))
        optimizer.step()
        loss_fn(model, batch("cpu")).backward()
        optimizer.step()
