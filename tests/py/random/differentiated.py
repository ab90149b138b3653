"""Random functions that are differentiated several times, and the same written by parts where torch's own derivatives stop short.

Torch has no second derivative of its fused attention, none forwards of the results that softmax and norms of vectors save, and
wrong ones of layer norms from the third on.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

Tensor = torch.Tensor
Function = Callable[..., Tensor]

ROWS, WIDTH = 4, 6

PLACES = torch.tensor([[3, 1, 4, 1, 5, 0], [2, 2, 0, 5, 3, 1], [0, 1, 2, 3, 4, 5], [5, 5, 5, 0, 0, 2]])
"""Where gathers read and scatters write, twice at some."""


def places(x: Tensor) -> Tensor:
    """`PLACES` beside x."""
    return PLACES.to(x.device)


class Bent(torch.autograd.Function):
    """Its gradient is not the derivative, and reads operand and result."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x / (1 + x.abs())

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        x, y = ctx.saved_tensors
        return grads[0] * (1 - y.tanh() * y) * x.cos()


bent: Any = Bent.apply


def softmax_by_parts(x: Tensor) -> Tensor:
    e = (x - x.detach().amax(-1, keepdim=True)).exp()
    return e / e.sum(-1, keepdim=True)


def log_sum_by_parts(x: Tensor) -> Tensor:
    most = x.detach().amax(-1, keepdim=True)
    return (x - most).exp().sum(-1, keepdim=True).log() + most


def norm_by_parts(x: Tensor, *dims: int) -> Tensor:
    centred = x - x.mean(dims, keepdim=True)
    return centred / (centred.square().mean(dims, keepdim=True) + 1e-5).sqrt()


def length(x: Tensor, dim: int) -> Tensor:
    return x.square().sum(dim, keepdim=True).sqrt()


def cosine(x: Tensor, y: Tensor) -> Tensor:
    return F.cosine_similarity(x, y, dim=-1)[:, None] + y


