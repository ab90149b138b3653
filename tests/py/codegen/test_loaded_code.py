"""Loaded code is freed with the last plan that uses it, and no earlier."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from aicf_mlir import _C, compile_train_step
from aicf_mlir.codegen import build


def mappings() -> int:
    """Of machine code that is in no file: each loaded object has one, beside those of its data."""
    gc.collect()
    rows = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
    return sum("x" in row[1] and len(row) == 5 for row in rows)


def made(width: int, device: str = "cpu") -> tuple[Any, dict[str, torch.Tensor]]:
    """A step with kernels of its own for each width."""
    model = nn.Sequential(nn.Linear(3, width), nn.GELU(), nn.Linear(width, 2)).to(device)
    batch = {"x": torch.ones(4, 3, device=device), "t": torch.zeros(4, 2, device=device)}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = compile_train_step(
        model,
        optimizer,
        loss_fn=lambda m, b: ((m(b["x"]) - b["t"]) ** 2).mean(),
        example=batch,
        device=device,
    )
    return step, batch


@pytest.mark.parametrize("ends", ["closed", "forgotten"])
def test_each_new_shape_leaves_nothing(ends: str, request: pytest.FixtureRequest) -> None:
    cycles = 200 if request.config.getoption("--campaign") else 4
    counts: list[int] = []
    for width in range(5, 5 + cycles):
        step, batch = made(width)
        step.train_step(batch)
        step.capture(batch)
        step.replay(2)
        if ends == "closed":
            step.close()
        del step
        counts.append(mappings())
    assert counts[-1] <= counts[1], counts


def test_code_stays_while_another_step_runs_it() -> None:
    """Two steps share the kernels of one shape; the one that is left replays what it has captured."""
    torch.manual_seed(0)
    first, batch = made(37)
    second, _ = made(37)
    second.train_step(batch)
    second.capture(batch)
    loaded = len(build._loaded)  # pyright: ignore[reportPrivateUsage]
    assert loaded
    first.close()
    del first
    gc.collect()
    assert len(build._loaded) == loaded  # pyright: ignore[reportPrivateUsage]
    second.replay(20)
    third, _ = made(37)
    assert float(second.train_step(batch)) < float(third.train_step(batch))
    third.close()
    del third
    second.close()
    del second
    gc.collect()
    assert len(build._loaded) < loaded  # pyright: ignore[reportPrivateUsage]


def test_code_is_at_hand_for_the_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that is compiled once more asks neither the compiler nor the disk."""
    step, _ = made(41)
    step.close()
    del step
    gc.collect()
    monkeypatch.setattr(build, "_image", None)
    step, batch = made(41)
    step.train_step(batch)


def test_the_machine_code_at_hand_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "MOST_MADE", 3)
    monkeypatch.setattr(build, "_made", type(build._made)())  # pyright: ignore[reportPrivateUsage]
    for width in (43, 44, 45):
        made(width)[0].close()
    assert 0 < len(build._made) <= 3  # pyright: ignore[reportPrivateUsage]


@pytest.mark.gpu
@pytest.mark.parametrize("ends", ["closed", "forgotten"])
def test_a_gpu_unloads_what_nothing_runs(ends: str) -> None:
    """Also where replays of it still run when the step is forgotten; graphs go before the code of their kernels."""
    first, batch = made(36, "cuda")
    first.train_step(batch)
    gc.collect()
    before = _C.loaded_cuda_images()
    for width in range(50, 62):
        step, batch = made(width, "cuda")
        step.train_step(batch)
        step.capture(batch)
        step.replay(200)
        if ends == "closed":
            step.close()
        del step
        gc.collect()
        assert _C.loaded_cuda_images() <= before
    torch.cuda.synchronize()
    first.train_step(batch)


def test_the_module_names_no_folder_of_its_build() -> None:
    """`__FILE__` in a message is a path from the root of the repository."""
    root = Path(__file__).resolve().parents[3]
    for library in (Path(str(_C.__file__)), *Path(str(_C.__file__)).parent.glob("libaicf_cpu_*.so")):
        assert os.fsencode(root) + b"/" not in library.read_bytes(), library.name
