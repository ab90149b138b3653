"""What the certificate allows: as much as other roundings move a result, those of kernels on tensor cores among them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from planted import Planted
from torch import nn

from aicf_mlir.interpreters.arithmetic import ROUNDED, Arithmetic
from aicf_mlir.interpreters.kernel import meaning
from aicf_mlir.interpreters.numerics import NUMPY_TYPES, Array
from aicf_mlir.ir import formula as F
from aicf_mlir.runtime.certificate.reference import interpret, read_arguments
from aicf_mlir.runtime.certificate.tolerance import RUNS, disturbed, fault

SHAPE = (2, 4, 32, 16)
SCALE = SHAPE[-1] ** -0.5


def on_tensor_cores(given: dict[str, Array], narrow: np.dtype[Any], wrong: float = 0.0) -> Array:
    """The gradient of keys. The result of attention and the gradients of scores are rounded before they are multiplied."""
    query, key, value, dout = (given[name].astype(np.float64) for name in ("query", "key", "value", "dout"))
    scores = SCALE * query @ key.swapaxes(-1, -2)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    dweights = dout @ value.swapaxes(-1, -2)
    out = (weights @ value).astype(narrow).astype(np.float64)
    dscores = weights * (dweights - (1 - wrong) * (dout * out).sum(-1, keepdims=True))
    rounded = dscores.astype(narrow).astype(np.float64)
    return (SCALE * rounded.swapaxes(-1, -2) @ query).astype(narrow)


def runs_of(given: dict[str, Array], element: str) -> list[Array]:
    """That gradient as it is meant, and in perturbed runs."""
    rows = np.zeros(SHAPE[:-1], NUMPY_TYPES["f32"])  # which the meaning does not read
    operands = [given[name] for name in ("dout", "query", "key", "value")] + [given["dout"], rows, rows]

    counts = (1,) * len(operands) + (0, 0), (1,) * 3  # neither a mask nor dropout

    def run(arithmetic: Arithmetic) -> Array:
        attrs = {"causal": False, "scale": SCALE}
        return meaning("attention_grad", operands, attrs, [(element, SHAPE)] * 3, arithmetic, counts)[1]

    return [run(arithmetic) for arithmetic in (ROUNDED, *map(disturbed, range(RUNS)))]


def summed(dkey: Array) -> Array:
    """The gradient of a bias of all keys, which is 0 but for roundings."""
    return dkey.astype(np.float64).sum((0, 2)).astype(np.float32)


@pytest.mark.parametrize("element", ["bf16", "f16"])
@pytest.mark.parametrize("seed", range(12))
def test_a_bias_of_keys_whose_gradient_is_rounding_alone_does_not_differ(element: str, seed: int) -> None:
    rng, narrow = np.random.default_rng(seed), NUMPY_TYPES[element]
    given = {name: rng.standard_normal(SHAPE).astype(narrow) for name in ("query", "key", "value", "dout")}
    expected, *runs = runs_of(given, element)
    ours = on_tensor_cores(given, narrow)
    assert fault(ours, expected, runs) is None
    assert fault(summed(ours), summed(expected), [*map(summed, runs)]) is None
    wrong = on_tensor_cores(given, narrow, wrong=0.03)
    assert fault(summed(wrong), summed(expected), [*map(summed, runs)]) is not None


def test_a_gradient_in_front_of_a_largest_element_is_known() -> None:
    """Elements that are compared with the largest of them stay: if they moved, none would be it, and any gradient was allowed."""
    pooled = (nn.Unflatten(1, (2, 4, 4)), nn.MaxPool2d(2), nn.Flatten())
    subject = Planted(nn.Sequential(nn.Linear(8, 32), *pooled, nn.Linear(8, 8))).subject()
    expected = interpret(subject.stages["step"], read_arguments(subject))
    for name in ("0.weight.exp_avg", "0.bias.exp_avg"):
        gradient = expected.results["state", name]
        assert np.abs(gradient).max() > 1e-3
        assert expected.fault(("state", name), gradient * np.float32(1 + 1e-6)) is None
        assert expected.fault(("state", name), gradient * np.float32(1.001)) is not None


@pytest.mark.parametrize("margin", [12.0, 21.0, 40.0])
def test_the_loss_of_rows_that_are_all_but_sure_is_what_f32_has_of_it(margin: float) -> None:
    """The total of exp is 1 and a little, which f32 rounds: to 0 as a loss, or to a unit in the last place of 1."""
    logits = np.zeros((8, 2), np.float32)
    logits[:, 1] = margin
    operands = [logits, np.ones(8, np.int64)]

    def run(arithmetic: Arithmetic) -> Array:
        return meaning("cross_entropy", operands, {}, [("f32", ())], arithmetic)[0]

    expected, *runs = (run(arithmetic) for arithmetic in (ROUNDED, *map(disturbed, range(RUNS))))
    shifted = logits - logits.max(1, keepdims=True)
    in_f32 = np.log(np.exp(shifted).sum(1, dtype=np.float32)).mean(dtype=np.float32)
    assert fault(np.asarray(in_f32), expected, runs) is None
    assert fault(np.asarray(expected + np.float32(1e-5)), expected, runs) is not None


def test_what_is_compared_is_known_of_a_body() -> None:
    def largest(x: F.Scalar, y: F.Scalar) -> F.Scalar:
        return F.maximum(x, y)

    def gradient(dy: F.Scalar, x: F.Scalar, top: F.Scalar) -> F.Scalar:
        return F.select(x < top, 0.0, dy * 0.5)

    assert F.trace(["f32"] * 2, largest).compared == {0, 1}
    assert F.trace(["f32"] * 3, gradient).compared == {1, 2}
    assert F.trace(["f32"], lambda x: F.exp(x - F.row_max(x))).compared == set()