def attention(x: Tensor, y: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(x[None], y[None], x.roll(1, 0)[None])[0]


def attention_by_parts(x: Tensor, y: Tensor) -> Tensor:
    return softmax_by_parts(x @ y.t() / WIDTH**0.5) @ x.roll(1, 0)


BY_PARTS: dict[Function, Function] = {
    (lambda x: F.softmax(x, -1)): softmax_by_parts,
    (lambda x: F.log_softmax(x, -1)): lambda x: x - log_sum_by_parts(x),
    (lambda x: x.logsumexp(-1, keepdim=True).expand_as(x)): lambda x: log_sum_by_parts(x).expand_as(x),
    (lambda x: F.layer_norm(x, [WIDTH])): lambda x: norm_by_parts(x, -1),
    (lambda x: F.group_norm(x[None], 2)[0]): lambda x: norm_by_parts(x.reshape(2, -1), -1).view_as(x),
    (lambda x: F.batch_norm(x, None, None, training=True)): lambda x: norm_by_parts(x, 0),
    (lambda x: F.instance_norm(x[None])[0]): lambda x: norm_by_parts(x, -1),
    (lambda x: F.rms_norm(x, [WIDTH], eps=0.1)): lambda x: (
        x / (x.square().mean(-1, keepdim=True) + 0.1).sqrt()
    ),
    (lambda x: x / (1 + x.norm(dim=-1, keepdim=True))): lambda x: x / (1 + length(x, -1)),
    (lambda x: x / (1 + x.norm(p=3, dim=0, keepdim=True))): lambda x: (
        x / (1 + x.abs().pow(3).sum(0, keepdim=True).pow(1 / 3))
    ),
    (lambda x: F.normalize(x + 0.1, dim=-1)): lambda x: (x + 0.1) / length(x + 0.1, -1),
    (lambda x: attention(x, x)): lambda x: attention_by_parts(x, x),
}
"""Functions of [ROWS, WIDTH], and how torch computes them with all their derivatives."""

UNARY: list[Function] = [
    *BY_PARTS,
    bent,
    torch.tanh,
    torch.sin,
    torch.sigmoid,
    torch.erf,
    torch.atan,
    F.silu,
    F.gelu,
    lambda x: F.gelu(x, approximate="tanh"),
    F.softplus,
    F.mish,
    F.elu,
    lambda x: x * x,
    lambda x: (x * x + 1).sqrt(),
    lambda x: (x * x + 1).rsqrt(),
    lambda x: (x.abs() + 0.5).pow(1.5),
    lambda x: torch.exp(-x.square()),
    lambda x: torch.log1p(x.square()),
    # sums, products and norms
    lambda x: x.cumsum(-1) / WIDTH,
    lambda x: x.tanh().cumprod(0),
    lambda x: x.tanh().prod(-1, keepdim=True) + x,
    lambda x: x - x.mean(0, keepdim=True),
    lambda x: x.var(0, keepdim=True).log1p() * x,
    lambda x: x + (x.var(-1, keepdim=True) + 0.1).sqrt(),
    lambda x: x - x.amax(-1, keepdim=True),
    lambda x: x.diff(dim=-1, append=x[:, :1]),
    # shapes
    lambda x: x.flip(-1),
    lambda x: x.roll(1, 0),
    lambda x: x.reshape(WIDTH, ROWS).t().contiguous(),
    lambda x: F.pad(x[:, 1:], (0, 1)),
    lambda x: F.pad(x[None], (1, 1), mode="circular")[0, :, :WIDTH],
    lambda x: x.unfold(1, 2, 1).mean(-1) @ x[:3, :5].t() @ x[:3],
    lambda x: x.tril() + x.triu(1).sin(),
    lambda x: F.interpolate(x[None, None], size=(3, 8), mode="bilinear")[0, 0].reshape(ROWS, WIDTH),
    # choices of elements
    lambda x: torch.where(x > 0, x, x.exp() - 1),
    lambda x: x.clamp(-0.5, 0.8) * x,
    lambda x: x.masked_fill(places(x) > 3, 0.5) * x.relu(),
    lambda x: x.sort(-1).values,
    lambda x: x.topk(3, dim=-1).values.repeat(1, 2),
    lambda x: x.gather(1, x.detach().argsort(-1).roll(1, -1)),
    lambda x: x.gather(1, places(x)),
    lambda x: x[[3, 0, 0, 2]] * x,
    lambda x: torch.zeros_like(x).scatter_add(1, places(x), x.square()),
    lambda x: x.index_add(0, places(x)[0, :3] % ROWS, x[1:].sin(), alpha=0.5),
    lambda x: torch.zeros_like(x).index_put((places(x) % ROWS, places(x)), x.cos(), accumulate=True),
    # windows
    lambda x: F.max_pool1d(x[None], 3, 1, 1)[0],
    lambda x: F.max_pool2d(x[None, None], 3, 1, 1)[0, 0],
    lambda x: F.avg_pool1d(x[None], 3, 1, 1)[0],
    lambda x: F.adaptive_avg_pool1d(x[None], 3)[0].repeat(1, 2),
    lambda x: F.conv1d(x[None], x[:, None, :3].sin(), padding=1, groups=ROWS)[0],
    lambda x: F.conv2d(x[None, None], x[None, None, :3, :3] / 9, padding=1)[0, 0],
    lambda x: F.conv_transpose1d(x[None], x[:, None, :3] / 3, padding=1, groups=ROWS)[0],
]

BINARY: list[Function] = [
    torch.add,
    torch.sub,
    torch.mul,
    torch.maximum,
    torch.atan2,
    torch.logaddexp,
    lambda x, y: x / (1 + y.square()),
    lambda x, y: x @ y.t() @ x / WIDTH,
    lambda x, y: torch.cat([x, y], -1)[:, 1::2],
    lambda x, y: torch.einsum("ij,kj->ik", x, y).tanh() @ y,
    lambda x, y: torch.lerp(x, y, x.sigmoid()),
    cosine,
    lambda x, y: F.smooth_l1_loss(x, y, reduction="none"),
    lambda x, y: torch.where(x > y, x * y, x - y),
    lambda x, y: torch.scatter(x, 0, places(x).argsort(0), y),
    attention,
]
BY_PARTS[attention] = attention_by_parts
BY_PARTS[cosine] = lambda x, y: (x * y).sum(-1, keepdim=True) / (length(x, -1) * length(y, -1)) + y


class OfRows(nn.Conv1d):
    """A convolution whose channels are rows."""

    def __init__(self) -> None:
        super().__init__(ROWS, ROWS, 3, padding=1)

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input[None])[0]


class Drawn(nn.Module):
    """A random function of [ROWS, WIDTH]; each value is made of earlier ones."""

    def __init__(self, draw: random.Random):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), OfRows()])
        self.made: list[tuple[Any, list[int]]] = []
        """A function, or the number of a layer, and the values that it takes."""
        for count in range(1, draw.randint(4, 7)):
            functions = draw.choice([range(3), UNARY, UNARY, BINARY])
            places = [draw.randrange(max(0, count - 3), count) for _ in range(1 + (functions is BINARY))]
            self.made.append((draw.choice(functions), places))

    def forward(self, x: Tensor) -> Tensor:
        values = [self.layers[0](x)]
        for function, places in self.made:
            chosen = self.layers[function] if isinstance(function, int) else function
            values.append(chosen(*(values[place] for place in places)))
        return self.layers[1](values[-1]) + values[-2]

    def by_parts(self) -> Drawn:
        """The same function with parameters of its own, as torch differentiates it to any order."""
        other = copy.deepcopy(self)
        other.made = [(BY_PARTS.get(function, function), places) for function, places in self.made]
        return other

    @property
    def is_bent(self) -> bool:
        """True where a gradient is not the derivative."""
        return any(function is bent for function, _ in self.made)
