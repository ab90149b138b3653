"""Losses over the elements under a mask, as people write them: p [6, 4] is what the model gives, b the batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

Batch = dict[str, Tensor]
Loss = Callable[[Tensor, Batch], Tensor]


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return 2 * x

    @staticmethod
    def backward(ctx: Any, *gs: Tensor) -> Tensor:
        return 2 * gs[0]


def written(p: Tensor, b: Batch) -> Tensor:
    q = p.clone()
    q[b["m"]] = b["t"][b["m"]]
    return q.pow(2).mean()


def doubled(p: Tensor, b: Batch) -> Tensor:
    q = p.clone()
    q[b["r"]] *= 2.0
    return q.pow(3).mean()


def written_by_place(p: Tensor, b: Batch) -> Tensor:
    index = torch.where(b["r"])[0]
    return torch.zeros_like(p).index_add(0, index, p[index] * 3).pow(2).sum()


def placed(p: Tensor, b: Batch) -> Tensor:
    q, index = p * 2, torch.where(b["r"])[0]
    q[index] = b["t"][index] * p[index]
    q[torch.where(~b["r"])[0]] = 0.5
    return q.pow(2).sum()


def of_one_number(p: Tensor, b: Batch) -> Tensor:
    q = torch.ones_like(p[0, 0])
    is_far = ~torch.isclose(p[0, 0], p[0, 1])
    q[is_far] = p[0, 0][is_far] / p[1, 0][is_far]
    return q


def view_written(p: Tensor, b: Batch) -> Tensor:
    rows = p[b["r"]]
    rows[:, 0].add_(1)
    rows.view(-1).mul_(2)
    same = rows.to(rows.dtype)
    same[:, 1].fill_(0.5)
    return rows.pow(2).sum()


def base_written(p: Tensor, b: Batch) -> Tensor:
    rows = p.t().contiguous().t()[b["r"]]  # torch's copy is contiguous again
    first, flat = rows[:, 0], rows.reshape(-1)
    rows.mul_(3)
    return first.pow(2).sum() + flat.pow(3).sum()


def set_in_rows(p: Tensor, b: Batch) -> Tensor:
    rows = p[b["r"]]
    rows[:, 1:3] *= 2
    rows[..., 0] = rows[:, 3]
    rows[:, [3, 1]] = b["t"][b["r"]][:, :2]
    rows[:, 2:] += torch.tensor([0.5, -1.0])
    rows[rows > 1] = 1.0
    rows[rows[:, 0] < 0] = -0.25
    return rows.pow(3).sum()


def one_row_for_all(p: Tensor, b: Batch) -> Tensor:
    """The token of a mask, as wav2vec2 writes it."""
    q, token = p.clone(), p.mean(0)
    q[b["r"]] = token
    q[:, b["m"][0]] = b["t"][:, :1] * token[0]
    cube = torch.stack([q, q * 2])
    cube[:, b["r"]] = token * 3
    cube[b["t"][:2, 0] > 0] = p[:1] * 0.5
    return (cube.index_put((b["r"][:2],), token, accumulate=True) ** 2).sum()


def columns_written(p: Tensor, b: Batch) -> Tensor:
    q, rows, places = p.clone(), b["r"], torch.where(b["r"])[0]
    q[rows, 0] = q[rows, 3] * 2
    q[rows, 1:3] = b["t"][rows][:, :2]
    q[rows, 3] *= 3
    q[places, 0] += 1.0
    q[places, 2:] = q[places, :2] * p[places, 1:3]
    return (q**3).sum()


def mask_written(p: Tensor, b: Batch) -> Tensor:
    rows = b["r"].clone()
    chosen = b["t"][rows]
    rows[0] = ~rows[0]
    rows.logical_or_(b["t"][:, 1] > 0)
    return (chosen.mean() + chosen.sum(0)[1]) * p.sum() + p[rows].sum()


def pairs(p: Tensor, b: Batch) -> Tensor:
    i, j = torch.where((b["y"][:, None] == b["y"][None]) & ~torch.eye(6, dtype=torch.bool))
    return (p[i] - p[j]).pow(2).sum(-1).sum()


def contrast(p: Tensor, b: Batch) -> Tensor:
    same = b["y"][:, None] == b["y"][None]
    distances = torch.cdist(p, p + 0.1)
    return distances[same].mean() - F.relu(2.0 - distances[~same]).mean()


def in_place(p: Tensor, b: Batch) -> Tensor:
    x = p[b["m"]]
    x.mul_(2.0).add_(1.0)
    x += b["t"][b["m"]]
    return x.square().mean()


def counted(p: Tensor, b: Batch) -> Tensor:
    x = p[b["r"]]
    return x.sum() / x.shape[0] + x.pow(2).sum() / x.numel() + x.size(0)


def twice(p: Tensor, b: Batch) -> Tensor:
    x, y = p[b["r"]], b["y"][b["r"]]
    return x[y > 0].exp().sum() + (x[y > 0] * b["t"][b["r"]][y > 0]).sum()


def only_if_any(p: Tensor, b: Batch) -> Tensor:
    loss = p.mean()
    if b["m"].any():
        loss = loss + (p - b["t"])[b["m"]].pow(2).mean()
    if b["r"].sum() > 0 and b["m"].sum() != 0:
        loss = loss + p[b["r"]].mean()
    return loss


def ends_elsewhere(p: Tensor, b: Batch) -> Any:
    return None if p.isnan().any() else p.mean()


def many_or_few(p: Tensor, b: Batch) -> Tensor:
    x = p[b["r"]]
    if len(x) == 0:
        return p.sum() * 0
    return x.pow(2).sum() / len(x) + (x[x.sum(1) > -99].mean() if x.numel() >= 1 else 0)


def written_by_two_places(p: Tensor, b: Batch) -> Tensor:
    mask = torch.zeros_like(p)
    i, j = torch.where(b["m"])
    mask[i, j] = 2
    return (mask * p).pow(2).sum()


def experts(p: Tensor, b: Batch) -> Tensor:
    """Mixtral's: each expert takes its tokens by `x[None, places]`."""
    total = torch.zeros_like(p)
    weights, chosen = p.softmax(1).topk(2)
    for number, whose in enumerate(F.one_hot(chosen, 4).permute(2, 1, 0)):
        which, token = torch.where(whose)
        rows = p[None, token].reshape(-1, 4) * (number + 1)
        total.index_add_(0, token, rows.tanh() * weights[token, which, None])
    return total.pow(2).sum()


