"""`step.save` and `step.load`: bitwise, by name, and never half of anything."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors
import torch
from checkpoint_trainer import batch_of, new_setup
from models import (
    CONTRACT_OPTIMIZERS,
    OptimizerConfig,
    Setup,
    WithDeadParameter,
    compiled,
    mlp,
    regression,
)
from oracle import assert_same_bits
from torch import nn

from aicf_mlir.errors import BindError, CheckpointError
from aicf_mlir.runtime import checkpoint_file

ADAM = CONTRACT_OPTIMIZERS[3]
AMSGRAD = CONTRACT_OPTIMIZERS[4]


def other(optimizer: OptimizerConfig, device: str = "cpu", **options: Any) -> Setup:
    """The same step from another start: other weights, and some steps of training."""
    setup = compiled(optimizer, device, model=mlp(8, 17, 8, seed=99), **options)
    setup.train(2)
    return setup


def everything(setup: Setup) -> dict[str, bytes]:
    """Every byte that outlives a step."""
    arenas = setup.step._store.arenas  # pyright: ignore[reportPrivateUsage]
    return {role: arena.read(0, arena.nbytes) for role, arena in arenas.items()}


# ---- what comes back ----


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
        assert file.get_tensor("meta/lr").item() == 1e-2
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


# ---- what is refused ----


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Setup, Path]:
    """A trained step that differs from its checkpoint, and that checkpoint."""
    setup = compiled(ADAM)
    setup.train(2)
    setup.step.save(tmp_path / "good")
    setup.train(1)
    return setup, tmp_path / "good"


def test_every_flipped_bit_is_refused(saved: tuple[Setup, Path], tmp_path: Path) -> None:
    setup, path = saved
    good, before = path.read_bytes(), everything(setup)
    rng = random.Random(0)
    header = 8 + int.from_bytes(good[:8], "little")
    places = [*rng.sample(range(8 * header), 1000), *rng.sample(range(8 * header, 8 * len(good)), 1000)]
    for bit in places:
        flipped = bytearray(good)
        flipped[bit // 8] ^= 1 << bit % 8
        (tmp_path / "flipped").write_bytes(flipped)
        with pytest.raises(CheckpointError, match="flipped"):
            setup.step.load(tmp_path / "flipped")
    assert everything(setup) == before


def test_every_truncation_is_refused(saved: tuple[Setup, Path], tmp_path: Path) -> None:
    setup, path = saved
    good, before = path.read_bytes(), everything(setup)
    lengths = {*range(80), *random.Random(0).sample(range(80, len(good)), 120)}
    for length in sorted(lengths):
        (tmp_path / "short").write_bytes(good[:length])
        with pytest.raises(CheckpointError, match="short"):
            setup.step.load(tmp_path / "short")
    (tmp_path / "long").write_bytes(good + b"\0")
    with pytest.raises(CheckpointError, match="damaged or incomplete"):
        setup.step.load(tmp_path / "long")
    assert everything(setup) == before


def _torch_file(path: Path) -> None:
    torch.save({"a": torch.zeros(3)}, path)


def _safetensors_file(path: Path) -> None:
    import safetensors.torch

    safetensors.torch.save_file({"param/0.weight": torch.zeros(17, 8)}, path)


def _folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize(
    "make, message",
    [
        (_torch_file, "is no AICF checkpoint: expected the header"),
        (_safetensors_file, "is no AICF checkpoint: expected the header"),
        (lambda path: path.write_text("epoch,loss\n" * 40), "is no AICF checkpoint"),
        (lambda path: path.write_bytes(b""), "is damaged or incomplete: it has 0 bytes only"),
        (_folder, "cannot be read: Is a directory"),
        (lambda path: None, "cannot be read: No such file"),
    ],
)
def test_a_foreign_file_is_refused(
    make: Callable[[Path], object], message: str, saved: tuple[Setup, Path], tmp_path: Path
) -> None:
    setup, _ = saved
    before = everything(setup)
    make(tmp_path / "foreign")
    with pytest.raises(CheckpointError, match=f"foreign.*{message}"):
        setup.step.load(tmp_path / "foreign")
    assert everything(setup) == before


@pytest.mark.parametrize(
    "make, message",
    [
        (
            lambda: compiled(ADAM, model=mlp(8, 18, 8)),
            r"param '0.bias' is f32\[17\] in the file, f32\[18\] in this step",
        ),
        (
            lambda: compiled(AMSGRAD),
            r"this step has state '0.bias.max_exp_avg_sq', f32\[17\], the file does not",
        ),
        (
            lambda: compiled(CONTRACT_OPTIMIZERS[0]),
            r"this step has meta 'momentum'|the file has meta 'bc1_inv'",
        ),
        (
            lambda: compiled(ADAM.but(maximize=True)),
            r"param group 0 is .*'maximize': False.* in the file, .*'maximize': True.* in this step",
        ),
        (
            lambda: compiled(ADAM, model=mlp(8, 17, 8).double(), batch=regression(5, dtype=torch.float64)),
            r"param '0.bias' is f32\[17\] in the file, f64\[17\]",
        ),
    ],
)
def test_a_checkpoint_of_another_step_is_refused(
    make: Callable[[], Setup], message: str, saved: tuple[Setup, Path]
) -> None:
    setup = make()
    before = everything(setup)
    with pytest.raises(CheckpointError, match=message):
        setup.step.load(saved[1])
    assert everything(setup) == before


def two_groups(*shares: int) -> Callable[[nn.Module], torch.optim.Optimizer]:
    def make(model: nn.Module) -> torch.optim.Optimizer:
        parameters = list(model.parameters())
        rows = [{"params": parameters[: shares[0]]}, {"params": parameters[shares[0] :]}]
        return torch.optim.SGD(rows[: len(shares)], lr=0.1, momentum=0.9)

    return make


def test_param_groups_must_be_the_same(tmp_path: Path) -> None:
    setup = compiled(two_groups(2, 2))
    setup.train()
    setup.step.save(tmp_path / "a")
    resumed = compiled(two_groups(2, 2), model=mlp(8, 17, 8, seed=4))
    resumed.step.load(tmp_path / "a")
    assert_same_bits(resumed.values(), setup.values())
    with pytest.raises(CheckpointError, match=r"is of another model: state 'step' is f32\[2\] in the file"):
        compiled(two_groups(3, 1)).step.load(tmp_path / "a")
    with pytest.raises(CheckpointError, match=r"the file has meta 'dampening.1'"):
        compiled(two_groups(4)).step.load(tmp_path / "a")


def sealed(
    entries: dict[str, Any], data: bytes, metadata: dict[str, Any] | None = None, text: str = ""
) -> bytes:
    """A file with the right digest, whatever its header says."""
    start = {"format": "aicf.checkpoint", "sha256": "0" * 64, "version": "1", "description": "{}"}
    header = text or json.dumps(
        {"__metadata__": {**start, **(metadata or {})}, **entries}, separators=(",", ":")
    )
    raw = bytearray(len(header).to_bytes(8, "little") + header.encode() + data)
    place = checkpoint_file._DIGEST  # pyright: ignore[reportPrivateUsage]
    raw[place] = hashlib.sha256(raw).hexdigest().encode()
    return bytes(raw)


def entry(begin: int, end: int, shape: Any = (2,), dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


START = '{"__metadata__":{"format":"aicf.checkpoint","sha256":"' + "0" * 64 + '"'


@pytest.mark.parametrize(
    "raw, message",
    [
        (sealed({}, b"", {"version": "2"}), "of version '2'; this AICF reads version 1"),
        (sealed({"a": entry(0, 8)}, b"1234"), r"'a' has 4 bytes, its shape \[2\]"),
        (sealed({"a": entry(4, 12)}, b"12345678" * 2), "expected byte 0"),
        (sealed({"a": entry(0, 8), "b": entry(4, 12)}, b"12345678" * 2), "expected byte 8"),
        (sealed({"a": entry(0, 8)}, b"123456789"), "9 bytes of data, the tensors have 8"),
        (sealed({"a": entry(0, 8, [-2])}, b"12345678"), "cannot be read"),
        (sealed({"a": entry(0, 8, [2.0])}, b"12345678"), "cannot be read"),
        (sealed({"a": entry(0, 8, [2], "F8")}, b"12345678"), "cannot be read"),
        (sealed({"a": entry(0, 1 << 70, [1 << 68])}, b""), "cannot be read"),
        (sealed({"a": 3}, b""), "cannot be read"),
        (sealed({}, b"", {"description": "[]"}), "a description that is list"),
        (sealed({}, b"", {"description": '{"groups": []}'}), "is no valid checkpoint"),
        (sealed({}, b"", text=START + ',"version":"1"},"a":' + "[" * 100_000), "cannot be read"),
        (sealed({}, b"", text=START + "}"), "cannot be read"),
    ],
)
def test_a_header_that_lies_is_refused(
    raw: bytes, message: str, saved: tuple[Setup, Path], tmp_path: Path
) -> None:
    setup, _ = saved
    before = everything(setup)
    (tmp_path / "liar").write_bytes(raw)
    with pytest.raises(CheckpointError, match=message):
        setup.step.load(tmp_path / "liar")
    assert everything(setup) == before


@pytest.mark.parametrize(
    "change, message",
    [
        ({"settings": [{"items": {}}]}, "its param groups hold"),
        ({"settings": {"tensor": "setting/7"}}, "the values of its param groups cannot be read"),
        ({"settings": [{"what": 1}]}, "'what' is no kind of value"),
        ({"groups": []}, "has 0 param groups, the optimizer of this step 1"),
        ({"initial_lr": []}, "its param groups hold"),
        ({"more": 1}, "is no valid checkpoint"),
    ],
)
def test_a_description_that_does_not_fit_is_refused(
    change: dict[str, Any], message: str, saved: tuple[Setup, Path], tmp_path: Path
) -> None:
    setup, path = saved
    before = everything(setup)
    tensors, description = checkpoint_file.read_checkpoint(path)
    checkpoint_file.write_checkpoint(tmp_path / "other", tensors, {**description, **change})
    with pytest.raises(CheckpointError, match=message):
        setup.step.load(tmp_path / "other")
    assert everything(setup) == before


def test_what_cannot_be_saved_is_refused(tmp_path: Path) -> None:
    setup = compiled(ADAM)
    with pytest.raises(CheckpointError, match="cannot be written: No such file or directory"):
        setup.step.save(tmp_path / "missing" / "a")
    with pytest.raises(BindError, match=r"save\(path\) needs the path of a file, got <_io.BytesIO"):
        import io

        setup.step.save(io.BytesIO())
    with pytest.raises(BindError, match=r"load\(path\) needs the path of a file, got None"):
        setup.step.load(None)
    setup.optimizer.param_groups[0]["initial_lr"] = object()
    with pytest.raises(
        CheckpointError, match="holds a value that a checkpoint cannot: object is no plain data"
    ):
        setup.step.save(tmp_path / "a")
    assert list(tmp_path.iterdir()) == []


# ---- a process that is killed ----


class Trainers:
    """A process of `checkpoint_trainer.py`; every process behind it ends by itself after a time."""

    def __init__(self, path: Path):
        script = Path(__file__).with_name("checkpoint_trainer.py")
        self.process = subprocess.Popen(
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
