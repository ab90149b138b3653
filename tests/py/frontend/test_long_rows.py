"""Sorts, running results and scatters of rows that no element of a generated kernel compares with each other, beside torch."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from beside_torch import compiled
from trained_ops import Function, OfOp, assert_op_trains, weighed

from aicf_mlir.dialects.nn.ranking import SHORT

SIZE = 72
PLACES = torch.arange(40) * 7 % SIZE
"""Each once."""
OFTEN = torch.arange(60) * 7 % 20


def long(x: Any) -> Any:
    """Nine times x, side by side, no two alike: longer than SHORT."""
    return torch.cat([x * (1 + 0.1 * i) for i in range(SIZE // 8)], 1)


def along(places: torch.Tensor) -> torch.Tensor:
    """The places in each of five rows."""
    return places.expand(5, -1)


LONG: dict[str, Function] = {
    "sort": lambda x, b: long(x).sort(1)[0],
    "sort down": lambda x, b: long(x).t().sort(0, descending=True)[0],
    "sort in the middle": lambda x, b: long(x).reshape(1, 36, 10).sort(1)[0],
    "topk": lambda x, b: long(x).topk(40)[0],
    "topk of few": lambda x, b: long(x).topk(3, largest=False)[0],
    "kthvalue": lambda x, b: long(x).kthvalue(7)[0],
    "median": lambda x, b: long(x).median(1)[0],
    "median of nan": lambda x, b: long(x).gather(1, b["beside"].where(b["beside"] < 2.5, math.nan).median(1, True)[1]),
    "by the order of another": lambda x, b: long(x).gather(1, b["beside"].argsort(1)),
    "cumsum": lambda x, b: long(x).cumsum(1),
    "cumsum down": lambda x, b: long(x).t().cumsum(0),
    "cumsum of integers": lambda x, b: long(x) * (b["beside"] > 0).long().cumsum(1),
    "cumprod": lambda x, b: (long(x) * 0.1 + 1).cumprod(1),
    "cumprod of zeros": lambda x, b: (long(x) - long(x).detach() * (torch.arange(SIZE) % 30 == 7)).cumprod(1),
    "cumprod of one": lambda x, b: long(x)[:1, :1].expand(40, 1).cumprod(0),
    "cummax": lambda x, b: long(x).cummax(1)[0],
    "cummax down": lambda x, b: long(x).t().cummax(0)[0],
    "cummin of ties": lambda x, b: torch.cat([x] * 9, 1).cummin(1)[0],
    "logcumsumexp": lambda x, b: (long(x) * 5).logcumsumexp(1),
    "logcumsumexp of nothing": lambda x, b: torch.where(b["beside"] > 1, -math.inf, long(x))[:, 3:].logcumsumexp(1).clamp(min=-9),
    "scatter": lambda x, b: long(x).scatter(1, along(PLACES), long(x)[:, :40] * 2),
    "scatter of a number": lambda x, b: long(x).scatter(1, along(OFTEN), 0.5),
    "index_copy": lambda x, b: long(x).index_copy(1, PLACES, long(x)[:, :40] * 2),
    "index_put": lambda x, b: long(x).t().index_put((PLACES,), long(x)[:, :40].t() * 2),
    "index_fill": lambda x, b: long(x).index_fill(1, OFTEN, 0.5),
    "amax": lambda x, b: long(x).scatter_reduce(1, along(OFTEN), long(x)[:, :60] * 2, "amax"),
    "amin alone": lambda x, b: long(x).scatter_reduce(1, along(OFTEN), long(x)[:, :60] * 2, "amin", include_self=False),
    "prod": lambda x, b: long(x).scatter_reduce(1, along(OFTEN), long(x)[:, :60] * 2, "prod", include_self=False),
}  # fmt: skip


def batch() -> dict[str, torch.Tensor]:
    return {"beside": torch.randn(5, SIZE, generator=torch.Generator().manual_seed(3))}


@pytest.mark.parametrize("name", LONG)
def test_trains_as_torch(name: str) -> None:
    assert_op_trains(LONG[name], batch())


@pytest.mark.parametrize(
    "name", ("sort", "topk of few", "cumsum", "cumprod", "logcumsumexp", "scatter", "amax")
)
def test_in_half_precision(name: str) -> None:
    assert_op_trains(LONG[name], batch(), torch.bfloat16)


TWICE = ("sort", "topk", "cumsum", "cumprod", "cummax", "logcumsumexp", "scatter", "index_copy")


@pytest.mark.parametrize("name", TWICE)
def test_gradients_of_gradients_train_as_torch(name: str) -> None:
    def slope(x: Any, b: Any) -> torch.Tensor:
        y = LONG[name](x, b)
        (found,) = torch.autograd.grad((y * y * y).sum(), x, create_graph=True)
        return found / 30

    assert_op_trains(slope, batch())


ONE_RULE: dict[str, tuple[Any, str]] = {
    "sort": (lambda x: x.sort(1)[0], "nn.argsort"),
    "cumsum": (lambda x: x.cumsum(1), "nn.scan"),
    "scatter": (lambda x: x.scatter(1, torch.arange(x.shape[1]).expand(5, -1), x * 2), "nn.scatter_rows"),
}


@pytest.mark.parametrize("name", ONE_RULE)
def test_one_size_decides(name: str) -> None:
    """Which form an op has."""
    function, op = ONE_RULE[name]
    for size in (SHORT, SHORT + 1):
        torch.manual_seed(1)
        step = compiled(
            OfOp(lambda x, b, size=size: function(long(x)[:, :size]), torch.float32), weighed, batch()
        )
        assert (f"{op} " in step.ir("nn")) == (size > SHORT)


def test_a_sort_has_no_sum_in_its_gradient() -> None:
    """Its positions are a permutation."""
    torch.manual_seed(1)
    text = compiled(OfOp(LONG["sort"], torch.float32), weighed, batch()).ir("kernel")
    assert "kernel.scatter_rows" in text
    assert "kernel.scatter_add" not in text
