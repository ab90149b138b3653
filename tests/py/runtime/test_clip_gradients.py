"""`clip_grad_norm` and `clip_grad_value`: torch's clipping of gradients inside the step, with limits that may change."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from clipped_training import OPTIMIZERS, Training, batches
from levels import run_text
from models import WithDeadParameter, mlp, mse, regression, to_device, values
from oracle import assert_all_right, assert_same_bits

from aicf_mlir import ClipGradNorm, NonFiniteError, compile_train_step
from aicf_mlir.stages import STAGE_NAMES

STEPS = 50


def limit_at(step: int) -> float:
    """Sometimes below the norm, sometimes above, sometimes none at all."""
    return (0.05, 0.3, 0.0, 100.0, math.inf, 1e-3)[step % 6]


Clip = Callable[[Training, Mapping[str, float]], object]
"""Clips the gradients of a run in torch, with limits by the names of their host scalars."""


def beside_torch(
    optimizer: str,
    device: str,
    limits: Callable[[int], Mapping[str, float]],
    clip: Clip,
    **options: Any,
) -> None:
    """Parameters, states and norms are those of torch after all steps; limits are set before each."""
    runs = [Training(optimizer, dtype) for dtype in (torch.float32, torch.float64)]
    for run, dtype in zip(runs, (torch.float32, torch.float64), strict=True):
        for number, batch in enumerate(batches(STEPS, dtype)):
            run.in_torch(batch, partial(clipped, limits(number), clip))
    ours = Training(optimizer, device=device, **options)
    given = batches(STEPS, device=device)
    step = ours.compiled(given[0])
    for number, batch in enumerate(given):
        for name, limit in limits(number).items():
            step.meta[name] = limit
        if number == STEPS // 2:
            step.capture(batch)
        _ = step.train_step(batch) if number < STEPS // 2 else step.replay(inputs=batch)
        if "clip_grad_norm" in options:
            ours.norms.append(step.grad_norm)
        ours.schedule.step()
    assert_all_right(ours.values(), runs[0].values(), runs[1].values())


def clip_norm(order: float) -> Clip:
    def clip(run: Training, limits: Mapping[str, float]) -> None:
        norm = torch.nn.utils.clip_grad_norm_(run.model.parameters(), limits["clip_grad_norm"], order)
        run.norms.append(norm)

    return clip


def clipped(limits: Mapping[str, float], clip: Clip, run: Training) -> None:
    clip(run, limits)


@pytest.mark.parametrize("order", [2.0, math.inf, 1.0])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_norm_is_limited_as_in_torch(optimizer: str, order: float, device: str) -> None:
    asked = ClipGradNorm(1.0, order)
    beside_torch(
        optimizer, device, lambda n: {"clip_grad_norm": limit_at(n)}, clip_norm(order), clip_grad_norm=asked
    )


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_values_are_limited_as_in_torch(optimizer: str, device: str) -> None:
    def clip(run: Training, limits: Mapping[str, float]) -> None:
        torch.nn.utils.clip_grad_value_(run.model.parameters(), limits["clip_grad_value"])

    beside_torch(
        optimizer, device, lambda n: {"clip_grad_value": limit_at(n) / 10}, clip, clip_grad_value=1.0
    )


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_each_group_has_its_limit_and_values_come_first(optimizer: str, device: str) -> None:
    def clip(run: Training, limits: Mapping[str, float]) -> None:
        torch.nn.utils.clip_grad_value_(run.model.parameters(), 0.05)
        limited = zip(run.groups, (limits["clip_grad_norm"], limits["clip_grad_norm.1"]), strict=True)
        norms = [torch.nn.utils.clip_grad_norm_(group, limit) for group, limit in limited]
        run.norms.append(torch.stack(norms))

    beside_torch(
        optimizer,
        device,
        lambda n: {"clip_grad_norm": limit_at(n), "clip_grad_norm.1": limit_at(n + 1) / 3},
        clip,
        clip_grad_norm=[1.0, 1.0],
        clip_grad_value=0.05,
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_other_element_types(dtype: torch.dtype, device: str) -> None:
    options = {"clip_grad_norm": 0.1, "clip_grad_value": 0.02, "keep_gradients": True}
    ours = Training("sgd", dtype, device, **options)
    (batch,) = batches(1, dtype, device)
    step = ours.compiled(batch)
    step.train_step(batch)
    theirs = Training("sgd", torch.float64)
    mse(theirs.model, {name: tensor.double().cpu() for name, tensor in batch.items()}).backward()
    torch.nn.utils.clip_grad_value_(theirs.model.parameters(), 0.02)
    norm = torch.nn.utils.clip_grad_norm_(theirs.model.parameters(), 0.1)
    tolerance = 16 * torch.finfo(dtype).eps
    torch.testing.assert_close(step.grad_norm.cpu().double(), norm, rtol=tolerance, atol=0)
    for name, parameter in theirs.model.named_parameters():
        ours_of = step.gradients[name].cpu().double()
        assert parameter.grad is not None
        torch.testing.assert_close(ours_of, parameter.grad, rtol=tolerance, atol=tolerance * 0.02)
    assert step.grad_norm.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)


def test_types_may_be_mixed(device: str) -> None:
    """A norm over f16, f32 and f64 is an f64, as in torch."""

    class Mixed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            kinds = (torch.float16, torch.float32, torch.float64)
            self.parts = torch.nn.ParameterList([torch.full((3,), 2.0, dtype=kind) for kind in kinds])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return sum(
                ((p.double() * x).sum() for p in self.parts), torch.zeros((), dtype=torch.float64)
            ).float()

    model, other = Mixed().to(device), Mixed()
    x = torch.tensor([1.0, 2.0, 2.0], dtype=torch.float64)  # of norm 3, also in f16
    step = compile_train_step(
        model,
        torch.optim.SGD(model.parameters(), lr=1.0),
        loss_fn=lambda m, b: m(b["x"]),
        example={"x": x.to(device)},
        device=device,
        clip_grad_norm=0.5,
    )
    step.train_step({"x": x.to(device)})
    other(x).backward()
    norm = torch.nn.utils.clip_grad_norm_(other.parameters(), 0.5)
    assert step.grad_norm.dtype == norm.dtype == torch.float64
    torch.testing.assert_close(step.grad_norm.cpu(), norm)
    for ours, theirs in zip(model.parts, other.parts, strict=True):
        assert theirs.grad is not None
        torch.testing.assert_close(ours.detach().cpu(), (theirs - theirs.grad).detach())


def test_a_replay_follows_the_limits_with_the_bits_of_eager_steps(device: str) -> None:
    eager, replayed = (Training("adamw", device=device, clip_grad_norm=1.0) for _ in range(2))
    given = batches(3, device=device)
    first, second = eager.compiled(given[0]), replayed.compiled(given[0])
    second.warmup(given[0])
    second.capture(given[0])
    for number, batch in enumerate(given):
        for step in (first, second):
            step.meta["clip_grad_norm"] = limit_at(number)
        for _ in range(4):
            first.train_step(batch)
        second.replay(4, inputs=batch)
        assert_same_bits(
            {"norm": second.grad_norm, **replayed.values()}, {"norm": first.grad_norm, **eager.values()}
        )


def test_limits_are_in_snapshots_and_checkpoints_and_outlive_a_recompilation(
    device: str, tmp_path: Path
) -> None:
    run = Training("adam", device=device, clip_grad_norm=[1.0, 0.5], clip_grad_value=0.25)
    (batch,) = batches(1, device=device)
    step = run.compiled(batch)
    step.train_step(batch)
    names = ("clip_grad_norm", "clip_grad_norm.1", "clip_grad_value")
    assert [step.meta[name] for name in names] == [1.0, 0.5, 0.25]
    before = step.snapshot()
    for name, limit in zip(names, (0.1, 0.2, 0.3), strict=True):
        step.meta[name] = limit
    step.save(tmp_path / "saved")
    saved = step.snapshot()
    step.train_step(batch)
    onward = run.values()
    step.restore(before)
    assert [step.meta[name] for name in names] == [1.0, 0.5, 0.25]
    step.restore(saved)
    step.train_step(batch)
    assert_same_bits(run.values(), onward)
    step.recompile()
    assert [step.meta[name] for name in names] == [0.1, 0.2, 0.3]
    other = Training("adam", device=device, clip_grad_norm=[1.0, 0.5], clip_grad_value=0.25)
    loaded = other.compiled(batch)
    loaded.load(tmp_path / "saved")
    assert [loaded.meta[name] for name in names] == [0.1, 0.2, 0.3]
    loaded.train_step(batch)
    assert_same_bits(other.values(), onward)


def test_shape_groups_share_the_limit(device: str) -> None:
    run, theirs = Training("adamw", device=device, clip_grad_norm=0.1), Training("adamw")
    given = [to_device(regression(rows, seed=rows), device) for rows in (4, 9, 9, 4)]
    step = run.compiled(given[:2])
    for number, batch in enumerate(given):
        if number == 2:
            step.meta["clip_grad_norm"] = 0.02
        step.train_step(batch)
        run.norms.append(step.grad_norm)
        theirs.in_torch(
            to_device(batch, "cpu"),
            partial(clipped, {"clip_grad_norm": 0.1 if number < 2 else 0.02}, clip_norm(2.0)),
        )
    torch.testing.assert_close(run.values(), theirs.values())


def test_steps_of_one_model_have_limits_of_their_own(device: str) -> None:
    run = Training("sgd", device=device, clip_grad_norm=0.0)
    (batch,) = batches(1, device=device)
    still = run.compiled(batch)
    run.options = {"clip_grad_norm": 1.0}
    moving = run.compiled(batch)
    before = run.values()
    still.train_step(batch)
    assert_same_bits({n: run.values()[n] for n in before}, before)
    moving.train_step(batch)
    assert not torch.equal(run.values()["0.weight"], before["0.weight"])
    assert (still.meta["clip_grad_norm"], moving.meta["clip_grad_norm"]) == (0.0, 1.0)


def test_what_has_no_gradient_has_no_part(device: str) -> None:
    model, other = WithDeadParameter().to(device), WithDeadParameter()
    (batch,) = batches(1, device=device)

    def groups(m: WithDeadParameter) -> list[dict[str, Any]]:
        return [
            {"params": list(m.first.parameters())},
            {"params": [m.unused]},
            {"params": list(m.last.parameters())},
        ]

    step = compile_train_step(
        model,
        torch.optim.SGD(groups(model), lr=0.1),
        loss_fn=mse,
        example=batch,
        device=device,
        clip_grad_norm=(0.1, 0.2, 0.05),
    )
    assert [name for name in step.meta if name.startswith("clip")] == ["clip_grad_norm", "clip_grad_norm.2"]
    step.train_step(batch)
    optimizer = torch.optim.SGD(groups(other), lr=0.1)
    mse(other, to_device(batch, "cpu")).backward()
    norms = [
        torch.nn.utils.clip_grad_norm_(group["params"], limit)
        for group, limit in zip(optimizer.param_groups, (0.1, 0.2, 0.05), strict=True)
    ]
    optimizer.step()
    torch.testing.assert_close(step.grad_norm.cpu(), torch.stack(norms))
    for ours, theirs in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(ours.detach().cpu(), theirs.detach())


def test_the_update_of_a_large_weight_waits_for_the_norm() -> None:
    """Without a limit it is part of the product that makes its gradient; with one it cannot be."""
    batch = regression(16, 512)
    kernels: list[list[str]] = []
    for options in ({}, {"clip_grad_norm": 1e-3}):
        model, other = mlp(512, 512, 512), mlp(512, 512, 512)
        adam, theirs = (torch.optim.Adam(m.parameters(), lr=1e-2, eps=1e-3) for m in (model, other))
        step = compile_train_step(model, adam, loss_fn=mse, example=batch, device="cpu", **options)
        kernels.append([launch["op"] for launch in step._active.program.launches])  # pyright: ignore[reportPrivateUsage]
        for _ in range(3):
            step.train_step(batch)
            theirs.zero_grad()
            mse(other, batch).backward()
            if options:
                torch.nn.utils.clip_grad_norm_(other.parameters(), 1e-3)
            theirs.step()
        for ours, expected in zip(model.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-6)
    assert [ops.count("adam_step") for ops in kernels] == [1, 1]
    assert "gemm_map" in kernels[0] and "gemm_map" not in kernels[1]


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf], ids=str)
def test_gradients_that_are_not_finite_are_those_of_torch(number: float, device: str) -> None:
    """An infinite norm makes finite gradients 0 and infinite ones NaN; a NaN makes all of them NaN."""
    (batch,) = batches(1, device=device)
    batch["t"][0, 0] = number
    ours, theirs = Training("sgd", device=device, clip_grad_norm=1.0), Training("sgd")
    step = ours.compiled(batch)
    step.train_step(batch)
    theirs.in_torch(
        to_device(batch, "cpu"),
        lambda run: torch.nn.utils.clip_grad_norm_(run.model.parameters(), 1.0),
    )
    torch.testing.assert_close(ours.values(), values(theirs.model, theirs.optimizer), equal_nan=True)


def test_a_check_sees_gradients_before_they_are_clipped(device: str) -> None:
    """Clipped values would be finite."""
    ours = Training("sgd", device=device, clip_grad_value=1.0, check_finite=True)
    (batch,) = batches(1, device=device)
    step = ours.compiled(batch)
    step.train_step(batch)
    before = ours.values()
    wrong = {**batch, "t": batch["t"].clone()}
    wrong["t"][0, 0] = math.inf
    with pytest.raises(NonFiniteError, match="'t' is inf"):
        step.train_step(wrong)
        step.synchronize()
    assert_same_bits(ours.values(), before)
    step.train_step(batch)


@pytest.mark.parametrize("stage", [name for name in STAGE_NAMES[2:] if name != "buffers"])
def test_every_text_reads_back_and_means_the_same(stage: str) -> None:
    ours = Training("adamw", clip_grad_norm=ClipGradNorm(0.05, math.inf), clip_grad_value=0.1)
    (batch,) = batches(1)
    step = ours.compiled(batch)
    arguments = {**values(ours.model, ours.optimizer), **batch, **step.meta}
    step.train_step(batch)
    made = run_text(step.ir(stage), arguments)
    expected = {"grad_norm": step.grad_norm, **values(ours.model, ours.optimizer)}
    expected = {name: tensor for name, tensor in expected.items() if not name.endswith(".step")}
    torch.testing.assert_close({name: made[name] for name in expected}, expected)


def test_the_captured_step_is_certified_and_every_scalar_has_a_source(device: str) -> None:
    ours = Training("rmsprop", device=device, clip_grad_norm=ClipGradNorm(0.05, 2), clip_grad_value=0.1)
    (batch,) = batches(1, device=device)
    step = ours.compiled(batch)
    step.train_step(batch)
    assert step.capture(batch, verify="bitwise").equal
    live = {row.name for row in step.scalars() if row.kind == "host_scalar"}
    assert {"clip_grad_norm", "clip_grad_value"} <= live


def test_an_unlimited_norm_is_only_read(device: str) -> None:
    """A GPU updates where a small gradient is made, with other bits; it does not where gradients are limited, or kept."""
    ours = Training("adam", device=device, clip_grad_norm=math.inf)
    plain = Training("adam", device=device, keep_gradients=device == "cuda")
    (batch,) = batches(1, device=device)
    ours.compiled(batch).train_step(batch)
    plain.compiled(batch).train_step(batch)
    assert_same_bits(ours.values(), plain.values())
