"""precision=: what torch.autocast computes, with master weights of f32, eager, replayed, saved, and in loop bodies."""

from __future__ import annotations

import json
import logging
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from models import Batch, mse, regression, to_device
from oracle import assert_same_bits
from precise_training import CASES, LOW, Training, adam, assert_near, products_in
from torch import nn

import aicf_mlir
from aicf_mlir import (
    BindError,
    LossScale,
    NonFiniteError,
    compile_eval_step,
    compile_step,
    compile_train_step,
)

STEPS = 4

lows = pytest.mark.parametrize("precision", LOW)


@lows
@pytest.mark.parametrize("case", CASES)
def test_trains_as_torch_does_under_autocast(case: str, precision: str, device: str) -> None:
    ours, theirs = Training(case, device), Training(case, device)
    step = ours.compiled(precision=precision)
    for _ in range(STEPS):
        ours.losses.append(step.train_step(ours.batch).clone())
    scale = theirs.in_torch(precision, STEPS)
    unit = torch.finfo(LOW[precision]).eps
    torch.testing.assert_close(torch.stack(ours.losses), torch.stack(theirs.losses), rtol=unit, atol=unit)
    assert_near(ours.moved(), theirs.moved(), 4 * unit)
    assert all(p.dtype is torch.float32 for p in ours.model.parameters())
    if precision == "f16":
        assert (step.loss_scale.item(), step.skipped) == (scale, 0)
    products = products_in(step)
    assert products == {precision} or (case == "attention" and precision in products)


@pytest.mark.parametrize("case", CASES)
def test_it_is_the_step_of_an_autocast_in_the_loss(case: str, device: str) -> None:
    ours, other = Training(case, device), Training(case, device)

    def under_autocast(model: Any, batch: Batch) -> torch.Tensor:
        with torch.autocast(device, torch.bfloat16):
            return other.case.loss(model, batch)

    told = other.compiled(loss_fn=under_autocast).ir("nn")
    assert ours.compiled(precision="bf16").ir("nn") == told


@lows
def test_replays_have_the_bits_of_eager_steps(precision: str, device: str, tmp_path: Path) -> None:
    eager, replayed = (Training("mlp", device, adam) for _ in range(2))
    steps = [each.compiled(precision=precision, keep_gradients=True) for each in (eager, replayed)]
    steps[1].warmup(replayed.batch)
    assert steps[1].capture(replayed.batch, verify="bitwise").equal
    for _ in range(3):
        steps[0].train_step(eager.batch)
    steps[1].replay(3, inputs=replayed.batch)
    assert_same_bits(replayed.values(), eager.values())
    kept = steps[0].snapshot()
    steps[0].save(tmp_path / "saved")
    steps[0].train_step(eager.batch)
    fourth = eager.values()
    steps[0].restore(kept)
    steps[0].recompile()
    steps[0].train_step(eager.batch)
    assert_same_bits(eager.values(), fourth)
    again = Training("mlp", device, adam)
    keep = device == "cuda"  # else it updates in its products there
    loaded = again.compiled(precision=precision, keep_gradients=keep)
    loaded.load(tmp_path / "saved")
    loaded.train_step(again.batch)
    assert_same_bits(again.values(), fourth)


def test_a_checkpoint_says_nothing_about_it(device: str, tmp_path: Path) -> None:
    low, full = Training("mlp", device, adam), Training("mlp", device, adam)
    first, second = low.compiled(precision="bf16"), full.compiled()
    first.train_step(low.batch)
    first.save(tmp_path / "saved")
    second.load(tmp_path / "saved")
    assert_same_bits(full.values(), low.values())
    second.train_step(full.batch)
    second.save(tmp_path / "again")
    first.load(tmp_path / "again")
    assert_same_bits(low.values(), full.values())


def test_f32_is_the_model_as_it_is_written(device: str) -> None:
    plain, asked = Training("mlp", device), Training("mlp", device)
    texts = [each.compiled(precision=given).ir() for each, given in ((plain, None), (asked, "f32"))]
    assert texts[0] == texts[1]


