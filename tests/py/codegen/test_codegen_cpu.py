"""Generated CPU kernels against the interpreter: layouts, types, reductions, ranges, processors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from bodies import check, kernel_of, random_values, tensor
from costs import Some
from native_code import NUMPY, Loaded, placed

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


def smoothed(g: Any, kept: Any, x: Any, hidden: Any, y: Any) -> Any:
    """Rows of a smoothed cross entropy, each with a weight of its own."""
    return f.row_sum((f.select(kept, x, 0.0) * 0.85 + f.select(hidden, 0.0, y) * 0.05) * g)


@pytest.mark.parametrize("element", ["f32", "f64", "f16", "bf16"])
@pytest.mark.parametrize("size", [2, 3, 18, 21, 34, 50, 530])
def test_the_last_elements_of_a_row_are_each_read(element: str, size: int) -> None:
    """LLVM 22 took two of f64 for one that is repeated, where the lanes behind them repeated the last one."""
    x, mask = tensor(element, 2, size), tensor("i1", 2, size)
    check(kernel_of("rowwise", smoothed, [x, mask, x, mask, x], [tensor(element, 2)], reduced=1), scale=4)


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


def test_tables_and_indices() -> None:
    def take(i: Any, table: Any) -> Any:
        column = i.builder.index(1)
        return (
            table.load(i, column),
            table.load(i, column + 1),
            table.load(column, i),
            column + i.builder.index(0),
        )

    rows = np.array([0, 1, 2, -5, 99, 1], np.int64)
    index = tensor("i64", 6, 70, strides=(1, 0))
    for element in ("f32", "bf16", "i1"):
        table = tensor(element, 3, 70, strides=(80, 1))
        result = tensor("f32" if element != "i1" else "i1", 6, 70)
        kernel = kernel_of(
            "map", take, [index, table], [result, result, result, tensor("i64", 6, 70)], index.shape, tables=1
        )
        check(kernel, [rows[:, None], random_values(element, (3, 70), 1)])


def test_an_empty_table() -> None:
    kernel = kernel_of(
        "map",
        lambda i, table: table.load(i),
        [tensor("i64", 5), tensor("f32", 0)],
        [tensor("f32", 5)],
        tables=1,
    )
    (result,) = check(kernel, [np.arange(5), np.zeros(0, np.float32)])
    assert not result.any()


def mixed(x: Any, y: Any) -> Any:
    return f.sin(x) + f.power(f.absolute(x), y) + f.erf(y), f.log(f.absolute(x)), x.cast("i32"), f.floor(y)


@pytest.mark.parametrize("size", [1000, 100])
def test_the_same_bits_and_no_symbols_on_any_processor(size: int, some: Some) -> None:
    one, half = tensor("f32", 7, size), tensor("bf16", 7, size)
    kernels = [
        kernel_of("map", mixed, [one, half], [one, half, tensor("i32", 7, size), tensor("f16", 7, size)]),
        kernel_of("map", mixed, [half, one], [tensor("f16", 7, size), half, tensor("i32", 7, size), one]),
        kernel_of("rowwise", softmax, [one], [one], reduced=1),
        kernel_of(
            "colwise", lambda x: (f.row_sum(x), f.row_max(x)), [one], [tensor("f32", size)] * 2, reduced=1
        ),
    ]
    for kernel in some(kernels):
        values = [random_values(t.element, t.shape, n) * 1000 for n, t in enumerate(kernel.operands)]
        values = [v.astype(NUMPY[t.element]) for v, t in zip(values, kernel.operands, strict=True)]
        outcomes: list[list[bytes]] = []
        for cpu in (None, "x86-64", "x86-64-v3"):
            results = [placed(t) for t in kernel.results]
            Loaded(kernel, cpu)([*values, *(result.array for result in results)], cuts=2)
            outcomes.append([result.array.tobytes() for result in results])
        assert outcomes[0] == outcomes[1] == outcomes[2]


@pytest.mark.parametrize("element", ["f32", "f64", "bf16", "i1"])
@pytest.mark.parametrize("shape", [(16, 16), (32, 48), (17, 16), (16, 31), (70, 45)])
def test_operands_that_lie_across(element: str, shape: tuple[int, int]) -> None:
    rows, columns = shape
    across = tensor(element, 2, rows, columns, strides=(rows * columns + 5, 1, rows))
    column = tensor(element, 2, rows, columns, strides=(0, 1, 0))
    result = tensor(element, 2, rows, columns)

    def formula(x: Any, y: Any, c: Any) -> Any:
        return f.maximum(x, y), f.maximum(c, x)

    check(kernel_of("map", formula, [across, result, column], [result, result]))


def twice_centred(x: Any) -> Any:
    y = x - f.row_sum(x)
    return y, f.row_sum(x * f.row_max(y * f.row_sum(x)))


def scaled(x: Any) -> Any:
    e = f.exp(x - f.row_max(x))
    return e / f.row_sum(e) + x


@pytest.mark.parametrize("formula", [softmax, scaled, twice_centred])
@pytest.mark.parametrize("size", [5, 100, 1000])
def test_rows_in_place(formula: Any, size: int) -> None:
    """Later passes read what the operand held, or what was kept, not what was written over it."""
    one = tensor("f32", 6, size)
    results = [one, tensor("f32", 6)] if formula is twice_centred else [one]
    kernel = kernel_of("rowwise", formula, [one], results, reduced=1)
    assert (0, 0) in kernel.in_place
    values = random_values("f32", (6, size), 3)
    right = check(kernel, [values], scale=size * 100)
    rest = [placed(t).array for t in results[1:]]
    Loaded(kernel)([values, values, *rest], cuts=2)
    for one_result, other in zip([values, *rest], right, strict=True):
        assert one_result.tobytes() == other.tobytes()


def test_values_kept_for_long_rows_lie_in_the_workspace() -> None:
    def formula(x: Any) -> Any:
        e = f.exp(x - f.row_max(x))
        return e / f.row_sum(e)

    size = 20_000
    kernel = kernel_of("rowwise", formula, [tensor("f32", 3, size)], [tensor("bf16", 3, size)], reduced=1)
    assert generate(kernel).workspace >= 3 * 4 * size
    check(kernel, scale=4)
