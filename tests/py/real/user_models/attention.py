"""Parts of published transformers: rotated and relative positions, grouped heads, masks, gated MLPs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

WIDTH, HEADS, LENGTH = 16, 4, 6

Attend = Callable[[Any, Any, Any], torch.Tensor]
"""Of queries, keys and values by head."""


def sdpa(query: Any, key: Any, value: Any, **options: Any) -> torch.Tensor:
    """Torch's own."""
    return F.scaled_dot_product_attention(query, key, value, **options)


def causal(query: Any, key: Any, value: Any) -> torch.Tensor:
    """Each position looks back."""
    return sdpa(query, key, value, is_causal=True)


class Attention(nn.Module):
    """Heads of queries, and `groups` of keys and values, put together by `attend`."""

    def __init__(self, attend: Attend, groups: int = HEADS, bias: bool = False, width: int = WIDTH):
        super().__init__()
        self.attend, self.size = attend, width // HEADS
        self.query = nn.Linear(width, width, bias=bias)
        self.key_value = nn.Linear(width, 2 * groups * self.size, bias=bias)
        self.out = nn.Linear(width, width, bias=bias)

    def heads(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, heads, length, size]."""
        return x.unflatten(-1, (-1, self.size)).transpose(1, 2)

    def forward(self, x: torch.Tensor, memory: torch.Tensor | None = None) -> torch.Tensor:
        key, value = self.key_value(x if memory is None else memory).chunk(2, -1)
        y = self.attend(self.heads(self.query(x)), self.heads(key), self.heads(value))
        return self.out(y.transpose(1, 2).flatten(2))


class Rotary(nn.Module):
    """Attention whose queries and keys are rotated: halves (Llama), pairs (GPT-J), or `part` of a head alone (NeoX)."""

    cos: torch.Tensor
    sin: torch.Tensor

    def __init__(self, attend: Attend = causal, pairs: bool = False, part: int = WIDTH // HEADS):
        super().__init__()
        self.attend, self.pairs, self.part = attend, pairs, part
        angle = torch.outer(torch.arange(LENGTH), 100.0 ** (-torch.arange(0, part, 2) / part))
        angle = angle.repeat_interleave(2, -1) if pairs else angle.repeat(1, 2)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def rotated(self, x: torch.Tensor) -> torch.Tensor:
        """By the position."""
        x, rest = x[..., : self.part], x[..., self.part :]
        if self.pairs:
            turned = torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)
        else:
            first, second = x.chunk(2, -1)
            turned = torch.cat([-second, first], -1)
        return torch.cat([x * self.cos + turned * self.sin, rest], -1)

    def forward(self, query: Any, key: Any, value: Any) -> torch.Tensor:
        return self.attend(self.rotated(query), self.rotated(key), value)


def grouped(query: Any, key: Any, value: Any) -> torch.Tensor:
    """Fewer heads of keys, repeated."""
    times = query.shape[1] // key.shape[1]
    return causal(query, key.repeat_interleave(times, 1), value.repeat_interleave(times, 1))


def window(query: Any, key: Any, value: Any) -> torch.Tensor:
    """Mistral: the three positions before, itself included."""
    place = torch.arange(LENGTH, device=query.device)
    back = place[:, None] - place[None]
    return sdpa(query, key, value, attn_mask=(back >= 0) & (back < 3))


def capped(query: Any, key: Any, value: Any) -> torch.Tensor:
    """Gemma 2: scores in bounds, by hand."""
    scores = 5 * torch.tanh(query @ key.mT / (5 * math.sqrt(query.shape[-1])))
    later = torch.ones(LENGTH, LENGTH, dtype=torch.bool, device=query.device).triu(1)
    return scores.masked_fill(later, -math.inf).softmax(-1) @ value


def normalized(query: Any, key: Any, value: Any) -> torch.Tensor:
    """Queries and keys of length one."""
    return sdpa(F.normalize(query, dim=-1), F.normalize(key, dim=-1), value, scale=3.0)


def linear(query: Any, key: Any, value: Any) -> torch.Tensor:
    """Kernelized, causal by running sums."""
    query, key = F.elu(query) + 1, F.elu(key) + 1
    sums = (key[..., :, None] * value[..., None, :]).cumsum(2)
    scale = (query * key.cumsum(2)).sum(-1, keepdim=True) + 1e-3
    return (query[..., None, :] @ sums)[..., 0, :] / scale


def retention(query: Any, key: Any, value: Any) -> torch.Tensor:
    """RetNet: scores that decay with the distance, without softmax."""
    place = torch.arange(LENGTH, device=query.device)
    distance = (place[:, None] - place[None]).float()
    decay = torch.where(distance >= 0, 0.8 ** distance.clamp(min=0), 0.0)
    return (query @ key.mT * decay) @ value


class Biased(nn.Module):
    """T5: a learned bias for buckets of distances, wider the farther; no scale."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(6, HEADS)

    def forward(self, query: Any, key: Any, value: Any) -> torch.Tensor:
        rows = torch.arange(query.shape[2], device=query.device)[:, None]
        away = rows - torch.arange(key.shape[2], device=query.device)[None]
        far = (away.abs().clamp(min=1).float().log() / math.log(2)).long() + 1
        bucket = torch.where(away.abs() < 2, away.abs(), far.clamp(max=2)) + 3 * (away < 0)
        return sdpa(query, key, value, attn_mask=self.table(bucket).permute(2, 0, 1)[None], scale=1.0)


