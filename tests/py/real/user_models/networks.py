"""Networks of Linear layers as they are written: residual, gated, of experts, of graphs and sets, of pairs; recurrent loops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from user_models.case import Batch, Case, Loss, descent, mlp, weighed

Forward = Callable[..., Any]


class Parts(nn.Module):
    """Named modules and parameters, put together by a function."""

    def __init__(self, forward: Forward, **parts: nn.Module | torch.Tensor):
        super().__init__()
        self.function = forward
        for name, part in parts.items():
            setattr(self, name, nn.Parameter(part) if isinstance(part, torch.Tensor) else part)

    def forward(self, *inputs: torch.Tensor, **named: torch.Tensor) -> Any:
        return self.function(self, *inputs, **named)


def case(
    forward: Forward,
    parts: Callable[[], dict[str, Any]],
    batch: Callable[[], Batch],
    loss: Loss | None = None,
) -> Case:
    """By gradient descent; the batch by name, and every output weighed, where there is no loss."""
    whole: Loss = loss or (lambda model, batch: weighed(model(**batch)))
    return Case(lambda: Parts(forward, **parts()), batch, whole, descent, tolerance=5e-5)


def rows(*shape: int) -> Callable[[], Batch]:
    """A batch of one tensor."""
    return lambda: {"x": torch.randn(shape)}


def mixer(m: Any, x: torch.Tensor) -> torch.Tensor:
    """MLPs over the tokens and over the channels in turn."""
    x = x + m.tokens(m.first(x).transpose(1, 2)).transpose(1, 2)
    return m.head((x + m.channels(m.second(x))).mean(1))


def gated_space(m: Any, x: torch.Tensor) -> torch.Tensor:
    """gMLP: half of the channels gate the others, across the tokens."""
    value, gate = F.gelu(m.up(x)).chunk(2, -1)
    return x + m.down(value * m.space(m.norm(gate).transpose(1, 2)).transpose(1, 2))


def experts(m: Any, x: torch.Tensor) -> torch.Tensor:
    """The two best of four, weighed by their gates."""
    best, index = m.gate(x).topk(2, -1)
    weight = torch.zeros(len(x), 4, device=x.device).scatter(1, index, best.softmax(-1))
    return (torch.stack([expert(x) for expert in m.experts], 1) * weight[..., None]).sum(1)


def crossed(m: Any, x: torch.Tensor) -> torch.Tensor:
    """A deep and cross network: products with the input, layer by layer."""
    y = x
    for layer in m.layers:
        y = x * layer(y) + y
    return m.deep(x) + y.sum(-1, keepdim=True)


def factorized(m: Any, fields: torch.Tensor) -> torch.Tensor:
    """DeepFM: pairs of embeddings by the square of the sum, beside an MLP."""
    e = m.table(fields)
    pairs = 0.5 * (e.sum(1).square() - e.square().sum(1)).sum(-1, keepdim=True)
    return m.wide(fields).sum(1) + pairs + m.deep(e.flatten(1))


def coupled(m: Any, x: torch.Tensor) -> torch.Tensor:
    """RealNVP: the log-likelihood of a flow of affine couplings."""
    logdet: Any = 0.0
    for net in m.nets:
        kept, moved = x.chunk(2, 1)
        scale, shift = net(kept).chunk(2, 1)
        x = torch.cat([moved * scale.tanh().exp() + shift, kept], 1)
        logdet = logdet + scale.tanh().sum(1)
    return 0.5 * x.square().sum(1) - logdet


def quantized(m: Any, x: torch.Tensor) -> torch.Tensor:
    """VQ-VAE: the nearest code, the gradient straight through, and both commitments."""
    z = m.encode(x)
    code = m.codes(torch.cdist(z, m.codes.weight).argmin(1))
    commit = F.mse_loss(code, z.detach()) + 0.25 * F.mse_loss(z, code.detach())
    return F.mse_loss(m.decode(z + (code - z).detach()), x) + commit


def convolved(m: Any, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
    """A graph network over a list of edges: means of the neighbours."""
    source, target = edges
    h = F.relu(m.first(x))
    count = torch.zeros(len(x), 1, device=x.device).index_add(
        0, target, torch.ones_like(target)[:, None].float()
    )
    return m.second(torch.zeros_like(h).index_add(0, target, h[source]) / count.clamp(min=1) + h)


def attended(m: Any, x: torch.Tensor, near: torch.Tensor) -> torch.Tensor:
    """GAT: weights of neighbours from both ends of an edge."""
    h = m.first(x)
    score = F.leaky_relu(m.left(h) + m.right(h).T, 0.2).masked_fill(~near, float("-inf"))
    return F.elu(score.softmax(1) @ h)


def points(m: Any, x: torch.Tensor) -> torch.Tensor:
    """PointNet: the largest of each feature over the points."""
    return m.head(m.each(x).max(1).values)


def stepped(m: Any, x: torch.Tensor) -> torch.Tensor:
    """A neural ODE by two steps of Runge-Kutta."""
    for _ in range(2):
        a = m.slope(x)
        b = m.slope(x + 0.25 * a)
        c = m.slope(x + 0.25 * b)
        x = x + (a + 2 * b + 2 * c + m.slope(x + 0.5 * c)) / 12
    return x


def selective(m: Any, x: torch.Tensor) -> torch.Tensor:
    """Mamba: a short causal filter by shifts, then a state whose decay depends on the input."""
    x = F.silu(
        sum((F.pad(x, (0, 0, k, 0))[:, : x.shape[1]] * m.filter[k] for k in range(3)), torch.zeros_like(x))
    )
    rate, into, out = F.softplus(m.rate(x)), m.into(x), m.out(x)
    state, ys = torch.zeros(len(x), 8, 4, device=x.device), list[torch.Tensor]()
    for t in range(x.shape[1]):
        decay = torch.exp(-rate[:, t, :, None] * m.poles.exp())
        state = decay * state + (rate[:, t] * x[:, t])[..., None] * into[:, t, None]
        ys.append((state * out[:, t, None]).sum(-1))
    return torch.stack(ys, 1) + x * m.skip


def translated(m: Any, x: torch.Tensor) -> torch.Tensor:
    """An LSTM read by a recurrent cell that attends to it."""
    memory, _ = m.read(x)
    state, outputs = memory[:, -1], list[torch.Tensor]()
    for _ in range(3):
        weight = (memory @ state[:, :, None]).softmax(1)
        state = m.cell((weight * memory).sum(1), state)
        outputs.append(m.head(state))
    return torch.stack(outputs, 1)


def of_loss(m: Any, *inputs: torch.Tensor) -> None:
    """For a model whose parts the loss calls itself."""
    raise NotImplementedError


def pairs(model: Any, batch: Any) -> torch.Tensor:
    """CLIP: each row of one tower to find its own of the other, both ways."""
    a, b = F.normalize(model.a(batch["a"]), dim=-1), F.normalize(model.b(batch["b"]), dim=-1)
    scores, own = a @ b.T * model.temperature.exp(), torch.arange(len(a), device=a.device)
    return (F.cross_entropy(scores, own) + F.cross_entropy(scores.T, own)) / 2


def views(model: Any, batch: Any) -> torch.Tensor:
    """SimCLR: two views of a row among all others."""
    z = F.normalize(model.net(torch.cat([batch["a"], batch["b"]])), dim=1)
    scores = (z @ z.T / 0.5).masked_fill(torch.eye(len(z), dtype=torch.bool, device=z.device), float("-inf"))
    return F.cross_entropy(scores, torch.arange(len(z), device=z.device).roll(len(z) // 2))


def bootstrapped(model: Any, batch: Any) -> torch.Tensor:
    """DQN: a target of another network, without a gradient."""
    chosen = model.net(batch["x"]).gather(1, batch["action"][:, None])[:, 0]
    with torch.no_grad():
        wanted = batch["reward"] + 0.9 * model.target(batch["next"]).max(1).values
    return F.smooth_l1_loss(chosen, wanted)


def distilled(model: Any, batch: Any) -> torch.Tensor:
    """From a teacher that stays as it is."""
    teacher, student = model.teacher(batch["x"]).detach(), model.student(batch["x"])
    soft = F.kl_div(F.log_softmax(student / 2, -1), F.softmax(teacher / 2, -1), reduction="batchmean")
    return 4 * soft + F.cross_entropy(student, teacher.argmax(-1))


def two() -> Batch:
    """Rows that belong to each other."""
    return {"a": torch.randn(6, 8), "b": torch.randn(6, 8)}


def transitions() -> Batch:
    """Of an agent."""
    x, after = torch.randn(6, 8), torch.randn(6, 8)
    return {"x": x, "next": after, "action": torch.randint(3, (6,)), "reward": torch.randn(6)}


def graph() -> Batch:
    """Seven nodes, and edges some of which meet."""
    return {"x": torch.randn(7, 8), "edges": torch.randint(7, (2, 12))}


def slow(model: nn.Module) -> torch.optim.Optimizer:
    """For a model that larger steps would throw far away."""
    return torch.optim.SGD(model.parameters(), lr=1e-3)


def state_space() -> dict[str, Any]:
    linears = {name: nn.Linear(8, size) for name, size in (("rate", 8), ("into", 4), ("out", 4))}
    return {**linears, "filter": torch.randn(3, 8), "poles": torch.randn(8, 4) / 2, "skip": torch.ones(8)}


CASES: dict[str, Case] = {
    "MLP-Mixer": case(
        mixer,
        lambda: {
            "first": nn.LayerNorm(8),
            "second": nn.LayerNorm(8),
            "head": nn.Linear(8, 3),
            "tokens": mlp(5, 9, 5, act=nn.GELU),
            "channels": mlp(8, 12, 8, act=nn.GELU),
        },
        rows(3, 5, 8),
    ),
    "gMLP": case(
        gated_space,
        lambda: {
            "up": nn.Linear(8, 12),
            "norm": nn.LayerNorm(6),
            "space": nn.Linear(5, 5),
            "down": nn.Linear(6, 8),
        },
        rows(3, 5, 8),
    ),
    "experts, the best two": case(
        experts,
        lambda: {"gate": nn.Linear(8, 4), "experts": nn.ModuleList([mlp(8, 6, 3) for _ in range(4)])},
        rows(6, 8),
    ),
    "deep and cross": case(
        crossed,
        lambda: {"layers": nn.ModuleList([nn.Linear(8, 8) for _ in range(2)]), "deep": mlp(8, 6, 1)},
        rows(6, 8),
    ),
    "DeepFM": case(
        factorized,
        lambda: {"table": nn.Embedding(11, 4), "wide": nn.Embedding(11, 1), "deep": mlp(12, 5, 1)},
        lambda: {"fields": torch.randint(11, (6, 3))},
    ),
    "RealNVP": case(
        coupled, lambda: {"nets": nn.ModuleList([mlp(2, 7, 4, act=nn.Tanh) for _ in range(3)])}, rows(6, 4)
    ),
    "VQ-VAE": case(
        quantized,
        lambda: {"encode": mlp(8, 6, 3), "codes": nn.Embedding(5, 3), "decode": mlp(3, 6, 8)},
        rows(6, 8),
        lambda model, batch: model(**batch),
    ),
    "graph, list of edges": case(
        convolved, lambda: {"first": nn.Linear(8, 6), "second": nn.Linear(6, 3)}, graph
    ),
    "graph, attention": case(
        attended,
        lambda: {
            "first": nn.Linear(8, 6, bias=False),
            "left": nn.Linear(6, 1),
            "right": nn.Linear(6, 1, bias=False),
        },
        lambda: {"x": torch.randn(7, 8), "near": (torch.rand(7, 7) < 0.4) | torch.eye(7, dtype=torch.bool)},
    ),
    "PointNet": case(points, lambda: {"each": mlp(3, 8, 8), "head": nn.Linear(8, 2)}, rows(4, 9, 3)),
    "neural ODE": case(stepped, lambda: {"slope": mlp(4, 8, 4, act=nn.Tanh)}, rows(6, 4)),
    "Mamba": replace(case(selective, state_space, rows(2, 5, 8)), optimizer=slow),
    "LSTM and a cell with attention": case(
        translated,
        lambda: {
            "read": nn.LSTM(4, 6, batch_first=True),
            "cell": nn.RNNCell(6, 6),
            "head": nn.Linear(6, 3),
        },
        rows(2, 5, 4),
    ),
    "CLIP": case(
        of_loss,
        lambda: {"a": mlp(8, 9, 4), "b": mlp(8, 7, 4), "temperature": torch.tensor(1.0)},
        two,
        pairs,
    ),
    "SimCLR": case(of_loss, lambda: {"net": mlp(8, 9, 4)}, two, views),
    "DQN": case(
        of_loss,
        lambda: {"net": mlp(8, 9, 3), "target": mlp(8, 9, 3).requires_grad_(False)},
        transitions,
        bootstrapped,
    ),
    "distillation": case(
        of_loss,
        lambda: {"student": mlp(8, 6, 4), "teacher": mlp(8, 12, 4).requires_grad_(False)},
        rows(6, 8),
        distilled,
    ),
}
