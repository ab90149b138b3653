"""`step.profile`: what ran is what is told, and everything is put back, whatever the state and however it ends."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from compiled_bodies import batches, in_torch, made
from loop_bodies import BODIES
from models import mlp, regression, to_device
from oracle import assert_same_bits
from torch import nn

from aicf_mlir import (
    BindError,
    CompiledTrainStep,
    GuardError,
    NonFiniteError,
    OutOfRangeError,
    StateError,
    compile_eval_step,
    compile_step,
    compile_train_step,
)

Batch = dict[str, torch.Tensor]


def batch_of(seed: int, device: str, rows: int = 6) -> Batch:
    return to_device(regression(rows, 8, seed=seed), device)


def told(model: Any, batch: Any) -> Any:
    y = model(batch["x"])
    return nn.functional.mse_loss(y, batch["t"]), {"top": y.max()}


def plain(device: str) -> CompiledTrainStep:
    model = mlp(8, 17, 8).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    return compile_train_step(model, optimizer, example=batch_of(0, device), device=device)


def everything(device: str) -> CompiledTrainStep:
    """All that a step can keep."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.5), nn.Linear(16, 8)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    return compile_train_step(
        model,
        optimizer,
        loss_fn=told,
        example=batch_of(0, device),
        device=device,
        seed=3,
        ema=0.9,
        loss_scale="dynamic",
        clip_grad_norm=0.5,
        metrics={"top": "mean"},
        keep_gradients=True,
        further_sizes=2,
    )


def checked(device: str) -> CompiledTrainStep:
    model = mlp(8, 17, 8).to(device)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=0.01, momentum=0.5)
    options: dict[str, Any] = {"check_finite": True, "keep_gradients": True}
    return compile_train_step(model, optimizer, example=batch_of(0, device), device=device, **options)


def evaluation(device: str) -> CompiledTrainStep:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4), nn.Linear(4, 8)).to(device)
    return compile_eval_step(model, loss_fn=told, example=batch_of(0, device), device=device)


STEPS: dict[str, Callable[[str], CompiledTrainStep]] = {
    "Adam": plain,
    "with all options": everything,
    "with checks": checked,
    "of evaluation": evaluation,
}


MADE_AGAIN = ("temp", "copy")
"""The arenas whose contents each call computes first."""


def seen(step: Any) -> dict[str, object]:
    """All that a caller can find out about a step, and all memory but what each call computes first, to the bit."""
    arenas = {f"store {name}": arena for name, arena in step._store.arenas.items()}
    for number, plan in enumerate(step._plans):
        arenas |= {f"{number} {name}": arena for name, arena in plan.arenas.items() if name not in MADE_AGAIN}
    states = {
        f"{number} {i} {key}": torch.as_tensor(value).clone()
        for number, optimizer in enumerate(step._built.optimizers)
        for i, state in enumerate(optimizer.state.values())
        for key, value in state.items()
        if value is not None
    }
    return {
        **{name: arena.read(0, arena.nbytes) for name, arena in arenas.items()},
        "state": step.state,
        "begun": step._begun,
        "session": (step._session.active, step._session.steps),
        "sizes": list(step._sizes._used),
        "kernels": [plan.executor.trace() for plan in step._plans],
        "stats": [
            {key: plan.executor.stats()[key] for key in ("launches", "runs", "replays")}
            for plan in step._plans
        ],
        "optimizer": {name: (value.dtype, value.tolist()) for name, value in states.items()},
        "groups": [
            {key: value for key, value in group.items() if key != "params"}
            for optimizer in step._built.optimizers
            for group in optimizer.param_groups
        ],
        "settings": step.meta.settings(),
    }


def assert_as_before(before: dict[str, object], step: Any) -> None:
    after = seen(step)
    assert sorted(after) == sorted(before)
    assert not [name for name in before if before[name] != after[name]]


LIFE: dict[str, Callable[[CompiledTrainStep, Batch], object]] = {
    "created": lambda step, batch: None,
    "warmed": lambda step, batch: step.train_step(batch),
    "captured": lambda step, batch: step.capture(batch),
    "replayed": lambda step, batch: step.replay(2),
    "reset": lambda step, batch: step.reset(),
    "warmed again": lambda step, batch: step.warmup(batch),
    "captured again": lambda step, batch: step.capture(),
    "replayed again": lambda step, batch: step.replay(3, inputs=batch),
}
"""What is done to a step, in this order, and measured behind each."""