def led(p: Tensor, b: Batch) -> Tensor:
    at = torch.where(b["r"])[0]
    return (p[None, at][0] * p[None, at].squeeze(0) + p[None, at].view(len(at), 4)).exp().sum()


WORKS: dict[str, Loss] = {
    "experts": experts,
    "a dimension in front": led,
    "len": lambda p, b: p[b["r"]].sum() / len(p[b["r"]]),
    "only if any": only_if_any,
    "many or few": many_or_few,
    "written by two places": written_by_two_places,
    "mean": lambda p, b: (p - b["t"])[b["m"]].pow(2).mean(),
    "sum over count": lambda p, b: p[b["m"]].sum() / b["m"].sum(),
    "mse": lambda p, b: F.mse_loss(p[b["m"]], b["t"][b["m"]]),
    "l1, mask made twice": lambda p, b: F.l1_loss(p[b["t"] > 0], b["t"][b["t"] > 0]),
    "huber, sum": lambda p, b: F.huber_loss(p[b["m"]], b["t"][b["m"]], reduction="sum"),
    "bce": lambda p, b: F.binary_cross_entropy_with_logits(p[b["m"]], (b["t"][b["m"]] > 0).to(p.dtype)),
    "kl": lambda p, b: F.kl_div(p[b["r"]].log_softmax(-1), b["t"][b["r"]].softmax(-1), reduction="batchmean"),
    "masked_select": lambda p, b: torch.masked_select(p, b["m"]).abs().mean(),
    "masked_select, wide": lambda p, b: p.masked_select(b["r"][:, None]).tanh().sum(),
    "cross entropy": lambda p, b: F.cross_entropy(p[b["r"]], b["y"][b["r"]]),
    "cross entropy, weights": lambda p, b: F.cross_entropy(
        p[b["r"]], b["y"][b["r"]], weight=torch.tensor([1.0, 2.0, 0.5, 3.0]).to(p.dtype), label_smoothing=0.1
    ),
    "cross entropy, not reduced": lambda p, b: F.cross_entropy(
        p[b["r"]], b["y"][b["r"]], reduction="none"
    ).sum(),
    "cross entropy of shares": lambda p, b: F.cross_entropy(p[b["r"]], b["t"][b["r"]].softmax(-1)),
    "nll": lambda p, b: F.nll_loss(F.log_softmax(p[b["r"]], dim=1), b["y"][b["r"]]),
    "written": written,
    "doubled": doubled,
    "in place": in_place,
    "masked_scatter": lambda p, b: p.masked_scatter(b["m"], b["t"][b["m"]] * 2).pow(2).mean(),
    "logarithm": lambda p, b: p[p > 0].log().mean(),
    "root": lambda p, b: p[b["m"] & (p > 0.1)].sqrt().sum(),
    "counted": counted,
    "where": lambda p, b: p[torch.where(b["r"])[0]].pow(2).mean(),
    "nonzero": lambda p, b: p[b["r"].nonzero().squeeze(1)].pow(2).mean(),
    "nonzero, pairs": lambda p, b: p[b["m"].nonzero(as_tuple=True)].pow(2).mean(),
    "index_select": lambda p, b: p.index_select(0, b["r"].nonzero().flatten()).sum(),
    "written by place": written_by_place,
    "placed": placed,
    "of one number": of_one_number,
    "with all of another": lambda p, b: torch.cat([p[b["r"]], b["t"]]).pow(3).mean(),
    "pairs": pairs,
    "contrast": contrast,
    "twice": twice,
    "std": lambda p, b: p[b["m"]].std() + p[b["m"]].var(unbiased=False),
    "norm": lambda p, b: p[b["m"]].norm() + p[b["r"]].norm(dim=-1).mean() + p[b["r"]].norm(),
    "extremes": lambda p, b: p[b["m"]].max() - p[b["r"]].amin(0).sum(),
    "rows": lambda p, b: (
        F.layer_norm(F.linear(p[b["r"]], torch.ones(3, 4).to(p.dtype)) ** 2, (3,)).tanh().mean(0)[1]
    ),
    "matrix": lambda p, b: (p[b["r"]] @ b["t"].t()).softmax(-1).amax(1).mean(),
    "one column": lambda p, b: (p[b["r"], 1] * p[b["r"]][:, 2]).mean() + p[b["r"]][..., :2].sum(),
    "cosine": lambda p, b: (1 - F.cosine_similarity(p[b["r"]], b["t"][b["r"]])).mean(),
    "joined": lambda p, b: torch.cat([p[b["r"]], p[~b["r"]] * 2]).pow(2).mean(),
    "side by side": lambda p, b: torch.stack([p[b["r"]], b["t"][b["r"]]], 1).flatten(1).std(1).sum(),
    "all elements": lambda p, b: (
        p[b["r"]].view(-1).pow(2).mean() + p[b["r"]].reshape(-1, 2, 2).sum(-1).mean()
    ),
    "padded": lambda p, b: (F.pad(p[b["r"]].cumsum(-1), (1, 0), value=0.5)[:, :-1] * p[b["r"]]).mean(),
    "where of selected": lambda p, b: torch.where(b["t"][b["m"]] > 0, p[b["m"]], 0.1).mean(),
    "booleans": lambda p, b: (p * (b["t"] > 0)[b["m"]].sum()).mean(),
    "any": lambda p, b: p.sum() * (b["t"][b["m"]] > 1).any() + p.mean() * (b["t"][b["m"]] > -9).all(),
    "of zeros": lambda p, b: (
        (p * 0)[b["m"]].norm() + (p * 0)[b["r"]].norm(dim=0).sum() + (p * 0)[b["m"]].std() + p.sum()
    ),
    "normalized": lambda p, b: (F.normalize(p[b["r"]], dim=1) * torch.arange(4.0)).sum(),
    "rolled in each row": lambda p, b: (p[b["r"]].roll(1, 1) * p[b["r"]].roll(2, dims=-1)).sum(),
    "taken along": lambda p, b: p[b["r"]].take_along_dim(b["y"][b["r"]][:, None], 1).pow(2).sum(),
    "gated": lambda p, b: F.glu(p[b["r"]]).pow(2).sum(),
    "a view of selected rows written": view_written,
    "selected rows written, of which there are views": base_written,
    "parts of selected rows written": set_in_rows,
    "one row for all": one_row_for_all,
    "columns of selected rows written": columns_written,
    "a mask written": mask_written,
}
"""Of each the value and the gradient are torch's."""

