"""Masks of attention whose values the trace knows, wholly or in part: what is left of them, and that it trains as torch's."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from beside_torch import assert_trains, compiled, losses_of_torch
from torch import Tensor, nn

from aicf_mlir import compile_train_step
from aicf_mlir.errors import AicfError

BATCH, HEADS, LENGTH, SIZE = 3, 2, 20, 8
INF = math.inf


def tril(rows: int = LENGTH, columns: int = LENGTH) -> Tensor:
    return torch.ones(rows, columns, dtype=torch.bool).tril()


def added(shown: Tensor, hidden: float = -INF, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.zeros(shown.shape, dtype=dtype).masked_fill(~shown, hidden)


def window(size: int) -> Tensor:
    return tril() & ~tril().tril(-size)


def padding(batch: dict[str, Tensor]) -> Tensor:
    return batch["real"][:, None, None, :]


def document(batch: dict[str, Tensor]) -> Tensor:
    return (batch["document"][:, :, None] == batch["document"][:, None, :])[:, None]


def numbers(length: int = LENGTH) -> Tensor:
    return torch.linspace(-1, 1, length * length, dtype=torch.float64).reshape(length, length)


MASKS: dict[str, tuple[Callable[[dict[str, Tensor]], Tensor], bool, str]] = {
    "causal": (lambda _: tril(), True, ""),
    "causal, of every head": (lambda _: tril().expand(BATCH, HEADS, LENGTH, LENGTH), True, ""),
    "causal, of places": (
        lambda _: torch.arange(LENGTH)[None, :] <= torch.arange(LENGTH)[:, None],
        True,
        "",
    ),
    "causal, added": (lambda _: added(tril()), True, ""),
    "all": (lambda _: torch.ones(LENGTH, LENGTH, dtype=torch.bool), False, ""),
    "all, added": (lambda _: torch.zeros(1, 1, LENGTH, LENGTH, dtype=torch.float64), False, ""),
    "none": (lambda _: torch.zeros(LENGTH, LENGTH, dtype=torch.bool), True, "1x1x1x1xi1"),
    "a window": (lambda _: window(4).expand(BATCH, 1, LENGTH, LENGTH), True, "1x1x20x20xi1"),
    "later keys alone": (lambda _: ~tril(), False, "1x1x20x20xi1"),
    "a key for all": (lambda _: torch.arange(LENGTH)[None, :] != 3, False, "1x1x1x20xi1"),
    "numbers": (lambda _: numbers(), False, "1x1x20x20xf64"),
    "causal numbers": (lambda _: numbers() + added(tril()), False, "1x1x20x20xf64"),
    "nearly hidden": (lambda _: added(tril(), -30.0), False, "1x1x20x20xf64"),
    "padding": (padding, False, "3x1x1x20xi1"),
    "padding for every query": (
        lambda b: padding(b).expand(BATCH, HEADS, LENGTH, LENGTH),
        False,
        "3x1x1x20xi1",
    ),
    "causal and padding": (lambda b: tril() & padding(b), True, "3x1x1x20xi1"),
    "padding and all": (
        lambda b: padding(b) & torch.ones(LENGTH, 1, dtype=torch.bool),
        False,
        "3x1x1x20xi1",
    ),
    "causal, padding, documents": (lambda b: (tril() & padding(b)) & document(b), True, "3x1x20x20xi1"),
    "a window and padding": (lambda b: window(4) & padding(b), True, "3x1x20x20xi1"),
    "causal and padding, added": (
        lambda b: added(tril()) + torch.where(padding(b), 0.0, -INF).double(),
        True,
        "3x1x1x20xf64",
    ),
    "causal and numbers of the batch": (lambda b: b["bias"] + added(tril()), True, "3x1x20x20xf64"),
    "causal or padding": (lambda b: tril() | padding(b), False, "3x1x20x20xi1"),
}
"""By name: the mask, whether the op is causal, and the type of the mask that is left to it."""


class Attention(nn.Module):
    """Self-attention with a mask of the batch."""

    def __init__(self, mask: Callable[[dict[str, Tensor]], Tensor], dropout: float = 0.0):
        super().__init__()
        self.mask, self.dropout = mask, dropout
        self.project, self.out = nn.Linear(SIZE, 3 * SIZE), nn.Linear(SIZE, SIZE)

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        x = batch["x"]
        parts = self.project(x).view(*x.shape[:2], 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        query, key, value = parts.unbind()
        y = F.scaled_dot_product_attention(query, key, value, self.mask(batch), self.dropout)
        return self.out(y.transpose(1, 2).flatten(2))


def loss(model: Any, batch: Any) -> Tensor:
    y = model(batch)
    return (y * torch.linspace(0.5, 1.5, y.numel(), dtype=y.dtype).reshape(y.shape)).square().mean()


def batch() -> dict[str, Tensor]:
    """Sequences with padding behind, in front, and without; two documents each."""
    made = torch.Generator().manual_seed(3)
    places = torch.arange(LENGTH)
    return {
        "x": torch.randn(BATCH, LENGTH, SIZE, generator=made, dtype=torch.float64),
        "real": torch.stack([places < 13, places >= 4, places >= 0]),
        "document": (places >= 9).long().expand(BATCH, LENGTH).clone(),
        "bias": torch.randn(BATCH, 1, LENGTH, LENGTH, generator=made, dtype=torch.float64),
    }


@pytest.mark.parametrize("name", MASKS)
def test_what_is_left_trains_as_torch(name: str) -> None:
    mask, causal, left = MASKS[name]
    torch.manual_seed(1)
    model = Attention(mask).double()
    text = compiled(model, loss, batch()).ir("nn")
    (op,) = re.findall(r"= nn\.attention [^:]*:\s*\([^)]*\)", text)
    types = re.findall(r"tensor<([^>]*)>", op)
    assert ("causal = true" in op, types[3:]) == (causal, [left] if left else [])
    assert_trains(model, loss, batch(), 1e-12)


def test_a_mask_of_layers_is_one_literal() -> None:
    class Layers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([Attention(self.shown) for _ in range(3)])
            self.given: Any = None

        def shown(self, _: dict[str, Tensor]) -> Tensor:
            return self.given

        def forward(self, batch: dict[str, Tensor]) -> Tensor:
            self.given = window(3).expand(BATCH, 1, LENGTH, LENGTH)
            x = batch["x"]
            for layer in self.layers:
                x = x + layer({"x": x})
            self.given = None
            return x

    torch.manual_seed(1)
    step = compiled(Layers().double(), loss, batch())
    assert len(re.findall(r"xi1> \{[^}]*aicf\.literal", step.ir("nn"))) == 1


def test_more_keys_than_queries() -> None:
    """The mask of torch's `is_causal` begins at the first key."""

    class Cross(Attention):
        def forward(self, batch: dict[str, Tensor]) -> Tensor:
            key = self.project(batch["x"]).view(BATCH, LENGTH, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
            y = F.scaled_dot_product_attention(key[0][:, :, :7], key[1], key[2], self.mask(batch))
            return self.out(y.transpose(1, 2).flatten(2))

    torch.manual_seed(1)
    masks: tuple[Callable[..., Tensor], ...] = (lambda _: tril(7, LENGTH), lambda _: tril()[-7:])
    for mask, causal in zip(masks, (True, False), strict=True):
        model = Cross(mask).double()
        assert ("causal = true" in compiled(model, loss, batch()).ir("nn")) == causal
        assert_trains(model, loss, batch(), 1e-12)


@pytest.mark.parametrize("computed", [False, True], ids=["as it is", "computed from"])
def test_a_mask_that_the_user_changes(computed: bool) -> None:
    """A tensor outside of the model is read when the step runs, or its change is refused."""
    shown = tril()
    torch.manual_seed(1)
    model = Attention(lambda _: shown & tril() if computed else shown).double()
    reference = Attention(lambda _: shown).double()
    reference.load_state_dict(model.state_dict())
    step = compile_train_step(
        model, torch.optim.SGD(model.parameters(), lr=0.05), example=batch(), loss_fn=loss
    )
    step.train_step(batch())
    losses_of_torch(reference, torch.optim.SGD(reference.parameters(), lr=0.05), loss, batch(), 1)
    shown[5:, 2] = False
    (wanted,) = losses_of_torch(reference, torch.optim.SGD(reference.parameters(), lr=0.05), loss, batch(), 1)
    try:
        got = step.train_step(batch())
    except AicfError:
        return
    torch.testing.assert_close(got, wanted, rtol=1e-12, atol=0)


def test_a_buffer_is_read_when_the_step_runs() -> None:
    class Buffered(Attention):
        def __init__(self) -> None:
            super().__init__(lambda _: self.get_buffer("shown"))
            self.register_buffer("shown", tril())

    torch.manual_seed(1)
    model = Buffered().double()
    text = compiled(model, loss, batch()).ir("nn")
    assert "causal = true" not in text and "%shown" in text
    assert_trains(model, loss, batch(), 1e-12)