@pytest.mark.parametrize("name", STEPS)
def test_everything_is_put_back_and_training_goes_on(name: str, device: str) -> None:
    """In each state, to the bit, beside a step that was not measured: with the batch of the last step, and with another."""
    step, other = STEPS[name](device), STEPS[name](device)
    for seed, (state, do) in enumerate(LIFE.items()):
        for each in (step, other):
            do(each, batch_of(seed, device))
        before = seen(step)
        assert before == seen(other), state
        assert step.profile(2, batch_of(20 + seed, device)).runs == 2
        assert_as_before(before, step)
        if state != "created":
            assert step.profile(n=3).runs == 3
            assert_as_before(before, step)
    assert_same_bits(
        {"loss": step.train_step(batch_of(9, device))}, {"loss": other.train_step(batch_of(9, device))}
    )
    assert seen(step) == seen(other)


@pytest.mark.parametrize("name", STEPS)
def test_the_launches_are_those_that_ran(name: str, device: str) -> None:
    step = STEPS[name](device)
    step.train_step(batch_of(1, device))
    profile = step.profile(2)
    plan: Any = step._active  # pyright: ignore[reportPrivateUsage]
    assert [launch.kernel_id for launch in profile.launches] == step.executed_kernels()
    assert [launch.kernel for launch in profile.launches] == plan.executor.trace(choices=True)
    assert [f"@{row['symbol']}" for row in plan.program.launches] == [
        launch.launch for launch in profile.launches
    ]
    assert (profile.step, profile.device.split(":")[0]) == (step.name, device)


def test_times_add_up(device: str) -> None:
    """With marks a step is the sum of its launches in every run; nothing is left out or counted twice."""
    profile = plain(device).profile(4, batch_of(1, device))
    assert profile.runs == 4
    assert all(len(launch.samples) == 4 for launch in profile.launches)
    assert all(time >= 0 for launch in profile.launches for time in launch.samples)
    sums = sorted(sum(launch.samples[run] for launch in profile.launches) for run in range(4))
    assert profile.marked == pytest.approx((sums[0] + sums[1]) / 2)
    assert profile.seconds == pytest.approx(sum(sorted(profile.samples)[:2]) / 2)
    assert 0 < profile.least <= profile.seconds
    for launch in profile.launches:
        assert launch.least <= launch.seconds <= max(launch.samples)
        assert launch.share is None or launch.share == pytest.approx(launch.floor / launch.seconds)


def test_it_measures_the_plan_of_the_batch(device: str) -> None:
    """With gradients that are kept the first launch is a product alone, on each device: its work is that of its rows."""
    model = mlp(8, 17, 8).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    step = compile_train_step(
        model, optimizer, B=(6, 3), D=8, device=device, further_sizes=1, keep_gradients=True
    )
    step.train_step(batch_of(1, device))
    step.train_step(batch_of(1, device, rows=4))
    before = seen(step)
    by_size = {rows: step.profile(1, batch_of(2, device, rows)).launches for rows in (6, 3, 4)}
    assert by_size[6][0].flops == 2 * (by_size[3][0].flops or 0) != 0
    assert step.profile(1).launches[0].flops == by_size[4][0].flops
    with pytest.raises(StateError, match=r"no plan for these batch shapes yet; call train_step\(batch\)"):
        step.profile(1, batch_of(2, device, rows=5))
    assert_as_before(before, step)


@pytest.mark.parametrize("n", [0, -1, True, 2.0, "3", None])
def test_a_count_that_is_none_is_refused(n: Any) -> None:
    with pytest.raises(BindError, match=rf"step: profile\(n\) needs a positive integer, got {n!r}"):
        plain("cpu").profile(n, batch_of(1, "cpu"))


def test_it_is_refused_without_a_batch_and_when_closed() -> None:
    step = plain("cpu")
    before = seen(step)
    with pytest.raises(StateError, match=r"step: profile\(\) has no inputs yet; pass a batch"):
        step.profile()
    with pytest.raises(BindError, match="input 'x': expected float32"):
        step.profile(batch={"x": torch.zeros(2, 2), "t": torch.zeros(2, 2)})
    with (
        torch.autocast("cpu", dtype=torch.bfloat16),
        pytest.raises(GuardError, match=r"inside torch\.autocast"),
    ):
        step.profile(1, batch_of(1, "cpu"))
    assert_as_before(before, step)
    step.close()
    with pytest.raises(StateError, match="step: the step is closed"):
        step.profile()