IN_MEMORY = (view_written, base_written, set_in_rows, mask_written, columns_written, one_row_for_all)
"""Those with writes to memory that two names share."""


def grown(p: Tensor, b: Batch) -> Tensor:
    """Grows a region until nothing changes, as edges are followed: each mask of a trace selects something."""
    now, before = (p > 0.3).double(), torch.zeros_like(p)
    while (now != before).any():
        before, now = now, F.max_pool1d(now, 3, 1, 1)
    return (p * now).sum()


def removed(p: Tensor, b: Batch) -> Tensor:
    left = p.detach() > 0
    while left.any():
        p = torch.where(left, p - 1, p)
        left = p[left].sum() > left
    return p.sum()


REFUSED: dict[str, tuple[Loss, str]] = {
    "until nothing changes": (grown, "branches on the value"),
    "until nothing is selected": (removed, "branches on the value"),
    "padded with rows": (lambda p, b: F.pad(p[b["r"]], (0, 0, 1, 0)).sum(), "each padded"),
    "two masks": (lambda p, b: (p[b["m"]] - p[~b["m"]]).sum(), "one mask"),
    "a tensor of all rows": (lambda p, b: (p[b["m"]] - b["t"]).sum(), "selected too"),
    "rolled": (lambda p, b: (p[b["r"]].roll(1, 0) * p[b["r"]]).sum(), "dimension"),
    "rolled as one": (lambda p, b: (p[b["r"]].roll(1) * p[b["r"]]).sum(), "dimension"),
    "halves gated": (lambda p, b: F.glu(p[b["m"]]).sum(), "dimension"),
    "sorted": (lambda p, b: p[b["m"]].sort()[0][0], "mask"),
    "first": (lambda p, b: p[b["m"]][0], "all selected rows"),
    "rows of another mask written": (
        lambda p, b: p[b["r"]].index_put_((torch.tensor([0]),), p[b["r"]][:1]).sum(),
        "mask",
    ),
    "rows of all written": (lambda p, b: p[b["r"]].copy_(b["t"]).sum(), "selected too"),
    "returned": (lambda p, b: p[b["m"]], "elements under a mask"),
    "a product from the left": (lambda p, b: (b["t"].t() @ p[b["r"]]).sum(), "left"),
    "median": (lambda p, b: p[b["m"]].median(), "mask"),
    "transposed": (lambda p, b: p[b["r"]].t().sum(), "mask"),
    "a row of each": (lambda p, b: p[b["r"]].softmax(0).sum(), "dimension"),
    "a dimension in front": (lambda p, b: p[None, torch.where(b["r"])[0]].sum(), "reshaped"),
    "a place with a dimension in front": (
        lambda p, b: p[None, torch.where(b["r"])[0]][b["y"]].sum(),
        "reshaped",
    ),
    "number of Python": (lambda p, b: p.sum() * float(p[b["m"]].sum().item()), "value"),
    "integer": (lambda p, b: p.sum() * int(p[b["m"]]), "Python"),
    "another shape": (lambda p, b: p[b["r"]].view(b["y"].sum(), -1).sum(), "first size"),
    "pairs of rows": (lambda p, b: F.cosine_similarity(p[b["r"]], b["t"]).sum(), "selected too"),
    "a function of its own": (
        lambda p, b: Twice.apply(p[b["m"]]).sum(),
        "a torch.autograd.Function on the elements",
    ),
    "branch on what selects nothing": (lambda p, b: p.sum() if b["r"].any() else p.mean(), "branches"),
    "branch on a value": (lambda p, b: p.sum() if p[b["r"]].sum() > 1 else p.mean(), "branches"),
    "branch that ends elsewhere": (ends_elsewhere, "branches"),
    "as many times": (lambda p, b: p.sum() * sum(range(len(p[b["r"]]))), "value"),
}
