"""Rows of a tensor that are put to the places under a mask, in their order."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from beside_torch import assert_trains
from trained_ops import assert_op_trains, weighed

from aicf_mlir import compile_train_step
from aicf_mlir.errors import DataError

Batch = dict[str, torch.Tensor]
Function = Callable[[torch.Tensor, Batch], torch.Tensor]

ROWS = torch.tensor([False, True, True, False, True])
ELEMENTS = torch.arange(40).reshape(5, 8) % 3 == 1


def put(x: torch.Tensor, place: object, value: torch.Tensor) -> torch.Tensor:
    """Return a copy with a value at a place."""
    copied = x.clone()
    copied[place] = value  # pyright: ignore[reportArgumentType]
    return copied


def batch() -> Batch:
    torch.manual_seed(3)
    return {"rows": ROWS, "elements": ELEMENTS, "given": torch.randn(40)}


CASES: dict[str, Function] = {
    "masked_scatter": lambda x, b: x.masked_scatter(b["elements"], b["given"]),
    "masked_scatter, a gradient": lambda x, b: x.masked_scatter(b["elements"], x.sin().flip(0)),
    "masked_scatter, wide mask": lambda x, b: x.masked_scatter(b["rows"][:, None], x[:3].cos()),
    "masked_scatter, wide tensor": lambda x, b: x[:1].masked_scatter(b["elements"], x.cos()),
    "masked_scatter_": lambda x, b: x.clone().masked_scatter_(b["elements"], x[::2].exp()),
    "masked_scatter, computed mask": lambda x, b: x.masked_scatter(x > b["given"][:8], -x),
    "rows": lambda x, b: put(x, b["rows"], x[:3].sin()),
    "rows, one number each": lambda x, b: put(x, b["rows"], x[:3, :1].sin()),
    "elements": lambda x, b: put(x, b["elements"], b["given"][:13] * x[0, 0]),
    "columns": lambda x, b: put(x, (slice(None), b["elements"][0]), x[:, :3].cos()),
    "columns, one row": lambda x, b: put(x, (slice(None), b["elements"][0]), x[1, :3].cos()),
    "added": lambda x, b: x.clone().index_put_((b["rows"],), x[:3].sin(), accumulate=True),
    "known mask": lambda x, b: put(x, ROWS, x[2:].sin()),
    "none": lambda x, b: put(x, x[:, 0] > 2, x[:0]),
}


@pytest.mark.parametrize("name", CASES)
def test_rows_are_put_under_a_mask(name: str) -> None:
    assert_op_trains(CASES[name], batch())


@pytest.mark.parametrize("name", ["masked_scatter, a gradient", "rows"])
def test_rows_of_narrow_numbers_are_put_under_a_mask(name: str) -> None:
    assert_op_trains(CASES[name], batch(), torch.float32, torch.bfloat16)


class Images(torch.nn.Module):
    """Embedded words, with those of images at the places of one word."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.images = torch.nn.Embedding(7, 4), torch.nn.Linear(3, 4)

    def forward(self, batch: Batch) -> torch.Tensor:
        words, images = self.words(batch["words"]), self.images(batch["images"])
        mask = (batch["words"] == 6).unsqueeze(-1).expand_as(words)
        return words.masked_scatter(mask, images)


def images(words: list[list[int]]) -> Batch:
    return {"words": torch.tensor(words), "images": torch.linspace(-1, 1, 9).reshape(3, 3)}


def test_images_between_words() -> None:
    torch.manual_seed(0)
    assert_trains(Images(), weighed, images([[1, 6, 6, 2], [6, 0, 3, 3]]))


@pytest.mark.parametrize("function", ["rows", "masked_scatter, wide mask"])
def test_other_numbers_of_places_train_or_are_skipped(function: str) -> None:
    torch.manual_seed(0)
    layer = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)

    def loss(model: torch.nn.Linear, batch: Batch) -> torch.Tensor:
        return CASES[function](model.weight[:5], batch).square().sum()

    given = batch()
    step = compile_train_step(layer, optimizer, loss_fn=loss, example=given, device="cpu")
    step.train_step(given)
    moved = {**given, "rows": ROWS.flip(0)}
    expected = loss(layer, moved).detach()
    torch.testing.assert_close(step.train_step(moved), expected)
    before = layer.weight.detach().clone()
    with pytest.raises(DataError, match="values for the places under a mask"):
        step.train_step({**given, "rows": torch.ones(5, dtype=torch.bool)})
    assert torch.equal(before, layer.weight.detach())
