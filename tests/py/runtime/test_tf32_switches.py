"""Torch's TF32 switches, which a comparison with torch sets to what the step does."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import pytest
import torch
from models import to_device
from torch import nn

from aicf_mlir import compile_train_step
from aicf_mlir.step.eager.tf32 import PLACES, SET_CUDNN, tf32

BACKENDS: Any = torch.backends


def switches() -> list[Any]:
    """What can be read of them; torch refuses to read an older one that newer ones contradict."""
    reads: list[Callable[[], Any]] = [
        torch.get_float32_matmul_precision,
        lambda: BACKENDS.cudnn.allow_tf32,
        lambda: BACKENDS.cuda.matmul.allow_tf32,
        *(lambda place=place: place.fp32_precision for place in PLACES),
    ]
    found: list[Any] = []
    for read in reads:
        try:
            found.append(read())
        except RuntimeError:
            found.append("contradicted")
    return found


@pytest.fixture(autouse=True)
def put_back() -> Generator[None]:
    yield
    set_on_cpus("none")
    torch.set_float32_matmul_precision("highest")
    SET_CUDNN(True)


def set_conv(precision: str) -> None:
    BACKENDS.cudnn.conv.fp32_precision = precision


def set_on_cpus(precision: str) -> None:
    BACKENDS.mkldnn.matmul.fp32_precision = precision


def set_older(allowed: bool) -> None:
    SET_CUDNN(allowed)
    BACKENDS.cuda.matmul.allow_tf32 = allowed


SETTINGS: dict[str, Callable[[], None]] = {
    "torch's own": lambda: None,
    "older, on": lambda: set_older(True),
    "older, off": lambda: set_older(False),
    "products at medium": lambda: torch.set_float32_matmul_precision("medium"),
    "convolutions apart": lambda: set_conv("ieee"),
    "products of CPUs in bf16": lambda: set_on_cpus("bf16"),
}


@pytest.mark.parametrize("allowed", [False, True])
@pytest.mark.parametrize("setting", SETTINGS)
def test_all_are_set_and_put_back(setting: str, allowed: bool) -> None:
    SETTINGS[setting]()
    before = switches()
    with pytest.raises(KeyError), tf32(allowed):
        assert [place.fp32_precision for place in PLACES] == ["tf32" if allowed else "ieee"] * len(PLACES)
        assert switches()[1:3] == [allowed, allowed]
        with tf32(not allowed):
            pass
        assert switches()[1:3] == [allowed, allowed]
        raise KeyError
    assert switches() == before


def test_they_are_set_where_torch_forbids_to_assign_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """As its own test utilities make it, once they are imported."""
    names = BACKENDS.disable_global_flags.__globals__
    monkeypatch.setitem(names, "__allow_nonbracketed_mutation_flag", False)
    with pytest.raises(RuntimeError, match="not allowed to set"):
        BACKENDS.cudnn.allow_tf32 = False
    with tf32(False):
        assert not BACKENDS.cudnn.allow_tf32
    assert BACKENDS.cudnn.allow_tf32


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["f32", "tf32"])
def test_a_step_in_f32_is_compared_with_f32(precision: Any) -> None:
    """By default torch rounds the operands of convolutions and recurrent layers."""
    assert BACKENDS.cudnn.allow_tf32
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Conv2d(8, 16, 3), nn.ReLU(), nn.Flatten(2), nn.GRU(36, 16))
    batch = to_device({"x": torch.randn(4, 8, 8, 8), "t": torch.randn(4, 16, 16)}, "cuda")
    model = layers.to("cuda")
    step = compile_train_step(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        loss_fn=lambda m, b: (m(b["x"])[0] - b["t"]).square().mean(),
        example=batch,
        device="cuda",
        precision=precision,
    )
    found = step.check(batch)
    assert found.equal, str(found)
    loss = next(row for row in found.rows if row.name == "loss")
    assert (loss.error < 1e-5) or precision == "tf32"
    assert BACKENDS.cudnn.allow_tf32
