"""Several batch sizes share parameters, state and host scalars; each has a plan and a graph of its own."""

from __future__ import annotations

import copy

import pytest
import torch
from models import compiled, mlp, regression, to_device, values
from oracle import assert_same_bits
from torch import nn

from aicf_mlir.errors import BindError, StateError
from aicf_mlir.step.compile import compile_train_step
from aicf_mlir.step.compiled_step import CompiledTrainStep

D = 8
SIZES = (4, 5, 33)


def compile_sizes(device: str) -> tuple[nn.Module, torch.optim.Optimizer, CompiledTrainStep]:
    model = mlp(D, 17, D).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    step = compile_train_step(model, optimizer, B=SIZES, D=D, device=device)
    return model, optimizer, step


def test_steps_of_all_sizes_train_one_model(device: str) -> None:
    model, optimizer, step = compile_sizes(device)
    for size in (5, 4, 33, 5):
        alone = compiled(
            lambda m: torch.optim.Adam(m.parameters(), lr=1e-2),
            device,
            batch=regression(size, D, seed=size),
        )
        alone.model.load_state_dict(model.state_dict())
        alone.optimizer.load_state_dict(optimizer.state_dict())
        batch = to_device(regression(size, D, seed=size), device)
        loss, expected = step.train_step(batch), alone.train()
        assert_same_bits({"loss": loss, **values(model, optimizer)}, {"loss": expected, **alone.values()})


def test_each_size_is_captured_by_itself(device: str) -> None:
    model, optimizer, step = compile_sizes(device)
    batches = {size: to_device(regression(size, D, seed=size), device) for size in SIZES}
    for batch in batches.values():
        step.warmup(batch)
        step.capture(batch)
    eager_model, eager_optimizer, eager = compile_sizes(device)
    for size in (33, 4, 5, 33):
        loss, expected = step.replay(2, inputs=batches[size]), None
        for _ in range(2):
            expected = eager.train_step(batches[size])
        assert_same_bits(
            {"loss": loss, **values(model, optimizer)},
            {"loss": expected, **values(eager_model, eager_optimizer)},
        )


def test_a_size_that_is_not_captured_is_refused(device: str) -> None:
    _, _, step = compile_sizes(device)
    first, second = (to_device(regression(size, D), device) for size in (4, 5))
    step.warmup(first)
    step.capture(first)
    with pytest.raises(StateError, match=r"these batch shapes are not captured yet; call capture\(batch\)"):
        step.replay(inputs=second)


def test_a_size_that_was_not_compiled_is_refused(device: str) -> None:
    _, _, step = compile_sizes(device)
    with pytest.raises(
        BindError,
        match=r"no shape group for x \[6, 8\].*compiled: x \[4, 8\].*x \[33, 8\].*drop_last=True",
    ):
        step.train_step(to_device(regression(6, D), device))


def test_examples_instead_of_sizes(device: str) -> None:
    model = mlp(D, 17, D).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = [to_device(regression(size, D), device) for size in (2, 3)]
    step = compile_train_step(model, optimizer, example=batches, device=device, warmup_inputs=batches)
    assert step.state == "warmed"
    for batch in batches:
        step.train_step(batch)


class ByTheBatch(nn.Module):
    """Computes with numbers that are known while tracing and depend on the size of the batch, in value and in shape."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(D, 3)
        self.register_buffer("offset", torch.arange(3.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x) * (torch.arange(3, device=x.device) * x.shape[0]) + self.offset
        return y[torch.arange(x.shape[0], device=x.device), torch.arange(x.shape[0], device=x.device) % 3]


def test_constants_that_depend_on_the_size_are_those_of_the_size(device: str) -> None:
    torch.manual_seed(0)
    model = ByTheBatch().to(device)
    batches = [{"x": torch.randn(size, D, device=device)} for size in SIZES]
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    step = compile_train_step(
        model, optimizer, loss_fn=lambda m, b: m(b["x"]).square().mean(), example=batches, device=device
    )
    twin = copy.deepcopy(model)
    theirs = torch.optim.Adam(twin.parameters(), lr=0.01)
    for number in (2, 0, 1, 1, 0, 2):
        theirs.zero_grad()
        expected = twin(batches[number]["x"]).square().mean()
        expected.backward()
        theirs.step()
        torch.testing.assert_close(step.train_step(batches[number]), expected.detach())
    for ours, parameter in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(ours, parameter)
    for batch in batches:
        certificate = step.capture(batch, verify="bitwise")
        assert certificate.equal, certificate
