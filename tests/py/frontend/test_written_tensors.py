"""In-place writes of differentiable values into tensors that have no gradient yet: values and gradients are torch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from in_place_steps import KINDS, ROWS, WIDTH, Body, assert_as_torch

Tensor = torch.Tensor
INDEX = torch.tensor([2, 0, 2, 1])
SHAPE = (ROWS, WIDTH)

MAKERS: dict[str, Callable[[Tensor], Tensor]] = {
    "zeros_like": torch.zeros_like,
    "ones_like": torch.ones_like,
    "full_like": lambda h: torch.full_like(h, 0.5),
    "empty_like": lambda h: torch.empty_like(h).fill_(2.0),
    "new_zeros": lambda h: h.new_zeros(SHAPE),
    "new_ones": lambda h: h.new_ones(SHAPE),
    "new_full": lambda h: h.new_full(SHAPE, -0.5),
    "new_empty": lambda h: h.new_empty(SHAPE).zero_(),
    "new_tensor": lambda h: h.new_tensor([[0.5, 1.0, 1.5]] * ROWS),
    "detached": lambda h: torch.linspace(-1, 1, ROWS * WIDTH, dtype=h.dtype).reshape(SHAPE).detach(),
    "literal": lambda h: torch.tensor([[0.5, -1.0, 1.5]] * ROWS, dtype=h.dtype),
    "detached value": lambda h: h.detach().clone(),
}


def added(o: Tensor, h: Tensor) -> None:
    o += h


def through_views(o: Tensor, h: Tensor) -> None:
    part = o.view(-1)[1:].view(-1)[:4]
    part.copy_(h[:, 1])
    part.mul_(h[:, 0])


def out(o: Tensor, h: Tensor) -> None:
    with torch.no_grad():  # torch differentiates no out=
        torch.add(h, 1, out=o)
    o.mul_(h)


WRITERS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "setitem": lambda o, h: o.__setitem__((slice(None), 0), h[:, 1]),
    "+=": added,
    "add_": lambda o, h: o.add_(h, alpha=2),
    "copy_": lambda o, h: o.copy_(h),
    "index_add_": lambda o, h: o.index_add_(0, INDEX, h),
    "scatter_add_": lambda o, h: o.scatter_add_(0, INDEX[:, None].expand(SHAPE), h),
    "index_put_": lambda o, h: o.index_put_((INDEX,), h, accumulate=True),
    "masked_fill_": lambda o, h: o.masked_fill_(h.detach() > 0, h.sum()),
    "views": through_views,
    "out=": out,
    "twice": lambda o, h: o.mul_(h).addcmul_(h, h),
}

PAIRS = [(maker, writer) for maker in MAKERS for writer in WRITERS]


def written(maker: str, writer: str) -> Body:
    def body(m: Any, x: Tensor, h: Tensor) -> Tensor:
        o = MAKERS[maker](h)
        WRITERS[writer](o, h)
        return o

    return body


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("maker, writer", PAIRS, ids=map("-".join, PAIRS))
def test_a_write_carries_the_gradient(maker: str, writer: str, kind: str) -> None:
    assert_as_torch(written(maker, writer), kind)


@pytest.mark.parametrize("maker, writer", PAIRS, ids=map("-".join, PAIRS))
def test_in_single_precision_too(maker: str, writer: str) -> None:
    assert_as_torch(written(maker, writer), dtype=torch.float32)
