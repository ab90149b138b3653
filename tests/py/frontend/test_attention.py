"""Scaled dot-product attention and what is built of it, trained beside torch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from beside_torch import assert_trains
from torch import nn

from aicf_mlir.frontend import aten_attention
from aicf_mlir.passes import keep_scores

Attend = Callable[[Any, Any, Any, Any], Any]

BATCH, HEADS, LENGTH, SIZE = 2, 4, 6, 8


@pytest.fixture(autouse=True, params=["made of others", "made of others later", "one op"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test by products and a softmax, by those that a CPU writes for nn.attention, and by nn.attention where it serves."""
    if request.param == "made of others":
        monkeypatch.setattr(aten_attention, "serves", lambda call: False)
    whole = request.param == "one op"
    monkeypatch.setattr(keep_scores, "keeps_scores", lambda op, target: not whole)


class Attention(nn.Module):
    """Queries, keys and values of one Linear each, with `groups` heads of keys; `attend` puts them together."""

    def __init__(self, attend: Attend, groups: int = HEADS):
        super().__init__()
        self.attend, self.groups = attend, groups
        self.query = nn.Linear(SIZE, HEADS * SIZE)
        self.key, self.value = nn.Linear(SIZE, groups * SIZE), nn.Linear(SIZE, groups * SIZE)

    def forward(self, batch: Any) -> Any:
        x = batch["x"]
        query = self.query(x).view(BATCH, LENGTH, HEADS, SIZE).transpose(1, 2)
        key, value = (
            each(x).view(BATCH, LENGTH, self.groups, SIZE).transpose(1, 2) for each in (self.key, self.value)
        )
        return self.attend(query, key, value, batch)


def batch() -> dict[str, torch.Tensor]:
    """A sequence, masks that leave nothing in one row, and additive ones."""
    generator = torch.Generator().manual_seed(5)
    mask = torch.rand(LENGTH, LENGTH, generator=generator) > 0.4
    mask[2], mask[:2, 0] = False, True
    return {
        "x": torch.randn(BATCH, LENGTH, SIZE, generator=generator),
        "mask": mask,
        "padding": torch.tensor([[True] * 4 + [False] * 2, [True] * 6]),
        "bias": torch.randn(HEADS, LENGTH, LENGTH, generator=generator),
        "ids": torch.randint(11, (BATCH, LENGTH), generator=generator),
    }


def by_hand(query: Any, key: Any, value: Any, batch: Any) -> Any:
    """As older code has it: scores, tril of ones, masked_fill, softmax."""
    scores = query @ key.transpose(-2, -1) / math.sqrt(SIZE)
    mask = torch.tril(torch.ones(LENGTH, LENGTH)).view(1, 1, LENGTH, LENGTH)
    return F.softmax(scores.masked_fill(mask == 0, float("-inf")), dim=-1) @ value


def alibi(query: Any, key: Any, value: Any, batch: Any) -> Any:
    """A slope for each head times the distance."""
    position = torch.arange(LENGTH)
    distance = (position[None] - position[:, None]).float()
    slopes = torch.tensor([2.0**-n for n in range(1, HEADS + 1)])
    bias = (slopes[:, None, None] * distance).masked_fill(distance > 0, float("-inf"))
    return F.scaled_dot_product_attention(query, key, value, attn_mask=bias)


sdpa: Any = F.scaled_dot_product_attention

CASES: dict[str, tuple[Attend, int]] = {
    "plain": (lambda q, k, v, b: sdpa(q, k, v), HEADS),
    "causal": (lambda q, k, v, b: sdpa(q, k, v, is_causal=True), HEADS),
    "causal, fewer queries": (lambda q, k, v, b: sdpa(q[:, :, :3], k, v, is_causal=True), HEADS),
    "boolean mask": (lambda q, k, v, b: sdpa(q, k, v, attn_mask=b["mask"]), HEADS),
    "key padding": (lambda q, k, v, b: sdpa(q, k, v, attn_mask=b["padding"][:, None, None]), HEADS),
    "additive mask": (lambda q, k, v, b: sdpa(q, k, v, attn_mask=b["bias"]), HEADS),
    "additive infinities": (
        lambda q, k, v, b: sdpa(q, k, v, attn_mask=torch.where(b["mask"], 0.0, -math.inf)),
        HEADS,
    ),
    "scale": (lambda q, k, v, b: sdpa(q, k, v, scale=0.3), HEADS),
    "grouped queries": (lambda q, k, v, b: sdpa(q, k, v, is_causal=True, enable_gqa=True), 2),
    "one head of keys": (lambda q, k, v, b: sdpa(q, k.expand(-1, HEADS, -1, -1), v.expand_as(q)), 1),
    "values of another size": (lambda q, k, v, b: sdpa(q, k, v[..., :3]), HEADS),
    "three dimensions": (lambda q, k, v, b: sdpa(q[:, 0], k[:, 0], v[:, 0], is_causal=True), HEADS),
    "by hand": (by_hand, HEADS),
    "alibi": (alibi, HEADS),
    "repeated heads": (
        lambda q, k, v, b: sdpa(q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1), is_causal=True),
        2,
    ),
}


def loss(model: Any, batch: Any) -> torch.Tensor:
    """Weighs each element."""
    y = model(batch)
    y = y[0] if isinstance(y, tuple) else y
    return (y * torch.linspace(0.5, 1.5, y.numel(), dtype=y.dtype).reshape(y.shape)).square().mean()


