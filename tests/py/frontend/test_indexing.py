"""Indexing, padding, sorting and what goes with them, trained beside torch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from beside_torch import assert_trains, compiled

from aicf_mlir import OutOfRangeError, TraceError

Function = Callable[[Any, Any], Any]

ROWS, COLUMNS = 5, 8


def batch() -> dict[str, torch.Tensor]:
    """Indices of rows and columns, some of them twice, some negative; masks and weights."""
    generator = torch.Generator().manual_seed(3)
    return {
        "rows": torch.tensor([[0, 4, 2], [2, 2, 1]]),
        "row": torch.tensor([3, 0, 3, 1]),
        "back": torch.tensor([-1, 0, -5, 3]),
        "columns": torch.tensor([7, 0, 7, 2]),
        "along": torch.randint(COLUMNS, (ROWS, 3), generator=generator),
        "down": torch.randint(ROWS, (7, COLUMNS), generator=generator),
        "one": torch.randint(COLUMNS, (ROWS, 1), generator=generator),
        "order": torch.stack([torch.randperm(COLUMNS, generator=generator)[:3] for _ in range(ROWS)]),
        "mask": torch.rand(ROWS, COLUMNS, generator=generator) > 0.5,
        "rowmask": torch.tensor([True, False, False, True, False]),
        "part": torch.randn(4, COLUMNS, generator=generator),
        "beside": torch.randn(ROWS, COLUMNS, generator=generator),
    }


INNER_BAG: Any = torch.ops.aten._embedding_bag.default
"""What `embedding_bag` asks for: there -1 is no padding."""

CASES: dict[str, Function] = {
    "embedding": lambda x, b: F.embedding(b["rows"], x),
    "embedding padding": lambda x, b: F.embedding(b["rows"], x, padding_idx=2),
    "embedding negative padding": lambda x, b: F.embedding(b["rows"], x, padding_idx=-1),
    "embedding bag": lambda x, b: F.embedding_bag(b["rows"], x, mode="sum"),
    "embedding bag mean": lambda x, b: F.embedding_bag(b["rows"], x),
    "embedding bag weights": lambda x, b: F.embedding_bag(
        b["rows"], x, mode="sum", per_sample_weights=b["beside"][:2, :3]
    ),
    **{
        f"embedding bag {mode} padding": lambda x, b, mode=mode: F.embedding_bag(
            torch.cat([b["rows"], b["rows"][:1] * 0 + 2]), x, mode=mode, padding_idx=2
        )
        for mode in ("sum", "mean", "max")
    },
    "embedding bag weights padding": lambda x, b: F.embedding_bag(
        b["rows"], x, mode="sum", per_sample_weights=b["beside"][:2, :3], padding_idx=-3
    ),
    **{
        f"embedding bag inside of torch, padding {padding}": lambda x, b, padding=padding: INNER_BAG(
            x, b["rows"].reshape(-1), torch.arange(0, 6, 3), padding_idx=padding
        )[0]
        for padding in (-1, 2)
    },
    "embedding int32": lambda x, b: F.embedding(b["rows"].int(), x),
    "rows": lambda x, b: x[b["rows"]],
    "rows wrap": lambda x, b: x[b["back"]],
    "columns": lambda x, b: x[:, b["columns"]],
    "pairs": lambda x, b: x[b["row"], b["columns"]],
    "pairs broadcast": lambda x, b: x[b["row"][:, None], b["columns"]],
    "apart": lambda x, b: x.reshape(5, 2, 4)[b["row"], :, b["columns"] % 4],
    "adjacent": lambda x, b: x.reshape(2, 5, 2, 2)[:, b["row"], b["columns"] % 2],
    "known": lambda x, b: x[torch.tensor([4, -1, 0])],
    "known and not": lambda x, b: x[torch.arange(4), b["columns"]],
    "ellipsis": lambda x, b: x[..., b["columns"], None],
    "number": lambda x, b: x.index_select(0, b["row"][0]),
    "argmax": lambda x, b: x[torch.arange(5), x.argmax(-1)],
    "select": lambda x, b: x.index_select(1, b["columns"]),
    "take": lambda x, b: torch.take(x, b["along"]),
    "gather": lambda x, b: x.gather(1, b["along"]),
    "gather rows": lambda x, b: x.gather(0, b["down"]),
    "gather one": lambda x, b: x.gather(1, b["one"]),
    "gather slices": lambda x, b: x.gather(0, b["row"][:, None].expand(-1, 8)),
    "gather part": lambda x, b: x.gather(0, b["down"][:3, :2]),
    "take along": lambda x, b: torch.take_along_dim(x, b["one"], 1),
    "take along broadcast": lambda x, b: torch.take_along_dim(x, b["row"][None], 1),
    "scatter add": lambda x, b: x.scatter_add(1, b["along"], b["beside"][:, :3] * x[:, :3]),
    "scatter add of more": lambda x, b: x.scatter_add(1, b["along"], b["beside"]),
    "scatter add slices": lambda x, b: x.scatter_add(0, b["row"][:, None].expand(-1, 8), b["part"] * x[:4]),
    "scatter": lambda x, b: x.scatter(1, b["order"], (b["beside"] * x)[:, :3]),
    "scatter number": lambda x, b: x.scatter(1, b["order"], 0.5),
    "scatter part": lambda x, b: x.scatter(1, b["order"][:2], x[:2, :3] * 2.0),
    "scatter to zeros": lambda x, b: torch.zeros_like(x).scatter(1, b["order"], x[:, :3]),
    "index add": lambda x, b: x.index_add(0, b["row"], b["part"] * x[:4], alpha=0.5),
    "index add columns": lambda x, b: x.index_add(1, b["columns"], (b["beside"] * x)[:, :4]),
    "index copy": lambda x, b: x.index_copy(0, torch.tensor([3, 1]), x[:2] * b["beside"][:2]),
    "index fill": lambda x, b: x.index_fill(1, b["columns"], 2.0),
    "put": lambda x, b: x.index_put((b["row"][1:],), x[:3] * 3.0),
    "put add": lambda x, b: x.index_put((b["row"],), b["part"] * x[:4], accumulate=True),
    "put pairs": lambda x, b: x.index_put((b["row"], b["columns"]), x[0, :4], accumulate=True),
    "put columns": lambda x, b: put_columns(x, b["columns"][1:], x[:, :3] * 2.0),
    "assign": lambda x, b: assigned(x, b["row"][1:], x[1] * 2.0),
    "assign slice": lambda x, b: assigned(x, (slice(1, 3), slice(2, -1)), x[0, :5] * 2.0),
    "assign end": lambda x, b: assigned(x, slice(3, None), b["part"][:2]),
    "assign steps": lambda x, b: assigned(x, (slice(None), slice(1, 8, 3)), x[:, :3] * 2.0),
    "assign mask": lambda x, b: assigned(x, b["mask"], 0.0),
    "assign rows by mask": lambda x, b: assigned(x, b["rowmask"], 1.0),
    "counts": lambda x, b: (
        x * torch.zeros(8, dtype=torch.long).scatter_add(0, b["columns"], torch.ones_like(b["columns"]))
    ),
    "one hot": lambda x, b: F.one_hot(b["row"], 5).float() @ x,
    "pad": lambda x, b: F.pad(x, (1, 2, -1, 3), value=0.25),
    "pad off": lambda x, b: F.pad(x, (-2, -1)),
    "reflect": lambda x, b: F.pad(x[None], (2, 3), mode="reflect"),
    "reflect both": lambda x, b: F.pad(x[None, None], (2, 3, 1, 2), mode="reflect"),
    "replicate": lambda x, b: F.pad(x[None], (2, 0), mode="replicate"),
    "circular": lambda x, b: F.pad(x[None], (3, 1), mode="circular"),
    "flip": lambda x, b: x.flip(0, 1),
    "roll": lambda x, b: x.roll((1, -3), (0, 1)),
    "roll flat": lambda x, b: x.roll(5),
    "tril": lambda x, b: x.tril(1),
    "triu": lambda x, b: torch.triu(x, diagonal=-1),
    "step": lambda x, b: x[1::2, ::3],
    "repeat": lambda x, b: x.repeat(2, 1, 3),
    "tile": lambda x, b: x.tile(2),
    "repeat interleave": lambda x, b: x.repeat_interleave(3, 1),
    "diagonal": lambda x, b: x.diagonal(1),
    "diagonal below": lambda x, b: torch.stack([x, x * 2.0]).diagonal(-2, 1, 2),
    "trace": lambda x, b: x[:, :5].trace()[None],
    "unfold": lambda x, b: x.unfold(1, 3, 2),
    "cumsum": lambda x, b: x.cumsum(1),
    "cumsum down": lambda x, b: x.cumsum(0),
    "positions": lambda x, b: x[(b["mask"][0].cumsum(0) - 1).clamp(0, 4)],
    "sort": lambda x, b: x.sort(-1).values,
    "sort down": lambda x, b: x.sort(0, descending=True)[0],
    "argsort": lambda x, b: x.gather(1, b["beside"].argsort(1)),
    "topk": lambda x, b: x.topk(3)[0],
    "topk smallest": lambda x, b: x.topk(2, 0, largest=False)[0],
    "kth": lambda x, b: x.kthvalue(3, 1).values,
    "median": lambda x, b: x.median(0)[0],
    "median of all": lambda x, b: x.median()[None] * x,
    "median beside nan": lambda x, b: (
        torch.where(x > 0.5, math.nan, x).nanmedian(1, True).values.nan_to_num()
    ),
    "after pointwise": lambda x, b: (x * 2.0).exp()[b["row"]].relu().cumsum(0).flip(0) + 1.0,
    "eye": lambda x, b: torch.eye(5) @ x,
    "cdist": lambda x, b: torch.cdist(x, b["part"]),
    "cdist of itself": lambda x, b: torch.cdist(x[None], x[None], p=1.0),
    "weighted classes": lambda x, b: F.cross_entropy(
        x[:4], b["columns"], weight=b["part"][0].abs(), reduction="none"
    ),
    "arange": lambda x, b: x * torch.arange(8) + torch.linspace(0, 1, 8),
}


def assigned(x: Any, where: Any, value: Any) -> Any:
    """A copy of x with `value` written to some of it."""
    y = x.clone()
    y[where] = value
    return y


def put_columns(x: Any, columns: Any, values: Any) -> Any:
    """The same for columns."""
    y = x.clone()
    y[:, columns] = values
    return y


class Net(torch.nn.Module):
    """A function of a parameter and the batch."""

    def __init__(self, function: Function):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(ROWS, COLUMNS))
        self.function = function

    def forward(self, batch: Any) -> Any:
        return self.function(self.weight.tanh(), batch)


def weighed(model: Any, batch: Any) -> torch.Tensor:
    """Another weight for each element, so that no two may change places."""
    y = model(batch)
    weights = torch.linspace(0.5, 1.5, y.numel(), dtype=y.dtype).reshape(y.shape)
    return (y * weights).square().mean()


@pytest.mark.parametrize("name", CASES)
def test_trains_as_torch(name: str) -> None:
    torch.manual_seed(1)
    assert_trains(Net(CASES[name]), weighed, batch())


OUTSIDE: dict[str, tuple[Function, str, int]] = {
    "embedding": (lambda x, b: F.embedding(b["row"], x), "row", 5),
    "negative": (lambda x, b: F.embedding(b["row"], x), "row", -1),
    "rows": (lambda x, b: x[b["row"]], "row", 7),
    "far back": (lambda x, b: x[b["row"]], "row", -6),
    "gather": (lambda x, b: x.gather(1, b["along"]), "along", 8),
    "scatter": (lambda x, b: x.scatter(1, b["order"], 1.0), "order", 1 << 40),
    "scatter add": (lambda x, b: x.scatter_add(1, b["along"], b["beside"]), "along", -1),
    "index add": (lambda x, b: x.index_add(0, b["row"], b["part"]), "row", 5),
    "put": (lambda x, b: x.index_put((b["row"],), b["part"], accumulate=True), "row", 5),
    "one hot": (lambda x, b: F.one_hot(b["row"], 5).float() @ x, "row", 5),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_an_index_outside_updates_nothing(name: str) -> None:
    torch.manual_seed(1)
    function, entry, outside = OUTSIDE[name]
    model, good = Net(function), batch()
    step = compiled(model, weighed, good)
    step.train_step(good)
    before = model.weight.detach().clone()
    bad = {**good, entry: good[entry].clone()}
    bad[entry].view(-1)[1] = outside
    with pytest.raises(
        OutOfRangeError, match=rf"Index {outside} is out of bounds .* of the batch's '{entry}'"
    ):
        step.train_step(bad)
        step.synchronize()
    assert torch.equal(model.weight, before)
    step.train_step(good)
    assert not torch.equal(model.weight, before)


def test_an_index_is_checked_once() -> None:
    """However often it is used."""

    def twice(x: Any, b: Any) -> Any:
        return x[b["row"]] + x[b["row"]] * F.embedding(b["row"], x)

    text = compiled(Net(twice), weighed, batch()).ir("nn")
    assert text.count("nn.check_index") == 2, "one that wraps, one that does not"


REFUSED: dict[str, Function] = {
    "known outside": lambda x, b: x[torch.tensor([5])],
    "two masks": lambda x, b: x.index_put((b["mask"][:, 0], b["mask"][0]), x[0, :2]),
    "sparse": lambda x, b: F.embedding(b["row"], x, sparse=True),
}

REASONS = {
    "known outside": "an index of 5, which is out of bounds",
    "two masks": "a boolean mask as an index",
    "sparse": "an embedding with sparse=True",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused_by_name(name: str) -> None:
    with pytest.raises(TraceError, match=REASONS[name]):
        compiled(Net(REFUSED[name]), weighed, batch())