def test_a_changed_model_is_refused_as_by_a_step(device: str) -> None:
    step = everything(device)
    step.train_step(batch_of(1, device))
    model: Any = step._request.model  # pyright: ignore[reportPrivateUsage]
    model[2].p = 0.25
    before = seen(step)
    with pytest.raises(GuardError, match=r"0\.25"):
        step.profile(1)
    assert_as_before(before, step)


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_a_check_that_fails_puts_everything_back(number: float, device: str) -> None:
    step, other = checked(device), checked(device)
    for each in (step, other):
        each.train_step(batch_of(1, device))
    before, bad = seen(step), batch_of(2, device)
    bad["x"][1, 2] = number
    with pytest.raises(NonFiniteError, match=r"batch's 'x' is (nan|inf)"):
        step.profile(3, bad)
    assert_as_before(before, step)
    assert_same_bits(
        {"loss": step.train_step(batch_of(3, device))}, {"loss": other.train_step(batch_of(3, device))}
    )


def test_a_class_out_of_range_puts_everything_back(device: str) -> None:
    model = mlp(8, 5).to(device)
    batch = {"x": torch.randn(6, 8, device=device), "t": torch.arange(6, device=device) % 5}
    step = compile_train_step(
        model,
        torch.optim.Adam(model.parameters()),
        loss_fn=lambda model, batch: nn.functional.cross_entropy(model(batch["x"]), batch["t"]),
        example=batch,
        device=device,
    )
    before = seen(step)
    with pytest.raises(OutOfRangeError, match="got 5 at"):
        step.profile(3, {**batch, "t": batch["t"] + 2})
    assert_as_before(before, step)
    step.train_step(batch)


def test_a_step_that_an_overflow_skips_is_measured(device: str) -> None:
    step = everything(device)
    step.train_step(batch_of(1, device))
    before, bad = seen(step), batch_of(2, device)
    bad["t"][0, 0] = math.inf
    assert step.profile(3, bad).runs == 3
    assert_as_before(before, step)
    assert step.skipped == 0


def test_every_run_is_the_step_that_comes_next(device: str) -> None:
    """Each starts from the same state: a training that would diverge within the runs is measured all the same."""

    def diverging(model: Any, batch: Any) -> torch.Tensor:
        return model(batch["x"]).square().sum() * 1e3

    model = mlp(8, 8).to(device)
    step = compile_train_step(
        model,
        torch.optim.SGD(model.parameters(), lr=1.0),
        loss_fn=diverging,
        example=batch_of(0, device),
        device=device,
        check_finite=True,
    )
    assert step.profile(50, batch_of(1, device)).runs == 50
    with pytest.raises(NonFiniteError):
        for _ in range(50):
            step.train_step(batch_of(1, device))


@pytest.mark.parametrize("name", ["usual", "gan", "micro_batches"])
def test_a_loop_body_is_measured_and_put_back(name: str, device: str) -> None:
    """Schedulers do not step, and the calls behind it are those of the body as it is."""
    world, theirs = made(BODIES[name], device), made(BODIES[name], device)
    given = batches(world, device, 4)
    body: Any = compile_step(world.body, example=given[0], device=device)
    body.profile(2, given[3])
    for number, batch in enumerate(given[:3]):
        body.train_step(batch)
        in_torch(theirs, batch)
        if number == 1:
            states = [str(scheduler.state_dict()) for scheduler in world.schedulers]
            profile = body.profile(2)
            assert states == [str(scheduler.state_dict()) for scheduler in world.schedulers]
            assert [launch.kernel_id for launch in profile.launches] == body.executed_kernels()
    for ours, expected in zip(world.tensors(), theirs.tensors(), strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-5, check_device=False)


def test_micro_batches_are_measured_as_one_step(device: str) -> None:
    model = mlp(8, 17, 8).to(device)
    step = compile_train_step(
        model,
        torch.optim.Adam(model.parameters()),
        example=[batch_of(0, device)],
        device=device,
        accumulate=3,
    )
    parts = [batch_of(seed, device) for seed in range(3)]
    step.train_step(parts)
    before = seen(step)
    assert len(step.profile(2, parts[::-1]).launches) == len(step.planned_kernels())
    assert_as_before(before, step)


def test_ranges_of_torchs_profiler(device: str) -> None:
    """Each call is a range of its name while torch's profiler runs, and none is made while it does not."""
    step = plain(device)
    batch = batch_of(1, device)
    with torch.profiler.profile() as recorded:
        step.train_step(batch)
        step.capture(batch)
        step.replay(2)
        step.profile(1)
    names = [
        event.name
        for event in recorded.events() or ()
        if event.name.startswith("step.") and event.device_type.name == "CPU"
    ]
    assert names == ["step.train_step", "step.capture", "step.replay", "step.profile"]
    other = plain(device)
    other.train_step(batch)
    other.capture(batch)
    assert_same_bits({"loss": step.replay(2)}, {"loss": (other.replay(2), other.replay(2))[1]})
