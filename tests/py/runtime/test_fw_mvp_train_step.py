"""The short form, whole: modules of aicf_mlir.nn, optimizers of aicf_mlir.optim, and five verbs on the model.

`compile`, `train_step`, `capture`, `replay`, `reset`, with `snapshot` and `restore` beside them. Each test reads by itself.
"""

from __future__ import annotations

import copy

import pytest
import torch
from models import Batch, regression, to_device, values

from aicf_mlir.errors import StateError
from aicf_mlir.nn import Linear, ReLU, Sequential
from aicf_mlir.optim import Adam

B, D, LR = 4, 8, 1e-3


class Run:
    """The model of the README with its optimizer and one batch, compiled for a device."""

    def __init__(self, device: str):
        torch.manual_seed(0)
        self.model = Sequential(Linear(D, D), ReLU(), Linear(D, D)).to(device)
        self.optimizer = Adam(self.model, lr=LR)
        self.batch: Batch = to_device(regression(B, D), device)
        self.torch = copy.deepcopy(self.model)
        """The same model, trained by torch."""
        self.model.compile(optimizer=self.optimizer, B=B, D=D, device=device, dtype=torch.float32)

    def steps(self, n: int = 1) -> dict[str, torch.Tensor]:
        """What has been trained after `n` eager steps: parameters, moments, step counters."""
        for _ in range(n):
            self.model.train_step(self.batch)
        return self.values()

    def replays(self, n: int = 1) -> dict[str, torch.Tensor]:
        """The same after `n` replays of the captured step."""
        self.model.replay(n=n, sync=True)
        return self.values()

    def values(self) -> dict[str, torch.Tensor]:
        return values(self.model, self.optimizer)

    def set_lr(self, lr: float) -> None:
        self.optimizer.param_groups[0]["lr"] = lr


@pytest.fixture
def run(device: str) -> Run:
    return Run(device)


def trained_by_torch(run: Run, *rates: float) -> dict[str, torch.Tensor]:
    """The reference: a step of torch's own Adam over torch's own autograd for each learning rate."""
    optimizer = torch.optim.Adam(run.torch.parameters())
    for rate in rates:
        optimizer.param_groups[0]["lr"] = rate
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(run.torch(run.batch["x"]), run.batch["t"]).backward()
        optimizer.step()
    return values(run.torch, optimizer)


def close(trained: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    """As near as two orders of summation are."""
    assert trained.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(trained[name], value, rtol=1e-4, atol=1e-6)


def same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    """Bit for bit."""
    return left.keys() == right.keys() and all(
        torch.equal(value, right[name]) for name, value in left.items()
    )


def parameters(trained: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Without the optimizer's state."""
    return {name: value for name, value in trained.items() if name.endswith((".weight", ".bias"))}


@pytest.mark.parametrize("steps", [1, 5])
def test_an_update_is_that_of_torch(run: Run, steps: int) -> None:
    """Parameters, both moments and the counters, after one step and after some."""
    close(run.steps(steps), trained_by_torch(run, *[LR] * steps))


def test_the_loss_is_that_of_the_step_and_falls(run: Run) -> None:
    expected = torch.nn.functional.mse_loss(run.torch(run.batch["x"]), run.batch["t"])
    first = run.model.train_step(run.batch)
    torch.testing.assert_close(first, expected.detach())
    run.steps(20)
    assert run.model.train_step(run.batch) < first


def test_state_accumulates(run: Run) -> None:
    """`opt.state` is torch's own: empty before the first step, then counters that count and moments that move."""
    assert not run.optimizer.state
    first, third = run.steps(1), run.steps(2)
    assert (first["0.weight.step"], third["0.weight.step"]) == (1, 3)
    for key in ("exp_avg", "exp_avg_sq"):
        assert not torch.equal(first[f"0.weight.{key}"], third[f"0.weight.{key}"]), key
    bc1_inv = float(run.model.compiled_step.meta["bc1_inv"])
    assert bc1_inv == pytest.approx(1 / (1 - 0.9**3))


@pytest.mark.parametrize("captured", [False, True])
def test_a_changed_lr_counts_from_the_next_step_and_so_does_its_restoration(run: Run, captured: bool) -> None:
    """Nothing is compiled or captured again: the learning rate is a slot of memory, not a constant."""
    run.steps(1)
    if captured:
        run.model.capture(run.batch)
    step = run.replays if captured else run.steps
    before = parameters(run.values())
    run.set_lr(0.0)
    assert same(parameters(step()), before), "nothing moves but the moments"
    run.set_lr(LR)
    trained = step()
    assert not same(parameters(trained), before)
    close(trained, trained_by_torch(run, LR, 0.0, LR))


def test_replay_is_eager_bit_for_bit(run: Run, device: str) -> None:
    eager = Run(device)
    before = run.steps(1)
    run.model.capture(run.batch)
    assert same(run.values(), before), "capture trains nothing"
    eager.steps(1)
    assert same(run.replays(5), eager.steps(5))
    assert same(run.steps(2), eager.steps(2)), "and eager steps go on from there"


def test_restore_is_bitwise_and_so_is_what_follows(run: Run) -> None:
    at_two = run.steps(2)
    snapshot = run.model.snapshot()
    at_five = run.steps(3)
    run.model.restore(snapshot)
    assert same(run.values(), at_two)
    assert same(run.steps(3), at_five)


def test_capture_waits_for_a_first_step(run: Run) -> None:
    with pytest.raises(StateError, match=r"capture\(\) before a warm-up .* call train_step\(batch\)"):
        run.model.capture(run.batch)


def test_reset_frees_the_graph_and_keeps_what_was_trained(run: Run, device: str) -> None:
    eager = Run(device)
    run.steps(1)
    run.model.capture(run.batch)
    trained = run.replays(2)
    run.model.reset()
    assert run.model.compiled_step.state == "reset"
    assert same(run.values(), trained)
    with pytest.raises(StateError, match=r"replay\(\) before capture\(\)"):
        run.model.replay()
    run.steps(1)
    run.model.capture(run.batch)
    assert same(run.replays(2), eager.steps(6)), "it can be captured again"
