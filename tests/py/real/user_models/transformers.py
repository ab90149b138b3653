"""Published transformers in a few numbers: decoders, encoders, both, and of images and sets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from user_models import attention as A
from user_models.attention import HEADS, LENGTH, WIDTH, Attention, Gated, Rotary, Scaled
from user_models.case import Batch, Case, mlp

WORDS = 13

Norm = Callable[[], nn.Module]


def rms() -> nn.Module:
    return nn.RMSNorm(WIDTH)


def layer_norm() -> nn.Module:
    return nn.LayerNorm(WIDTH)


def gelu_mlp() -> nn.Module:
    return mlp(WIDTH, 2 * WIDTH, WIDTH, act=lambda: nn.GELU("tanh"))


class Block(nn.Module):
    """Attention and an MLP beside the way through: norms before (`"pre"`), after, or one for both at once."""

    def __init__(self, attention: nn.Module, inner: nn.Module, norm: Norm, order: str = "pre"):
        super().__init__()
        self.attention, self.inner, self.order = attention, inner, order
        self.first, self.second = norm(), nn.Identity() if order == "parallel" else norm()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.order == "post":
            x = self.first(x + self.attention(x))
            return self.second(x + self.inner(x))
        if self.order == "parallel":
            normed = self.first(x)
            return x + self.attention(normed) + self.inner(normed)
        x = x + self.attention(self.first(x))
        return x + self.inner(self.second(x))


class Decoder(nn.Module):
    """Embeddings, blocks, a norm and a head."""

    def __init__(
        self,
        *blocks: nn.Module,
        norm: Norm = rms,
        tied: bool = False,
        places: bool = False,
        scale: float = 1.0,
    ):
        super().__init__()
        self.words, self.scale = nn.Embedding(WORDS, WIDTH), scale
        self.places = nn.Embedding(LENGTH, WIDTH) if places else None
        self.blocks, self.norm = nn.ModuleList(blocks), norm()
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        if tied:
            self.head.weight = self.words.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.words(ids) * self.scale
        if self.places is not None:
            x = x + self.places(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Encoder(nn.Module):
    """BERT: words, places and segments; padding is not looked at."""

    def __init__(self, shared: int = 0) -> None:
        super().__init__()
        self.words, self.places, self.segments = (nn.Embedding(n, WIDTH) for n in (WORDS, LENGTH, 2))
        self.norm = nn.LayerNorm(WIDTH)
        self.blocks = nn.ModuleList([self.block() for _ in range(1 if shared else 2)] * (shared or 1))
        self.head = mlp(WIDTH, WIDTH, WORDS, act=nn.GELU)

    def block(self) -> nn.Module:
        return nn.TransformerEncoderLayer(WIDTH, HEADS, 24, 0.0, "gelu", batch_first=True)

    def forward(self, ids: torch.Tensor, segment: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.words(ids) + self.places.weight + self.segments(segment))
        for block in self.blocks:
            x = block(x, src_key_padding_mask=padding)
        return self.head(x)


class Both(nn.Module):
    """T5: an encoder, and a decoder that looks at it; relative positions, gated MLPs."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.encoder = Block(Attention(A.Biased()), Gated(F.gelu), rms)
        self.decoder = Block(Attention(A.causal), Gated(F.gelu), rms)
        self.across, self.norm = Attention(A.Biased(), bias=True), rms()

    def forward(self, ids: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        memory = self.encoder(self.words(ids))
        x = self.decoder(self.words(target))
        x = x + self.across(self.norm(x), memory)
        return F.linear(x * WIDTH**-0.5, self.words.weight)


class Patches(nn.Module):
    """A vision transformer: patches by reshaping, a token for the class, learned positions."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Linear(3 * 4, WIDTH)
        self.token, self.places = (
            nn.Parameter(torch.zeros(1, 1, WIDTH)),
            nn.Parameter(0.1 * torch.randn(5, WIDTH)),
        )
        self.block = Block(Attention(A.sdpa, bias=True), gelu_mlp(), layer_norm)
        self.scale = nn.Parameter(torch.full((WIDTH,), 0.1))
        self.head = nn.Linear(WIDTH, 3)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = image.unflatten(2, (2, 2)).unflatten(4, (2, 2)).permute(0, 2, 4, 1, 3, 5).flatten(1, 2).flatten(2)
        x = torch.cat([self.token.expand(len(x), -1, -1), self.patch(x)], 1) + self.places
        return self.head((x + self.scale * self.block(x))[:, 0])


class Windows(nn.Module):
    """Swin: attention in windows of 2 x 2, then in shifted ones, with a bias for each offset."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3)
        self.table = nn.Parameter(0.1 * torch.randn(9, HEADS))
        at = torch.stack(torch.meshgrid(torch.arange(2), torch.arange(2), indexing="ij")).flatten(1)
        offset = at[:, :, None] - at[:, None] + 1
        self.register_buffer("index", offset[0] * 3 + offset[1])
        self.attention = Attention(self.attend, bias=True)

    def attend(self, query: Any, key: Any, value: Any) -> torch.Tensor:
        """With the bias of the table."""
        return A.sdpa(query, key, value, attn_mask=self.table[self.index].permute(2, 0, 1))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = image
        for shift in (0, -1):
            y = self.norm(x).roll((shift, shift), (1, 2))
            rows = y.view(-1, 2, 2, 2, 2, WIDTH).transpose(2, 3).reshape(-1, 4, WIDTH)
            y = self.attention(rows).view(-1, 2, 2, 2, 2, WIDTH).transpose(2, 3).reshape(x.shape)
            x = x + y.roll((-shift, -shift), (1, 2))
        return self.head(x.mean((1, 2)))


class Conditioned(nn.Module):
    """DiT: scale, shift and gate of each norm from the time of the diffusion."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(WIDTH, elementwise_affine=False), Attention(A.sdpa)
        self.time, self.modulate = mlp(8, WIDTH, WIDTH, act=nn.SiLU), nn.Linear(WIDTH, 3 * WIDTH)

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        angle = time[:, None] * torch.exp(-torch.arange(4, device=x.device))
        embedded = self.time(torch.cat([angle.sin(), angle.cos()], -1))
        shift, scale, gate = self.modulate(F.silu(embedded))[:, None].chunk(3, -1)
        return x + gate * self.attention(self.norm(x) * (1 + scale) + shift)


class Latents(nn.Module):
    """Perceiver: a few learned rows look at many."""

    def __init__(self) -> None:
        super().__init__()
        self.rows, self.look = nn.Parameter(torch.randn(3, WIDTH)), Attention(A.normalized)
        self.block, self.head = Block(Attention(A.sdpa), gelu_mlp(), layer_norm), nn.Linear(WIDTH, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = self.rows.expand(len(x), -1, -1)
        return self.head(self.block(rows + self.look(rows, x))).mean(1)


def next_word(model: nn.Module, batch: Batch) -> torch.Tensor:
    """Of each position but the last."""
    return F.cross_entropy(model(batch["ids"])[:, :-1].flatten(0, 1), batch["ids"][:, 1:].flatten())


def masked_words(model: nn.Module, batch: Batch) -> torch.Tensor:
    """Of the words that are not -100."""
    logits = model(batch["ids"], batch["segment"], batch["padding"])
    return F.cross_entropy(logits.transpose(1, 2), batch["wanted"], ignore_index=-100)


def words() -> Batch:
    """Two sentences."""
    ids = torch.randint(WORDS, (2, LENGTH))
    return {"ids": ids}


def marked_words() -> Batch:
    """With segments, padding and what is wanted."""
    padding = torch.arange(LENGTH)[None] >= torch.tensor([[LENGTH], [4]])
    ids = torch.randint(WORDS, (2, LENGTH))
    wanted = torch.where(torch.rand(2, LENGTH) < 0.5, ids, -100)
    wanted[0, 0] = 3
    return {
        "ids": ids,
        "segment": (torch.arange(LENGTH) > 2).long().expand(2, -1),
        "padding": padding,
        "wanted": wanted,
    }


def language(make: Callable[[], nn.Module]) -> Case:
    """Trained on the next word."""
    return Case(make, words, next_word, tolerance=5e-5)


def decoder(attend: Callable[[], Any], groups: int = HEADS, inner: Any = Gated, **options: Any) -> Case:
    """Two blocks around a way to attend."""

    def make() -> nn.Module:
        blocks = [Block(Attention(attend(), groups), inner(), options.get("norm", rms)) for _ in range(2)]
        return Decoder(*blocks, **options)

    return language(make)


def classes(make: Callable[[], nn.Module], *shape: int) -> Case:
    """Trained to tell three classes."""
    return Case(
        make,
        lambda: {"x": torch.randn(shape), "y": torch.randint(3, (shape[0],))},
        lambda model, batch: F.cross_entropy(model(batch["x"]), batch["y"]),
        tolerance=5e-5,
    )


CASES: dict[str, Case] = {
    "GPT-2": decoder(lambda: A.causal, inner=gelu_mlp, norm=layer_norm, tied=True, places=True),
    "Llama": decoder(Rotary),
    "Llama, grouped queries": decoder(lambda: Rotary(A.grouped), groups=2),
    "Llama, one head of keys": decoder(lambda: Rotary(A.grouped), groups=1, tied=True),
    "Mistral, a window": decoder(lambda: Rotary(A.window)),
    "Gemma": decoder(
        lambda: Rotary(A.capped), inner=lambda: Gated(F.gelu), norm=Scaled, tied=True, scale=4.0
    ),
    "GPT-J": language(
        lambda: Decoder(
            Block(Attention(Rotary(pairs=True)), gelu_mlp(), layer_norm, "parallel"), norm=layer_norm
        )
    ),
    "GPT-NeoX": language(
        lambda: Decoder(Block(Attention(Rotary(part=2)), gelu_mlp(), layer_norm, "parallel"), norm=layer_norm)
    ),
    "the first transformer": language(
        lambda: Decoder(
            Block(Attention(A.causal), gelu_mlp(), layer_norm, "post"), norm=nn.Identity, places=True
        )
    ),
    "gates in one product": decoder(lambda: A.causal, inner=lambda: Gated(F.sigmoid, fused=True)),
    "linear attention": decoder(lambda: A.linear),
    "RetNet": decoder(lambda: A.retention),
    "Transformer-XL": decoder(A.Shifted),
    "relative keys": decoder(A.Relative),
    "queries and keys normalized": decoder(lambda: A.normalized),
    "BERT": Case(Encoder, marked_words, masked_words, tolerance=5e-5),
    "ALBERT, one block twice": Case(lambda: Encoder(2), marked_words, masked_words, tolerance=5e-5),
    "T5": Case(
        Both,
        lambda: {**words(), "target": torch.randint(WORDS, (2, LENGTH))},
        lambda m, b: F.cross_entropy(
            m(b["ids"], b["target"])[:, :-1].flatten(0, 1), b["target"][:, 1:].flatten()
        ),
        tolerance=5e-5,
    ),
    "vision transformer": classes(Patches, 2, 3, 4, 4),
    "Swin": classes(Windows, 2, 4, 4, WIDTH),
    "Perceiver": classes(Latents, 3, 7, WIDTH),
    "DiT": Case(
        Conditioned, lambda: {"x": torch.randn(3, 5, WIDTH), "time": torch.rand(3) * 9}, tolerance=5e-5
    ),
}
