"""What is no limit of gradients is refused, and nothing has changed."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from clipped_training import Training, batches

from aicf_mlir import BindError, ClipGradNorm, StateError, TraceError

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "nan": ({"clip_grad_norm": math.nan}, "clip_grad_norm is nan"),
    "negative": (
        {"clip_grad_norm": -1.0},
        "clip_grad_norm must not be negative, got -1.0; math.inf limits nothing",
    ),
    "text": ({"clip_grad_norm": "1"}, "clip_grad_norm must be a real number"),
    "value": ({"clip_grad_value": -0.5}, "clip_grad_value must not be negative, got -0.5"),
    "of one group": ({"clip_grad_norm": [1.0, -2.0]}, "clip_grad_norm must not be negative, got -2.0"),
    "too few": (
        {"clip_grad_norm": [1.0]},
        "clip_grad_norm has 1 limits, the optimizer 2 param groups; give one",
    ),
    "too many": ({"clip_grad_norm": [1.0] * 3}, "clip_grad_norm has 3 limits, the optimizer 2 param groups"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_limit_is_refused(case: str) -> None:
    options, text = REFUSED[case]
    run = Training("sgd", **options)
    before = [p.data_ptr() for p in run.model.parameters()]
    with pytest.raises(BindError) as raised:
        run.compiled(batches(1)[0])
    assert text in str(raised.value)
    assert [p.data_ptr() for p in run.model.parameters()] == before


def test_the_order_of_a_norm_is_above_zero() -> None:
    for order in (0, -1.0, -math.inf):
        with pytest.raises(BindError, match="norm_type must be above 0"):
            ClipGradNorm(1.0, order)
    with pytest.raises(BindError, match="norm_type must be a real number"):
        ClipGradNorm(1.0, "fro")  # pyright: ignore[reportArgumentType]


def test_a_limit_that_is_none_changes_nothing() -> None:
    run = Training("sgd", clip_grad_norm=0.5)
    step = run.compiled(batches(1)[0])
    for wrong, text in (
        (math.nan, "is nan"),
        (-1.0, "must not be negative"),
        (None, "must be a real number"),
    ):
        with pytest.raises(BindError, match=f"host scalar 'clip_grad_norm' {text}"):
            step.meta["clip_grad_norm"] = wrong  # pyright: ignore[reportArgumentType]
        assert step.meta["clip_grad_norm"] == 0.5
    with pytest.raises(KeyError, match="no host scalar 'clip_grad_value'"):
        step.meta["clip_grad_value"] = 1.0


def test_a_norm_must_have_been_asked_for_and_computed() -> None:
    (batch,) = batches(1)
    with pytest.raises(BindError, match="no norm of its gradients; compile with clip_grad_norm"):
        _ = Training("sgd", clip_grad_value=1.0).compiled(batch).grad_norm
    with pytest.raises(StateError, match="no step has been taken yet"):
        _ = Training("sgd", clip_grad_norm=1.0).compiled(batch).grad_norm


def test_a_group_that_is_added_needs_a_limit() -> None:
    run = Training("sgd", clip_grad_norm=[1.0, 1.0])
    step = run.compiled(batches(1)[0])
    run.optimizer.add_param_group({"params": [torch.nn.Parameter(torch.zeros(1))]})
    with pytest.raises((BindError, TraceError), match="2 limits, the optimizer 3 param groups"):
        step.recompile()
