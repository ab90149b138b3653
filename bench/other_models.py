"""The models of `models_gpu.py` that are no transformers: recurrent, reinforced, rendered, recommended, tabular, of graphs."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformer_models import Batch, Optimize, Wrap, mlp


class Lstm(nn.Module):
    def __init__(self, classes: int, width: int) -> None:
        super().__init__()
        self.token, self.head = nn.Embedding(classes, width), nn.Linear(width, classes)
        self.cells = nn.LSTM(width, width, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.cells(self.token(x))[0])


class ActorCritic(nn.Module):
    """Of PPO as CleanRL writes it, with continuous actions."""

    def __init__(self, seen: int, actions: int, width: int) -> None:
        super().__init__()
        self.critic, self.actor = (mlp(seen, width, width, out, act=nn.Tanh) for out in (1, actions))
        self.log_std = nn.Parameter(torch.zeros(1, actions, device="cpu"))


def ppo_batch(batch: int, seen: int, actions: int) -> Batch:
    columns = {name: torch.randn(batch) for name in ("old", "advantage", "value", "goal")}
    return {"x": torch.randn(batch, seen), "action": torch.randn(batch, actions), **columns}


def ppo_loss(model: ActorCritic, batch: Batch) -> Tensor:
    mean, std = model.actor(batch["x"]), model.log_std.exp()
    density = torch.distributions.Normal(mean, std.expand_as(mean), validate_args=False)
    ratio = (density.log_prob(batch["action"]).sum(1) - batch["old"]).exp()
    gain = (batch["advantage"] - batch["advantage"].mean()) / (batch["advantage"].std() + 1e-8)
    policy = torch.max(-gain * ratio, -gain * ratio.clamp(0.8, 1.2)).mean()
    value = model.critic(batch["x"]).view(-1)
    near = batch["value"] + (value - batch["value"]).clamp(-0.2, 0.2)
    off = torch.max((value - batch["goal"]) ** 2, (near - batch["goal"]) ** 2).mean()
    return policy + 0.25 * off


class SoftActorCritic(nn.Module):
    """An actor, twin critics, and the targets that follow these."""

    def __init__(self, seen: int, actions: int, width: int) -> None:
        super().__init__()
        self.actor = mlp(seen, width, width, 2 * actions)
        self.critics = nn.ModuleList(mlp(seen + actions, width, width, 1) for _ in range(2))
        self.targets = nn.ModuleList(mlp(seen + actions, width, width, 1) for _ in range(2))
        self.targets.load_state_dict(self.critics.state_dict())

    def act(self, x: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """An action, and the logarithm of its density."""
        mean, wide = self.actor(x).chunk(2, 1)
        spread = wide.clamp(-5, 2)
        action = torch.tanh(mean + spread.exp() * noise)
        return action, (-0.5 * noise**2 - spread - (1 - action**2 + 1e-6).log()).sum(1)

    def least(self, critics: nn.ModuleList, x: Tensor, action: Tensor) -> Tensor:
        both = torch.cat((x, action), 1)
        return torch.min(*(critic(both)[:, 0] for critic in critics))


def sac_batch(batch: int, seen: int, actions: int) -> Batch:
    wide = {name: torch.randn(batch, seen) for name in ("x", "next")}
    drawn = {name: torch.randn(batch, actions) for name in ("action", "noise", "next_noise")}
    return {**wide, **drawn, "reward": torch.randn(batch), "goes_on": torch.ones(batch)}


def sac_body(model: SoftActorCritic, optimize: Optimize, wrap: Wrap) -> Callable[[Batch], Tensor]:
    """Critics, then actor, then targets; the actor's loss is what is compared."""
    for_critics, for_actor = optimize(model.critics), optimize(model.actor)

    def judged(b: Batch) -> Tensor:
        with torch.no_grad():
            action, density = model.act(b["next"], b["next_noise"])
            goal = b["reward"] + 0.99 * b["goes_on"] * (
                model.least(model.targets, b["next"], action) - 0.2 * density
            )
        both = torch.cat((b["x"], b["action"]), 1)
        return sum(functional.mse_loss(critic(both)[:, 0], goal) for critic in model.critics)  # pyright: ignore

    def acted(b: Batch) -> Tensor:
        action, density = model.act(b["x"], b["noise"])
        return (0.2 * density - model.least(model.critics, b["x"], action)).mean()

    judge, act = wrap(judged), wrap(acted)

    def body(batch: Batch) -> Tensor:
        for_critics.zero_grad()
        judge(batch).backward()
        for_critics.step()
        for_actor.zero_grad()
        loss = act(batch)
        loss.backward()
        for_actor.step()
        with torch.no_grad():
            for slow, fast in zip(model.targets.parameters(), model.critics.parameters(), strict=True):
                slow.lerp_(fast, 0.005)
        return loss

    return body


