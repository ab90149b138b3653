"""Adam's first moment is torch.lerp: computed from the nearer end, which shows with beta1 of a half or less."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import torch
from models import GradientIsInput, OptimizerConfig, compiled, output_is_loss, values
from oracle import assert_right

from aicf_mlir.interpreters.numerics import overflowing
from aicf_mlir.optimizers.adam import Adam

COLUMNS = 33
BETAS = [(0.0, 0.99), (0.3, 0.9), (0.5, 0.99), (0.51, 0.99), (0.9, 0.999)]
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
SEQUENCES = {
    "a spike, then a whisper": (200.0, 1e-5, 1e-5),
    "a large spike, then a whisper": (3e3, 1e-5, -2e-5),
    "from below": (-3e3, 1e-5, 1e3),
    "infinite": (1.0, math.inf, 1.0),
    "infinite at first": (-math.inf, 1.0, math.inf),
    "not a number": (1.0, math.nan, 1.0),
    "its square is beyond float32": (1e30, 1.0, 1.0),
}
"""Gradients, step by step."""
STEPS = 3


def gradients(dtype: torch.dtype) -> list[dict[str, torch.Tensor]]:
    """One batch a step, in which each sequence has a row."""
    rows = torch.tensor(list(SEQUENCES.values()), dtype=torch.float64)
    return [{"x": rows[:, step : step + 1].repeat(1, COLUMNS).to(dtype)} for step in range(STEPS)]


def in_torch(optimizer: OptimizerConfig, dtype: torch.dtype) -> list[dict[str, torch.Tensor]]:
    """Parameter and state after each step of eager torch."""
    model = GradientIsInput(len(SEQUENCES), COLUMNS).to(dtype)
    made = optimizer(model)
    after: list[dict[str, torch.Tensor]] = []
    for batch in gradients(dtype):
        made.zero_grad()
        output_is_loss(model, batch).backward()
        made.step()
        after.append(values(model, made))
    return after


def in_aicf(optimizer: OptimizerConfig, dtype: torch.dtype, device: str) -> list[dict[str, torch.Tensor]]:
    """The same of the compiled step."""
    model, batches = GradientIsInput(len(SEQUENCES), COLUMNS).to(dtype), gradients(dtype)
    setup = compiled(optimizer, device, model=model, batch=batches[0], loss_fn=output_is_loss)
    after: list[dict[str, torch.Tensor]] = []
    for batch in batches:
        setup.step.train_step({"x": batch["x"].to(device)})
        after.append(setup.values())
    return after


@pytest.mark.parametrize(
    "kind, amsgrad",
    [(torch.optim.Adam, False), (torch.optim.Adam, True), (torch.optim.AdamW, False)],
    ids=["Adam", "Adam amsgrad", "AdamW"],
)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("betas", BETAS, ids=str)
def test_the_first_moment_is_that_of_torch(
    kind: type[torch.optim.Optimizer],
    amsgrad: bool,
    betas: tuple[float, float],
    dtype: torch.dtype,
    device: str,
) -> None:
    optimizer = OptimizerConfig(kind, {"lr": 1e-2, "betas": betas, "amsgrad": amsgrad})
    runs = in_aicf(optimizer, dtype, device), in_torch(optimizer, dtype), in_torch(optimizer, torch.float64)
    for step, (ours, single, double) in enumerate(zip(*runs, strict=True), 1):
        assert ours.keys() == single.keys()
        for name in ours.keys() - {"weight.step"}:
            for row, sequence in enumerate(SEQUENCES):
                what = f"{name}, gradient {sequence!r}, step {step}"
                assert_right(what, ours[name][row], single[name][row], double[name][row])


def test_without_a_memory_the_first_moment_is_the_gradient(device: str) -> None:
    """With beta1 = 0 nothing of a spike stays behind, to the bit."""
    optimizer = OptimizerConfig(torch.optim.Adam, {"lr": 1e-2, "betas": (0.0, 0.99)})
    after, batches = in_aicf(optimizer, torch.float32, device), gradients(torch.float32)
    for row, sequence in enumerate(SEQUENCES.values()):
        for step in range(STEPS):
            if all(map(math.isfinite, sequence)):
                assert torch.equal(after[step]["weight.exp_avg"][row], batches[step]["x"][row])


def test_a_square_beyond_the_range_leaves_the_parameter_in_the_interpreter_too() -> None:
    parameter = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.Adam([parameter])
    parameter.grad = torch.tensor([1e30])
    optimizer.step()
    one, zero = np.ones(1), np.zeros(1)
    scalars = [np.float64(x) for x in (1e-3, 0.9, 0.999, 1e-8, 0.0, 10.0, 1000.0)]
    p, _, v, _ = Adam.formula(
        one, one * 1e30, zero, zero, *scalars, bounded=partial(overflowing, element="f32")
    )
    assert p == parameter.item() == 1.0
    assert v == optimizer.state[parameter]["exp_avg_sq"] == math.inf
    p, _, v, _ = Adam.formula(
        one, one * 1e30, zero, zero, *scalars, bounded=partial(overflowing, element="f64")
    )
    assert p == pytest.approx(0.999)
    assert v == pytest.approx(1e57)
