"""Generated CPU kernels against the interpreter: layouts, types, reductions, ranges, processors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from bodies import check, kernel_of, random_values, tensor

from aicf_mlir.codegen.llvm import generate
from aicf_mlir.ir import formula as f


def chain(x: Any, y: Any) -> Any:
    return f.tanh(f.exp(x * 0.1) + y) * x + 1.0


@pytest.mark.parametrize("size", [0, 1, 3, 16, 63, 64, 65, 1000, 2048, 4097, 10_000])
def test_a_map_of_any_size(size: int) -> None:
    one = tensor("f32", size)
    check(kernel_of("map", chain, [one, one], [one]))


@pytest.mark.parametrize("element", ["f32", "f64", "f16", "bf16"])
@pytest.mark.parametrize(
    ("shape", "left", "right", "result"),
    [
        ((), (), (), ()),
        ((1,), (1,), (0,), (1,)),
        ((5, 7), (7, 1), (0, 1), (7, 1)),
        ((5, 7), (7, 1), (1, 0), (7, 1)),
        ((33, 70), (1, 33), (70, 1), (70, 1)),
        ((33, 70), (1, 33), (1, 33), (1, 33)),
        ((33, 70), (1, 33), (0, 0), (1, 40)),
        ((6, 70), (150, 2), (70, 1), (150, 2)),
        ((3, 4, 5), (40, 1, 8), (20, 5, 1), (1, 3, 12)),
        ((2, 3, 4, 5), (60, 5, 15, 1), (0, 0, 5, 1), (60, 20, 5, 1)),
        ((2, 3000), (3000, 1), (1, 2), (3000, 1)),
        ((3, 0, 4), (0, 4, 1), (0, 4, 1), (0, 4, 1)),
    ],
)
def test_a_map_of_any_layout(element: str, shape: Any, left: Any, right: Any, result: Any) -> None:
    operands = [tensor(element, *shape, strides=left), tensor(element, *shape, strides=right)]
    check(kernel_of("map", chain, operands, [tensor(element, *shape, strides=result)]))


def test_text_is_the_same_each_time() -> None:
    one = tensor("f32", 100)
    kernels = [kernel_of("map", chain, [one, one], [one]) for _ in range(2)]
    assert generate(kernels[0]) == generate(kernels[1])


def test_in_place() -> None:
    one = tensor("f32", 100)
    kernel = kernel_of("map", chain, [one, one], [one])
    assert kernel.in_place == {(0, 0), (0, 1)}
    x, y = (np.linspace(-1, 1, 100, dtype=np.float32) + n for n in range(2))
    (right,) = check(kernel, [x, y])
    from native_code import Loaded

    Loaded(kernel)([x, y, y])
    assert y.tobytes() == right.tobytes()


def softmax(x: Any) -> Any:
    e = f.exp(x - f.row_max(x))
    return e / f.row_sum(e)


def norm(x: Any, r: Any, g: Any, b: Any, size: int) -> Any:
    h = x + r
    mean = f.row_sum(h) * (1.0 / size)
    d = h - mean
    rstd = f.rsqrt(f.row_sum(d * d) * (1.0 / size) + 1e-5)
    z = d * rstd * g + b
    return h, 0.5 * z * (1.0 + f.erf(z * f.SQRT_HALF)), mean, rstd


@pytest.mark.parametrize("element", ["f32", "f64", "f16", "bf16"])
@pytest.mark.parametrize("size", [1, 7, 16, 100, 512, 1000, 1500])
def test_softmax(element: str, size: int) -> None:
    one = tensor(element, 5, size)
    check(kernel_of("rowwise", softmax, [one], [one], reduced=1), scale=2)


def test_several_reduced_dimensions_that_do_not_collapse() -> None:
    one = tensor("f32", 3, 4, 5, 20, strides=(800, 200, 40, 1))
    check(kernel_of("rowwise", softmax, [one], [tensor("f32", 3, 4, 5, 20)], reduced=2), scale=2)
    check(kernel_of("rowwise", softmax, [one], [tensor("f16", 3, 4, 5, 20)], reduced=3), scale=2)


@pytest.mark.parametrize("size", [24, 1024])
@pytest.mark.parametrize("element", ["f32", "bf16"])
def test_norm(element: str, size: int) -> None:
    whole, row = tensor(element, 6, size), tensor(element, 6, size, strides=(0, 1))

    def formula(*args: Any) -> Any:
        return norm(*args, size=size)

    results = [whole, whole, tensor("f32", 6), tensor("f32", 6)]
    check(kernel_of("rowwise", formula, [whole, whole, row, row], results, reduced=1), scale=4)


def column_sums(x: Any, y: Any, g: Any) -> Any:
    return f.row_sum(x * y), f.row_max(x) * g, x + y, g * 2.0, f.row_sum(y)


@pytest.mark.parametrize("element", ["f32", "f64", "f16", "bf16"])
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (64, 64), (65, 70), (300, 17), (130, 2500), (7, 0)])
def test_columns(element: str, shape: tuple[int, int]) -> None:
    whole, row = tensor(element, *shape), tensor(element, *shape, strides=(0, 1))
    kept = tensor(element, shape[1])
    results = [tensor("f32" if element != "f64" else "f64", shape[1]), kept, whole, kept, kept]
    check(kernel_of("colwise", column_sums, [whole, whole, row], results, reduced=1), scale=20)


@pytest.mark.parametrize("strides", [(1, 3, 36, 180), (1200, 4, 1, 40), (20, 1, 7, 60)])
def test_columns_of_any_layout(strides: tuple[int, ...]) -> None:
    one = tensor("f32", 3, 4, 5, 6, strides=strides)

    def formula(x: Any) -> Any:
        return f.row_sum(x * x), f.row_min(x), f.exp(x)

    for reduced in (1, 2, 3, 4):
        kept = tensor("f32", *one.shape[reduced:])
        check(
            kernel_of("colwise", formula, [one], [kept, kept, tensor("f32", 3, 4, 5, 6)], reduced=reduced),
            scale=4,
        )


@pytest.mark.parametrize(
    ("shape", "strides", "reduced"),
    [
        ((3, 20_000), (20_000, 1), 1),
        ((30_001,), (1,), 1),
        ((2, 500, 50), (40_000, 64, 1), 2),
        ((2, 3, 9000), (40_000, 10_000, 1), 2),
        ((20_000,), (3,), 1),
    ],
)
def test_few_long_rows_are_split(shape: Any, strides: Any, reduced: int) -> None:
    one = tensor("f32", *shape, strides=strides)
    kept = tensor("f32", *shape[: len(shape) - reduced])

    def formula(x: Any) -> Any:
        return f.sqrt(f.row_sum(x * x)), f.row_max(x)

    kernel = kernel_of("rowwise", formula, [one], [kept, kept], reduced=reduced)
    assert len(generate(kernel).phases) == 2
    check(kernel, scale=4)


@pytest.mark.parametrize("element", ["f32", "f64", "i64", "i32", "i1"])
@pytest.mark.parametrize(("kind", "shape"), [("rowwise", (7, 0)), ("colwise", (0, 7))])
def test_nothing_is_reduced_to_the_identity(element: str, kind: str, shape: tuple[int, int]) -> None:
    def formula(x: Any) -> Any:
        return f.row_sum(x), f.row_prod(x), f.row_max(x), f.row_min(x)

    check(kernel_of(kind, formula, [tensor(element, *shape)], [tensor(element, 7)] * 4, reduced=1))


@pytest.mark.parametrize("element", ["f32", "f64", "i64", "i32", "i1"])
@pytest.mark.parametrize(
    ("kind", "shape"), [("rowwise", (7, 1030)), ("colwise", (130, 7)), ("rowwise", (2, 20_000))]
)
def test_every_reduction_of_every_type(element: str, kind: str, shape: tuple[int, int]) -> None:
    def formula(x: Any) -> Any:
        return f.row_sum(x), f.row_prod(x), f.row_max(x), f.row_min(x)

    kept = shape[0] if kind == "rowwise" else shape[1]
    values = random_values(element, shape, 5)
    if element in ("f32", "f64"):
        values = 1.0 + values * 0.01
    kernel = kernel_of(kind, formula, [tensor(element, *shape)], [tensor(element, kept)] * 4, reduced=1)
    check(kernel, [values], scale=10)
