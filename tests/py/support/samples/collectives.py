"""Samples of collectives, among one rank: those of several are in tests/py/passes/test_ranks.py."""

from __future__ import annotations

from typing import Any

import torch
from xdsl.ir import Operation

from aicf_mlir.dialects import nn
from samples.sample import Sample

WRITTEN_BEFORE: set[type[Operation]] = {nn.SumOfRanksOp}
"""The ops that have no sample: a pass, `sum-ranks`, writes them as others before they are lowered. Lit has its tests, and
test_data_parallel.py trains with them.
"""


def is_tried_apart(name: str) -> bool:
    """True for a check or a collective, by the name of its op: they have tests of their own."""
    return (
        name.startswith(("nn.check_", "nn.all_gather", "nn.all_to_all", "nn.all_reduce"))
        or name == "nn.sum_of_ranks"
    )


TYPES = ("2x3xf32", "f32", "5xi64", "4xbf16", "0x3xf32", "2x2xi1")


def all_gather() -> list[Sample]:
    """x of the one rank, with a first dimension."""

    def build(x: Any) -> Operation:
        return nn.AllGatherOp(x, "dp", 1)

    def after(x: Any, y: Any) -> Operation:
        return nn.AllGatherOp(x, "dp", 1, [y])

    shapes = [Sample(f"gathered {of}", (of,), build, lambda x: x[None], smooth="f32" in of) for of in TYPES]
    later = Sample("gathered after", ("3xf32", "2xf32"), after, lambda x, y: x[None], smooth=False)
    return [*shapes, later]


def all_to_all() -> list[Sample]:
    """The row of the one rank."""

    def build(x: Any, *after: Any) -> Operation:
        return nn.AllToAllOp(x, "dp", 1, after)

    def same(x: Any, *after: Any) -> Any:
        del after
        return x

    types = ("1x2x3xf32", "1xi64", "1x4xbf16", "1x0xf32", "1x2xi1")
    shapes = [Sample(f"exchanged {of}", (of,), build, same, smooth="f32" in of) for of in types]
    return [*shapes, Sample("exchanged after", ("1x3xf32", "2xf32"), build, same, smooth=False)]


def all_gather_status() -> list[Sample]:
    """The status of the one rank too."""

    def build(x: Any, status: Any, *after: Any) -> Operation:
        return nn.AllGatherStatusOp(x, status, "dp", 1, after)

    def both(x: Any, status: Any, *after: Any) -> Any:
        del after
        return x[None], status[None]

    shapes = [Sample(f"gathered {of}", (of, "3xi64"), build, both, smooth=False) for of in TYPES]
    later = Sample("gathered after", ("3xf32", "3xi64", "2xf32"), build, both, smooth=False)
    return [*shapes, later]


FLOATS = ("2x3xf32", "f32", "5xf64", "4xbf16", "0x3xf16", "2x0x2xf32", "7xbf16", "3x5xf16")


def mean_of_one(x: Any) -> Any:
    """The mean over one rank."""
    return x if x.dtype == torch.float64 else x.float()


def all_reduce() -> list[Sample]:
    """x of the one rank, in the type of its sums."""

    def build(x: Any, *after: Any) -> Operation:
        return nn.AllReduceOp(x, "dp", 1, after)

    def mean(x: Any, *after: Any) -> Any:
        del after
        return mean_of_one(x)

    shapes = [Sample(f"reduced {of}", (of,), build, mean, smooth=False) for of in FLOATS]
    return [*shapes, Sample("reduced after", ("3xf32", "2xf32"), build, mean, smooth=False)]


def all_reduce_status() -> list[Sample]:
    """The status of the one rank too."""

    def build(x: Any, status: Any, *after: Any) -> Operation:
        return nn.AllReduceStatusOp(x, status, "dp", 1, after)

    def both(x: Any, status: Any, *after: Any) -> Any:
        del after
        return mean_of_one(x), status[None]

    shapes = [Sample(f"reduced {of}", (of, "3xi64"), build, both, smooth=False) for of in FLOATS]
    return [*shapes, Sample("reduced after", ("3xf32", "3xi64", "2xf32"), build, both, smooth=False)]
