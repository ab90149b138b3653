"""Dropout and random numbers in a step: statistics, independence, the same bits everywhere, torch's gradient for one mask."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from oracle import assert_same_bits
from philox import kept, words_of
from torch import nn

from aicf_mlir import AicfError, compile_train_step, trace
from aicf_mlir.errors import BindError
from aicf_mlir.interpreters.body import philox
from aicf_mlir.stages import make_context, run_stages

KNOWN = {
    ((0, 0, 0, 0), (0, 0)): (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2): (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0)): (
        *(0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
}
"""Answers that are published with the generator."""


@pytest.mark.parametrize("given", KNOWN)
def test_philox_is_philox(given: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    (low, high, site, step), key = given
    seed, element = (np.array([a | b << 32], np.uint64).view(np.int64) for a, b in (key, (low, high)))
    words = [philox(word, seed, np.array(step), np.array(site), element) for word in range(4)]
    assert tuple(int(word[0]) for word in words) == KNOWN[given]


class Drawing(nn.Module):
    """What it draws is seen in its buffer, and in the gradient of its weight."""

    seen: torch.Tensor

    def __init__(self, draw: Callable[[torch.Tensor], torch.Tensor], shape: tuple[int, ...]):
        super().__init__()
        self.draw = draw
        self.weight = nn.Parameter(torch.ones(shape))
        self.register_buffer("seen", torch.zeros(draw(torch.ones(shape)).shape))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        drawn = self.draw(self.weight * x)
        self.seen.copy_(drawn.detach())
        return drawn.sum() + self.weight.sum()


def drawn(
    draw: Callable[[torch.Tensor], torch.Tensor], shape: tuple[int, ...], device: str, **options: Any
) -> tuple[Drawing, Any, dict[str, torch.Tensor]]:
    """A compiled step of a weight of ones that no step changes."""
    model = Drawing(draw, shape).to(device)
    batch = {"x": torch.ones(shape, device=device)}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0, momentum=0.5)
    step = compile_train_step(
        model, optimizer, loss_fn=lambda m, b: m(b["x"]), example=batch, device=device, **options
    )
    return model, step, batch


@pytest.mark.parametrize("shape", [(7,), (5, 33), (2, 3, 4, 5)], ids=str)
@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_a_mask_is_what_the_documentation_says(p: float, shape: tuple[int, ...], device: str) -> None:
    model, step, batch = drawn(lambda x: F.dropout(x, p), shape, device, seed=7)
    for number in range(3):
        step.train_step(batch)
        scale = 1 / (1 - p) if p < 1 else 0.0
        expected = kept(7, number, 0, shape, p) * np.float32(scale) if p else np.ones(shape, np.float32)
        np.testing.assert_array_equal(model.seen.cpu().numpy(), expected.astype(np.float32))


def test_the_gradient_has_the_mask_of_the_forward_pass(device: str) -> None:
    model = Drawing(lambda x: F.dropout(x, 0.3), (64, 9)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0, momentum=0.0)
    batch = {"x": torch.randn(64, 9, device=device)}
    step = compile_train_step(
        model, optimizer, loss_fn=lambda m, b: m(b["x"]), example=batch, device=device, keep_gradients=True
    )
    step.train_step(batch)
    mask = torch.where(batch["x"] == 0, 1.0, model.seen / batch["x"])
    torch.testing.assert_close(step.gradients["weight"].to(device), mask * batch["x"] + 1.0)


STATISTICS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], float, float]] = {
    "dropout": (lambda x: F.dropout(x, 0.25), 1.0, 1 / 3),
    "rand": (lambda x: torch.rand_like(x), 0.5, 1 / 12),
    "rand of a shape": (lambda x: torch.rand(x.shape, device=x.device), 0.5, 1 / 12),
    "randn": (lambda x: torch.randn_like(x), 0.0, 1.0),
    "randn of a shape": (lambda x: torch.randn(x.shape, device=x.device), 0.0, 1.0),
    "normal": (lambda x: torch.normal(2.0, 3.0, x.shape, device=x.device), 2.0, 9.0),
    "bernoulli": (lambda x: torch.bernoulli(torch.full_like(x, 0.2)), 0.2, 0.16),
    "bernoulli of p": (lambda x: torch.empty_like(x).bernoulli_(0.2), 0.2, 0.16),
    "uniform": (lambda x: torch.empty_like(x).uniform_(2.0, 4.0), 3.0, 1 / 3),
    "randint": (lambda x: torch.randint(3, 13, x.shape, device=x.device).float(), 7.5, 99 / 12),
    "alpha dropout": (lambda x: F.alpha_dropout(x * 0 + torch.randn_like(x), 0.2, True), 0.0, 1.0),
    "rrelu": (lambda x: F.rrelu(-x, 0.2, 0.6, True), -0.4, 0.16 / 12),
}
COUNT = 1 << 16


@pytest.mark.parametrize("name", STATISTICS)
def test_means_and_variances(name: str, device: str) -> None:
    draw, mean, variance = STATISTICS[name]
    model, step, batch = drawn(draw, (COUNT // 8, 8), device, seed=3)
    seen: list[torch.Tensor] = []
    for _ in range(3):
        step.train_step(batch)
        seen.append(model.seen.cpu().double().clone())
    for one in seen:
        assert abs(float(one.mean()) - mean) < 5 * math.sqrt(variance / COUNT)
        assert abs(float(one.var()) - variance) < 0.05 * variance
    for one, other in ((seen[0], seen[1]), (seen[1], seen[2]), (seen[0][1:], seen[0][:-1])):
        correlation = float(((one - mean) * (other - mean)).mean()) / variance
        assert abs(correlation) < 5 / math.sqrt(COUNT)


@pytest.mark.parametrize("count", [3, 16, 17, 5000])
def test_orders_have_each_number_once_and_are_equally_likely(count: int, device: str) -> None:
    model, step, batch = drawn(
        lambda x: torch.randperm(len(x), device=x.device).to(x.dtype), (count,), device, seed=3
    )
    seen: dict[tuple[float, ...], int] = {}
    for _ in range(600 if count == 3 else 2):
        step.train_step(batch)
        order = tuple(model.seen.tolist())
        assert sorted(order) == list(range(count))
        seen[order] = seen.get(order, 0) + 1
    assert len(seen) == (6 if count == 3 else 2)
    assert count > 3 or all(abs(times - 100) < 5 * math.sqrt(600 * 5 / 36) for times in seen.values()), seen
    assert step.check(batch).equal


def test_the_normal_distribution_has_its_tails(device: str) -> None:
    model, step, batch = drawn(torch.randn_like, (COUNT,), device, seed=5)
    step.train_step(batch)
    z = model.seen.cpu().double()
    for limit in (0.5, 1.0, 2.0, 3.0):
        share, expected = float((z.abs() > limit).double().mean()), math.erfc(limit / math.sqrt(2))
        assert abs(share - expected) < 5 * math.sqrt(expected / COUNT)


class Net(nn.Module):
    """Two layers with dropout, of one shape; both are named sites."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(16, 32)
        self.second = nn.Linear(32, 32)
        self.head = nn.Linear(32, 4)
        self.dropout = nn.Dropout(0.4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.dropout(torch.relu(self.first(x)))
        return self.head(self.dropout(torch.tanh(self.second(x))))


def mse(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    return F.mse_loss(model(batch["x"]), batch["t"])


def net(
    device: str, seed: int | None = 11, torch_seed: int = 0
) -> tuple[Net, torch.optim.Optimizer, Any, Any]:
    torch.manual_seed(torch_seed)
    model = Net().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    batch = {"x": torch.randn(8, 16, device=device), "t": torch.randn(8, 4, device=device)}
    step = compile_train_step(model, optimizer, loss_fn=mse, example=batch, device=device, seed=seed)
    return model, optimizer, step, batch


def parameters(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: p.detach().cpu().clone() for name, p in model.named_parameters()}


def test_training_is_that_of_torch_with_these_masks(device: str) -> None:
    """Torch is given the masks that NumPy computes."""
    model, _, step, batch = net(device)
    torch.manual_seed(0)
    theirs = Net().to(device)
    optimizer = torch.optim.Adam(theirs.parameters(), lr=0.01)
    for number in range(6):
        loss = step.train_step(batch)
        masks = iter([kept(11, number, site, (8, 32), 0.4) / 0.6 for site in (0, 1)])
        theirs.dropout.forward = lambda input: input * torch.from_numpy(next(masks)).to(input)  # noqa: B023
        optimizer.zero_grad()
        expected = mse(theirs, batch)
        expected.backward()
        optimizer.step()
        torch.testing.assert_close(loss.detach(), expected.detach())
    for name, value in parameters(theirs).items():
        torch.testing.assert_close(parameters(model)[name], value, rtol=1e-4, atol=1e-5)


def test_a_replay_draws_as_eager_steps_do(device: str) -> None:
    model, _, step, batch = net(device)
    losses = [float(step.train_step(batch)) for _ in range(6)]
    assert len(set(losses)) == 6
    other, _, again, _ = net(device)
    again.train_step(batch)
    again.capture(batch)
    assert float(again.replay(2)) == losses[2]
    assert float(again.replay(3)) == losses[5]
    assert_same_bits(parameters(other), parameters(model))


def test_the_seed_decides(device: str) -> None:
    def after(**given: Any) -> dict[str, torch.Tensor]:
        model, _, step, batch = net(device, **given)
        for _ in range(3):
            step.train_step(batch)
        return parameters(model)

    assert_same_bits(after(), after())
    assert_same_bits(after(seed=None), after(seed=None))  # torch's own seed, then
    same = after(seed=12)
    assert not all(torch.equal(value, same[name]) for name, value in after().items())


def test_two_steps_of_one_seed_of_torch_differ() -> None:
    torch.manual_seed(0)
    first, second = (drawn(torch.rand_like, (9,), "cpu") for _ in range(2))
    for _, step, batch in (first, second):
        step.train_step(batch)
    assert not torch.equal(first[0].seen, second[0].seen)


def test_seed_begins_anew(device: str) -> None:
    model, step, batch = drawn(torch.rand_like, (9,), device, seed=5)
    step.train_step(batch)
    first = model.seen.clone()
    step.train_step(batch)
    step.seed(5)
    step.train_step(batch)
    assert torch.equal(model.seen, first)
    step.capture(batch)
    step.seed(-1)
    step.replay()
    expected = words_of(-1, 0, 0, (9,))[0] >> np.uint64(8)
    np.testing.assert_array_equal(model.seen.cpu().numpy(), expected.astype(np.float32) * np.float32(2**-24))


def test_a_snapshot_and_a_checkpoint_hold_the_place(tmp_path: Path, device: str) -> None:
    model, _, step, batch = net(device)
    step.train_step(batch)
    snapshot = step.snapshot()
    step.save(tmp_path / "file")
    losses = [float(step.train_step(batch)) for _ in range(3)]
    after = parameters(model)
    step.restore(snapshot)
    assert [float(step.train_step(batch)) for _ in range(3)] == losses
    other, _, resumed, _ = net(device, seed=99, torch_seed=1)
    resumed.load(tmp_path / "file")
    assert [float(resumed.train_step(batch)) for _ in range(3)] == losses
    assert_same_bits(parameters(other), after)


def test_recompiling_goes_on(device: str) -> None:
    model, _, step, batch = net(device)
    reference, _, whole, _ = net(device)
    for number in range(4):
        if number == 2:
            step.recompile()
        step.train_step(batch)
        whole.train_step(batch)
    assert_same_bits(parameters(model), parameters(reference))


def test_batch_sizes_share_their_steps(device: str) -> None:
    torch.manual_seed(0)
    model = Drawing(lambda x: torch.rand(9, device=x.device), (9,)).to(device)
    batches = [{"x": torch.ones(9, device=device)}, {"x": torch.ones(1, device=device)}]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = compile_train_step(
        model, optimizer, loss_fn=lambda m, b: m(b["x"]), example=batches, device=device, seed=4
    )
    seen = set[tuple[float, ...]]()
    for number in (0, 1, 0, 1):
        step.train_step(batches[number])
        seen.add(tuple(model.seen.tolist()))
    assert len(seen) == 4


def test_a_skipped_step_draws_nothing(device: str) -> None:
    model, optimizer, _, batch = net(device)
    step = compile_train_step(
        model, optimizer, loss_fn=mse, example=batch, device=device, seed=1, check_finite=True
    )
    reference, other, _, _ = net(device)
    whole = compile_train_step(
        reference, other, loss_fn=mse, example=batch, device=device, seed=1, check_finite=True
    )
    bad = {**batch, "x": batch["x"] * float("nan")}
    for number in range(3):
        if number == 1:
            with pytest.raises(AicfError, match="skipped whole"):
                step.train_step(bad)
                step.synchronize()  # on CUDA the error comes with the next call that sees it
        step.train_step(batch)
        whole.train_step(batch)
    assert_same_bits(parameters(model), parameters(reference))


def test_evaluation_mode_draws_nothing(device: str) -> None:
    model = Net().to(device).eval()
    batch = {"x": torch.randn(8, 16, device=device), "t": torch.randn(8, 4, device=device)}
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    twin = copy.deepcopy(model)
    step = compile_train_step(model, optimizer, loss_fn=mse, example=batch, device=device)
    torch.testing.assert_close(step.train_step(batch).detach(), mse(twin, batch).detach())
    with pytest.raises(BindError, match="draws no random numbers"):
        step.seed(1)


@pytest.mark.parametrize("seed", [1.5, True, 1 << 64, "1"])
def test_what_is_no_seed(seed: Any) -> None:
    with pytest.raises(BindError, match="seed must be a whole number of 64 bits"):
        net("cpu", seed=seed)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_other_types(dtype: torch.dtype, device: str) -> None:
    model = Drawing(lambda x: F.dropout(torch.rand_like(x), 0.5), (4096,)).to(device).to(dtype)
    batch = {"x": torch.ones(4096, device=device, dtype=dtype)}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    step = compile_train_step(model, optimizer, loss_fn=lambda m, b: m(b["x"]), example=batch, device=device)
    step.train_step(batch)
    assert model.seen.dtype == dtype
    assert 0 <= float(model.seen.min()) < 0.01
    assert 1.9 < float(model.seen.max()) < 2.0
    assert abs(float(model.seen.double().mean()) - 0.5) < 0.05


@pytest.mark.parametrize("target", ["cpu", "sm_80", "sm_90+cublaslt"])
def test_a_plan_gives_each_draw_its_site(target: str) -> None:
    """Small updates of a GPU begin with a launch of their own, which may be one with the first that draws."""
    model, batch = Net(), {"x": torch.randn(8, 16), "t": torch.randn(8, 4)}
    module = trace(
        model, loss_fn=mse, example=batch, optimizer=torch.optim.Adam(model.parameters(), lr=0.01)
    ).module
    run_stages(module, make_context(), target=target)
    sites = re.findall(r": memref<i64> const (\S+)", str(module))
    assert sorted(sites) == ["0.0", "1.0"]


def test_layers_that_drop_out_share_their_kernels() -> None:
    def kernels(layers: int) -> set[str]:
        blocks = [nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.Dropout(0.3)) for _ in range(layers)]
        model = nn.Sequential(*blocks)
        batch = {"x": torch.randn(8, 16), "t": torch.randn(8, 16)}
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        step = compile_train_step(model, optimizer, loss_fn=mse, example=batch, device="cpu")
        return set(re.findall(r"gen_gemm_map_\w+|gen_map_\w+", step.ir("plan")))

    assert kernels(3) == kernels(6)


def test_attention_and_recurrent_layers_drop_out(device: str) -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(16, 2, dropout=0.3, batch_first=True)
            self.lstm = nn.LSTM(16, 16, num_layers=2, dropout=0.3, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.attention(x, x, x, need_weights=False)[0]
            return self.lstm(x)[0]

    model = Both().to(device)
    batch = {"x": torch.randn(3, 5, 16, device=device), "t": torch.randn(3, 5, 16, device=device)}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    step = compile_train_step(model, optimizer, loss_fn=mse, example=batch, device=device, seed=2)
    losses = {float(step.train_step(batch)) for _ in range(8)}
    assert len(losses) == 8
    still = float(mse(copy.deepcopy(model).eval(), batch))
    assert all(abs(loss - still) < 0.5 * still for loss in losses)
    text = step.ir("step")
    assert text.count("nn.dropout") == 2
    assert text.count("nn.attention_dropout") == 2 * text.count("nn.attention_dropout_grad") == 2
