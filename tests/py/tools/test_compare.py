"""What `--compare=interp` allows: what rounding explains, in every type and however far it carries, and no more."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.grad import conv2d_weight

from aicf_mlir.interpreters.arithmetic import EXACT, ROUNDED, Disturbed
from aicf_mlir.interpreters.kernel import meaning
from aicf_mlir.interpreters.numerics import NUMPY_TYPES
from aicf_mlir.interpreters.plan import evaluate_plan
from aicf_mlir.stages import run_stages
from aicf_mlir.text.parsing import make_context, parse_module
from aicf_mlir.tools.compare import Reference, compare
from aicf_mlir.tools.plan_step import PlanStep
from aicf_mlir.tools.tensors import random_value

STEP = Path(__file__).parents[3] / "examples" / "train_step.mlir"


def plan_step(dtype: str, text: str | None = None) -> PlanStep:
    module = parse_module((text or STEP.read_text()).replace("f32", dtype))
    run_stages(module, make_context())
    return PlanStep(module, "cpu")


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16"])
@pytest.mark.parametrize("seed", range(3))
def test_honest_runs_agree(dtype: str, seed: int) -> None:
    step = plan_step(dtype)
    values = {tensor.key: random_value(tensor, seed) for tensor in step.arguments}
    for steps in (1, 4):
        reference = Reference.of(lambda arithmetic, n=steps: step.interpret(values, n, arithmetic))
        text, agreed = compare(step.run(values, steps), reference, step.names)
        assert agreed, text


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16"])
def test_another_activation_differs(dtype: str) -> None:
    step = plan_step(dtype)
    values = {tensor.key: random_value(tensor, 0) for tensor in step.arguments}
    reference = Reference.of(lambda arithmetic: step.interpret(values, 1, arithmetic))
    wrong = plan_step(dtype, STEP.read_text().replace("nn.gelu", "nn.relu"))
    _, agreed = compare(wrong.run(values, 1), reference, step.names)
    assert not agreed


@pytest.mark.parametrize("factor", [1 + 2e-3, 0.0, -1.0, np.nan, np.inf])
def test_one_wrong_tensor_differs(factor: float) -> None:
    step = plan_step("f32")
    values = {tensor.key: random_value(tensor, 0) for tensor in step.arguments}
    reference = Reference.of(lambda arithmetic: step.interpret(values, 1, arithmetic))
    results = step.run(values, 1)
    for key in (("output", "loss"), ("param", "0.weight")):
        _, agreed = compare({**results, key: results[key] * np.float32(factor)}, reference, step.names)
        assert not agreed


def test_types_and_integers_must_be_the_same() -> None:
    key = ("output", "y")
    for ours, theirs in (
        (np.zeros(2, np.float16), np.zeros(2, np.float32)),
        (np.zeros(3, np.float32), np.zeros(2, np.float32)),
        (np.array([1, 2]), np.array([1, 3])),
    ):
        reference = Reference({key: theirs}, {key: theirs.astype(np.float64)}, [])
        assert not compare({key: ours}, reference, {key: "y"})[1]
        assert compare({key: theirs}, reference, {key: "y"})[1]


def test_an_overflow_that_a_rounding_decides_is_left_out() -> None:
    """Next to the largest f16 number one run overflows and another does not."""
    key = ("output", "y")
    largest, beyond = np.array([65504.0, 1.0], np.float16), np.array([np.inf, 1.0], np.float16)
    exact = {key: np.array([65519.9, 1.0])}
    for ours in (largest, beyond):
        assert compare({key: ours}, Reference({key: largest}, exact, [{key: beyond}]), {key: "y"})[1]
        alone = compare({key: ours}, Reference({key: largest}, exact, [{key: largest}]), {key: "y"})[1]
        assert alone == (ours is largest)


def test_a_plan_means_the_same_with_and_without_its_memory() -> None:
    step = plan_step("f32")
    values = {tensor.key: random_value(tensor, 0) for tensor in step.arguments}
    slots = step.program.slots
    arguments = {
        symbol: values[slot.role, slot.name]
        for symbol, slot in slots.items()
        if slot.role != "const" and (slot.role, slot.name) in values
    }
    held = evaluate_plan(step.op, arguments)
    for key, value in step.interpret(values).items():
        assert held[step.results[key]].tobytes() == value.tobytes()
    exact = evaluate_plan(step.op, arguments, EXACT)
    assert exact["loss"].dtype == np.float64


def test_arithmetics() -> None:
    values = np.array([1.0, 0.1, 1e30], np.float32)
    assert ROUNDED.round(values.astype(np.float64), "f16").dtype == np.float16
    assert EXACT.round(values.astype(np.float64), "f16").dtype == np.float64
    assert EXACT.dtype("i64") == NUMPY_TYPES["i64"]
    moved = [Disturbed(seed).widen(values) for seed in range(8)]
    assert all(row[0] == 1.0 for row in moved), "small whole numbers stay"
    assert len({row[1] for row in moved}) > 1
    assert all(abs(row[1] / np.float64(values[1]) - 1) <= 2 * 2**-23 for row in moved)
    whole = np.array([3], np.int64)
    assert Disturbed(0).widen(whole) is whole


def test_the_zeros_around_an_image_may_be_factors() -> None:
    """As for torch where they are elements of the image: 0 · inf is a NaN."""
    draw = np.random.default_rng(0)
    x, w, dy = (
        draw.integers(-3, 4, shape).astype(float) for shape in ((2, 4, 5, 5), (6, 2, 3, 3), (2, 6, 3, 3))
    )
    w[1, 1, 0, 2], dy[0, 4, 2, 0] = np.inf, -np.inf
    attrs = {"stride": [2, 2], "dilation": [1, 1], "low": [1, 1], "groups": 2}
    tx, tw, tdy = map(torch.from_numpy, (x, w, dy))
    around = torch.nn.functional.pad(tx, (1, 1, 1, 1))
    grid = torch.zeros(2, 6, 7, 7, dtype=torch.float64)  # dy, and the zeros between and around
    grid[:, :, 1:6:2, 1:6:2] = tdy
    turned = tw.unflatten(0, (2, 3)).transpose(1, 2).flatten(0, 1).flip(2, 3)
    expected = {
        "convolution": ([x, w], torch.nn.functional.conv2d(around, tw, stride=2, groups=2)),
        "convolution_input_grad": ([dy, w], torch.nn.functional.conv2d(grid, turned, groups=2)),
        "convolution_weight_grad": ([x, dy], conv2d_weight(around, tw.shape, tdy, 2, groups=2)),
    }
    for op, (given, result) in expected.items():
        spec = ("f64", tuple(result.shape))
        numbers = attrs | {"size": list(result.shape[2:])}
        with np.errstate(invalid="ignore"):
            (never,), (always,) = (meaning(op, given, numbers, [spec], a) for a in (EXACT, Disturbed(0)))
        nan = result.isnan().numpy()
        assert np.isnan(never).sum() < nan.sum() < result.numel(), op
        assert np.array_equal(np.isnan(always), nan), op
        assert np.array_equal(never[~nan], result.numpy()[~nan]), op
