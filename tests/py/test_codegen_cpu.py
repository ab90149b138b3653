"""Generated CPU kernels against the interpreter: layouts, types, reductions, ranges, processors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from bodies import check, kernel_of, tensor

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
