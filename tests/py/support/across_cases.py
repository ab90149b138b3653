"""Kernels of rows that lie across, as of channels that a batch norm reduces over images and positions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
from bodies import kernel_of
from generated_cases import GeneratedCase, dense, make

from aicf_mlir.ir import formula as F
from aicf_mlir.kernels.kernel import Kernel, Tensor


def _whole(element: str, rows: int, length: int) -> Tensor:
    return Tensor(element, (rows, length), (1, rows))


def _narrow(rows: int, length: int, element: str = "f32") -> Tensor:
    return Tensor(element, (rows, length), (1, 0))


def _sums(element: str) -> str:
    return "f64" if element == "f64" else "f32"


def normalised(element: str, rows: int, length: int) -> Kernel:
    """A norm over each row with relu, its mean and its variance, by the corrected two-pass algorithm."""

    def formula(x: Any, g: Any, b: Any) -> Any:
        near = F.row_sum(x) * (1.0 / length)
        near = F.select(F.absolute(near) < float("inf"), near, 0.0)
        distance = x - near
        squares, rest = F.row_sum(distance * distance), F.row_sum(distance) * (1.0 / length)
        mean = near + rest
        variance = F.maximum(squares - rest * rest * float(length), 0.0) * (1.0 / length)
        y = (x - mean) * F.rsqrt(variance + 1e-5) * g + b
        return F.maximum(y, 0.0), mean, variance

    wide = _sums(element)
    narrow = _narrow(rows, length, wide)
    whole = _whole(element, rows, length)
    results = [whole, dense(wide, rows), dense(wide, rows)]
    return replace(kernel_of("rowwise", formula, [whole, narrow, narrow], results, reduced=1), target="sm_90")


def gradient(element: str, rows: int, length: int) -> Kernel:
    """The gradient of such a norm behind relu: two sums in one walk, a result before them and one after."""

    def formula(dy: Any, y: Any, x: Any, mean: Any, rstd: Any, g: Any) -> Any:
        passed = F.select(y > 0.0, dy, 0.0)
        normal = (x - mean) * rstd
        bias, weight = F.row_sum(passed), F.row_sum(passed * normal)
        dx = (passed - bias * (1.0 / length) - normal * weight * (1.0 / length)) * rstd * g
        return passed, dx, bias, weight

    wide = _sums(element)
    narrow, whole = _narrow(rows, length, wide), _whole(element, rows, length)
    results = [whole, whole, dense(wide, rows), dense(wide, rows)]
    kernel = kernel_of("rowwise", formula, [whole] * 3 + [narrow] * 3, results, reduced=1)
    return replace(kernel, target="sm_90")


def softmax(element: str, rows: int, length: int) -> Kernel:
    """Three walks, with a largest element and a sum."""

    def formula(x: Any) -> Any:
        e = F.exp(x - F.row_max(x))
        return e / F.row_sum(e)

    whole = _whole(element, rows, length)
    return replace(kernel_of("rowwise", formula, [whole], [whole], reduced=1), target="sm_90")


def totals(element: str, rows: int, length: int) -> Kernel:
    """Results of rows alone: the last walk has no elements."""

    def formula(x: Any) -> Any:
        total = F.row_sum(x)
        return F.tanh(total * (1.0 / length)), F.row_max(x * x)

    whole, result = _whole(element, rows, length), dense(_sums(element), rows)
    return replace(kernel_of("rowwise", formula, [whole], [result, result], reduced=1), target="sm_90")


CASES: dict[str, Callable[[str, int, int], Kernel]] = {
    "normalised": normalised,
    "gradient": gradient,
    "softmax": softmax,
    "totals": totals,
}
SHAPES = (
    ("f32", 64, 1500),
    ("bf16", 64, 2111),
    ("f16", 20, 1200),
    ("f64", 12, 1027),
    ("f32", 7, 1024),
    ("bf16", 200, 1100),
    ("f32", 96, 3001),
)


def down_columns(kernel: Kernel) -> Kernel:
    """The colwise kernel of the same meaning."""

    def over(tensor: Tensor) -> Tensor:
        if len(tensor.shape) < 2:
            return tensor
        return replace(tensor, shape=tensor.shape[::-1], strides=tensor.strides[::-1])

    return replace(
        kernel,
        kind="colwise",
        domain=kernel.domain[::-1],
        operands=tuple(map(over, kernel.operands)),
        results=tuple(map(over, kernel.results)),
    )


def across_case(
    name: str, element: str, rows: int, length: int, rng: np.random.Generator, columns: bool = False
) -> GeneratedCase:
    """A kernel with random operands."""
    kernel = CASES[name](element, rows, length)
    return make(f"{name} {element} {rows}x{length}", down_columns(kernel) if columns else kernel, rng)


def across_cases(target: str) -> Iterator[GeneratedCase]:
    """Each kernel in each shape, as rows that lie across or as columns; in two larger ones too."""
    rng = np.random.default_rng(20)
    larger = (("bf16", 64, 9000), ("f32", 256, 3000))
    for number, (name, shape) in enumerate(product(CASES, (*SHAPES, *larger))):
        columns = number % 2 == 0 and name != "totals"
        case = across_case(name, *shape, rng, columns)
        yield replace(case, kernel=replace(case.kernel, target=target))
