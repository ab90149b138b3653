"""Buffers that the forward updates: fifty steps beside torch, bit for bit in replays, and every way back."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from buffer_models import Averaged, Compiled, Normalized, assert_same, eager, model, tensors_of
from models import classification, cross_entropy, mse, regression, to_device
from oracle import assert_all_right
from torch import nn

from aicf_mlir import DataError, compile_eval_step, compile_train_step
from aicf_mlir.runtime.certificate import Certificate

STEPS = 50


def test_fifty_steps_beside_torch(device: str) -> None:
    module = model()
    batches = [regression(5, seed=seed) for seed in range(STEPS)]
    single, double = (eager(module, mse, batches, dtype) for dtype in (torch.float32, torch.float64))
    module = module.to(device)
    held = dict(module.named_buffers())
    ours = Compiled(module, device)
    losses: list[torch.Tensor] = []
    for index, batch in enumerate(batches):
        batch = to_device(batch, device)
        if index == STEPS // 2:
            ours.step.capture(batch)
        replayed = index >= STEPS // 2
        losses.append(ours.step.replay(inputs=batch) if replayed else ours.step.train_step(batch))
    found = {"loss": torch.stack(losses).cpu(), **ours.tensors()}
    assert found.keys() == single.keys()
    integers = [name for name, tensor in found.items() if not tensor.is_floating_point()]
    assert integers == ["1.count", "4.steps"]
    for name in integers:
        assert torch.equal(found.pop(name), single.pop(name)), name
    assert_all_right(found, single, double)
    assert {name: id(t) for name, t in ours.model.named_buffers()} == {
        name: id(t) for name, t in held.items()
    }
    assert ours.model.state_dict().keys() == model().state_dict().keys()
    assert "4.average" not in ours.model.state_dict()
    assert int(ours.model.state_dict()["1.count"]) == 2 * STEPS


def test_replay_is_eager_bit_for_bit(device: str) -> None:
    ours, twin = Compiled(model(), device), Compiled(model(), device)
    ours.train(1)
    twin.train(1)
    twin.step.capture(twin.batch(1))
    ours.train(1, 1, 1)
    twin.step.replay(3, sync=True)
    assert_same(ours.tensors(), twin.tensors())


def test_the_certificate_covers_them(device: str) -> None:
    ours = Compiled(model(), device)
    ours.train(1, 2)
    before = ours.tensors()
    certificate: Certificate = ours.step.capture(ours.batch(1), verify="bitwise")
    assert certificate.equal, certificate
    assert_same(ours.tensors(), before)


def test_snapshot_warmup_and_file_bring_them_back(device: str, tmp_path: Path) -> None:
    ours = Compiled(model(), device)
    ours.step.warmup(ours.batch(1), runs=3)
    assert int(ours.model[1].count) == 0, "a warm-up leaves no trace"
    ours.train(1, 2)
    before, snapshot = ours.tensors(), ours.step.snapshot()
    ours.step.save(tmp_path / "step")
    after = (ours.train(3, 4), ours.tensors())
    assert not torch.equal(after[1]["1.running_mean"], before["1.running_mean"])

    ours.step.restore(snapshot)
    assert_same(ours.tensors(), before)
    assert torch.equal(ours.train(3, 4), after[0])
    assert_same(ours.tensors(), after[1])

    ours.step.load(tmp_path / "step")
    assert_same(ours.tensors(), before)
    other = Compiled(model(seed=7), device)
    other.step.load(tmp_path / "step")
    assert torch.equal(other.train(3, 4), after[0])
    assert_same(other.tensors(), after[1])

    ours.step.capture(ours.batch(3))
    ours.step.reset()
    assert_same(ours.tensors(), before)
    ours.step.close()
    assert_same(ours.tensors(), before)


def test_a_snapshot_has_no_frozen_buffers() -> None:
    module = nn.Sequential(nn.Linear(8, 8), Normalized(8), nn.Linear(8, 8))
    large = nn.Linear(8, 8).requires_grad_(False)
    large.weight = nn.Parameter(torch.zeros(8, 1 << 16), requires_grad=False)
    ours = Compiled(module, "cpu", lambda m, b: mse(m, b) + large.weight.sum())
    assert ours.step.snapshot().nbytes < large.weight.nbytes


def test_an_evaluation_step_reads_what_the_train_step_updates(device: str) -> None:
    ours = Compiled(model(), device)
    ours.model.eval()
    evaluation = compile_eval_step(ours.model, loss_fn=mse, example=ours.batch(0), device=device)
    ours.model.train()
    ours.train(1, 2, 3)
    ours.model.eval()
    snapshot = evaluation.snapshot()
    kept = ours.tensors()
    expected = mse(copy.deepcopy(ours.model), ours.batch(4))
    torch.testing.assert_close(evaluation.eval_step(ours.batch(4)), expected)
    ours.model.train()
    ours.train(5)
    evaluation.restore(snapshot)
    unread = {"1.count", "4.cleared"}
    kept = {name: tensor for name, tensor in kept.items() if name not in unread}
    assert_same({name: ours.tensors()[name] for name in kept}, kept)


def test_an_evaluation_step_of_a_training_model_updates_as_torch_does(device: str) -> None:
    module = nn.Sequential(nn.Linear(8, 8), Normalized(8)).to(device)
    twin = copy.deepcopy(module)
    batch = to_device(regression(5), device)
    step = compile_eval_step(module, loss_fn=mse, example=batch, device=device)
    for _ in range(3):
        torch.testing.assert_close(step.eval_step(batch), mse(twin, batch))
    for name, tensor in tensors_of(twin).items():
        torch.testing.assert_close(tensors_of(module)[name], tensor)


def test_two_steps_over_one_model_update_one_memory(device: str) -> None:
    ours = Compiled(model(), device)
    second = compile_train_step(
        ours.model, ours.optimizer, loss_fn=lambda m, b: 2 * mse(m, b), example=ours.batch(0), device=device
    )
    ours.train(1)
    second.train_step(ours.batch(2))
    ours.train(3)
    assert int(ours.model[1].count) == 6


class Half(nn.Module):
    """Adds to a buffer that another module has too."""

    def __init__(self, shared: torch.Tensor, factor: float):
        super().__init__()
        self.shared: torch.Tensor
        self.register_buffer("shared", shared)
        self.alias = shared
        self.factor = factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.shared.mul_(self.factor).add_(x.detach().mean(0))
        return x + self.alias


def test_a_buffer_of_two_modules() -> None:
    """On the CPU: torch's `.to()` makes two buffers of one."""
    torch.manual_seed(0)
    shared = torch.zeros(8)
    module = nn.Sequential(nn.Linear(8, 8), Half(shared, 0.5), Half(shared, 0.25), nn.Linear(8, 8))
    batches = [regression(5, seed=seed) for seed in range(6)]
    theirs = eager(module, mse, batches, torch.float32)
    ours = Compiled(module, "cpu")
    losses = ours.train(*range(6))
    torch.testing.assert_close(losses, theirs["loss"])
    for name, tensor in ours.tensors().items():
        torch.testing.assert_close(tensor, theirs[name])
    assert module[1].shared is module[2].shared is module[2].alias
    assert list(module[2].state_dict()) == ["shared"]


