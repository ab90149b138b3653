"""`loss_scale`: torch.amp.GradScaler inside the step; a step with an overflow is skipped, and the scale follows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from models import Batch, regression, to_device, to_dtype, values
from oracle import assert_all_right, assert_same_bits
from torch import nn

from aicf_mlir import BindError, LossScale, NonFiniteError, compile_eval_step, compile_train_step
from aicf_mlir.train_step import CompiledTrainStep

STEPS = 40
ASKED = LossScale(1024.0, 1.5, 0.3, 3)

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, dampening=0.1),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-2, eps=1e-3, weight_decay=0.1),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=1e-3, eps=1e-3, momentum=0.5),
}


class Scaler(torch.amp.GradScaler):
    """torch's, which also takes gradients of f16."""

    def _unscale_grads_(self, optimizer: Any, inv_scale: Any, found_inf: Any, allow_fp16: bool) -> Any:
        return super()._unscale_grads_(optimizer, inv_scale, found_inf, True)


def mse_of(model: Any, batch: Batch) -> torch.Tensor:
    """In f32, whatever the model is of."""
    return (model(batch["x"]).float() - batch["t"].float()).square().mean()


def batches(dtype: torch.dtype = torch.float32, device: str = "cpu", count: int = STEPS) -> list[Batch]:
    """The first, and every seventh behind it, overflows."""
    made: list[Batch] = []
    for number in range(count):
        batch = to_dtype(regression(8, seed=number), dtype)
        if number % 7 == 0:
            batch["x"][0, 0] = (math.inf, 6e4, math.nan)[number % 3]
            batch["t"][0, 0] = math.inf
        made.append(to_device(batch, device))
    return made


class Own(torch.optim.Optimizer):
    """An optimizer that AICF has no rule for: it is traced."""

    def __init__(self, params: Any):
        super().__init__(params, {"lr": 1e-3})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["step"], state["mean"] = 0, torch.zeros_like(p)
                state["step"] += 1
                state["mean"].mul_(0.9).add_(p.grad, alpha=0.1)
                p.sub_(state["mean"] / (1 - 0.9 ** state["step"]), alpha=group["lr"])


class Side:
    """A model that is trained: in torch, or compiled."""

    def __init__(
        self,
        optimizer: str | Callable[[Any], torch.optim.Optimizer],
        dtype: torch.dtype = torch.float32,
        device: str = "cpu",
        asked: LossScale = ASKED,
    ):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(8, 17), nn.Tanh(), nn.Linear(17, 8)).to(dtype).to(device)
        self.optimizer = (OPTIMIZERS[optimizer] if isinstance(optimizer, str) else optimizer)(
            self.model.parameters()
        )
        self.device, self.asked = device, asked
        self.scaler = Scaler(
            "cpu", asked.init_scale, asked.growth_factor, asked.backoff_factor, asked.growth_interval
        )
        self.scales: list[float] = []

    def compiled(self, **options: Any) -> CompiledTrainStep:
        dtype = next(self.model.parameters()).dtype
        given = {"example": to_dtype(regression(8), dtype), "loss_scale": self.asked, **options}
        return compile_train_step(self.model, self.optimizer, loss_fn=mse_of, device=self.device, **given)

    def in_torch(self, parts: Sequence[Batch], limit: float | None = None) -> None:
        self.optimizer.zero_grad()
        for batch in parts:
            self.scaler.scale(mse_of(self.model, batch) / len(parts)).backward()
        self.scaler.unscale_(self.optimizer)
        if limit is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), limit)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.scales.append(self.scaler.get_scale())

    def values(self) -> dict[str, torch.Tensor]:
        return values(self.model, self.optimizer)


