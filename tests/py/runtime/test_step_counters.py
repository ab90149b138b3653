"""Every parameter counts its own steps, as in torch: its bias corrections and its first step follow that count."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from counter_edits import (
    ADAM,
    ADAMS,
    MOMENTUM,
    SGDS,
    Edit,
    add_in_place,
    assign,
    drop_the_buffer,
    give_state,
    load_other_steps,
    load_without_one,
    load_without_one_then_give,
    no_buffer,
    start_over,
    write_in_place,
)
from levels import run_text
from models import (
    MakeOptimizer,
    OptimizerConfig,
    Setup,
    WithDeadParameter,
    compiled,
    mlp,
    mse,
    regression,
    to_dtype,
    values,
)
from oracle import assert_all_right, assert_right, assert_same_bits, same_bits
from torch import nn

STEPS = 10


def in_torch(
    make: Callable[[], nn.Module],
    optimizer: MakeOptimizer,
    before: int,
    edit: Edit,
    dtype: torch.dtype,
) -> list[dict[str, torch.Tensor]]:
    """Parameters and state after the edit, and after the steps that follow it, in eager torch."""
    model = make().to(dtype)
    made, batch = optimizer(model), to_dtype(regression(5), dtype)
    after: list[dict[str, torch.Tensor]] = []
    for step in range(before + STEPS):
        if step == before:
            edit(model, made)
            after.append(values(model, made))
        made.zero_grad()
        mse(model, batch).backward()
        made.step()
    return [*after, values(model, made)]


def in_aicf(
    make: Callable[[], nn.Module], optimizer: MakeOptimizer, before: int, edit: Edit, device: str
) -> list[dict[str, torch.Tensor]]:
    """The same of a compiled step; half of the steps after the edit are replayed."""
    setup = compiled(optimizer, device, model=make())
    setup.train(before)
    edit(setup.model, setup.optimizer)
    after = [setup.values()]
    setup.train(STEPS // 2)
    setup.step.capture(setup.batch)
    setup.step.replay(STEPS - STEPS // 2)
    return [*after, setup.values()]


def check(
    optimizer: MakeOptimizer,
    edit: Edit,
    device: str,
    *,
    before: int = 3,
    make: Callable[[], nn.Module] = lambda: mlp(8, 17, 8, activation=nn.Tanh),
) -> None:
    """The edit after some steps, then ten more: as in torch."""
    ours = in_aicf(make, optimizer, before, edit, device)
    single, double = (
        in_torch(make, optimizer, before, edit, dtype) for dtype in (torch.float32, torch.float64)
    )
    for phase in zip(ours, single, double, strict=True):
        assert_all_right(*phase)
        for name in phase[0]:
            if name.endswith(".step"):
                assert torch.equal(phase[0][name], phase[1][name]), name


every_adam = pytest.mark.parametrize("optimizer", ADAMS.values(), ids=list(ADAMS))
every_sgd = pytest.mark.parametrize("optimizer", SGDS.values(), ids=list(SGDS))
every_optimizer = pytest.mark.parametrize("optimizer", [*ADAMS.values(), *SGDS.values()], ids=[*ADAMS, *SGDS])


def named(*edits: Edit) -> Any:
    """Run a test once for each edit, as `edit`."""
    return pytest.mark.parametrize("edit", edits, ids=[edit.__name__ for edit in edits])


@every_adam
@named(write_in_place, add_in_place, start_over, assign, load_other_steps)
def test_adam_follows_the_counter_of_each_parameter(
    optimizer: MakeOptimizer, edit: Edit, device: str
) -> None:
    check(optimizer, edit, device)


@every_optimizer
@named(load_without_one, load_without_one_then_give)
def test_a_parameter_without_state_takes_its_first_step(
    optimizer: MakeOptimizer, edit: Edit, device: str
) -> None:
    check(optimizer, edit, device)


@every_sgd
@named(drop_the_buffer, no_buffer)
def test_a_parameter_without_a_momentum_buffer_takes_its_first_step(
    optimizer: MakeOptimizer, edit: Edit, device: str
) -> None:
    check(optimizer, edit, device)


@every_optimizer
def test_state_given_to_one_parameter_before_the_first_step(optimizer: MakeOptimizer, device: str) -> None:
    check(optimizer, give_state, device, before=0)


class Parts(WithDeadParameter):
    """Of six parameters one is dead and one frozen: neither has a counter, and neither may shift those of others."""

    def __init__(self) -> None:
        super().__init__()
        self.first.weight.requires_grad_(False)


@pytest.mark.parametrize("name", ["first.bias", "last.weight", "last.bias"])
def test_parameters_that_are_not_trained_have_no_counter(name: str, device: str) -> None:
    def edit(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        optimizer.state[dict(model.named_parameters())[name]]["step"].fill_(100)

    check(ADAM, edit, device, make=Parts)


class TwoTypes(nn.Module):
    """Layers of two types, alternating: their updates are two launches over the counters of one group."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.types = (torch.float32, torch.float64) * 2
        self.layers = nn.ModuleList(nn.Linear(8, 8, dtype=dtype) for dtype in self.types)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer, dtype in zip(self.layers, self.types, strict=True):
            x = torch.tanh(layer(x.to(dtype)))
        return x.float()


