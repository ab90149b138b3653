"""`step.save` and `step.load`: what comes back is bitwise what was saved, by name, and survives a kill."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import safetensors
import torch
from checkpoint_trainer import batch_of, new_setup
from children import SUPPORT, Child
from models import (
    CONTRACT_OPTIMIZERS,
    OptimizerConfig,
    Setup,
    WithDeadParameter,
    classification,
    compiled,
    cross_entropy,
    mlp,
    mse,
    regression,
)
from oracle import assert_same_bits
from torch import nn

from aicf_mlir.errors import CheckpointError
from aicf_mlir.step.compile import compile_train_step

ADAM = CONTRACT_OPTIMIZERS[3]
AMSGRAD = CONTRACT_OPTIMIZERS[4]


def other(optimizer: OptimizerConfig, device: str = "cpu", **options: Any) -> Setup:
    """The same step from another start: other weights, and some steps of training."""
    setup = compiled(optimizer, device, model=mlp(8, 17, 8, seed=99), **options)
    setup.train(2)
    return setup


@pytest.mark.parametrize("optimizer", CONTRACT_OPTIMIZERS, ids=str)
def test_training_goes_on_bitwise(optimizer: OptimizerConfig, device: str, tmp_path: Path) -> None:
    setup = compiled(optimizer, device)
    setup.train(3)
    setup.step.save(tmp_path / "a")
    saved = setup.values()
    setup.train(4)

    resumed = other(optimizer, device)
    resumed.step.load(tmp_path / "a")
    assert_same_bits(resumed.values(), saved)
    resumed.train(4)
    assert_same_bits(resumed.values(), setup.values())


def test_a_captured_step_loads_and_replays(device: str, tmp_path: Path) -> None:
    setup = compiled(ADAM, device)
    setup.train(3)
    setup.step.save(tmp_path / "a")
    setup.train(4)
    replayed = other(ADAM, device)
    replayed.step.capture(replayed.batch)
    replayed.step.load(tmp_path / "a")
    replayed.step.replay(4)
    assert_same_bits(replayed.values(), setup.values())


def test_another_batch_size_another_plan(device: str, tmp_path: Path) -> None:
    setup = compiled(ADAM, device)
    setup.train(2)
    setup.step.save(tmp_path / "a")
    wide = other(ADAM, device, batch=regression(64), keep_gradients=True)
    assert wide.step.memory_report().arenas != setup.step.memory_report().arenas
    wide.step.load(tmp_path / "a")
    assert_same_bits(wide.values(), setup.values())


@pytest.mark.gpu
def test_from_one_device_to_the_other(tmp_path: Path) -> None:
    setup = compiled(ADAM, "cuda")
    setup.train(3)
    setup.step.save(tmp_path / "a")
    host = other(ADAM)
    host.step.load(tmp_path / "a")
    assert_same_bits(host.values(), setup.values())
    host.step.save(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


class Weighted(nn.Module):
    """A number of Python that the step takes from the device."""

    def __init__(self, alpha: float):
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.alpha = nn.Linear(8, 8), alpha

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * self.alpha


def test_numbers_that_python_owns_come_back(device: str, tmp_path: Path) -> None:
    setup = compiled(ADAM, device, model=Weighted(0.3), meta=["model.alpha"])
    setup.step.meta["model.alpha"] = 0.7
    setup.train(2)
    setup.step.save(tmp_path / "a")
    setup.train(3)
    resumed = compiled(ADAM, device, model=Weighted(0.1), meta=["model.alpha"])
    resumed.step.load(tmp_path / "a")
    assert resumed.model.alpha == 0.7
    resumed.train(3)
    assert_same_bits(resumed.values(), setup.values())
    with pytest.raises(CheckpointError, match=r"has the host scalars \['model.alpha'\], this step \[\]"):
        compiled(ADAM, device, model=Weighted(0.1)).step.load(tmp_path / "a")


def test_steps_that_share_memory_save_what_is_their_own(device: str, tmp_path: Path) -> None:
    setup = compiled(ADAM, device)
    setup.train(2)
    both = Setup(setup.model, setup.optimizer, compiled_again(setup, 3.0), setup.batch)
    both.train(1)
    both.step.save(tmp_path / "both")
    setup.step.save(tmp_path / "first")
    setup.train(2)
    both.train(2)
    after = setup.values()
    for path in ("first", "both"):
        both.step.load(tmp_path / path)
        setup.train(2)
        both.train(2)
        assert_same_bits(setup.values(), after)


def compiled_again(setup: Setup, weight: float) -> Any:
    """A second step over the same model and optimizer, with another loss."""
    device = str(next(setup.model.parameters()).device)
    return compile_train_step(
        setup.model,
        setup.optimizer,
        loss_fn=lambda m, b: weight * mse(m, b),
        example=setup.batch,
        device=device,
    )


def test_a_step_with_a_status_saves_and_loads(device: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"batch": classification(), "loss_fn": cross_entropy}
    setup = compiled(ADAM, device, model=mlp(8, 17, 4), **options)
    setup.train(2)
    setup.step.save(tmp_path / "a")
    setup.train(2)
    resumed = compiled(ADAM, device, model=mlp(8, 17, 4, seed=9), **options)
    resumed.step.load(tmp_path / "a")
    resumed.train(2)
    assert_same_bits(resumed.values(), setup.values())


def test_before_the_first_step_opt_state_is_empty_again(device: str, tmp_path: Path) -> None:
    fresh = compiled(ADAM, device)
    fresh.step.save(tmp_path / "a")
    started = other(ADAM, device)
    assert started.optimizer.state
    started.step.load(tmp_path / "a")
    assert not started.optimizer.state
    started.train(2)
    fresh.train(2)
    assert_same_bits(started.values(), fresh.values())


def test_pins_and_hyperparameters_come_back(device: str, tmp_path: Path) -> None:
    setup = compiled(ADAM, device)
    setup.train(2)
    setup.step.meta["bc1_inv"] = 1.25
    setup.optimizer.param_groups[0].update(lr=torch.tensor(0.03), betas=(0.5, 0.9), weight_decay=0.1)
    setup.step.save(tmp_path / "a")
    resumed = other(ADAM, device)
    resumed.step.load(tmp_path / "a")
    (group,) = resumed.optimizer.param_groups
    assert isinstance(group["lr"], torch.Tensor)
    assert float(group["lr"]) == float(torch.tensor(0.03))
    assert (group["betas"], group["weight_decay"]) == ((0.5, 0.9), 0.1)
    setup.train(3)
    resumed.train(3)
    assert resumed.step.meta["bc1_inv"] == 1.25
    assert_same_bits(resumed.values(), setup.values())


def test_a_scheduler_made_after_load_starts_from_the_first_lr(tmp_path: Path) -> None:
    setup = compiled(ADAM)
    scheduler = torch.optim.lr_scheduler.StepLR(setup.optimizer, 1, 0.5)
    for _ in range(3):
        setup.train()
        scheduler.step()
    setup.step.save(tmp_path / "a")
    resumed = other(ADAM)
    resumed.step.load(tmp_path / "a")
    again = torch.optim.lr_scheduler.StepLR(resumed.optimizer, 1, 0.5, last_epoch=3)
    assert again.base_lrs == scheduler.base_lrs
    assert resumed.optimizer.param_groups[0]["initial_lr"] == 1e-2


def test_frozen_tensors_are_in_the_file_and_literals_are_not(tmp_path: Path) -> None:
    class Model(nn.Module):
        def __init__(self, scale: float):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4) * scale)
            self.register_buffer("offset", torch.arange(4.0) * scale)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.weight * x + self.get_buffer("offset") + torch.tensor([1.0, 2.0, 3.0, 4.0])

    batch = {"x": torch.randn(3, 4), "t": torch.randn(3, 4)}
    setup = compiled(ADAM, model=Model(1.0), batch=batch)
    setup.train()
    setup.step.save(tmp_path / "a")
    resumed = compiled(ADAM, model=Model(5.0), batch=batch)
    resumed.step.load(tmp_path / "a")
    assert torch.equal(resumed.model.get_buffer("offset"), torch.arange(4.0))
    with safetensors.safe_open(tmp_path / "a", "pt") as file:  # pyright: ignore[reportAttributeAccessIssue]
        assert [key for key in file.keys() if key.startswith("buffer/")] == ["buffer/offset"]  # noqa: SIM118


class Numbered(nn.Module):
    """Its frozen tensors have the very names that AICF gives to literals."""

    def __init__(self, scale: float):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))
        self.constant = nn.ParameterList([nn.Parameter(torch.arange(4.0) * scale, requires_grad=False)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight * x * self.constant[0] + torch.tensor([1.0, 2.0, 3.0, 4.0])


def test_a_tensor_of_the_user_with_the_name_of_a_literal_is_in_the_file(tmp_path: Path) -> None:
    batch = {"x": torch.randn(3, 4), "t": torch.randn(3, 4)}
    setup = compiled(ADAM, model=Numbered(1.0), batch=batch)
    setup.train()
    setup.step.save(tmp_path / "a")
    resumed = compiled(ADAM, model=Numbered(5.0), batch=batch)
    resumed.step.load(tmp_path / "a")
    assert_same_bits(resumed.values(), setup.values())


def test_the_file_opens_with_safetensors(tmp_path: Path) -> None:
    setup = compiled(ADAM)
    setup.train(2)
    setup.step.save(tmp_path / "a")
    values = setup.values()
    with safetensors.safe_open(tmp_path / "a", "pt") as file:  # pyright: ignore[reportAttributeAccessIssue]
        found = {name: file.get_tensor(f"param/{name}") for name, _ in setup.model.named_parameters()}
        assert file.metadata()["format"] == "aicf.checkpoint"
        assert file.get_tensor("host_scalar/lr").item() == 1e-2
    assert_same_bits(found, {name: values[name] for name in found})


def test_the_same_state_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        setup = compiled(AMSGRAD)
        setup.train(2)
        setup.step.save(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_dead_parameter_is_no_part_of_the_step(tmp_path: Path) -> None:
    setup = compiled(ADAM, model=WithDeadParameter(), batch=regression(5))
    setup.train()
    setup.step.save(tmp_path / "a")
    resumed = compiled(ADAM, model=WithDeadParameter(seed=3), batch=regression(5))
    unused = resumed.model.get_parameter("unused").detach().clone()
    resumed.step.load(tmp_path / "a")
    assert torch.equal(resumed.model.get_parameter("unused"), unused)


# ---- a process that is killed ----


class Trainers:
    """A process of `checkpoint_trainer.py`; every process behind it ends by itself after a time."""

    def __init__(self, path: Path):
        script = Path(SUPPORT) / "checkpoint_trainer.py"
        self.process = Child(
            [sys.executable, str(script), str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def kill_one(self, saves: int, delay: float) -> int:
        """Start a trainer, kill it `delay` seconds after its `saves`-th save; the last step that it acknowledged."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        trainer, acknowledged, count = 0, 0, 0
        for line in self.process.stdout:
            match line.split():
                case ["trainer", number]:
                    trainer = int(number)
                case ["saved", number]:
                    acknowledged, count = int(number), count + 1
                    if count == saves:
                        time.sleep(delay)
                        os.kill(trainer, signal.SIGKILL)
                case _:
                    assert line == "dead\n"
                    return acknowledged
        raise AssertionError("the parent of the trainers ended before them")

    def close(self) -> None:
        """End the parent of the trainers."""
        self.process.kill()
        self.process.communicate(timeout=60)


def test_a_killed_process_leaves_its_last_checkpoint(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    path, rng = tmp_path / "run", random.Random(0)
    reference, resumed = new_setup(), new_setup()
    states = [reference.values()]
    trainers = Trainers(path)
    try:
        for _ in range(request.config.getoption("--kills")):
            acknowledged = trainers.kill_one(rng.randint(1, 4), rng.random() * 0.008)
            resumed.step.load(path)
            now = int(resumed.step.meta["step"])
            assert now >= acknowledged > 0, "the last acknowledged checkpoint is lost"
            while len(states) <= now + 2:
                reference.step.train_step(batch_of(len(states)))
                states.append(reference.values())
            assert_same_bits(resumed.values(), states[now])
            for number in (now + 1, now + 2):
                resumed.step.train_step(batch_of(number))
                assert_same_bits(resumed.values(), states[number])
    finally:
        trainers.close()
    resumed.step.save(path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["run"], "a dead writer left a temporary behind"