@lows
def test_evaluation(precision: str, device: str) -> None:
    ours = Training("classifier", device)
    step = compile_eval_step(
        ours.model, loss_fn=ours.case.loss, example=ours.batch, device=device, precision=precision
    )
    with torch.no_grad(), torch.autocast(device, LOW[precision]):
        expected = ours.case.loss(ours.model, ours.batch)
    unit = torch.finfo(LOW[precision]).eps
    torch.testing.assert_close(step.eval_step(ours.batch), expected, rtol=unit, atol=unit)
    assert products_in(step) == {precision}


def test_an_autocast_in_the_loss_goes_before(device: str) -> None:
    def loss_under(enabled: bool) -> Any:
        def loss(model: Any, batch: Batch) -> torch.Tensor:
            with torch.autocast(device, torch.bfloat16, enabled=enabled):
                return mse(model, batch)

        return loss

    for enabled, types in ((True, {"bf16"}), (False, {"f32"})):
        step = Training("mlp", device).compiled(loss_fn=loss_under(enabled), precision="f16")
        assert products_in(step) == types


def test_f16_is_scaled_unless_it_is_asked_for_otherwise(device: str) -> None:
    assert Training("mlp", device).compiled(precision="f16").loss_scale.item() == 2.0**16
    for given, scale in ((1.0, 1.0), (LossScale(8.0), 8.0)):
        step = Training("mlp", device).compiled(precision="f16", loss_scale=given)
        assert step.loss_scale.item() == scale
    unscaled = [
        Training("mlp", device).compiled(precision="f16", loss_scale=None),
        Training("mlp", device).compiled(precision="bf16"),
        Training("mlp", device).compiled(),
    ]
    for step in unscaled:
        with pytest.raises(BindError, match="the step has no scale of its loss"):
            _ = step.loss_scale


def test_small_gradients_of_f16_are_kept_by_the_scale(device: str) -> None:
    """Unscaled they are zero, in torch as here."""

    def tiny(model: Any, batch: Batch) -> torch.Tensor:
        return mse(model, batch) * 1e-7

    for given, scaled in (({}, True), ({"loss_scale": None}, False)):
        ours, theirs = Training("mlp", device), Training("mlp", device)
        step = ours.compiled(loss_fn=tiny, precision="f16", keep_gradients=True, **given)
        step.train_step(ours.batch)
        scaler = torch.amp.GradScaler(device, enabled=scaled)
        with torch.autocast(device, torch.float16):
            loss = tiny(theirs.model, theirs.batch)
        scaler.scale(loss).backward()
        scaler.unscale_(theirs.optimizer) if scaled else None
        expected = {name: p.grad.cpu() for name, p in theirs.model.named_parameters() if p.grad is not None}
        found = {name: step.gradients[name].cpu() for name in expected}
        assert any(bool(gradient.any()) for gradient in expected.values()) or not scaled
        if scaled:
            assert_near(found, expected, 0.02)
        else:
            assert all(root.abs().max() < 1e-6 for root in (*found.values(), *expected.values()))


def test_an_overflow_skips_the_step_and_halves_the_scale(device: str) -> None:
    ours, theirs = Training("mlp", device, adam), Training("mlp", device, adam)
    step = ours.compiled(precision="f16")
    before = ours.values()
    batch = ours.batch
    batch["x"][0, 0] = 1e6  # inf in f16
    step.train_step(batch)
    after = ours.values()
    assert_same_bits({name: after[name] for name in before}, before)
    assert (step.loss_scale.item(), step.skipped) == (2.0**15, 1)
    step.train_step(ours.batch)
    theirs.in_torch("f16", 1)
    assert_near(ours.moved(), theirs.moved(), 0.01)


