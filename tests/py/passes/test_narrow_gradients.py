"""Gradients of f16 and bf16 that the optimizer's launch widens itself: the bits are those of a cast in front of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from fusion_rules import leave_out
from kernel_calls import KINDS, run
from kernel_cases import Array, Case, Maker, cases
from kernel_cases.optim import NARROW, narrow
from oracle import assert_same_bits
from precise_training import Training

from aicf_mlir import _C
from aicf_mlir.errors import KernelError
from aicf_mlir.interpreters.numerics import NUMPY_TYPES
from aicf_mlir.ir.registry import Counts, schemas, select_kernel
from aicf_mlir.op_call import op_call

OPS = ("sgd_step", "adam_step")


def widened(gradient: Array, device: str) -> Array:
    """By the kernel that casts."""
    case = Case("cast", [gradient], [("f32", gradient.shape)])
    target = "cpu" if device == "cpu" else _C.target_of("cuda:0")
    (result,) = run(select_kernel(case.use("copy"), target)[0], "copy", case, device)
    return result


def placed(case: Case, op: str) -> list[int]:
    """Where the gradients stand among the inputs."""
    assert case.counts is not None
    names = [row.name for row in schemas()[op].inputs]
    first = sum(case.counts[0][: names.index("g")])
    return list(range(first, first + case.counts[0][names.index("g")]))


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("types", NARROW)
def test_the_bits_are_those_of_a_cast_and_an_update(op: str, types: str, device: str) -> None:
    """Every combination of flags, in ragged sizes, with NaN, infinities and subnormal numbers among the gradients."""
    kernel = f"{op}_cpu" if device == "cpu" else f"{op}_f32"
    found = [case for case in cases(op, "f32") if case.label.startswith(f"{types} ")]
    assert len(found) >= 8
    for case in found:
        inputs = list(case.inputs)
        for at in placed(case, op):
            if inputs[at].dtype != np.float32:
                inputs[at] = widened(inputs[at], device)
        apart = Case(case.label, inputs, case.outputs, case.attrs, case.counts)
        results, expected = (run(kernel, op, each, device) for each in (case, apart))
        assert [a.tobytes() for a in results] == [b.tobytes() for b in expected], case.label


@pytest.mark.parametrize("types", NARROW)
def test_large_tensors_of_any_size(types: str, device: str) -> None:
    """More elements than one chunk widens, one thread takes and one block has; more tensors than a small table holds."""
    make = Maker("f32")
    shapes = [(1,), (511,), (513,), (100_003,), (7, 4099), *[(i + 1,) for i in range(30)]]
    count = len(shapes)
    p, m = ([make.normal(*shape) for shape in shapes] for _ in range(2))
    v = [np.square(make.normal(*shape)) for shape in shapes]
    g = narrow(make, shapes, types)
    scalars: list[Array] = [np.array(s) for s in (1e-3, 0.9, 0.999, 1e-8, 0.1)]
    scalars += [np.full(count, 1.5), np.full(count, 2.5)]
    counts: Counts = ((count,) * 4 + (0,) + (1,) * 7, (count,) * 3 + (0, 0))
    outputs = [make.out(*shape) for shape in shapes] * 3
    attrs: dict[str, Any] = {"groups": [0] * count, "indices": list(range(count))}
    kernel = "adam_step_cpu" if device == "cpu" else "adam_step_f32"
    wide = [x if x.dtype == np.float32 else widened(x, device) for x in g]
    results, expected = (
        run(kernel, "adam_step", Case("", [*p, *given, *m, *v, *scalars], outputs, attrs, counts), device)
        for given in (g, wide)
    )
    assert [a.tobytes() for a in results] == [b.tobytes() for b in expected]


def test_a_gradient_is_not_where_the_update_writes() -> None:
    weight, rate = np.zeros(8, np.float32), np.array(0.1)
    halves = weight.view(NUMPY_TYPES["bf16"])
    for gradient in (halves[:8], halves[8:]):
        operands = {"p": weight, "g": gradient, "lr": rate, "weight_decay": rate}
        with pytest.raises(KernelError, match="output 0 overlaps input 1 in part; give it its own memory"):
            op_call(KINDS["sgd_step"], operands, {"p": weight}, {"groups": [0]})


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, weight_decay=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, dampening=0.2, maximize=True),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.1, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=1e-2, weight_decay=0.1),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-2, maximize=True),
    "amsgrad": lambda p: torch.optim.Adam(p, lr=1e-2, amsgrad=True),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "unscaled": {"loss_scale": None},
    "kept": {"keep_gradients": True},
    "checked": {"check_finite": True, "loss_scale": None},
    "clipped": {"clip_grad_norm": 0.5},
    "accumulated": {"accumulate": 2},
}


def trained(case: str, device: str, optimizer: str, options: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Parameters, states and losses after three steps and two replays."""
    ours = Training(case, device, OPTIMIZERS[optimizer])
    step = ours.compiled(**options)
    given = [ours.batch] * options.get("accumulate", 1)
    batch = given if "accumulate" in options else given[0]
    losses = [step.train_step(batch).clone().cpu() for _ in range(3)]
    step.capture(batch)
    step.replay(2)
    return {**ours.values(), "losses": torch.stack(losses)}


def leave_casts(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out(monkeypatch, "fuse-gradients")


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("precision", ["bf16", "f16"])
def test_steps_train_the_same(
    optimizer: str, precision: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"precision": precision, "loss_scale": None}
    ours = trained("attention", device, optimizer, options)
    leave_casts(monkeypatch)
    assert_same_bits(ours, trained("attention", device, optimizer, options))


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("precision", ["bf16", "f16"])
def test_gradients_that_something_else_reads(
    options: str, precision: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"precision": precision, **OPTIONS[options]}
    ours = trained("tied", device, "adam", given)
    leave_casts(monkeypatch)
    assert_same_bits(ours, trained("tied", device, "adam", given))
