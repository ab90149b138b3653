"""Casts of weights and of their gradients on a GPU: a launch each for all of them, with the bits of separate ones."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from models import mlp, mse, regression
from oracle import assert_same_bits
from precise_training import Training, adam

from aicf_mlir import trace
from aicf_mlir.dialects.plan import ProgramOp, find_program
from aicf_mlir.frontend.precision import Precision
from aicf_mlir.passes import fuse
from aicf_mlir.passes.fuse.arguments import fuse_arguments
from aicf_mlir.passes.fuse.segments import SMALL_ON_GPU, fuse_segments
from aicf_mlir.stages import make_context, run_stages


def planned(*widths: int, rows: int = 64) -> ProgramOp:
    """The plan of an MLP in bf16 for a GPU, which none is needed for."""
    model = mlp(*widths)
    optimizer = torch.optim.Adam(model.parameters())
    precision = Precision("bf16", torch.device("cpu"))
    batch = regression(rows, widths[0], widths[-1])
    traced = trace(model, mse, batch, optimizer=optimizer, precision=precision)
    run_stages(traced.module, make_context(), until="plan", target="sm_90")
    return find_program(traced.module)


def kinds(program: ProgramOp) -> Counter[str]:
    return Counter(launch.op.data for launch in program.launches)


def peak(program: ProgramOp) -> int:
    """Bytes."""
    assert program.peak is not None
    return program.peak.value.data


def separate(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("fuse_arguments", "fuse_segments"):
        monkeypatch.setattr(fuse, name, lambda function, bodies, most: None)


@pytest.mark.parametrize("width", [48, 512])
def test_they_do_not_grow_with_the_number_of_layers(width: int) -> None:
    few, many = (kinds(planned(*[width] * count)) for count in (3, 8))
    for found in (few, many):
        assert found["map_each"] == 2  # weights and the batch; gradients
        assert found["copy"] == 0  # the gradient of the loss is cast where it is computed
    assert sum(many.values()) - sum(few.values()) == 3 * 5  # three products a layer


def test_how_many_launches_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    together = kinds(planned(*[1024] * 5, rows=1024))
    separate(monkeypatch)
    apart = kinds(planned(*[1024] * 5, rows=1024))
    assert (apart["copy"], sum(apart.values())) == (17, 31)
    assert sum(together.values()) == 16


@pytest.mark.parametrize("widths", [(1024,) * 5, (64,) * 5, (2048, 4096, 4096, 256), (4096, 64, 4096)])
def test_the_memory_is_that_of_separate_launches_and_little_more(
    widths: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    together = peak(planned(*widths))
    separate(monkeypatch)
    assert together <= peak(planned(*widths)) + SMALL_ON_GPU


@pytest.mark.parametrize("case", ["mlp", "attention", "tied"])
@pytest.mark.parametrize("precision", ["bf16", "f16"])
def test_the_bits_are_those_of_separate_launches(
    case: str, precision: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trained() -> tuple[dict[str, torch.Tensor], int]:
        ours = Training(case, device, adam)
        step = ours.compiled(precision=precision)
        losses = [step.train_step(ours.batch).clone().cpu() for _ in range(3)]
        step.capture(ours.batch)
        step.replay(2)
        return {**ours.values(), "losses": torch.stack(losses)}, len(step.planned_kernels())

    def both(function: object, bodies: object, most: int) -> None:
        fuse_arguments(function, bodies, SMALL_ON_GPU)  # pyright: ignore[reportArgumentType]
        fuse_segments(function, bodies, SMALL_ON_GPU)  # pyright: ignore[reportArgumentType]

    if device == "cpu":  # as for a GPU
        monkeypatch.setattr(fuse, "fuse_segments", both)
    together, fewer = trained()
    separate(monkeypatch)
    apart, more = trained()
    assert fewer < more
    assert_same_bits(together, apart)