class Nerf(nn.Module):
    """Eight layers with a skip over encoded points; a density and a colour."""

    def __init__(self, width: int) -> None:
        super().__init__()
        sizes = [63, *[width] * 4, width + 63, width, width]
        self.layers = nn.ModuleList(nn.Linear(size, width) for size in sizes)
        self.density, self.color = nn.Linear(width, 1), mlp(width, width // 2, 3)

    def forward(self, points: Tensor) -> tuple[Tensor, Tensor]:
        waves = (points[..., None] * 2.0 ** torch.arange(10, device=points.device)).flatten(-2)
        x = h = torch.cat((points, waves.sin(), waves.cos()), -1)
        for number, layer in enumerate(self.layers):
            h = layer(torch.cat((h, x), -1) if number == 5 else h).relu()
        return self.color(h).sigmoid(), self.density(h).relu()[..., 0]


def nerf_loss(model: nn.Module, batch: Batch) -> Tensor:
    color, density = model(batch["x"])
    clear = (-0.03 * density).exp()
    passed = torch.cat((torch.ones_like(clear[:, :1]), clear + 1e-10), 1).log().cumsum(1).exp()[:, :-1]
    return functional.mse_loss((((1 - clear) * passed)[..., None] * color).sum(1), batch["t"])


class Dlrm(nn.Module):
    """Embeddings of many tables meet each other and the numbers."""

    def __init__(self, tables: int, rows: int, size: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, size) for _ in range(tables))
        self.bottom = nn.Sequential(mlp(13, 512, 256, size), nn.ReLU())
        self.top = mlp((tables + 1) * tables // 2 + size, 512, 256, 1)

    def forward(self, numbers: Tensor, index: Tensor) -> Tensor:
        x = self.bottom(numbers)
        rows = torch.stack([x, *(table(index[:, i]) for i, table in enumerate(self.tables))], 1)
        a, b = torch.tril_indices(rows.shape[1], rows.shape[1], -1, device=x.device)
        return self.top(torch.cat((x, (rows @ rows.mT)[:, a, b]), 1))[:, 0]


def click_loss(model: nn.Module, batch: Batch) -> Tensor:
    return functional.binary_cross_entropy_with_logits(model(batch["x"], batch["i"]), batch["t"])


class Tabular(nn.Module):
    """Residual blocks over the features of a table."""

    def __init__(self, features: int, width: int, layers: int) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(features, width), nn.Linear(width, 1)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), mlp(width, 2 * width, width, act=nn.GELU))
            for _ in range(layers)
        )

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        for block in self.blocks:
            h = h + block(h)
        return self.last(h)[:, 0]


class TabM(nn.Module):
    """Members that share their weights, but for a scale in front of each layer and one behind, and heads of their own."""

    def __init__(self, features: int, width: int, layers: int, members: int) -> None:
        super().__init__()
        sizes = [features, *[width] * layers]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(sizes))
        self.scales = nn.ParameterList(1 + 0.1 * torch.randn(members, size, device="cpu") for size in sizes)
        self.head = nn.Parameter(0.05 * torch.randn(members, width, device="cpu"))

    def forward(self, x: Tensor) -> Tensor:
        h = x[:, None] * self.scales[0]
        for layer, scale in zip(self.layers, self.scales[1:], strict=True):
            h = (layer(h) * scale).relu()
        return (h * self.head).sum(-1)


def number_loss(model: nn.Module, batch: Batch) -> Tensor:
    """The mean over the members, where there are some."""
    y = model(batch["x"]).float()
    return functional.mse_loss(y, batch["t"].view(-1, *[1] * (y.dim() - 1)).expand_as(y))


class Sage(nn.Module):
    """Means over the neighbours that an edge list gives, twice."""

    def __init__(self, features: int, width: int, classes: int) -> None:
        super().__init__()
        sizes = [features, width, classes]
        self.own, self.others = (
            nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(sizes)) for _ in range(2)
        )

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        source, target = edges[0], edges[1]
        ones = torch.ones_like(target, dtype=x.dtype)
        degree = torch.zeros_like(x[:, 0]).index_add(0, target, ones).clamp(min=1)
        for number, (own, others) in enumerate(zip(self.own, self.others, strict=True)):
            sums = torch.zeros_like(x).index_add(0, target, x[source])
            x = own(x) + others(sums / degree[:, None])
            x = x.relu() if number == 0 else x
        return x


def node_loss(model: nn.Module, batch: Batch) -> Tensor:
    return functional.cross_entropy(model(batch["x"], batch["edges"]), batch["t"])
