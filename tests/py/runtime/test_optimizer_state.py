"""`optimizer.state` and `state_dict()` stay torch's own: they move between AICF and torch eager both ways."""

from __future__ import annotations

import copy
import io
import warnings
from typing import Any

import pytest
import torch
from models import (
    CONTRACT_OPTIMIZERS,
    OptimizerConfig,
    Setup,
    compiled,
    mlp,
    mse,
    regression,
    values,
)
from oracle import assert_all_right, assert_same_bits
from torch import nn

from aicf_mlir import compile_train_step
from aicf_mlir.errors import BindError

ADAM = OptimizerConfig(torch.optim.Adam, {"lr": 1e-2, "amsgrad": True})
MOMENTUM = OptimizerConfig(torch.optim.SGD, {"lr": 0.05, "momentum": 0.9})

every_optimizer = pytest.mark.parametrize("optimizer", CONTRACT_OPTIMIZERS, ids=str)


def train_torch(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    """Train in eager torch, on the default batch in the model's own dtype and device."""
    parameter = next(model.parameters())
    batch = {name: t.to(parameter.device, parameter.dtype) for name, t in regression(5).items()}
    for _ in range(steps):
        optimizer.zero_grad()
        mse(model, batch).backward()
        optimizer.step()


def eager_copy(
    setup: Setup, make: OptimizerConfig, dtype: torch.dtype
) -> tuple[nn.Module, torch.optim.Optimizer]:
    """A torch model and optimizer with the values and state of `setup`, taken over through state_dicts."""
    model = mlp(8, 17, 8, seed=99).to(dtype)
    model.load_state_dict(setup.model.state_dict())
    optimizer = make(model)
    optimizer.load_state_dict(copy.deepcopy(setup.optimizer.state_dict()))  # torch would share the tensors
    return model, optimizer


@every_optimizer
def test_state_is_empty_before_the_first_step(optimizer: OptimizerConfig, device: str) -> None:
    setup = compiled(optimizer, device)
    assert not setup.optimizer.state, "after compile"
    setup.step.warmup(setup.batch)
    assert not setup.optimizer.state, "after warm-up"
    setup.step.capture(setup.batch)
    assert not setup.optimizer.state, "after capture"
    assert setup.optimizer.state_dict()["state"] == {}


@every_optimizer
def test_state_dict_is_what_torch_has(optimizer: OptimizerConfig, device: str) -> None:
    setup = compiled(optimizer, device)
    setup.train(3)
    model = mlp(8, 17, 8)
    eager = optimizer(model)
    train_torch(model, eager, 3)
    ours, theirs = setup.optimizer.state_dict(), eager.state_dict()
    assert ours["param_groups"] == theirs["param_groups"]
    assert ours["state"].keys() == theirs["state"].keys()
    for index, expected in theirs["state"].items():
        got = ours["state"][index]
        assert got.keys() == expected.keys(), f"parameter {index}"
        for key, value in expected.items():
            if isinstance(value, torch.Tensor):
                assert (got[key].shape, got[key].dtype) == (value.shape, value.dtype), (
                    f"parameter {index}, {key}"
                )
        if "step" in expected:
            assert float(got["step"]) == 3


@every_optimizer
def test_state_dict_survives_a_file(optimizer: OptimizerConfig, device: str) -> None:
    setup = compiled(optimizer, device)
    setup.train(2)
    file = io.BytesIO()
    torch.save({"model": setup.model.state_dict(), "optimizer": setup.optimizer.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)

    resumed = compiled(optimizer, device, model=mlp(8, 17, 8, seed=99))
    resumed.model.load_state_dict(saved["model"])
    resumed.optimizer.load_state_dict(saved["optimizer"])
    assert_same_bits(resumed.values(), setup.values())
    loss, expected = resumed.train(3), setup.train(3)
    assert_same_bits({"loss": loss, **resumed.values()}, {"loss": expected, **setup.values()})


@every_optimizer
def test_from_aicf_to_torch_eager(optimizer: OptimizerConfig, device: str) -> None:
    setup = compiled(optimizer, device)
    setup.train(5)
    single, double = (eager_copy(setup, optimizer, dtype) for dtype in (torch.float32, torch.float64))
    assert_same_bits(values(*single), setup.values())
    train_torch(*single, 5)
    train_torch(*double, 5)
    setup.train(5)
    assert_all_right(setup.values(), values(*single), values(*double))


@every_optimizer
def test_from_torch_eager_to_aicf(optimizer: OptimizerConfig, device: str) -> None:
    model = mlp(8, 17, 8)
    eager = optimizer(model)
    train_torch(model, eager, 5)
    double = mlp(8, 17, 8).double()
    double.load_state_dict(model.state_dict())
    double_optimizer = optimizer(double)
    double_optimizer.load_state_dict(copy.deepcopy(eager.state_dict()))

    resumed = compiled(optimizer, device, model=mlp(8, 17, 8, seed=99))
    resumed.model.load_state_dict(model.state_dict())
    resumed.optimizer.load_state_dict(eager.state_dict())
    assert_same_bits(resumed.values(), values(model, eager))
    resumed.train(5)
    train_torch(model, eager, 5)
    train_torch(double, double_optimizer, 5)
    assert_all_right(resumed.values(), values(model, eager), values(double, double_optimizer))


@every_optimizer
def test_an_optimizer_that_already_stepped_in_torch_can_be_compiled(
    optimizer: OptimizerConfig, device: str
) -> None:
    model = mlp(8, 17, 8).to(device)
    made = optimizer(model)
    train_torch(model, made, 2)
    expected = values(model, made)
    setup = compiled(lambda _: made, device, model=model)
    assert_same_bits(setup.values(), expected)
    control = compiled(optimizer, device)
    control.model.load_state_dict({n: expected[n] for n in control.model.state_dict()})
    control.optimizer.load_state_dict(copy.deepcopy(made.state_dict()))
    setup.train(2)
    control.train(2)
    assert_same_bits(setup.values(), control.values())


@every_optimizer
def test_load_state_dict_after_capture(optimizer: OptimizerConfig, device: str) -> None:
    """Loading goes into the captured graph's own memory: the next replay continues from there."""
    setup = compiled(optimizer, device)
    setup.train(2)
    saved = copy.deepcopy((setup.model.state_dict(), setup.optimizer.state_dict()))
    setup.step.capture(setup.batch)
    loss = setup.step.replay(3)
    expected = {"loss": loss, **setup.values()}
    setup.model.load_state_dict(saved[0])
    setup.optimizer.load_state_dict(saved[1])
    again = setup.step.replay(3)
    assert_same_bits({"loss": again, **setup.values()}, expected)


def test_loading_an_empty_state_starts_over(device: str) -> None:
    setup, fresh = compiled(ADAM, device), compiled(ADAM, device)
    setup.train(4)
    setup.model.load_state_dict(mlp(8, 17, 8).state_dict())
    setup.optimizer.load_state_dict(ADAM(mlp(8, 17, 8)).state_dict())
    assert setup.step.meta["step"] == 0
    setup.train(2)
    fresh.train(2)
    assert_same_bits(setup.values(), fresh.values())


def test_a_state_tensor_replaced_by_hand_is_taken(device: str) -> None:
    setup, control = compiled(MOMENTUM, device), compiled(MOMENTUM, device)
    setup.train(2)
    control.train(2)
    parameter = setup.model[0].weight
    setup.optimizer.state[parameter]["momentum_buffer"] = torch.ones_like(parameter)
    control.optimizer.state[control.model[0].weight]["momentum_buffer"].fill_(1.0)
    setup.train()
    control.train()
    assert_same_bits(setup.values(), control.values())


def test_the_first_step_of_momentum_after_loading_is_not_a_first_step(device: str) -> None:
    """torch's buffer starts as the bare gradient, dampening ignored; a resumed run must not do that again."""
    config = OptimizerConfig(torch.optim.SGD, {"lr": 0.05, "momentum": 0.9, "dampening": 0.5})
    setup = compiled(config, device)
    setup.train(2)
    resumed = compiled(config, device, model=mlp(8, 17, 8, seed=99))
    resumed.model.load_state_dict(setup.model.state_dict())
    resumed.optimizer.load_state_dict(setup.optimizer.state_dict())
    setup.train()
    resumed.train()
    assert_same_bits(resumed.values(), setup.values())


def test_state_views_follow_each_step(device: str) -> None:
    setup = compiled(ADAM, device)
    setup.train()
    state = setup.optimizer.state[setup.model[0].weight]
    before = state["exp_avg"].clone()
    setup.train()
    assert float(state["step"]) == 2
    assert not torch.equal(state["exp_avg"], before), "optimizer.state must show each step without a copy"


def test_state_laid_out_anew_in_its_own_memory(device: str) -> None:
    setup = compiled(ADAM, device)
    setup.train()
    state = setup.optimizer.state[setup.model[0].weight]
    moment = state["exp_avg"]
    moment.data = moment.view(torch.bfloat16).as_strided(moment.shape, moment.stride())
    expected = moment.float()
    setup.step.snapshot()
    assert state["exp_avg"].dtype == torch.float32
    assert torch.equal(state["exp_avg"], expected)

    state["exp_avg"].data = state["exp_avg"].detach().view(-1)
    with pytest.raises(BindError, match=r"'exp_avg' of parameter '0\.weight': expected a tensor of shape"):
        setup.train()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("bias", [True, False])
def test_a_model_of_another_type_takes_its_state_along(bias: bool, dtype: torch.dtype, device: str) -> None:
    """As torch's `load_state_dict` does: cast to the type of the parameter."""
    batch = {"x": torch.ones(4, 8, device=device), "t": torch.zeros(4, 8, device=device)}

    def square(model: Any, batch: Any) -> torch.Tensor:
        return torch.nn.functional.mse_loss(model(batch["x"].to(model.weight.dtype)).float(), batch["t"])

    torch.manual_seed(0)
    model = torch.nn.Linear(8, 8, bias=bias).to(device)
    reference = copy.deepcopy(model)
    optimizer, eager = (
        torch.optim.SGD(each.parameters(), lr=0.05, momentum=0.9) for each in (model, reference)
    )
    step = compile_train_step(model, optimizer, loss_fn=square, example=batch, device=device)
    for change in (False, True):
        if change:
            model.to(dtype)
            step.recompile()
            reference.to(dtype)
            eager.load_state_dict(eager.state_dict())
        for _ in range(3):
            eager.zero_grad()
            square(reference, batch).backward()
            eager.step()
            step.train_step(batch)
    tolerance = 2e-2 if dtype == torch.bfloat16 else 1e-6
    for own, other in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(own, other, rtol=tolerance, atol=tolerance)
        ours, theirs = (o.state[p]["momentum_buffer"] for o, p in ((optimizer, own), (eager, other)))
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


def test_lr_as_a_tensor(device: str) -> None:
    setup = compiled(OptimizerConfig(torch.optim.Adam, {"lr": torch.tensor(1e-2)}), device)
    control = compiled(OptimizerConfig(torch.optim.Adam, {"lr": float(torch.tensor(1e-2))}), device)
    setup.train(2)
    control.train(2)
    setup.optimizer.param_groups[0]["lr"].fill_(0.25)
    control.optimizer.param_groups[0]["lr"] = 0.25
    setup.train(2)
    control.train(2)
    assert_same_bits(setup.values(), control.values())


def test_a_scheduler_gives_no_warning(device: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = mlp(8, 17, 8).to(device)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
        setup = compiled(lambda _: optimizer, device, model=model)
        setup.train()
        scheduler.step()
        setup.step.capture(setup.batch)
        setup.step.replay()
        scheduler.step()
    assert optimizer.param_groups[0]["lr"] == 0.0025
    assert setup.step.meta["lr"] == 0.0025


def test_state_of_another_shape_is_refused(device: str) -> None:
    setup, control = compiled(MOMENTUM, device), compiled(MOMENTUM, device)
    setup.train()
    control.train()
    state = setup.optimizer.state[setup.model[0].weight]
    right = state["momentum_buffer"]
    state["momentum_buffer"] = torch.zeros(3, device=device)
    with pytest.raises(
        BindError,
        match=r"'momentum_buffer' of parameter '0\.weight': expected a tensor of shape \(17, 8\), got \(3,\)",
    ):
        setup.train()
    state["momentum_buffer"] = right
    setup.train()
    control.train()
    assert_same_bits(setup.values(), control.values())


@every_optimizer
@pytest.mark.parametrize("compiled_steps", [0, 2])
def test_eager_torch_steps_in_between(optimizer: OptimizerConfig, compiled_steps: int, device: str) -> None:
    """Parameters and state are torch's own: `loss.backward(); optimizer.step()` may come at any time."""
    setup = compiled(optimizer, device)
    setup.step.warmup(setup.batch)
    setup.step.capture(setup.batch)
    setup.train(compiled_steps)
    train_torch(setup.model, setup.optimizer, 2)
    setup.step.replay(2)
    train_torch(setup.model, setup.optimizer, 1)
    setup.train(1)
    expected: list[dict[str, torch.Tensor]] = []
    for dtype in (torch.float32, torch.float64):
        model = mlp(8, 17, 8).to(dtype)
        eager = optimizer(model)
        train_torch(model, eager, compiled_steps + 6)
        expected.append(values(model, eager))
    assert_all_right(setup.values(), *expected)


@every_optimizer
def test_a_second_step_shares_the_training(optimizer: OptimizerConfig, device: str) -> None:
    setup, control = compiled(optimizer, device), compiled(optimizer, device)
    setup.train(2)
    again = compiled(lambda _: setup.optimizer, device, model=setup.model)
    again.train()
    setup.train()  # both steps train the same parameters with the same state
    again.train()
    control.train(5)
    assert_same_bits(again.values(), control.values())
    saved = copy.deepcopy((again.model.state_dict(), again.optimizer.state_dict()))
    again.train()
    again.model.load_state_dict(saved[0])
    again.optimizer.load_state_dict(saved[1])
    again.train()
    control.train()
    assert_same_bits(again.values(), control.values())


def test_parameters_that_the_optimizer_does_not_have_stay(device: str) -> None:
    setup = compiled(lambda model: torch.optim.Adam(model[0].parameters(), lr=1e-2), device)
    before = setup.values()
    setup.train(2)
    after = setup.values()
    assert torch.equal(after["2.weight"], before["2.weight"])
    assert not torch.equal(after["0.weight"], before["0.weight"])
    assert set(setup.optimizer.state) == set(setup.model[0].parameters())


def test_a_number_begins_a_state_as_exactly_as_in_torch() -> None:
    model = mlp(8, 17, 8).double()
    other = copy.deepcopy(model)
    ours, theirs = (
        torch.optim.Adagrad(each.parameters(), initial_accumulator_value=0.1) for each in (model, other)
    )
    ours.state.clear()
    batch = regression(dtype=torch.float64)
    step = compile_train_step(model, ours, loss_fn=mse, example=batch)
    step.train_step(batch)
    mse(other, batch).backward()
    theirs.step()
    for p, q in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(ours.state[p]["sum"], theirs.state[q]["sum"], rtol=1e-14, atol=0.0)
