"""What the certificate allows: as much as other roundings move a result, those of kernels on tensor cores among them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aicf_mlir.interpreters.arithmetic import ROUNDED, Arithmetic, Disturbed
from aicf_mlir.interpreters.kernel import meaning
from aicf_mlir.interpreters.numerics import NUMPY_TYPES, Array
from aicf_mlir.runtime.certificate.tolerance import RUNS, fault

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

    return [run(arithmetic) for arithmetic in (ROUNDED, *map(Disturbed, range(RUNS)))]


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