def everything(side: Side, step: CompiledTrainStep) -> dict[str, torch.Tensor]:
    counts = {"loss_scale": step.loss_scale, "skipped": torch.tensor(step.skipped)}
    return {**side.values(), **counts}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_forty_steps_beside_torch(optimizer: str, device: str) -> None:
    """Half of them replayed; the scale is torch's after each, and no counter counts a skipped step."""
    runs = [Side(optimizer, dtype) for dtype in (torch.float32, torch.float64)]
    for run, dtype in zip(runs, (torch.float32, torch.float64), strict=True):
        for batch in batches():
            run.in_torch([to_dtype(batch, dtype)])
    ours = Side(optimizer, device=device)
    step = ours.compiled()
    for number, batch in enumerate(batches(device=device)):
        if number == STEPS // 2:
            step.capture(batch)
        _ = step.train_step(batch) if number < STEPS // 2 else step.replay(inputs=batch)
        ours.scales.append(step.loss_scale.item())
    assert ours.scales == runs[0].scales
    assert len(set(ours.scales)) > 3, "it grows and falls"
    assert step.skipped == len(range(0, STEPS, 7))
    assert_all_right(ours.values(), runs[0].values(), runs[1].values())


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_one_f16_step_after_another_beside_torch(optimizer: str, device: str) -> None:
    """Skips, scale and parameters; f16 rounds elsewhere than torch, so parameters are near torch's."""
    theirs, ours = Side(optimizer, torch.float16), Side(optimizer, torch.float16, device)
    step = ours.compiled()
    for here, there in zip(batches(torch.float16, device), batches(torch.float16), strict=True):
        theirs.in_torch([there])
        step.train_step(here)
        assert step.loss_scale.item() == theirs.scales[-1]
        with torch.no_grad():
            for mine, own in zip(ours.model.parameters(), theirs.model.parameters(), strict=True):
                assert (mine.cpu().float() - own.float()).abs().max() < 0.1
    assert step.skipped >= len(range(0, STEPS, 7))


def test_a_loss_of_f16_begins_with_an_overflow_at_the_default_scale(device: str) -> None:
    """2**16 is infinite in f16: as in torch the first step is skipped, and the next one trains."""
    theirs, ours = (Side("sgd", torch.float16, where, LossScale()) for where in ("cpu", device))
    step = compile_train_step(
        ours.model,
        ours.optimizer,
        loss_fn=f16_loss,
        example=to_dtype(regression(8), torch.float16),
        device=device,
        loss_scale="dynamic",
    )
    for number in range(4):
        batch = to_dtype(regression(8, seed=number), torch.float16)
        theirs.optimizer.zero_grad()
        theirs.scaler.scale(f16_loss(theirs.model, batch)).backward()
        theirs.scaler.step(theirs.optimizer)
        theirs.scaler.update()
        step.train_step(to_device(batch, device))
        assert step.loss_scale.item() == theirs.scaler.get_scale()
    assert 0 < step.skipped < 4


def f16_loss(model: Any, batch: Batch) -> torch.Tensor:
    return (model(batch["x"]) - batch["t"]).square().mean()


@pytest.mark.parametrize("optimizer", [*OPTIMIZERS, "traced"])
def test_a_skipped_step_changes_nothing_that_is_trained(optimizer: str, device: str) -> None:
    """No bit of parameters, states and counters, of an optimizer without a rule of its own either."""
    ours = Side(Own if optimizer == "traced" else optimizer, device=device)
    step = ours.compiled()
    bad, good = batches(device=device)[:2]
    step.train_step(good)
    before, metas = ours.values(), dict(step.meta)
    loss = step.train_step(bad)
    assert not loss.isfinite()
    assert step.skipped == 1 and step.loss_scale == torch.tensor(1024 * 0.3)
    assert_same_bits(ours.values(), before)
    assert dict(step.meta) == metas
    step.train_step(good)
    assert step.skipped == 1
    with pytest.raises(AssertionError):
        assert_same_bits(ours.values(), before)


def test_the_loss_that_is_returned_is_not_scaled(device: str) -> None:
    ours = Side("sgd", device=device)
    (batch,) = batches(device=device)[1:2]
    expected = mse_of(ours.model, batch).detach().clone()
    torch.testing.assert_close(ours.compiled(loss_scale=2.0**20).train_step(batch), expected)