def test_parameters_of_two_types_share_the_counters_of_their_group(device: str) -> None:
    def write(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        for index, parameter in enumerate(model.parameters()):
            optimizer.state[parameter]["step"].fill_(3 + index * index)

    setup, model = compiled(ADAM, device, model=TwoTypes()), TwoTypes()
    eager, batch = ADAM(model), regression(5)
    for step in range(STEPS):
        setup.train()
        eager.zero_grad()
        mse(model, batch).backward()
        eager.step()
        if step == 1:
            write(setup.model, setup.optimizer)
            write(model, eager)
    ours, expected = setup.values(), values(model, eager)
    assert list(ours) == list(expected)
    for name, tensor in ours.items():
        torch.testing.assert_close(
            tensor, expected[name], rtol=1e-4, atol=1e-6, msg=lambda m, name=name: f"{name}: {m}"
        )


def mixed(optimizer: MakeOptimizer, device: str, counts: Sequence[float] = (1, 40, 0, 7)) -> Setup:
    """A step whose parameters are at these counts; of SGD, those at 0 have no momentum buffer."""
    setup = compiled(optimizer, device)
    setup.train(2)
    for parameter, count in zip(setup.model.parameters(), counts, strict=True):
        state = setup.optimizer.state[parameter]
        if "step" in state:
            state["step"].fill_(count)
        elif count == 0:
            del state["momentum_buffer"]
    return setup


@every_optimizer
@pytest.mark.parametrize("n", [1, 5])
def test_replay_equals_eager_steps_at_mixed_counts(optimizer: MakeOptimizer, n: int, device: str) -> None:
    eager, replayed = mixed(optimizer, device), mixed(optimizer, device)
    replayed.step.capture(replayed.batch)
    expected, loss = eager.train(n), replayed.step.replay(n)
    assert_same_bits({"loss": loss, **replayed.values()}, {"loss": expected, **eager.values()})


@every_optimizer
def test_restore_brings_mixed_counts_back(optimizer: MakeOptimizer, device: str) -> None:
    setup = mixed(optimizer, device)
    setup.train()
    start = setup.step.snapshot()
    loss, expected = setup.train(3), setup.values()
    setup.step.restore(start)
    assert_same_bits({"loss": setup.train(3), **setup.values()}, {"loss": loss, **expected})


@every_optimizer
def test_restore_brings_back_who_had_no_state(optimizer: MakeOptimizer, device: str) -> None:
    setup = compiled(optimizer, device)
    setup.train(2)
    load_without_one(setup.model, setup.optimizer)
    start, before = setup.step.snapshot(), setup.values()
    assert len(setup.optimizer.state) == 3, "one of four parameters has no state"
    loss, expected = setup.train(3), setup.values()
    setup.step.restore(start)
    assert_same_bits(setup.values(), before)
    assert_same_bits({"loss": setup.train(3), **setup.values()}, {"loss": loss, **expected})


@every_adam
def test_a_counter_matters_to_its_own_parameter_alone(optimizer: MakeOptimizer, device: str) -> None:
    setup, control = (compiled(optimizer, device) for _ in range(2))
    for each in (setup, control):
        each.train(3)
    write_in_place(setup.model, setup.optimizer)
    setup.train()
    control.train()
    ours, others = setup.values(), control.values()
    different = [name for name in ours if not same_bits(ours[name], others[name])]
    assert different == ["0.bias", "0.bias.step"]


@every_adam
def test_a_pin_holds_for_every_parameter_of_the_group(optimizer: MakeOptimizer, device: str) -> None:
    """With both corrections pinned the counts do not matter; released, each parameter follows its own again."""
    pinned, level = mixed(optimizer, device), mixed(optimizer, device, (3, 3, 3, 3))
    groups = len(pinned.optimizer.param_groups)
    slots = [f"{name}.{k}" if k else name for k in range(groups) for name in ("bc1_inv", "bc2_inv")]
    for each in (pinned, level):
        for slot in slots:
            each.step.meta[slot] = 1.5
        each.train(2)
        assert [each.step.meta[slot] for slot in slots] == [1.5] * len(slots)
    state = {name: value for name, value in pinned.values().items() if not name.endswith(".step")}
    assert_same_bits(state, {name: level.values()[name] for name in state})

    written = mixed(optimizer, device, (3, 42, 2, 9))
    for name, value in dict(written.model.named_parameters()).items():
        value.data.copy_(state[name])
        for key in set(written.optimizer.state[value]) - {"step"}:
            written.optimizer.state[value][key].copy_(state[f"{name}.{key}"])
    for slot in slots:
        pinned.step.meta.release(slot)
    pinned.train()
    written.train()
    assert_same_bits(pinned.values(), written.values())


def test_meta_shows_the_first_parameter_and_writes_all(device: str) -> None:
    setup = mixed(ADAM, device, (4, 40, 0, 7))
    assert setup.step.meta["step"] == 4
    setup.train()
    assert setup.step.meta["step"] == 5
    assert setup.step.meta["bc1_inv"] == pytest.approx(1 / (1 - 0.9**5), rel=1e-12)
    assert setup.step.meta["bc2_inv"] == pytest.approx(1 / (1 - 0.999**5), rel=1e-12)
    setup.step.meta["step"] = 12
    assert [float(setup.optimizer.state[p]["step"]) for p in setup.model.parameters()] == [12] * 4


@pytest.mark.parametrize("level", ["step", "lowered", "kernel", "plan"])
@pytest.mark.parametrize("optimizer", [ADAM.but(amsgrad=True), MOMENTUM], ids=str)
def test_every_level_takes_mixed_counts(optimizer: OptimizerConfig, level: str) -> None:
    """The interpreter of each level beside the compiled step, from counts that all differ."""
    setup = mixed(optimizer, "cpu")
    start = setup.values()
    counts = [1.0, 40.0, 0.0, 7.0] if optimizer.kind is torch.optim.Adam else [1.0, 1.0, 0.0, 1.0]
    zeros = {
        f"{name}.momentum_buffer": torch.zeros_like(p) for name, p in setup.model.named_parameters()
    }  # for the one that has none
    arguments = {**zeros, **start, **setup.batch, **setup.step.meta, "step": torch.tensor(counts)}
    updated = run_text(setup.step.ir(level), arguments)
    setup.train()
    for name, tensor in setup.values().items():
        if not name.endswith(".step"):
            assert_right(name, tensor, updated[name], updated[name].double())
    assert torch.equal(updated["step"], torch.tensor(counts) + 1)
