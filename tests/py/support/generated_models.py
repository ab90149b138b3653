"""Kernels of models: norms, softmax and activations, as fusion makes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from generated_cases import GeneratedCase, dense, make

from aicf_mlir.ir import formula as F
from aicf_mlir.ir.roundings import written
from aicf_mlir.kernels.kernel import Kernel, Tensor


def layer_norm(x: F.Scalar, residual: F.Scalar, gamma: F.Scalar, beta: F.Scalar, n: int) -> list[F.Scalar]:
    """Residual sum, its layer norm, mean and reciprocal deviation."""
    s = x + residual
    mean = F.row_sum(s) * (1.0 / max(n, 1))
    centred = s - mean
    rstd = F.rsqrt(F.row_sum(centred * centred) * (1.0 / max(n, 1)) + 1e-5)
    return [s, centred * rstd * gamma + beta, mean, rstd]


def layer_norm_dx(
    dy: F.Scalar, s: F.Scalar, ds: F.Scalar, gamma: F.Scalar, mean: F.Scalar, rstd: F.Scalar, n: int
) -> F.Scalar:
    """The gradient of the sum."""
    centred = (s - mean) * rstd
    g = dy * gamma
    m1, m2 = F.row_sum(g) * (1.0 / max(n, 1)), F.row_sum(g * centred) * (1.0 / max(n, 1))
    return (g - m1 - centred * m2) * rstd + ds


def layer_norm_dw(dy: F.Scalar, s: F.Scalar, mean: F.Scalar, rstd: F.Scalar) -> list[F.Scalar]:
    """The gradients of gamma and beta."""
    return [F.row_sum(dy * (s - mean) * rstd), F.row_sum(dy)]


def layer_norm_gradients(
    dy: F.Scalar, s: F.Scalar, ds: F.Scalar, gamma: F.Scalar, mean: F.Scalar, rstd: F.Scalar, n: int
) -> list[F.Scalar]:
    """All of them at once."""
    sums = [F.column_sum(dy * (s - mean) * rstd), F.column_sum(dy)]
    return [layer_norm_dx(dy, s, ds, gamma, mean, rstd, n), *sums]


def softmax(x: F.Scalar) -> F.Scalar:
    """Along the row."""
    e = F.exp(x - F.row_max(x))
    return e / F.row_sum(e)


def gelu(x: F.Scalar, bias: F.Scalar) -> F.Scalar:
    """Of a sum with a bias."""
    s = x + bias
    return 0.5 * s * (1.0 + F.erf(s * F.SQRT_HALF))


def model_kernel(name: str, element: str, rows: int, columns: int, target: str = "sm_90") -> Kernel:
    """One of `MODEL` on [rows, columns] of `element`; statistics in f32, weights repeat."""
    shape = (rows, columns)
    full = dense(element, *shape)
    weight = Tensor(element, shape, (0, 1))
    by_row = Tensor("f32", shape, (1, 0))
    statistic, gradient = dense("f32", rows), dense(element, columns)
    kind, body, operands, results = {
        "layer_norm": (
            "rowwise",
            lambda: F.trace(["f32"] * 4, layer_norm, n=columns),
            (full, full, weight, weight),
            (full, full, statistic, statistic),
        ),
        "layer_norm_dx": (
            "rowwise",
            lambda: F.trace(["f32"] * 6, layer_norm_dx, n=columns),
            (full, full, full, weight, by_row, by_row),
            (full,),
        ),
        "layer_norm_dw": (
            "colwise",
            lambda: F.trace(["f32"] * 4, layer_norm_dw),
            (full, full, by_row, by_row),
            (gradient, gradient),
        ),
        "layer_norm_gradients": (
            "rowwise",
            lambda: F.trace(["f32"] * 6, layer_norm_gradients, n=columns),
            (full, full, full, weight, by_row, by_row),
            (full, gradient, gradient),
        ),
        "softmax": ("rowwise", lambda: F.trace(["f32"], softmax), (full,), (full,)),
        "gelu": ("map", lambda: F.trace(["f32"] * 2, gelu), (full, weight), (full,)),
        "square_sum": (
            "rowwise",
            lambda: F.trace(["f32"], lambda x: [F.row_sum(x * x) * (1.0 / max(columns, 1)), F.row_max(x)]),
            (full,),
            (statistic, dense("f32", rows)),
        ),
    }[name]
    reduced = 0 if kind == "map" else 1
    rounded = written(body(), [t.element for t in operands], [t.element for t in results])
    return Kernel(kind, target, rounded, shape, reduced, operands, results)


def columns_as_rows(element: str, count: int, length: int, target: str = "sm_90") -> Kernel:
    """Rows whose elements are columns of three matrices: their softmax, a sum of what follows it, and one of another tensor."""
    shape = (3, count, length)
    by_column = Tensor(element, shape, (count * length, 1, count))
    plain, each = Tensor("f32", shape, (count * length, 1, count)), Tensor("f32", shape, (0, 1, 0))

    def body(x: F.Scalar, w: F.Scalar, b: F.Scalar) -> list[F.Scalar]:
        e = F.exp(x - F.row_max(x))
        return [e / F.row_sum(e) * b, F.row_sum(e * w) * (1.0 / length), F.row_sum(w) * (1.0 / length)]

    operands, one = (by_column, plain, each), dense("f32", 3, count)
    rounded = written(F.trace(["f32"] * 3, body), [t.element for t in operands], [element, "f32", "f32"])
    return Kernel("rowwise", target, rounded, shape, 1, operands, (by_column, one, one))


SIDE_BY_SIDE = ((37, 50), (64, 7), (20, 2), (16, 300), (100, 3000))
"""Such columns, and their elements."""
MODEL = (
    *("layer_norm", "layer_norm_dx", "layer_norm_dw", "layer_norm_gradients"),
    *("softmax", "gelu", "square_sum"),
)
SHAPES = (
    (37, 768),
    (5, 1024),
    (70, 10),
    (3, 4100),
    (2, 9000),
    (1, 60_001),
    (300, 3),
    (1000, 64),
    (3, 1),
    (0, 4),
    (4, 0),
)


def model_cases(
    shapes: Sequence[tuple[int, int]] = SHAPES,
    elements: Sequence[str] = ("f32", "bf16"),
    target: str = "sm_90",
) -> Iterator[GeneratedCase]:
    """Every kernel of `MODEL` on every shape and element type."""
    for rows, columns in shapes:
        for element in elements:
            for name in MODEL:
                rng = np.random.default_rng((rows, columns))
                kernel = model_kernel(name, element, rows, columns, target)
                yield make(f"{name} {element} {rows}x{columns}", kernel, rng)
    for element in elements:
        for count, length in SIDE_BY_SIDE:
            kernel = columns_as_rows(element, count, length, target)
            yield make(f"columns {element} {count}x{length}", kernel, np.random.default_rng((count, length)))
