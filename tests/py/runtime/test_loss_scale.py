"""`loss_scale`: torch.amp.GradScaler inside the step; a step with an overflow is skipped, and the scale follows."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from models import Batch, regression, to_device, to_dtype
from oracle import assert_all_right, assert_same_bits
from scaled_training import OPTIMIZERS, STEPS, Own, Side, batches, mse_of
from torch import nn
from written_optimizers import RIGHT

from aicf_mlir import BindError, LossScale, compile_train_step
from aicf_mlir.passes.fuse.small_updates import SmallUpdateFusion
from aicf_mlir.step.compiled_step import CompiledTrainStep


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


OTHERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "traced": Own,
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1, initial_accumulator_value=0.5),
    "adadelta": torch.optim.Adadelta,
    "adamax": torch.optim.Adamax,
    "nadam": torch.optim.NAdam,
    "radam": torch.optim.RAdam,
    "rprop": torch.optim.Rprop,
    "asgd": lambda p: torch.optim.ASGD(p, lr=0.1, t0=2),
}


@pytest.mark.parametrize("optimizer", [*OPTIMIZERS, *OTHERS])
def test_a_skipped_step_changes_nothing_that_is_trained(optimizer: str, device: str) -> None:
    """No bit of parameters, states and counters, of an optimizer without a rule of its own either."""
    ours = Side(OTHERS.get(optimizer, optimizer), device=device)
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


@pytest.mark.parametrize("replayed", [False, True], ids=["eager", "replayed"])
@pytest.mark.parametrize("optimizer", ["adamw", "lookahead"])
def test_the_first_step_that_is_not_skipped_makes_the_state(
    optimizer: str, replayed: bool, device: str
) -> None:
    """As in torch `opt.state` is empty until then, and state that begins as the parameter begins as it is by then."""
    made = RIGHT.get(optimizer, optimizer)
    ours, theirs = Side(made, torch.float64, device), Side(made, torch.float64)
    step = ours.compiled()
    bad, good = batches(torch.float64)[:2]
    here = [to_device(batch, device) for batch in (bad, good)]
    step.warmup(here[1])
    step.capture(here[1])
    for number in range(2):
        _ = step.replay(inputs=here[0]) if replayed else step.train_step(here[0])
        theirs.in_torch([bad])
        assert not ours.optimizer.state and not theirs.optimizer.state
        for model in (ours.model, theirs.model):
            with torch.no_grad():
                next(model.parameters()).mul_(0.5 + number)
    for _ in range(3):
        _ = step.replay(inputs=here[1]) if replayed else step.train_step(here[1])
        theirs.in_torch([good])
    assert_all_right(ours.values(), theirs.values(), theirs.values())


def test_a_replay_of_many_steps_makes_the_state_where_the_first_are_skipped(device: str) -> None:
    """A scale of 2**127 overflows in f32 until it has fallen far enough, in the middle of one replay."""
    sides = [Side("adamw", device=device, asked=LossScale(2.0**127, 2.0, 2.0**-4, 100)) for _ in range(2)]
    steps = [side.compiled() for side in sides]
    batch = batches(device=device)[1]
    batch["t"] = batch["t"] * 1024.0
    steps[1].warmup(batch)
    steps[1].capture(batch)
    for _ in range(6):
        steps[0].train_step(batch)
    steps[1].replay(6, inputs=batch)
    assert 0 < steps[0].skipped < 6
    assert_same_bits(everything(sides[1], steps[1]), everything(sides[0], steps[0]))
    assert float(next(iter(sides[1].optimizer.state.values()))["step"]) == 6 - steps[1].skipped


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


def test_a_number_stays(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a power of two the bits are those without; an overflow is skipped all the same.

    On a GPU, where a small step without a check updates in its products, with separate updates in both.
    """
    monkeypatch.setattr(SmallUpdateFusion, "write", lambda self: None)
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


def test_a_batch_size_that_comes_later_goes_on_with_the_scale(device: str) -> None:
    step = Side("adamw", device=device).compiled(further_sizes=1, loss_scale=LossScale(1024.0))
    for rows in (8, 5, 3, 8):
        batch = regression(rows)
        batch["t"][0, 0] = math.inf
        step.train_step(to_device(batch, device))
    assert (step.skipped, step.loss_scale.item()) == (4, 64.0)


def test_all_options_at_once_are_certified(device: str) -> None:
    ours = Side("sgd", device=device)
    step = ours.compiled(accumulate=2, clip_grad_norm=0.1, keep_gradients=True, ema=0.9, loss_scale="dynamic")
    given = batches(device=device)[1:3]
    step.train_step(given)
    norm = torch.stack([gradient.square().sum() for gradient in step.gradients.values()]).sum().sqrt()
    torch.testing.assert_close(norm, torch.full_like(norm, 0.1), rtol=1e-4, atol=0.0)
    assert step.capture(given, verify="bitwise").equal


def test_the_scale_that_is_read_is_a_copy(device: str) -> None:
    step = Side("sgd", device=device).compiled()
    step.loss_scale.zero_()
    assert step.loss_scale.item() == 1024.0
