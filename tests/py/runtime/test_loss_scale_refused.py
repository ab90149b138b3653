"""What is no scale of a loss is refused, and nothing has changed."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from models import regression
from scaled_training import Side, batches, mse_of

from aicf_mlir import BindError, LossScale, NonFiniteError, compile_eval_step, compile_train_step

REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "word": (lambda: "static", "loss_scale must be \"dynamic\", a number or a LossScale, got 'static'"),
    "flag": (lambda: True, 'loss_scale must be "dynamic", a number or a LossScale, got True'),
    "zero": (lambda: 0.0, "loss_scale must be a finite f32 above 0, got 0.0"),
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
