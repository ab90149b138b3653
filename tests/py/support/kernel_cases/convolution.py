"""Convolutions of as many channels as tensor cores take, and of many groups of few: the samples of nn have few."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from kernel_cases.case import Case, Generator, Maker

SHAPES = (
    ((2, 64, 9, 9), 64, (3, 3), (1, 1), (1, 1), (9, 9), 1),
    ((2, 64, 9, 9), 128, (1, 1), (2, 2), (0, 0), (5, 5), 1),
    ((3, 32, 8, 8), 32, (7, 7), (1, 1), (3, 3), (8, 8), 32),
    ((2, 20, 9, 11), 20, (3, 3), (2, 1), (1, 1), (5, 11), 20),
    ((2, 48, 7, 7), 32, (3, 3), (2, 2), (1, 1), (4, 4), 4),
    ((4, 8, 20, 20), 32, (8, 8), (4, 4), (0, 0), (4, 4), 1),
    ((8, 3, 16, 16), 16, (3, 3), (1, 1), (1, 1), (16, 16), 1),
    ((8, 16, 16, 16), 32, (3, 3), (2, 2), (1, 1), (8, 8), 1),
    ((2, 48, 16, 16), 96, (7, 7), (2, 2), (3, 3), (8, 8), 48),
    ((2, 24, 8, 9), 48, (3, 3), (1, 1), (1, 1), (8, 9), 24),
    ((2, 16, 9, 9), 16, (1, 1), (2, 2), (0, 0), (5, 5), 16),
    ((2, 8, 7, 5), 8, (5, 5), (2, 2), (2, 2), (4, 3), 8),
    ((2, 6, 9, 9), 18, (5, 3), (1, 2), (2, 1), (9, 5), 6),
    ((2, 12, 9, 9), 12, (3, 3), (1, 1), (1, 1), (9, 9), 6),
    ((2, 32, 9, 9), 32, (3, 3), (2, 2), (1, 1), (5, 5), 8),
    ((2, 32, 9, 8), 16, (3, 3), (1, 1), (1, 1), (9, 8), 16),
    ((2, 4, 6, 300), 4, (3, 3), (1, 1), (1, 1), (6, 300), 4),
    ((2, 4, 24, 24), 4, (17, 19), (1, 1), (8, 9), (24, 24), 4),
)
"""x [N, C, spatial], outputs, kernel, stride, padding in front, windows, groups."""
DILATED = (
    ((2, 16, 12, 12), 16, (3, 3), (1, 2), (2, 3), (12, 6), 16, (2, 3)),
    ((1, 8, 20, 21), 16, (3, 4), (2, 2), (4, 0), (8, 8), 8, (4, 2)),
)
"""The same, and the dilation."""


def convolution(result: str, make: Maker) -> Iterator[Case]:
    for x, outputs, kernel, stride, low, size, groups, dilation in (
        *((*shape, (1, 1)) for shape in SHAPES),
        *DILATED,
    ):
        shapes = {"x": x, "w": (outputs, x[1] // groups, *kernel), "y": (x[0], outputs, *size)}
        for last in (True, False):
            places = {
                name: (first, *spatial, channels) if last else (first, channels, *spatial)
                for name, (first, channels, *spatial) in shapes.items()
            }
            given = [make.normal(*shape) for name, shape in places.items() if name != result]
            if result == "x":
                given.reverse()  # dy, then w
            attrs: dict[str, Any] = {
                "stride": list(stride),
                "dilation": list(dilation),
                "low": list(low),
                "groups": groups,
                "size": list(shapes[result][2:]),
                "channels_last": last,
            }
            out, label = [make.out(*places[result])], f"{x} {outputs} {kernel} {dilation} {last}"
            yield Case(label, given, out, attrs, scale=1.0)
            if result == "y":
                with_bias = [*given, make.normal(outputs)]
                yield Case(f"{label} bias", with_bias, [make.out(*places[result])], attrs, scale=1.0)
                for of in (given, with_bias):
                    relu, also = attrs | {"act": "relu"}, " bias" * (len(of) - 2)
                    yield Case(f"{label}{also} relu", of, [make.out(*places[result])], relu, scale=1.0)
                not_all = given[0].copy()
                not_all.reshape(-1)[len(not_all.reshape(-1)) // 2] = float("nan")
                nan = [not_all, *with_bias[1:]]
                yield Case(
                    f"{label} NaN", nan, [make.out(*places[result])], attrs | {"act": "relu"}, scale=1.0
                )
            if make.dtype == "f32":  # whole numbers, which TF32 holds
                whole = [make.integers(*array.shape, limit=3) for array in given]
                yield Case(f"{label} TF32", whole, out, attrs | {"allow_tf32": True}, exact=True)


CASES: dict[str, Generator] = {
    "convolution": partial(convolution, "y"),
    "convolution_input_grad": partial(convolution, "x"),
    "convolution_weight_grad": partial(convolution, "w"),
}
