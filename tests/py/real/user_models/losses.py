"""Losses, of torch and by hand, over a small classifier or regressor."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F

from user_models.case import Batch, Case, Loss, mlp

ROWS, FEATURES, CLASSES = 6, 7, 4

Of = Callable[[Any, Any], torch.Tensor]
"""Of the output [ROWS, CLASSES] and the batch."""


def batch() -> Batch:
    """Inputs, and a target of each kind."""
    return {
        "x": torch.randn(ROWS, FEATURES),
        "t": torch.randn(ROWS, CLASSES),
        "y": torch.randint(CLASSES, (ROWS,)),
        "some": torch.tensor([1, -100, 3, 0, -100, 2]),
        "bits": torch.randint(2, (ROWS, CLASSES)).float(),
        "share": F.softmax(torch.randn(ROWS, CLASSES), -1),
        "sign": torch.tensor([1.0, -1.0, 1.0, 1.0, -1.0, -1.0]),
        "mask": torch.rand(ROWS, CLASSES) > 0.4,
        "weight": torch.tensor([1.0, 2.0, 0.5, 1.5]),
    }


CLASSIFICATION: Mapping[str, Of] = {
    "cross entropy": lambda o, b: F.cross_entropy(o, b["y"]),
    "cross entropy, some ignored": lambda o, b: F.cross_entropy(o, b["some"], label_smoothing=0.1),
    "cross entropy, class weights": lambda o, b: F.cross_entropy(o, b["y"], weight=b["weight"]),
    "cross entropy by row": lambda o, b: (F.cross_entropy(o, b["y"], reduction="none") * b["t"][:, 0]).sum(),
    "cross entropy of shares": lambda o, b: F.cross_entropy(o, b["share"]),
    "cross entropy of positions": lambda o, b: F.cross_entropy(o[None].transpose(1, 2), b["y"][None]),
    "NLL": lambda o, b: F.nll_loss(F.log_softmax(o, -1), b["y"], reduction="sum"),
    "focal": lambda o, b: focal(F.log_softmax(o, -1).gather(1, b["y"][:, None])),
    "binary focal": lambda o, b: (
        (b["bits"] - torch.sigmoid(o)).abs() ** 2
        * F.binary_cross_entropy_with_logits(o, b["bits"], reduction="none")
    ).mean(),
    "BCE": lambda o, b: F.binary_cross_entropy(torch.sigmoid(o), b["bits"]),
    "BCE of logits": lambda o, b: F.binary_cross_entropy_with_logits(o, b["bits"], pos_weight=b["weight"]),
    "multi margin": lambda o, b: F.multi_margin_loss(o, b["y"], margin=0.7),
    "soft margin": lambda o, b: F.soft_margin_loss(o, 2 * b["bits"] - 1),
    "multilabel soft margin": lambda o, b: F.multilabel_soft_margin_loss(o, b["bits"]),
    "hinge": lambda o, b: F.relu(1 - b["sign"] * o[:, 0]).mean(),
    "squared hinge": lambda o, b: (1 - b["sign"] * o[:, 1]).clamp(min=0).square().mean(),
    "policy gradient": lambda o, b: -(chosen(o, b) * b["t"][:, 0]).mean() - 0.01 * entropy(o).mean(),
    "clipped policy (PPO)": lambda o, b: clipped(torch.exp(chosen(o, b) + 1.2), b["t"][:, 0]),
    "Dice": lambda o, b: 1 - (2 * (o.sigmoid() * b["bits"]).sum() + 1) / (o.sigmoid() + b["bits"]).sum(),
}

REGRESSION: Mapping[str, Of] = {
    "MSE": lambda o, b: F.mse_loss(o, b["t"]),
    "L1": lambda o, b: F.l1_loss(o, b["t"]),
    "Smooth L1": lambda o, b: F.smooth_l1_loss(o, b["t"], beta=0.5),
    "Huber": lambda o, b: F.huber_loss(o, b["t"], delta=0.3, reduction="sum"),
    "RMSE": lambda o, b: F.mse_loss(o, b["t"]).sqrt(),
    "log-cosh": lambda o, b: torch.log(torch.cosh(o - b["t"])).mean(),
    "quantiles": lambda o, b: torch.maximum(0.9 * (b["t"] - o), -0.1 * (b["t"] - o)).mean(),
    "Charbonnier": lambda o, b: ((o - b["t"]).square() + 1e-3).sqrt().mean(),
    "Poisson NLL": lambda o, b: F.poisson_nll_loss(o, b["bits"], full=True),
    "normal density": lambda o, b: normal(o[:, :2], F.softplus(o[:, 2:]) + 0.1, b["t"][:, :2]),
    "mixture density": lambda o, b: -torch.logsumexp(F.log_softmax(o, -1) - 0.5 * (b["t"] ** 2), -1).mean(),
    "masked, by the mask's sum": lambda o, b: ((o - b["t"]) ** 2 * b["mask"]).sum() / b["mask"].sum(),
    "masked, by where": lambda o, b: torch.where(b["mask"], (o - b["t"]).abs(), 0.0).mean(),
    "several tasks": lambda o, b: (
        F.cross_entropy(o[:, :3], b["y"] % 3) + 0.5 * F.mse_loss(o[:, 3], b["t"][:, 0])
    ),
}

DISTRIBUTIONS: Mapping[str, Of] = {
    "KL": lambda o, b: F.kl_div(F.log_softmax(o, -1), b["share"], reduction="batchmean"),
    "KL of logarithms": lambda o, b: F.kl_div(
        F.log_softmax(o, -1), F.log_softmax(b["t"], -1), log_target=True, reduction="sum"
    ),
    "Jensen-Shannon": lambda o, b: jensen_shannon(F.softmax(o, -1), b["share"]),
    "cosine embedding": lambda o, b: F.cosine_embedding_loss(o, b["t"], b["sign"], margin=0.1),
    "cosine": lambda o, b: (1 - F.cosine_similarity(o, b["t"])).mean(),
    "triplets": lambda o, b: F.triplet_margin_loss(o, b["t"], b["share"], margin=2.0),
    "margin ranking": lambda o, b: F.margin_ranking_loss(o[:, 0], o[:, 1], b["sign"], margin=0.5),
    "hinge embedding": lambda o, b: F.hinge_embedding_loss(o, 2 * b["bits"] - 1),
    "contrastive": lambda o, b: contrastive(o, b),
    "energy distance": lambda o, b: torch.cdist(o, b["t"]).mean() - 0.5 * torch.cdist(o, o + 1).mean(),
    "correlation": lambda o, b: 1 - F.cosine_similarity(o - o.mean(0), b["t"] - b["t"].mean(0), dim=0).mean(),
}


def focal(log_share: torch.Tensor) -> torch.Tensor:
    """Less of what is known already."""
    return (-((1 - log_share.exp()) ** 2) * log_share).mean()


def chosen(o: torch.Tensor, b: Any) -> torch.Tensor:
    """The log-probability of each action."""
    return F.log_softmax(o, -1).gather(1, b["y"][:, None])[:, 0]


def entropy(o: torch.Tensor) -> torch.Tensor:
    """Of each row of logits."""
    return -(F.softmax(o, -1) * F.log_softmax(o, -1)).sum(-1)


def clipped(ratio: torch.Tensor, advantage: torch.Tensor) -> torch.Tensor:
    """The smaller of the plain and the clipped objective."""
    return -torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()


def normal(mean: torch.Tensor, scale: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    """The negative log-likelihood under normal distributions."""
    return (0.5 * ((t - mean) / scale) ** 2 + scale.log() + 0.5 * math.log(2 * math.pi)).mean()


def jensen_shannon(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """The divergence of both from their middle."""
    middle = 0.5 * (p + q)
    return 0.5 * ((p * (p / middle).log()).sum(-1) + (q * (q / middle).log()).sum(-1)).mean()


def contrastive(o: torch.Tensor, b: Any) -> torch.Tensor:
    """Rows of one class close together, others apart by one."""
    apart = ((o[:, None] - o[None] + 1e-3) ** 2).sum(-1).sqrt()
    same = (b["y"][:, None] == b["y"][None]).float()
    return (same * apart**2 + (1 - same) * F.relu(1 - apart) ** 2).mean()


def over_output(of: Of) -> Loss:
    """A loss of model and batch."""
    return lambda model, batch: of(model(batch["x"]), batch)


def penalized(norm: Callable[[torch.Tensor], torch.Tensor]) -> Loss:
    """The mean square, and something of all weights."""
    return lambda model, batch: (
        F.mse_loss(model(batch["x"]), batch["t"]) + 1e-2 * sum(norm(p) for p in model.parameters())
    )


def case(loss: Loss) -> Case:
    """Over an MLP."""
    return Case(lambda: mlp(FEATURES, 9, CLASSES, act=torch.nn.Tanh), batch, loss)


CASES: dict[str, Case] = {
    **{name: case(over_output(of)) for name, of in {**CLASSIFICATION, **REGRESSION, **DISTRIBUTIONS}.items()},
    "L2 penalty": case(penalized(lambda p: p.square().sum())),
    "L1 penalty": case(penalized(lambda p: p.abs().sum())),
    "group penalty": case(penalized(lambda p: (p.square().sum(0) + 1e-4).sqrt().sum())),
}
