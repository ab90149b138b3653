"""Functions of f32 that generated kernels compute by arithmetic: errors in units in the last place, special values."""

from __future__ import annotations

import math
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import children
import numpy as np
import pytest
from bodies import kernel_of, tensor
from native_code import Array, Loaded, placed

from aicf_mlir.codegen.functions import BOTH, F32
from aicf_mlir.dialects.nn.rows.activations import gelu
from aicf_mlir.interpreters.body import FUNCTIONS
from aicf_mlir.ir import formula as f
from aicf_mlir.op_call import OpKind, op_call

ROOT = Path(__file__).resolve().parents[3]
SPECIAL = np.array(
    [
        *(0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0, np.inf, -np.inf, np.nan),
        *(1e-45, -1e-45, 1.17e-38, 3.4e38, -3.4e38, 0.9999999, 1.0000001, 16777217.0),
        *(88.72, 88.73, -103.9, -104.0, 127.0, 128.0, -149.0, -150.0, 1e6, 1.5e6, 1e10, 1e30, math.pi / 2),
    ],
    np.float32,
)
WORST = {"math.exp": 1.0, "math.tanh": 1.4, "math.erf": 1.5, "math.rsqrt": 1.5}
"""Units in the last place; all others are rounded from a result that is exact to 2e-4 units."""
BINARY = ("math.powf", "math.atan2")
SAMPLES = 1 << 17


def arguments(count: int) -> list[Array]:
    """Any bits, numbers around 1 and 30, multiples of half pi, and special values, each with each."""
    rng = np.random.default_rng(0)

    def some() -> Array:
        return np.concatenate([
            rng.integers(0, 1 << 32, SAMPLES, dtype=np.uint64).astype(np.uint32).view(np.float32),
            rng.standard_normal(2 * SAMPLES).astype(np.float32),
            (rng.standard_normal(SAMPLES) * 30).astype(np.float32),
            (np.arange(1, SAMPLES) * (math.pi / 2)).astype(np.float32),
        ])  # fmt: skip

    if count == 1:
        return [np.concatenate([some(), SPECIAL])]
    left, right = (each.ravel() for each in np.meshgrid(SPECIAL, SPECIAL))
    whole = np.rint(rng.standard_normal(SAMPLES) * 9).astype(np.float32)
    return [
        np.concatenate([some(), rng.standard_normal(SAMPLES).astype(np.float32), left]),
        np.concatenate([rng.permutation(some()), whole, right]),
    ]


def apart(found: Array, right: Array) -> Array:
    """Units in the last place of f32 between numbers and their exact values."""
    rounded = right.astype(np.float32)
    unit = np.spacing(np.abs(rounded)).astype(np.float64)
    both = np.isfinite(right) & np.isfinite(found)
    unit = np.where(np.isfinite(unit), unit, 2.0**104)
    return np.where(both, np.abs(found - right) / unit, 0.0)


@pytest.mark.parametrize("op", sorted({*F32, *BOTH} - {"math.fma"}))
def test_errors_and_special_values(op: str) -> None:
    operands = arguments(2 if op in BINARY else 1)
    one = tensor("f32", operands[0].size)
    result = placed(one).array
    kernel = kernel_of("map", lambda *x: x[0].apply(op, *x[1:]), [one] * len(operands), [one])
    Loaded(kernel)([*operands, result])
    function: Any = np.vectorize(math.erf) if op == "math.erf" else FUNCTIONS[op]
    with np.errstate(all="ignore"):
        right = np.asarray(function(*(operand.astype(np.float64) for operand in operands)))
        rounded = right.astype(np.float32)
        assert apart(result.astype(np.float64), right).max() <= WORST.get(op, 0.5002)
    np.testing.assert_array_equal(np.isnan(result), np.isnan(rounded))
    np.testing.assert_array_equal(np.isinf(result), np.isinf(rounded))
    signed = ~np.isnan(rounded)
    if op == "math.tanh":  # as the prebuilt kernels: the tanh of -0 is 0
        signed &= operands[0] != 0
    np.testing.assert_array_equal(np.signbit(result)[signed], np.signbit(rounded)[signed])


def test_fma_is_rounded_once() -> None:
    rng = np.random.default_rng(1)
    count = 1 << 16
    bits = rng.integers(0, 1 << 32, (3, count), dtype=np.uint64).astype(np.uint32).view(np.float32)
    x, y, z = (np.concatenate([rng.standard_normal(count).astype(np.float32), row]) for row in bits)
    z[: count // 2] = -x[: count // 2] * y[: count // 2]  # all but the rounding error of the product cancels
    one = tensor("f32", 2 * count)
    result = placed(one).array
    Loaded(kernel_of("map", lambda x, y, z: x.apply("math.fma", y, z), [one] * 3, [one]))([x, y, z, result])
    with np.errstate(all="ignore"):
        right = (x.astype(np.longdouble) * y + z).astype(np.float32)
    np.testing.assert_array_equal(result, right)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the compiler's option is one of x86-64")
def test_fma_of_a_processor_without_it(tmp_path: Path) -> None:
    """In C++; in generated text see test_the_same_bits_and_no_symbols_on_any_processor."""
    program, source = tmp_path / "fused", ROOT / "tests/cpp/fused_without_instruction.cpp"
    options = ["-std=c++17", "-O3", "-march=x86-64", "-ffp-contract=off", f"-I{ROOT / 'csrc'}"]
    children.run(["c++", *options, "-o", program, source], check=True)
    done = children.run([program])
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", ["tanh", "gelu", "sigmoid"])
def test_the_bits_of_the_prebuilt_kernels(name: str) -> None:
    """Which use the polynomials of vector_math.h, and of ops.h."""
    x = (np.random.default_rng(2).standard_normal(10_000) * 3).astype(np.float32)
    formulas: dict[str, Callable[[f.Scalar], f.Scalar]] = {
        "tanh": f.tanh,
        "gelu": lambda x: gelu(x, "none"),
        "sigmoid": lambda x: 1.0 / (1.0 + f.exp(-x)),
    }
    one = tensor("f32", x.size)
    prebuilt, result = np.empty_like(x), placed(one).array
    op_call(getattr(OpKind, f"Eltwise{name.title()}"), [x], [prebuilt])
    Loaded(kernel_of("map", formulas[name], [one], [one]))([x, result])
    assert result.tobytes() == prebuilt.tobytes()
