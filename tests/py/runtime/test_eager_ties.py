"""The reference of `step.check` has one order of equal elements, and it is the compiled step's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from aicf_mlir import compile_train_step
from aicf_mlir.step.eager.ties import FirstOfEqual

COUNT = 33

ORDERS: dict[str, Callable[[Tensor], Any]] = {
    "sort": lambda y: torch.sort(y, -1),
    "sort downwards": lambda y: torch.sort(y, 0, descending=True),
    "topk": lambda y: torch.topk(y, 4),
    "the smallest of columns": lambda y: torch.topk(y, 2, dim=0, largest=False),
    "topk in any order": lambda y: torch.topk(y, 3, sorted=False),
    "kthvalue": lambda y: torch.kthvalue(y, 5),
    "kthvalue of columns": lambda y: torch.kthvalue(y, 2, dim=0, keepdim=True),
    "median": lambda y: torch.median(y, 1),
    "nanmedian of columns": lambda y: torch.nanmedian(y, 0, keepdim=True),
}


class Order(nn.Module):
    """An order of few numbers, which are weighted by where they stood."""

    def __init__(self, of: Callable[[Tensor], Any]):
        super().__init__()
        self.of, self.weight = of, nn.Parameter(torch.ones(COUNT))

    def forward(self, x: Tensor) -> Any:
        return self.of(x.round() * self.weight)


def loss_of(model: Any, batch: Any) -> Any:
    values, places = model(batch["x"])
    return (values * (places + 1).detach()).sum(), {"values": values, "places": places}


@pytest.mark.parametrize("name", ORDERS)
def test_equal_elements_are_no_difference(name: str, device: str) -> None:
    model = Order(ORDERS[name]).to(device)
    batch = {"x": torch.randn(16, COUNT, generator=torch.Generator().manual_seed(1)).to(device)}
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    step = compile_train_step(model, optimizer, loss_fn=loss_of, example=batch, device=device)
    found = step.check(batch, steps=2)
    assert found.equal, str(found)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64], ids=str)
@pytest.mark.parametrize("name", ORDERS)
def test_values_are_torch_s(name: str, dtype: torch.dtype) -> None:
    x = (torch.randn(9, COUNT, generator=torch.Generator().manual_seed(2)) * 2).round().to(dtype)
    wanted, _ = ORDERS[name](x)
    with FirstOfEqual():
        got, places = ORDERS[name](x)
    dim = 0 if "columns" in name or "downwards" in name else -1
    wide = places if places.dim() == x.dim() else places.unsqueeze(dim)
    torch.testing.assert_close(got.sort(dim)[0], wanted.sort(dim)[0], rtol=0, atol=0)
    torch.testing.assert_close(x.gather(dim, wide).reshape(got.shape), got, rtol=0, atol=0)


def test_a_number_alone() -> None:
    one = torch.tensor(3.0)
    with FirstOfEqual():
        assert [tuple(map(float, of(one))) for of in (lambda y: torch.topk(y, 1), torch.sort)] == [
            (3.0, 0.0)
        ] * 2
        assert tuple(map(float, torch.kthvalue(one, 1))) == (3.0, 0.0)