class Shifted(nn.Module):
    """Transformer-XL: scores of content and of position, the latter shifted into place by padding."""

    def __init__(self) -> None:
        super().__init__()
        self.positions = nn.Parameter(0.3 * torch.randn(HEADS, LENGTH, WIDTH // HEADS))
        self.content, self.place = (nn.Parameter(torch.zeros(HEADS, 1, WIDTH // HEADS)) for _ in range(2))

    def forward(self, query: Any, key: Any, value: Any) -> torch.Tensor:
        scores = (query + self.place) @ self.positions.mT
        batch, heads, rows, columns = scores.shape
        padded = F.pad(scores, (1, 0)).view(batch, heads, columns + 1, rows)
        scores = (query + self.content) @ key.mT + padded[:, :, 1:].reshape(batch, heads, rows, columns)
        later = torch.ones(rows, columns, dtype=torch.bool, device=query.device).triu(1)
        return F.softmax((scores / 2).masked_fill(later, -1e9), -1) @ value


class Relative(nn.Module):
    """Scores of queries with a learned key for each distance, gathered."""

    def __init__(self) -> None:
        super().__init__()
        self.keys = nn.Parameter(0.3 * torch.randn(2 * LENGTH - 1, WIDTH // HEADS))

    def forward(self, query: Any, key: Any, value: Any) -> torch.Tensor:
        place = torch.arange(LENGTH, device=query.device)
        index = (place[None] - place[:, None] + LENGTH - 1).expand(*query.shape[:2], -1, -1)
        scores = query @ key.mT + (query @ self.keys.T).gather(-1, index)
        return F.softmax(scores / 2, -1) @ value


class Gated(nn.Module):
    """An MLP of two branches, one of which is the gate."""

    def __init__(self, act: Callable[[torch.Tensor], torch.Tensor] = F.silu, fused: bool = False):
        super().__init__()
        self.act = act
        self.up = nn.ModuleList(
            [nn.Linear(WIDTH, (2 if fused else 1) * 24, bias=False) for _ in range(2 - fused)]
        )
        self.down = nn.Linear(24, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = [up(x) for up in self.up]
        gate, value = parts if len(parts) == 2 else parts[0].chunk(2, -1)
        return self.down(self.act(gate) * value)


class Scaled(nn.Module):
    """RMS norm by hand with a weight around one, as Gemma has it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * (1 + self.weight)