def test_running_statistics_follow_a_skipped_step(device: str) -> None:
    torch.manual_seed(0)
    ours, theirs = (nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)) for _ in range(2))
    theirs.load_state_dict(ours.state_dict())
    ours.to(device)
    step = compile_train_step(
        ours,
        torch.optim.SGD(ours.parameters(), lr=0.1),
        loss_fn=lambda model, batch: (model(batch["x"]) * batch["t"]).sum(),
        example=regression(8),
        device=device,
        loss_scale="dynamic",
    )
    batch = regression(8)
    batch["t"][0, 0] = math.inf
    weight = theirs.state_dict()["0.weight"]
    step.train_step(to_device(batch, device))
    theirs(batch["x"])
    found, expected = ours.state_dict(), theirs.state_dict()
    assert step.skipped == 1 and torch.equal(found["0.weight"].cpu(), weight)
    torch.testing.assert_close(found["1.running_var"].cpu(), expected["1.running_var"])
    assert found["1.num_batches_tracked"].item() == 1


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_replays_have_the_bits_of_eager_steps(optimizer: str, dtype: torch.dtype, device: str) -> None:
    sides = [Side(optimizer, dtype, device) for _ in range(2)]
    steps = [side.compiled() for side in sides]
    given = batches(dtype, device)
    steps[1].warmup(given[1])
    steps[1].capture(given[1])
    for batch in given:
        steps[0].train_step(batch)
        steps[1].replay(inputs=batch)
    for _ in range(9):
        steps[0].train_step(given[1])
    steps[1].replay(9, inputs=given[1])
    assert_same_bits(everything(sides[0], steps[0]), everything(sides[1], steps[1]))
    third = sides[0].compiled()
    third.warmup(given[1])
    assert third.capture(given[1], verify="bitwise").equal


