"""Functions of a tensor that users call between layers: arithmetic, reductions, shapes, indexing."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F

from user_models.case import Case, Function, functions


def positive(h: torch.Tensor) -> torch.Tensor:
    """Far enough from zero for roots and logarithms."""
    return h.square() + 0.5


def indices(h: torch.Tensor, *values: int) -> torch.Tensor:
    """Integers beside `h`."""
    return torch.tensor(values, device=h.device)


ARITHMETIC: Mapping[str, Function] = {
    "exp and expm1": lambda h: torch.exp(h) - torch.expm1(h / 2),
    "logarithms": lambda h: positive(h).log() + torch.log1p(h.abs()) + torch.log2(positive(h)),
    "roots": lambda h: positive(h).sqrt() * torch.rsqrt(positive(h) + 1),
    "powers": lambda h: positive(h) ** 1.7 + h**3 + 2**h,
    "trigonometry": lambda h: torch.sin(h) * torch.cos(2 * h) + torch.atan2(h, positive(h)),
    "hyperbolic": lambda h: torch.sinh(h) / torch.cosh(h) + torch.asinh(h),
    "erf": lambda h: 0.5 * (1 + torch.erf(h / 2**0.5)),
    "larger and smaller": lambda h: torch.maximum(h, 2 * h) + torch.minimum(h, h.flip(1)),
    "where": lambda h: torch.where(h > 0.1, h, 0.2 * h),
    "clamp": lambda h: h.clamp(-0.4, 0.6) + h.clamp(min=0.1),
    "remainder": lambda h: torch.remainder(h, 0.7) + torch.fmod(h, 0.4),
    "lerp": lambda h: torch.lerp(h, h.flip(0), 0.3),
    "addcmul": lambda h: torch.addcmul(h, h, h.flip(0), value=0.5),
    "integers mixed in": lambda h: h * torch.arange(8, device=h.device) + indices(h, 3),
    "in place": lambda h: (h * 1).add_(1).mul_(h).clamp_(max=2.0),
    "detached": lambda h: h * h.detach().exp(),
    "no_grad": lambda h: h - without_gradient(h),
    "straight through": lambda h: h + (h.round() - h).detach(),
}


def without_gradient(h: torch.Tensor) -> torch.Tensor:
    """A row mean that is no part of the gradient."""
    with torch.no_grad():
        return h.mean(-1, keepdim=True)


REDUCTIONS: Mapping[str, Function] = {
    "sums": lambda h: h.sum(0) + h.sum() + h.sum((0, 1), keepdim=True),
    "extremes": lambda h: h.amax(-1) * h.amin(-1) + h.max(),
    "values of max": lambda h: h.max(-1).values + h.min(0).values[:5],
    "variances": lambda h: h.var(-1) + h.std(-1, correction=0) * h.mean(-1),
    "norms": lambda h: h.norm(dim=-1) + h.norm(p=1, dim=-1) + torch.linalg.vector_norm(h, 3, dim=-1),
    "normalized": lambda h: F.normalize(h, dim=0) + F.normalize(h, p=1, dim=1),
    "logsumexp": lambda h: h.logsumexp(-1) + h.logsumexp((0, 1)),
    "product": lambda h: positive(h).prod(-1),
    "running sum": lambda h: h.cumsum(-1) * h.cumsum(0),
    "softmax and log_softmax": lambda h: F.softmax(h, 0) + F.log_softmax(h, -1),
    "shares": lambda h: (h > 0).float().mean(-1) * h.mean(-1) + (h > 1).any(-1) * h[:, 0],
    "cosine similarity": lambda h: F.cosine_similarity(h, h * h + 1),
    "distances of rows": lambda h: torch.cdist(h, h.flip(0) * 2 + 1),
    "distances by products": lambda h: (
        h.square().sum(1)[:, None] + h.square().sum(1)[None] - 2 * h @ h.T + 1
    ).sqrt(),
}

SHAPES: Mapping[str, Function] = {
    "cat and stack": lambda h: torch.cat([h, torch.stack([h, h * 2]).flatten(0, 1)], 0),
    "split": lambda h: h.split([3, 5], -1)[1] * h.chunk(3, 0)[0].exp().mean(),
    "tiles": lambda h: h.repeat(2, 3) + torch.tile(h.mean(0), (10, 3)),
    "repeat_interleave": lambda h: h.repeat_interleave(2, dim=1),
    "expand": lambda h: h[None].expand(3, -1, -1) * h.mean(0),
    "pad": lambda h: F.pad(h, (1, 2, 0, 1), value=0.5) + F.pad(h, (2, 1, 1, 0)),
    "pad by reflection": lambda h: F.pad(h[None], (2, 3), mode="reflect"),
    "flip and roll": lambda h: h.flip(0, 1) + h.roll(2, 1).roll((1, -1), (0, 1)),
    "triangles": lambda h: h.tril() + h.triu(2),
    "diagonal": lambda h: torch.diag_embed(h).diagonal(1, 0, 1) + (h @ h.T).diagonal().mean(),
    "unfold": lambda h: h.unfold(1, 3, 2).amax(-1),
    "permutations": lambda h: h.view(5, 2, 4).permute(2, 0, 1).reshape(4, 10).mT,
    "einsum": lambda h: torch.einsum("ij,kj,kl->il", h, h, h),
    "batched product": lambda h: torch.bmm(h.view(1, 5, 8), h.T[None]) + h[None] @ h.T,
    "outer products": lambda h: torch.outer(h[0], h[:, 1]) + torch.kron(h[:1, :2], h[:4, :2]).sum(),
    "meshgrid": lambda h: sum(torch.meshgrid(h[0], h[:, 0], indexing="ij"), torch.zeros((), device=h.device)),
}

INDEXING: Mapping[str, Function] = {
    "slices": lambda h: h[1:4, ::2] * h[..., -1:][1:4] + h[:, 2][1:4, None],
    "rows by list": lambda h: h[[0, 2, 2]] + h[:, indices(h, 1, 0, 3, 7, 6, 6, 5, 4)][:3],
    "pairs of indices": lambda h: h[indices(h, 0, 1, 4), indices(h, 7, 2, 2)],
    "gather": lambda h: h.gather(1, h.detach().argsort(1)[:, :3]),
    "take_along_dim": lambda h: torch.take_along_dim(h, h.argmax(1, keepdim=True), 1),
    "masked_fill": lambda h: h.masked_fill(h > 0.3, -1.0) * torch.where(h.isnan(), 0.0, 1.0),
    "index_add": lambda h: torch.zeros(3, 8, device=h.device).index_add(0, indices(h, 0, 2, 2, 1, 0), h),
    "scatter": lambda h: torch.zeros_like(h).scatter(1, h.argsort(1)[:, :2], h[:, :2] * 3),
    "scatter_add": lambda h: torch.zeros_like(h).scatter_add(
        0, indices(h, 0, 1, 1, 4, 4)[:, None].expand(-1, 8), h
    ),
    "assigned part": lambda h: assigned(h),
    "sorted": lambda h: h.sort(-1, descending=True).values * torch.arange(8, device=h.device),
    "topk": lambda h: h.topk(3, -1).values + h.topk(3, -1, largest=False).values,
    "one_hot": lambda h: F.one_hot(h.argmax(-1), 8).float() * h,
}


def assigned(h: torch.Tensor) -> torch.Tensor:
    """A buffer filled in parts."""
    out = torch.zeros(5, 10, device=h.device)
    out[:, 1:9] = h
    out[2] += 1
    return out


CASES: dict[str, Case] = functions({**ARITHMETIC, **REDUCTIONS, **SHAPES, **INDEXING})
