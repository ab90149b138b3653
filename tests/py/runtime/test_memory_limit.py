"""`memory_limit`: exactly what a plan needs is enough, a byte less is refused, and what is refused has changed nothing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from models import mlp, mse, regression, to_device, values
from oracle import assert_same_bits

from aicf_mlir import BindError, CompiledTrainStep, compile_eval_step, compile_step, compile_train_step

D = 6


def made(device: str, **options: Any) -> tuple[torch.nn.Module, torch.optim.Optimizer, CompiledTrainStep]:
    torch.manual_seed(0)
    model = mlp(D, 9, D).to(device)
    optimizer = torch.optim.Adam(model.parameters())
    return model, optimizer, compile_train_step(model, optimizer, B=4, D=D, device=device, **options)


def test_the_peak_of_the_plan_is_the_least_limit(device: str) -> None:
    peak = made(device)[2].memory_report().peak
    assert made(device, memory_limit=peak)[2].memory_report().peak == peak
    with pytest.raises(
        BindError,
        match=rf"^step: the plan needs {peak} bytes \(.*param \d+.*\), and memory_limit is {peak - 1}; ",
    ):
        made(device, memory_limit=peak - 1)


def test_what_is_refused_has_bound_nothing(device: str) -> None:
    model = mlp(D, 9, D).to(device)
    optimizer = torch.optim.Adam(model.parameters())
    places = [parameter.data_ptr() for parameter in model.parameters()]
    with pytest.raises(BindError, match="memory_limit is 1;"):
        compile_train_step(model, optimizer, B=4, D=D, device=device, memory_limit=1)
    assert [parameter.data_ptr() for parameter in model.parameters()] == places
    step = compile_train_step(model, optimizer, B=4, D=D, device=device)
    step.train_step(to_device(regression(4, D), device))


def test_a_further_size_that_needs_more_is_refused_and_the_step_goes_on(device: str) -> None:
    peak = made(device)[2].memory_report().peak
    model, optimizer, step = made(device, memory_limit=peak, further_sizes=1)
    twin, other, free = made(device, further_sizes=1)
    step.train_step(to_device(regression(4, D), device))
    free.train_step(to_device(regression(4, D), device))
    with pytest.raises(BindError, match=f"memory_limit is {peak};"):
        step.train_step(to_device(regression(64, D), device))
    step.train_step(to_device(regression(2, D), device))
    free.train_step(to_device(regression(2, D), device))
    assert_same_bits(values(model, optimizer), values(twin, other))


def test_other_steps_have_it_too(device: str) -> None:
    model = mlp(D, 9, D).to(device)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = to_device(regression(4, D), device)

    def body(batch: dict[str, torch.Tensor]) -> torch.Tensor:
        sgd.zero_grad()
        loss = mse(model, batch)
        loss.backward()
        sgd.step()
        return loss

    with pytest.raises(BindError, match=r"^step: the plan needs"):
        compile_step(body, example=batch, device=device, memory_limit=1)
    with pytest.raises(BindError, match=r"^eval: the plan needs"):
        compile_eval_step(model, example=batch, device=device, memory_limit=1)


@pytest.mark.parametrize("most", [0, -1, 1.5, True, "1GB"])
def test_what_is_no_limit_is_refused(most: Any) -> None:
    with pytest.raises(BindError, match=r"^memory_limit must be a whole number of bytes, 1 or more, got "):
        made("cpu", memory_limit=most)