def test_options_beside_it(device: str) -> None:
    """Micro-batches, clipping, an average, metrics, and batches of another size, each step as in torch."""
    ours, theirs = Training("mlp", device), Training("mlp", device)

    def told(model: Any, batch: Batch) -> Any:
        loss = mse(model, batch)
        return loss, {"loss_of_batch": loss, "y": model(batch["x"])}

    step = ours.compiled(
        loss_fn=told,
        precision="bf16",
        accumulate=2,
        clip_grad_norm=0.5,
        ema=0.9,
        metrics={"loss_of_batch": "mean"},
    )
    parts = [to_device(regression(16, seed=seed), device) for seed in (1, 2)]
    losses = list[torch.Tensor]()
    for _ in range(STEPS):
        step.train_step(parts)
        theirs.optimizer.zero_grad()
        for part in parts:
            with torch.autocast(device, torch.bfloat16):
                loss = mse(theirs.model, part)
            (loss / 2).backward()
            losses.append(loss.detach())
        nn.utils.clip_grad_norm_(theirs.model.parameters(), 0.5)
        theirs.optimizer.step()
    assert_near(ours.moved(), theirs.moved(), 0.02)
    torch.testing.assert_close(
        step.metrics()["loss_of_batch"].cpu().float(), torch.stack(losses).mean().cpu(), rtol=0.01, atol=0.0
    )
    assert step.outputs["y.0"].dtype is torch.bfloat16
    assert step.capture(parts, verify="bitwise").equal


def test_a_size_that_comes_later_computes_in_it_too(device: str) -> None:
    ours, theirs = Training("mlp", device), Training("mlp", device)
    step = ours.compiled(precision="bf16", further_sizes=1)
    batch = to_device(regression(5), device)
    step.train_step(batch)
    assert products_in(step) == {"bf16"}
    with torch.autocast(device, torch.bfloat16):
        loss = mse(theirs.model, batch)
    loss.backward()
    theirs.optimizer.step()
    assert_near(ours.moved(), theirs.moved(), 0.03)


def test_sizes_without_an_example_are_of_f32(device: str) -> None:
    ours = Training("mlp", device)
    step = ours.compiled(loss_fn=None, example=None, B=16, D=8, precision="bf16")
    step.train_step(ours.batch)
    theirs = Training("mlp", device)
    theirs.in_torch("bf16", 1)
    assert_near(ours.moved(), theirs.moved(), 0.03)


def test_a_loop_body(device: str) -> None:
    ours, theirs = Training("mlp", device), Training("mlp", device)
    model, optimizer = ours.model, ours.optimizer

    def body(batch: Batch) -> torch.Tensor:
        optimizer.zero_grad()
        loss = mse(model, batch)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        return loss

    step = compile_step(body, example=ours.batch, device=device, precision="bf16")
    for _ in range(STEPS):
        ours.losses.append(step(ours.batch))
        theirs.optimizer.zero_grad()
        with torch.autocast(device, torch.bfloat16):
            loss = mse(theirs.model, theirs.batch)
        loss.backward()
        nn.utils.clip_grad_norm_(theirs.model.parameters(), 0.5)
        theirs.optimizer.step()
        theirs.losses.append(loss.detach())
    assert products_in(step) == {"bf16"}
    torch.testing.assert_close(torch.stack(ours.losses), torch.stack(theirs.losses), rtol=0.01, atol=0.0)
    assert_near(ours.moved(), theirs.moved(), 0.03)
    assert step.capture(ours.batch, verify="bitwise").equal