def test_restored_loaded_warmed_up_and_compiled_again(tmp_path: Path, device: str) -> None:
    given = batches(device=device)
    ours = Side("adamw", device=device)
    step = ours.compiled()
    beginning = everything(ours, step)
    step.warmup(given[0], 3)
    assert step.skipped == 0 and step.loss_scale.item() == beginning["loss_scale"].item()
    for batch in given[:10]:
        step.train_step(batch)
    kept = step.snapshot()
    step.save(tmp_path / "saved")
    tenth = everything(ours, step)
    step.recompile()
    assert_same_bits(everything(ours, step), tenth)
    for batch in given[10:20]:
        step.train_step(batch)
    twentieth = everything(ours, step)
    other = Side("adamw", device=device)
    loaded = other.compiled()
    loaded.load(tmp_path / "saved")
    assert_same_bits(everything(other, loaded), tenth)
    for batch in given[10:20]:
        loaded.train_step(batch)
    assert_same_bits(everything(other, loaded), twentieth)
    again = Side("adamw", device=device)
    third = again.compiled()
    third.train_step(given[0])
    third.restore(third.snapshot())
    assert third.skipped == 1
    with pytest.raises(BindError, match="snapshot"):
        third.restore(kept)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_micro_batches_and_clipping_beside_it(optimizer: str, device: str) -> None:
    """An overflow in one micro-batch skips the update; the norm is that of unscaled gradients."""
    runs = [Side(optimizer, dtype) for dtype in (torch.float32, torch.float64)]
    for run, dtype in zip(runs, (torch.float32, torch.float64), strict=True):
        given = [to_dtype(batch, dtype) for batch in batches()]
        for first in range(0, STEPS, 2):
            run.in_torch(given[first : first + 2], 0.1)
    ours = Side(optimizer, device=device)
    step = ours.compiled(accumulate=2, clip_grad_norm=0.1)
    given = batches(device=device)
    for first in range(0, STEPS, 2):
        step.train_step(given[first : first + 2])
        ours.scales.append(step.loss_scale.item())
    assert ours.scales == runs[0].scales
    assert step.skipped == len({number // 2 for number in range(0, STEPS, 7)})
    assert_all_right(ours.values(), runs[0].values(), runs[1].values())


def test_a_number_stays(device: str) -> None:
    """With a power of two the bits are those without; an overflow is skipped all the same."""
    plain, scaled = Side("adamw", device=device), Side("adamw", device=device)
    steps = [plain.compiled(loss_scale=None), scaled.compiled(loss_scale=256.0)]
    given = batches(device=device)
    for batch in given[1:7]:
        for step in steps:
            step.train_step(batch)
    assert_same_bits(scaled.values(), plain.values())
    steps[1].train_step(given[0])
    assert (steps[1].skipped, steps[1].loss_scale.item()) == (1, 256.0)
    assert_same_bits(scaled.values(), plain.values())


def test_batch_sizes_share_the_scale(device: str) -> None:
    ours = Side("sgd", device=device)
    step = ours.compiled(example=[regression(8), regression(4)], loss_scale=LossScale(1024.0))
    for rows in (8, 4, 4, 8):
        batch = regression(rows)
        batch["t"][0, 0] = math.inf
        step.train_step(to_device(batch, device))
    assert (step.skipped, step.loss_scale.item()) == (4, 64.0)


def test_the_scale_that_is_read_is_a_copy(device: str) -> None:
    step = Side("sgd", device=device).compiled()
    step.loss_scale.zero_()
    assert step.loss_scale.item() == 1024.0


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "word": (lambda: "static", "loss_scale must be \"dynamic\", a number or a LossScale, got 'static'"),
    "none": (lambda: 0.0, "loss_scale must be a finite f32 above 0, got 0.0"),
    "negative": (lambda: -2.0, "loss_scale must be a finite f32 above 0, got -2.0"),
    "nan": (lambda: math.nan, "loss_scale"),
    "too large": (lambda: 1e39, "loss_scale must be a finite f32 above 0, got 1e+39"),
    "too small": (lambda: 1e-60, "loss_scale must be a finite f32 above 0, got 1e-60"),
    "list": (lambda: [1.0], "loss_scale must be a real number"),
    "shrinking": (lambda: LossScale(growth_factor=0.5), "growth_factor must be 1 or more, got 0.5"),
    "growing": (
        lambda: LossScale(backoff_factor=1.5),
        "backoff_factor must be above 0 and at most 1, got 1.5",
    ),
    "gone": (lambda: LossScale(backoff_factor=0.0), "backoff_factor must be above 0 and at most 1, got 0.0"),
    "interval": (
        lambda: LossScale(growth_interval=0),
        "growth_interval must be a whole number, 1 or more, got 0",
    ),
    "half": (lambda: LossScale(growth_interval=1.5), "growth_interval must be a whole number"),  # pyright: ignore[reportArgumentType]
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_scale_is_refused(case: str) -> None:
    make, text = REFUSED[case]
    ours = Side("sgd")
    before = [p.data_ptr() for p in ours.model.parameters()]
    with pytest.raises(BindError) as raised:
        ours.compiled(loss_scale=make())
    assert text in str(raised.value)
    assert [p.data_ptr() for p in ours.model.parameters()] == before


def test_a_check_of_gradients_beside_it_is_refused() -> None:
    with pytest.raises(BindError, match="check_finite raises for the gradients that loss_scale skips"):
        Side("sgd").compiled(check_finite=True)
    step = Side("sgd").compiled(check_finite=True, loss_scale=None)
    with pytest.raises(NonFiniteError):
        step.train_step(batches()[0])


def test_names_of_the_step_are_not_the_models() -> None:
    ours = Side("sgd")
    ours.model.register_buffer("loss_scale", torch.ones(()))
    with pytest.raises(BindError, match="the model has a tensor 'loss_scale', as a step with loss_scale has"):
        compile_train_step(
            ours.model,
            ours.optimizer,
            loss_fn=lambda model, batch: mse_of(model, batch) * model.get_buffer("loss_scale"),
            example=regression(8),
            device="cpu",
            loss_scale="dynamic",
        )
    other = Side("sgd")
    with pytest.raises(BindError, match="loss_fn returns an output 'all_finite'"):
        compile_train_step(
            other.model,
            other.optimizer,
            loss_fn=lambda model, batch: (mse_of(model, batch), {"all_finite": batch["x"]}),
            example=regression(8),
            device="cpu",
            loss_scale="dynamic",
        )


def test_a_step_without_has_no_scale() -> None:
    steps = [
        Side("sgd").compiled(loss_scale=None),
        compile_eval_step(Side("sgd").model, loss_fn=mse_of, example=regression(8), device="cpu"),
    ]
    for step in steps:
        for name in ("loss_scale", "skipped"):
            with pytest.raises(
                BindError, match="the step has no scale of its loss; compile with loss_scale="
            ):
                getattr(step, name)
