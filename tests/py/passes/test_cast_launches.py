"""Casts of weights on a GPU: one launch for all of them, with the bits of separate ones. Updates cast gradients themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import written_optimizers
from fusion_rules import leave_out
from models import mlp, mse, regression
from oracle import assert_same_bits
from precise_training import Training, adam
from xdsl.dialects.builtin import ModuleOp

from aicf_mlir import optim, trace
from aicf_mlir.dialects.kernel_op import KernelOp, tensor_spec
from aicf_mlir.dialects.plan import ProgramOp, find_program
from aicf_mlir.frontend.precision import Precision
from aicf_mlir.passes.fuse import segments
from aicf_mlir.passes.fuse.arguments import FuseArgumentsPass
from aicf_mlir.stages import make_context, run_stages

MakeOptimizer = Callable[[Any], torch.optim.Optimizer]
LOOPS = ("copy", "map", "multi_tensor_map", "rowwise", "colwise")


def compiled(
    *widths: int,
    rows: int = 64,
    optimizer: MakeOptimizer = torch.optim.Adam,
    precision: str = "bf16",
    target: str = "sm_90",
    until: str = "plan",
) -> ModuleOp:
    """An MLP under autocast for a GPU, which none is needed for."""
    model = mlp(*widths)
    batch = regression(rows, widths[0], widths[-1])
    low = Precision(precision, torch.device("cpu"))
    traced = trace(model, mse, batch, optimizer=optimizer(model.parameters()), precision=low)
    run_stages(traced.module, make_context(), until=until, target=target)
    return traced.module


def planned(*widths: int, rows: int = 64) -> ProgramOp:
    """Its plan."""
    return find_program(compiled(*widths, rows=rows))


def kinds(program: ProgramOp) -> Counter[str]:
    return Counter(launch.op.data for launch in program.launches)


def peak(program: ProgramOp) -> int:
    """Bytes."""
    assert program.peak is not None
    return program.peak.value.data


def separate(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out(monkeypatch, "fuse-arguments", "fuse-segments")


def cast_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out(monkeypatch, "fuse-gradients")


@pytest.mark.parametrize(("width", "each"), [(48, 2), (512, 3)])
def test_they_do_not_grow_with_the_number_of_layers(width: int, each: int) -> None:
    """`each`: launches of a layer, its products, of which one is beside another where they are small."""
    few, many = (kinds(planned(*[width] * count)) for count in (3, 8))
    for found in (few, many):
        assert found["multi_tensor_map"] == 1  # of weights and the batch, once a replay
        assert found["copy"] == 0  # the gradient of the loss is cast where it is computed
    assert sum(many.values()) - sum(few.values()) == each * 5


def test_how_many_launches_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    together = kinds(planned(*[1024] * 5, rows=1024))
    separate(monkeypatch)
    apart = kinds(planned(*[1024] * 5, rows=1024))
    cast_gradients(monkeypatch)
    cast = kinds(planned(*[1024] * 5, rows=1024))
    assert (cast["copy"], sum(cast.values())) == (17, 31)
    assert (apart["copy"], sum(apart.values())) == (9, 23)
    assert sum(together.values()) == 15  # one of them once a replay


def casts_of_gradients(module: ModuleOp) -> list[KernelOp]:
    """The loops that make f32 of what products give."""
    loops = [op for op in module.walk() if isinstance(op, KernelOp) and op.op_name in LOOPS]
    return [
        op
        for op in loops
        if {tensor_spec(value)[0] for value in op.operands} <= {"bf16", "f16"}
        and {tensor_spec(value)[0] for value in op.results} == {"f32"}
    ]


OPTIMIZERS: dict[str, MakeOptimizer] = {
    "sgd": partial(torch.optim.SGD, lr=0.1),
    "nesterov": partial(torch.optim.SGD, lr=0.1, momentum=0.9, nesterov=True),
    "amsgrad": partial(torch.optim.AdamW, amsgrad=True),
    "rmsprop": torch.optim.RMSprop,
    "lion": partial(optim.Lion, lr=0.1),
    "traced": partial(written_optimizers.Lion, lr=0.1, betas=(0.9, 0.99), weight_decay=0.1),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("precision", ["bf16", "f16"])
@pytest.mark.parametrize("target", ["cpu", "sm_90"])
def test_no_optimizer_has_its_gradients_cast(
    optimizer: str, precision: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Updates that are formulas take the casts into their bodies."""

    def lowered() -> ModuleOp:
        given = OPTIMIZERS[optimizer]
        return compiled(*[96] * 5, optimizer=given, precision=precision, target=target, until="kernel")

    assert not casts_of_gradients(lowered())
    if optimizer in ("sgd", "nesterov", "amsgrad"):  # which is no matter of course
        cast_gradients(monkeypatch)
        assert casts_of_gradients(lowered())


@pytest.mark.parametrize("widths", [(1024,) * 5, (64,) * 5, (2048, 4096, 4096, 256), (4096, 64, 4096)])
def test_the_memory_is_that_of_separate_launches_and_little_more(
    widths: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    together = peak(planned(*widths))
    separate(monkeypatch)
    assert together <= peak(planned(*widths)) + segments.SMALL_ON_GPU


@pytest.mark.parametrize("case", ["mlp", "attention", "tied"])
@pytest.mark.parametrize("precision", ["bf16", "f16"])
def test_the_bits_are_those_of_separate_launches(
    case: str, precision: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trained() -> tuple[dict[str, torch.Tensor], list[str]]:
        ours = Training(case, device, adam)
        step = ours.compiled(precision=precision)
        losses = [step.train_step(ours.batch).clone().cpu() for _ in range(3)]
        step.capture(ours.batch)
        step.replay(2)
        return {**ours.values(), "losses": torch.stack(losses)}, step.planned_kernels()

    if device == "cpu":  # as for a GPU
        monkeypatch.setattr(FuseArgumentsPass, "DEVICES", ("cpu", "cuda"))
        monkeypatch.setattr(segments, "SMALL", segments.SMALL_ON_GPU)
    together, few = trained()
    separate(monkeypatch)
    apart, many = trained()
    assert few != many
    if device == "cpu":  # on a GPU casts of a small step may share a launch with other work of it
        assert len(few) < len(many)
    assert_same_bits(together, apart)