@pytest.mark.parametrize("name", CASES)
def test_trains_as_torch(name: str) -> None:
    torch.manual_seed(1)
    attend, groups = CASES[name]
    assert_trains(Attention(attend, groups), loss, batch())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_has_scores_in_float32(dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    model = Attention(lambda q, k, v, b: sdpa(q, k, v, is_causal=True)).to(dtype)
    assert_trains(model, loss, {"x": batch()["x"].to(dtype)}, tolerance=2e-2)


class Rotary(nn.Module):
    """Two layers of causal attention with rotated queries and keys, learned positions and a tied head."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, SIZE)
        self.position = nn.Embedding(LENGTH, SIZE)
        self.attention = Attention(self.rotated)
        self.out = nn.Linear(HEADS * SIZE, SIZE)
        angle = torch.arange(LENGTH)[:, None] / 100 ** (torch.arange(0, SIZE, 2) / SIZE)
        self.cos, self.sin = nn.Buffer(angle.cos().repeat(1, 2)), nn.Buffer(angle.sin().repeat(1, 2))

    def rotated(self, query: Any, key: Any, value: Any, batch: Any) -> Any:
        """Rotary position embedding in two halves."""
        query, key = self.rotate(query), self.rotate(key)
        return sdpa(query, key, value, is_causal=True)

    def rotate(self, x: Any) -> Any:
        """Each pair of elements by its angle."""
        first, second = x.chunk(2, -1)
        return x * self.cos + torch.cat([-second, first], -1) * self.sin

    def forward(self, batch: Any) -> Any:
        ids = batch["ids"]
        x = self.embedding(ids) + self.position(torch.arange(ids.shape[1]))
        y = self.attention({"x": x}).transpose(1, 2).reshape(BATCH, LENGTH, HEADS * SIZE)
        return (x + self.out(y)) @ self.embedding.weight.T


class Relative(nn.Module):
    """Attention with a learned bias for each distance, as T5 has it."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(2 * LENGTH - 1, HEADS)
        self.attention = Attention(self.attend)

    def attend(self, query: Any, key: Any, value: Any, batch: Any) -> Any:
        """The bias is a row of the table for each pair of positions."""
        position = torch.arange(LENGTH)
        bias = self.table(position[None] - position[:, None] + LENGTH - 1).permute(2, 0, 1)[None]
        return sdpa(query, key, value, attn_mask=bias)

    def forward(self, batch: Any) -> Any:
        return self.attention(batch)


def test_a_language_model_trains_as_torch() -> None:
    torch.manual_seed(1)

    def next_token(model: Any, batch: Any) -> torch.Tensor:
        logits = model(batch)[:, :-1].reshape(-1, 11)
        return F.cross_entropy(logits, batch["ids"][:, 1:].reshape(-1))

    assert_trains(Rotary(), next_token, {"ids": batch()["ids"]})


def test_a_learned_bias_of_positions_trains_as_torch() -> None:
    torch.manual_seed(1)
    assert_trains(Relative(), loss, {"x": batch()["x"]})


class Layer(nn.Module):
    """A layer of torch in front of the weights, called as `call` says."""

    def __init__(self, layer: nn.Module, call: Callable[[Any, Any], Any]):
        super().__init__()
        self.layer, self.call = layer, call

    def forward(self, batch: Any) -> Any:
        return self.call(self.layer, batch)


def causal() -> torch.Tensor:
    """True where a position must not look."""
    return torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)


MULTIHEAD: dict[str, Callable[[Any, Any], Any]] = {
    "without weights": lambda m, b: m(b["x"], b["x"], b["x"], need_weights=False)[0],
    "with weights": lambda m, b: m(b["x"], b["x"], b["x"])[0],
    "its weights": lambda m, b: m(b["x"], b["x"], b["x"])[1],
    "causal": lambda m, b: m(b["x"], b["x"], b["x"], attn_mask=causal(), is_causal=True, need_weights=False)[
        0
    ],
    "key padding": lambda m, b: m(b["x"], b["x"], b["x"], key_padding_mask=~b["padding"])[0],
    "both masks": lambda m, b: m(
        b["x"], b["x"], b["x"], attn_mask=causal(), key_padding_mask=~b["padding"], need_weights=False
    )[0],
}


@pytest.mark.parametrize("name", MULTIHEAD)
def test_multihead_attention_trains_as_torch(name: str) -> None:
    torch.manual_seed(1)
    layer = nn.MultiheadAttention(SIZE, 2, batch_first=True)
    assert_trains(Layer(layer, MULTIHEAD[name]), loss, batch())


@pytest.mark.parametrize("first", [False, True])
def test_an_encoder_trains_as_torch(first: bool) -> None:
    torch.manual_seed(1)
    layer = nn.TransformerEncoderLayer(SIZE, 2, 16, dropout=0.0, batch_first=True, norm_first=first)
    model = Layer(
        nn.TransformerEncoder(layer, 2, enable_nested_tensor=False),
        lambda m, b: m(b["x"], mask=causal(), src_key_padding_mask=~b["padding"]),
    )
    assert_trains(model, loss, batch(), tolerance=1e-4)


def test_a_decoder_trains_as_torch() -> None:
    torch.manual_seed(1)
    layer = nn.TransformerDecoderLayer(SIZE, 2, 16, dropout=0.0, batch_first=True)
    model = Layer(nn.TransformerDecoder(layer, 1), lambda m, b: m(b["x"], b["x"].flip(1), tgt_mask=causal()))
    assert_trains(model, loss, batch(), tolerance=1e-4)
