"""Checkpoints that are damaged, foreign or of another step are refused by name, and nothing changes."""

from __future__ import annotations

import hashlib
import io
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from models import (
    CONTRACT_OPTIMIZERS,
    Setup,
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


def everything(setup: Setup) -> dict[str, bytes]:
    """Every byte that outlives a step."""
    arenas = setup.step._store.arenas  # pyright: ignore[reportPrivateUsage]
    return {role: arena.read(0, arena.nbytes) for role, arena in arenas.items()}


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
            r"this step has host_scalar 'momentum'|the file has host_scalar 'bc1_inv'",
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
    with pytest.raises(CheckpointError, match=r"the file has host_scalar 'dampening.1'"):
        compiled(two_groups(4)).step.load(tmp_path / "a")


def sealed(
    entries: dict[str, Any], data: bytes, metadata: dict[str, Any] | None = None, text: str = ""
) -> bytes:
    """A file with the right digest, whatever its header says."""
    start = {"format": "aicf.checkpoint", "sha256": "0" * 64, "version": "2", "description": "{}"}
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
        (sealed({}, b"", {"version": "1"}), "of version '1'; this AICF reads version 2"),
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
        (sealed({}, b"", text=START + ',"version":"2"},"a":' + "[" * 100_000), "cannot be read"),
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
        ({"host_values": {"model.alpha": 1.0}}, r"has the host scalars \['model.alpha'\], this step \[\]"),
        ({"host_values": 3}, "is no valid checkpoint"),
        ({"published": [1]}, "is no valid checkpoint"),
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
    for call in (setup.step.save, setup.step.load):
        with pytest.raises(CheckpointError, match=r"cannot be (written|read): embedded null"):
            call("a\0b")
    with pytest.raises(BindError, match=r"save\(path\) needs the path of a file, got <_io.BytesIO"):
        setup.step.save(io.BytesIO())
    with pytest.raises(BindError, match=r"load\(path\) needs the path of a file, got None"):
        setup.step.load(None)
    setup.optimizer.param_groups[0]["initial_lr"] = object()
    with pytest.raises(
        CheckpointError, match="holds a value that a checkpoint cannot: object is no plain data"
    ):
        setup.step.save(tmp_path / "a")
    assert list(tmp_path.iterdir()) == []
