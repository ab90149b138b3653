"""What `run_function` refuses to run."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from aicf_mlir.errors import BindError
from aicf_mlir.interpreters import run_function
from aicf_mlir.interpreters.numerics import Array, pairwise_sum
from aicf_mlir.text.parsing import parse_module

ADD = """
func.func @add(%x: tensor<4xf32>, %y: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %z = nn.add %x, %y : (tensor<4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  func.return %z : tensor<2x4xf32>
}
"""
X, Y = np.ones(4, np.float32), np.ones((2, 4), np.float32)


@pytest.mark.parametrize(
    ("text", "inputs", "message"),
    [
        ("builtin.module {}", [], "expected a module of one function to run, got 0"),
        (ADD + ADD.replace("@add", "@again"), [X, Y], "expected a module of one function to run, got 2"),
        (ADD, [X], "@add: expected 2 inputs, got 1"),
        (ADD, [X, Y.astype(np.float64)], "@add, input %y: expected float32[2, 4], got float64[2, 4]"),
        (ADD, [X, Y.T], "@add, input %y: expected float32[2, 4], got float32[4, 2]"),
        (
            "func.func @f(%n: i32) {\n  func.return\n}",
            [np.int32(1)],
            "@f, input %n: only tensors can be given, not i32",
        ),
    ],
)
def test_refusals(text: str, inputs: list[Array], message: str) -> None:
    with pytest.raises(BindError, match=re.escape(message)):
        run_function(parse_module(text), inputs)


def test_any_memory_layout_will_do() -> None:
    (result,) = run_function(parse_module(ADD), [X, np.asfortranarray(Y)])
    np.testing.assert_array_equal(result, X + Y)


@pytest.mark.parametrize("axes", [(0,), (0, 2), (-1,), (1,), ()])
def test_long_sums_miss_a_few_bits(axes: tuple[int, ...]) -> None:
    """Equal numbers, whose roundings all point the same way: one behind the other they miss 1e-12."""
    values = np.full((40_001, 3, 2), 0.1)
    counts = math.prod(values.shape[axis] for axis in axes)
    expected = math.fsum([0.1] * counts)
    for keepdims in (False, True):
        found = pairwise_sum(values, axes, keepdims)
        assert found.shape == np.sum(values, axis=axes, keepdims=keepdims).shape
        np.testing.assert_allclose(found, expected, rtol=4e-15)


def test_sums_of_nothing_and_of_zeros() -> None:
    assert np.array_equal(pairwise_sum(np.ones((2, 0)), (1,)), np.zeros(2))
    assert not np.signbit(pairwise_sum(np.full((3, 2), -0.0), (0,))).any()
