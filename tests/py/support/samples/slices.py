"""Samples of parts of tensors: split and concat."""

from __future__ import annotations

from typing import Any

import torch
from xdsl.ir import Operation

from aicf_mlir.dialects import nn
from samples.sample import Sample, classes


def slices() -> list[Sample]:
    """Every dimension; parts of size 1 and 0; one part; integers."""
    samples: list[Sample] = []
    for dim, sizes in ((0, (2, 1, 4)), (1, (3,)), (2, (1, 0, 3, 1)), (1, (2, 1))):

        def build(x: Any, dim: int = dim, sizes: Any = sizes) -> Operation:
            return nn.SplitOp(x, dim, sizes)

        def expected(x: Any, dim: int = dim, sizes: Any = sizes) -> Any:
            return torch.split(x, sizes, dim)

        samples.append(Sample(f"{dim}-{sizes}", ("7x3x5xf32",), build, expected))
    for dim, shapes in ((0, ("2x3xf32", "1x3xf32", "4x3xf32")), (1, ("2x3xf32", "2x1xf32")), (0, ("5xf32",))):

        def join(*parts: Any, dim: int = dim) -> Operation:
            return nn.ConcatOp(parts, dim)

        def joined(*parts: Any, dim: int = dim) -> Any:
            return torch.cat(parts, dim)

        samples.append(Sample(f"{dim}-{','.join(shapes)}", shapes, join, joined))
    integers = {0: classes(9), 1: classes(9)}
    samples.append(
        Sample(
            "indices",
            ("3xi64", "2xi64"),
            lambda x, y: nn.ConcatOp([x, y], 0),
            lambda x, y: torch.cat([x, y]),
            integers,
            smooth=False,
        )
    )
    return samples