def test_a_decorated_loop_body(device: str) -> None:
    ours = Training("mlp", device)
    model, optimizer = ours.model, ours.optimizer

    @aicf_mlir.train_step(device=device, precision="f16")
    def body(batch: Batch) -> torch.Tensor:
        optimizer.zero_grad()
        loss = mse(model, batch)
        (loss * 1024.0).backward()
        for parameter in model.parameters():
            parameter.grad = parameter.grad / 1024.0  # pyright: ignore[reportOptionalOperand]
        optimizer.step()
        return loss

    body(ours.batch)
    theirs = Training("mlp", device)
    theirs.in_torch("f16", 1)
    assert products_in(body.step) == {"f16"}
    assert_near(ours.moved(), theirs.moved(), 0.01)


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_what_a_step_computes_in_is_told(
    precision: str, device: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "aicf"):
        step = Training("mlp", device).compiled(precision=precision)
    assert f"step: compiled 1 shape group(s) for {step.device} in {precision}" in caplog.text
    assert step.describe().startswith(f"precision: {precision}\n\n@k0 = ")
    assert json.loads(step.describe(json=True))["precision"] == precision
    assert ("allow_tf32 = true" in step.describe()) == (precision == "tf32")
    plain = Training("mlp", device).compiled()
    assert plain.describe().startswith("@k0 = ")
    assert "precision" not in json.loads(plain.describe(json=True))


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "name": (
        {"precision": "fp16"},
        'precision must be one of "f32", "tf32", "bf16", "f16", or None for what the model is written in, got \'fp16\'',
    ),
    "dtype": ({"precision": torch.bfloat16}, "got torch.bfloat16"),
    "check": (
        {"precision": "f16", "check_finite": True},
        "check_finite raises for the gradients that loss_scale skips a step for; leave check_finite out, or pass"
        ' loss_scale=None to train in "f16" without a scale',
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_precision_is_refused(case: str) -> None:
    options, text = REFUSED[case]
    ours = Training("mlp")
    before = [p.data_ptr() for p in ours.model.parameters()]
    with pytest.raises(BindError) as raised:
        ours.compiled(**options)
    assert text in str(raised.value)
    assert [p.data_ptr() for p in ours.model.parameters()] == before


@pytest.mark.parametrize("precision", ["f32", "tf32", "bf16", "f16"])
def test_parameters_that_are_not_f32_are_refused(precision: str, device: str) -> None:
    text = f"precision=\"{precision}\" expects parameters of torch.float32, but '0.weight' is torch.bfloat16"
    ours = Training("mlp", device)
    ours.model.bfloat16()
    before = [p.data_ptr() for p in ours.model.parameters()]
    with pytest.raises(BindError, match=text):
        ours.compiled(precision=precision)
    with pytest.raises(BindError, match=text):
        compile_eval_step(ours.model, example=ours.batch, device=device, precision=precision)

    def body(batch: Batch) -> None:
        ours.optimizer.zero_grad()
        mse(ours.model, batch).backward()
        ours.optimizer.step()

    with pytest.raises(
        BindError, match=r"expects parameters of torch\.float32, but .*weight' is torch\.bfloat16"
    ):
        compile_step(body, example=ours.batch, device=device, precision=precision)
    assert [p.data_ptr() for p in ours.model.parameters()] == before


def test_a_frozen_part_may_be_of_the_low_type(device: str) -> None:
    """As the base of a fine-tuning is; "f32" and "tf32" compute with all of it."""
    made = [
        nn.Sequential(nn.Linear(8, 16).bfloat16().requires_grad_(False), nn.Linear(16, 8)) for _ in range(2)
    ]
    made[1].load_state_dict(made[0].state_dict())
    ours, theirs = (each.to(device) for each in made)
    optimizers = [torch.optim.SGD(each[1].parameters(), lr=0.1) for each in (ours, theirs)]
    batch = to_device(regression(16), device)
    for whole in ("f32", "tf32"):
        with pytest.raises(BindError, match=r"'0\.weight' is torch\.bfloat16"):
            compile_train_step(ours, optimizers[0], example=batch, device=device, precision=whole)
    compile_train_step(ours, optimizers[0], example=batch, device=device, precision="bf16").train_step(batch)
    with torch.autocast(device, torch.bfloat16):
        loss = F.mse_loss(theirs(batch["x"]), batch["t"])
    loss.backward()
    optimizers[1].step()
    found, expected = (dict(each[1].named_parameters()) for each in (ours, theirs))
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=0.0, atol=2e-4)


@pytest.mark.gpu
def test_a_model_on_another_device_is_refused() -> None:
    ours = Training("mlp")
    with pytest.raises(
        BindError,
        match=r"the rules of torch\.autocast\(\"cuda\"\), but '0\.weight' is on cpu; call model\.to",
    ):
        ours.compiled(device="cuda", precision="bf16")


def test_a_check_of_gradients_without_a_scale(device: str) -> None:
    ours = Training("mlp", device)
    step = ours.compiled(precision="f16", check_finite=True, loss_scale=None)
    batch = ours.batch
    batch["x"][0, 0] = math.inf
    with pytest.raises(NonFiniteError):
        step.train_step(batch)
        step.train_step(ours.batch)
