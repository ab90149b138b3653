"""Generated CPU kernels: every element type, comparisons, arithmetic, casts and rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from bodies import check, kernel_of, tensor
from native_code import NUMPY, Loaded, placed

from aicf_mlir.ir import formula as f
from aicf_mlir.ir.body import CMPF, CMPI, FLOAT_BINARY, FLOAT_UNARY, INTEGER_BINARY, TRANSCENDENTAL

SPECIAL = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    1.5,
    2.5,
    -2.5,
    np.inf,
    -np.inf,
    np.nan,
    1e-45,
    -1e-40,
    3e38,
    -3e38,
    2e9,
    3e9,
]


def test_comparisons_of_floats() -> None:
    left, right = (np.array(v, np.float32).ravel() for v in np.meshgrid(SPECIAL, SPECIAL))

    def formula(x: Any, y: Any) -> Any:
        return [x.apply("arith.cmpf", y, type_="i1", attr=predicate) for predicate in CMPF]

    one = tensor("f32", left.size)
    check(kernel_of("map", formula, [one, one], [tensor("i1", left.size)] * len(CMPF)), [left, right])


@pytest.mark.parametrize("element", ["f32", "f64"])
def test_arithmetic_of_floats(element: str) -> None:
    left, right = (np.array(v).ravel().astype(NUMPY[element]) for v in np.meshgrid(SPECIAL, SPECIAL))

    def formula(x: Any, y: Any) -> Any:
        two = [x.apply(op, y) for op in sorted(FLOAT_BINARY) if op not in ("math.powf", "math.atan2")]
        return [*two, -x, abs_of(x), x.apply("math.fma", y, x), f.select(x < y, x, y)]

    def abs_of(x: Any) -> Any:
        return f.absolute(x)

    one = tensor(element, left.size)
    results = [one] * (len(FLOAT_BINARY) - 2 + 4)
    made = check(kernel_of("map", formula, [one, one], results), [left, right])
    maximum = made[sorted(FLOAT_BINARY).index("arith.maximumf")]
    assert np.isnan(maximum[np.isnan(left) | np.isnan(right)]).all()


@pytest.mark.parametrize("element", ["i32", "i64", "i1"])
def test_arithmetic_of_integers(element: str) -> None:
    low, high = (0, 1) if element == "i1" else (np.iinfo(NUMPY[element]).min, np.iinfo(NUMPY[element]).max)
    numbers = [0, 1] if element == "i1" else [0, 1, -1, 2, -2, 7, -7, 5, 31, low, high, low + 1]
    left, right = (np.array(v).ravel().astype(NUMPY[element]) for v in np.meshgrid(numbers, numbers))
    shifts = ("arith.shli", "arith.shrsi", "arith.shrui")
    plain = [
        op for op in sorted(INTEGER_BINARY) if op not in shifts and (element != "i1" or "s" not in op[6:])
    ]

    def formula(x: Any, y: Any) -> Any:
        return [
            *(x.apply(op, y) for op in plain),
            *(x.apply("arith.cmpi", y, type_="i1", attr=predicate) for predicate in CMPI if element != "i1"),
        ]

    one, flag = tensor(element, left.size), tensor("i1", left.size)
    results = [one] * len(plain) + [flag] * (0 if element == "i1" else len(CMPI))
    check(kernel_of("map", formula, [one, one], results), [left, right])


@pytest.mark.parametrize("element", ["i32", "i64"])
def test_shifts_by_any_number_of_places(element: str) -> None:
    bits = 32 if element == "i32" else 64
    numbers, places = (
        np.array(v).ravel().astype(NUMPY[element])
        for v in np.meshgrid([1, -1, 12345, -98765], [0, 1, 7, bits - 1, bits, bits + 5, -1])
    )

    def formula(x: Any, y: Any) -> Any:
        return [x.apply(f"arith.{name}", y) for name in ("shli", "shrsi", "shrui")]

    one = tensor(element, numbers.size)
    left, signed, logical = (placed(one) for _ in range(3))
    Loaded(kernel_of("map", formula, [one, one], [one] * 3))(
        [numbers, places, left.array, signed.array, logical.array]
    )
    for x, n, a, b, c in zip(
        *(v.tolist() for v in (numbers, places, left.array, signed.array, logical.array)), strict=True
    ):
        far = not 0 <= n < bits
        wrapped = 0 if far else (x << n) % 2**bits
        assert a % 2**bits == wrapped
        assert b == (x >> (bits - 1) if far else x >> n)
        assert c % 2**bits == (0 if far else (x % 2**bits) >> n)


def test_casts() -> None:
    numbers = np.array([*SPECIAL, 1e10, -1e10, 1e19, 2147483520.0, 16777217.0, 0.1], np.float64)
    whole = np.array([0, 1, -1, 2**31 - 1, -(2**31), 2**53 + 1, 2**62 + 2**37, 70000, 2049], np.int64)

    def floats(x: Any) -> Any:
        narrow = x.cast("f32")
        return [
            narrow, narrow.cast("f64"), x.cast("i32"), x.cast("i64"), narrow.cast("i32"), narrow.cast("i64"),
            x.cast("i1"), narrow.rounded("f16"), narrow.rounded("bf16"),
            x.apply("arith.truncf", type_="f16").apply("arith.extf", type_="f64"),
            x.apply("arith.truncf", type_="bf16").apply("arith.extf", type_="f64"),
        ]  # fmt: skip

    types = ["f32", "f64", "i32", "i64", "i32", "i64", "i1", "f32", "f32", "f64", "f64"]
    n = numbers.size
    check(kernel_of("map", floats, [tensor("f64", n)], [tensor(t, n) for t in types]), [numbers])

    def integers(x: Any) -> Any:
        small, flag = x.cast("i32"), x.cast("i1")
        return [
            small, flag, x.cast("f32"), x.cast("f64"), small.cast("f32"), small.cast("i64"), flag.cast("f32"),
            flag.cast("i64"), small.apply("arith.bitcast", type_="f32"), x.apply("arith.uitofp", type_="f64"),
        ]  # fmt: skip

    types = ["i32", "i1", "f32", "f64", "f32", "i64", "f32", "i64", "f32"]
    n = whole.size
    kernel = kernel_of("map", lambda x: integers(x)[:-1], [tensor("i64", n)], [tensor(t, n) for t in types])
    check(kernel, [whole])


def every_half() -> Any:
    return np.arange(1 << 16, dtype=np.uint16)


@pytest.mark.parametrize("element", ["f16", "bf16"])
def test_every_number_of_16_bits_is_read_and_written(element: str) -> None:
    values = every_half().view(NUMPY[element])
    one = tensor(element, values.size)
    (same,) = check(kernel_of("map", lambda x: x * 1.0, [one], [one]), [values])
    numbers = ~np.isnan(values.astype(np.float32))
    assert (same.view(np.uint16) == values.view(np.uint16))[numbers].all()


@pytest.mark.parametrize("element", ["f16", "bf16"])
@pytest.mark.parametrize("source", ["f32", "f64"])
def test_rounding_to_16_bits(element: str, source: str) -> None:
    """Halfway between each two numbers, and a little beside."""
    with np.errstate(invalid="ignore"):
        values = np.sort(every_half().view(NUMPY[element]).astype(np.float64))
    values = values[np.isfinite(values)]
    between = (values[1:] + values[:-1]) / 2
    step = np.float64(1e-13 if source == "f64" else 1e-7)
    numbers = np.concatenate([between, between * (1 + step), between * (1 - step)]).astype(NUMPY[source])

    def formula(x: Any) -> Any:
        return x.apply("arith.truncf", type_=element).apply("arith.extf", type_="f32")

    one = tensor(source, numbers.size)
    result = placed(tensor("f32", numbers.size))
    Loaded(kernel_of("map", formula, [one], [tensor("f32", numbers.size)]))([numbers, result.array])
    right = nearest_of(numbers.astype(np.float64), values)
    np.testing.assert_array_equal(result.array, right)


def nearest_of(numbers: Any, values: Any) -> Any:
    """The nearest of sorted values, which are neighbours of a type; halfway the one whose bits are even."""
    values = np.unique(values)
    at = np.clip(np.searchsorted(values, numbers), 1, values.size - 1)
    low, high = values[at - 1], values[at]
    middle = (low + high) / 2
    even_high = np.abs(np.searchsorted(np.unique(np.abs(values)), np.abs(high))) % 2 == 0
    return np.where(numbers < middle, low, np.where(numbers > middle, high, np.where(even_high, high, low)))


@pytest.mark.parametrize("op", sorted(op for op in TRANSCENDENTAL if op in FLOAT_UNARY | FLOAT_BINARY))
def test_functions_of_f64_are_those_of_the_library(op: str) -> None:
    values = np.array([*SPECIAL, *np.linspace(-3, 3, 50)], np.float64)
    count = 1 if op in FLOAT_UNARY else 2
    one = tensor("f64", values.size)
    kernel = kernel_of("map", lambda *x: x[0].apply(op, *x[1:]), [one] * count, [one])
    check(kernel, [values, values[::-1]][:count], scale=100)