@pytest.mark.parametrize("finite", [False, True], ids=["bad class", "not finite"])
def test_a_failed_check_leaves_them(finite: bool, device: str) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(8, 8), Normalized(8), Averaged(8), nn.Linear(8, 4))
    good = classification(5)
    bad = {**good, "t": torch.tensor([0, 1, 9, 1, 0])}
    if finite:
        bad = {**good, "x": good["x"].clone()}
        bad["x"][2, 3] = torch.inf
    ours = Compiled(module, device, cross_entropy, good, check_finite=finite)
    good, bad = to_device(good, device), to_device(bad, device)
    ours.step.train_step(good)
    before = ours.tensors()
    with pytest.raises(DataError):
        ours.step.train_step(bad)
        ours.step.synchronize()
    assert_same(ours.tensors(), before)
    ours.step.train_step(good)
    ours.step.capture(good)
    before = ours.tensors()
    with pytest.raises(DataError):
        ours.step.replay(inputs=bad, sync=True)
    assert_same(ours.tensors(), before)


def test_no_gradient_goes_through_an_update() -> None:
    class Centred(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(8))
            self.mean: torch.Tensor
            self.register_buffer("mean", torch.zeros(8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x * self.weight
            with torch.no_grad():
                self.mean += x.mean(0)
            return x - self.mean

    ours = Compiled(Centred(), "cpu", keep_gradients=True)
    twin = copy.deepcopy(ours.model)
    torch.autograd.backward(mse(twin, ours.batch(1)))
    ours.train(1)
    torch.testing.assert_close(ours.step.gradients["weight"], twin.weight.grad)


def test_shape_groups_share_them(device: str) -> None:
    module = nn.Sequential(nn.Linear(8, 8), Normalized(8)).to(device)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    small, large = (to_device(regression(rows), device) for rows in (3, 6))
    step = compile_train_step(module, optimizer, loss_fn=mse, example=[small, large], device=device)
    for batch in (small, large, small):
        step.train_step(batch)
    assert int(module[1].count) == 3
