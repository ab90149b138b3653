"""What a training loop asks for, all at once: clipping, micro-batches, outputs, nested batches, an optimizer of one's own."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from models import Batch, mlp, regression, to_device
from written_optimizers import RIGHT

from aicf_mlir import compile_train_step, survey
from aicf_mlir.errors import BindError

STEPS = 6
LIMIT = 0.05


def pair_of(batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """The batch as a DataLoader gives it, in f64."""
    return batch["x"].double(), batch["t"].double()


def loss_of(model: torch.nn.Module, batch: Any) -> Any:
    x, t = batch
    error = model(x) - t
    return error.square().mean(), {"largest": error.abs().max()}


@pytest.mark.parametrize("name", ["lion", "plain-adam-decay", "adafactor"])
def test_all_at_once_equals_torch(name: str, device: str) -> None:
    torch.manual_seed(0)
    model = mlp(8, 17, 8).double().to(device)
    other = copy.deepcopy(model)
    ours, theirs = (RIGHT[name](list(each.parameters())) for each in (model, other))
    parts = [
        [pair_of(to_device(regression(seed=10 * number + part), device)) for part in range(3)]
        for number in range(STEPS)
    ]
    step = compile_train_step(
        model, ours, loss_fn=loss_of, example=parts[0][0], device=device, accumulate=3, clip_grad_norm=LIMIT
    )
    for number, given in enumerate(parts):
        if number == STEPS // 2:
            step.capture(given)
        loss = step.train_step(given) if number < STEPS // 2 else step.replay(inputs=given)
        theirs.zero_grad()
        losses = [loss_of(other, part) for part in given]
        for each, _ in losses:
            (each / 3).backward()
        norm = torch.nn.utils.clip_grad_norm_(other.parameters(), LIMIT)
        theirs.step()
        torch.testing.assert_close(
            loss, torch.stack([each.detach() for each, _ in losses]).mean(), rtol=1e-9, atol=0
        )
        torch.testing.assert_close(step.grad_norm, norm, rtol=1e-9, atol=0.0)
        for part, (_, outputs) in enumerate(losses):
            torch.testing.assert_close(
                step.outputs[f"largest.{part}"], outputs["largest"].detach(), rtol=1e-9, atol=0
            )
    for p, q in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-9, atol=1e-11)


def test_metrics_gather_micro_batches(device: str) -> None:
    torch.manual_seed(0)
    model = mlp(8, 17, 8).double().to(device)
    optimizer = RIGHT["lion"](list(model.parameters()))
    given = [pair_of(to_device(regression(seed=part), device)) for part in range(2)]
    step = compile_train_step(
        model,
        optimizer,
        loss_fn=loss_of,
        example=given[0],
        device=device,
        accumulate=2,
        metrics={"largest": "mean"},
    )
    expected: list[torch.Tensor] = []
    for _ in range(3):
        expected += [loss_of(model, part)[1]["largest"].detach() for part in given]
        step.train_step(given)
    torch.testing.assert_close(step.metrics()["largest"], torch.stack(expected).mean(), rtol=1e-9, atol=0.0)


def test_micro_batches_are_nested_as_the_example() -> None:
    model = mlp(8, 17, 8).double()
    good = [pair_of(regression(seed=part)) for part in range(2)]
    step = compile_train_step(
        model, RIGHT["lion"](model.parameters()), loss_fn=loss_of, example=good[0], device="cpu", accumulate=2
    )
    with pytest.raises(BindError, match=r"is a dict with .*, compiled for a tuple of 2"):
        step.train_step([good[0], {"x": good[1][0], "t": good[1][1]}])
    step.train_step(good)


def test_an_output_may_not_have_the_name_of_the_norm() -> None:
    model = mlp(8, 17, 8).double()

    def loss(model: torch.nn.Module, batch: Any) -> Any:
        total, outputs = loss_of(model, batch)
        return total, {"grad_norm": outputs["largest"]}

    with pytest.raises(BindError, match="returns an output 'grad_norm'"):
        compile_train_step(
            model,
            RIGHT["lion"](model.parameters()),
            loss_fn=loss,
            example=pair_of(regression()),
            device="cpu",
            clip_grad_norm=1.0,
        )


def test_further_sizes_are_for_steps_of_one_batch() -> None:
    model = mlp(8, 17, 8).double()
    with pytest.raises(BindError, match="further_sizes is for steps of one batch"):
        compile_train_step(
            model,
            RIGHT["lion"](model.parameters()),
            loss_fn=loss_of,
            example=pair_of(regression()),
            device="cpu",
            accumulate=2,
            further_sizes=1,
        )


def test_a_survey_traces_an_optimizer() -> None:
    from written_optimizers import REFUSED

    model = mlp(8, 17, 8).double()
    batch = pair_of(regression())
    assert survey(model, loss_of, batch, optimizer=RIGHT["lion"](model.parameters())).supported
    refused, reason = REFUSED["counts-by-data"]
    found = survey(model, loss_of, batch, optimizer=refused(model.parameters()))
    ((finding, _),) = found.findings.items()
    assert finding.what == "optimizer" and reason in finding.reason
