"""Losses that exchange by themselves.

They are those of published code, CLIP in three forms, SigLIP, SimCLR, Barlow Twins, VICReg, DINO and SwAV, and others that take
more of torch.distributed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from rank_programs import Batch, plain
from torch import nn
from torch.distributed import _functional_collectives as collectives
from torch.distributed import nn as distributed_nn
from torch.distributed.nn import functional

Tensor = torch.Tensor
Loss = Callable[[nn.Module, Batch], Tensor]
TORCH: Any = dist


class GatherLayer(torch.autograd.Function):
    """Rows of every rank, and the sum of their gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, ...]:
        every = [torch.zeros_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(every, x)
        return tuple(every)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        total = torch.stack(gradients)
        dist.all_reduce(total)
        return total[dist.get_rank()]


def gathered(x: Tensor) -> Tensor:
    layer: Any = GatherLayer
    return torch.cat(layer.apply(x))


def views(module: nn.Module, given: Batch) -> tuple[Tensor, Tensor]:
    x = given[0]
    return F.normalize(module(x), dim=-1), F.normalize(module(x.flip(-1)), dim=-1)


def alike(logits: Tensor) -> Tensor:
    labels = torch.arange(len(logits), device=logits.device)
    return (F.cross_entropy(logits, labels) + F.cross_entropy(logits.T, labels)) / 2


def clip(module: nn.Module, given: Batch) -> Tensor:
    a, b = views(module, given)
    return alike(10 * torch.cat(functional.all_gather(a)) @ torch.cat(distributed_nn.all_gather(b)).T)


def clip_of_own_rows(module: nn.Module, given: Batch) -> Tensor:
    """Each rank has other labels."""
    a, b = views(module, given)
    every_a, every_b = (torch.cat(functional.all_gather(each)) for each in (a, b))
    labels = torch.arange(len(a), device=a.device) + len(a) * dist.get_rank()
    return (F.cross_entropy(10 * a @ every_b.T, labels) + F.cross_entropy(10 * b @ every_a.T, labels)) / 2


def clip_without_gradients(module: nn.Module, given: Batch) -> Tensor:
    """Each rank has another text: its own rows are put where they belong."""
    found = []
    for own in views(module, given):
        every = [torch.zeros_like(own) for _ in range(dist.get_world_size())]
        dist.all_gather(every, own)
        every[dist.get_rank()] = own
        found.append(torch.cat(every))
    return alike(10 * found[0] @ found[1].T)


def simclr(module: nn.Module, given: Batch) -> Tensor:
    z = torch.cat([gathered(each) for each in views(module, given)])
    count = len(z) // 2
    first = torch.arange(count, device=z.device)
    labels = torch.cat([first + count, first])
    return F.cross_entropy(5 * z @ z.T - 1e9 * torch.eye(len(z), dtype=z.dtype, device=z.device), labels)


def barlow_twins(module: nn.Module, given: Batch) -> Tensor:
    a, b = (module(x) for x in (given[0], given[0].flip(-1)))
    a, b = ((each - each.mean(0)) / each.std(0) for each in (a, b))
    c = functional.all_reduce(a.T @ b / (len(a) * dist.get_world_size()))
    return (c.diagonal() - 1).square().sum() + 0.005 * (c.square().sum() - c.diagonal().square().sum())


def vicreg(module: nn.Module, given: Batch) -> Tensor:
    a, b = (module(x) for x in (given[0], given[0].flip(-1)))
    loss = 25 * F.mse_loss(a, b)
    for each in (a, b):
        x = gathered(each)
        x = x - x.mean(0)
        covariance = x.T @ x / (len(x) - 1)
        loss = loss + 12.5 * F.relu(1 - torch.sqrt(x.var(0) + 1e-4)).mean()
        loss = loss + (covariance.square().sum() - covariance.diagonal().square().sum()) / 5
    return loss


class Centered(nn.Module):
    """With a buffer that the loss updates."""

    def __init__(self) -> None:
        super().__init__()
        self.net = plain()
        self.register_buffer("center", torch.zeros(1, 5))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


def dino(module: Any, given: Batch) -> Tensor:
    inner = getattr(module, "module", module)
    student, teacher = module(given[0]), inner.net(given[0].flip(-1)).detach()
    target = F.softmax((teacher - inner.center) / 0.07, -1)
    with torch.no_grad():
        total = teacher.sum(0, keepdim=True)
        dist.all_reduce(total)
        inner.center.mul_(0.9).add_(total / (len(teacher) * dist.get_world_size()) * 0.1)
    return -(target * F.log_softmax(student / 0.1, -1)).sum(-1).mean()


@torch.no_grad()
def assigned(scores: Tensor) -> Tensor:
    """Sinkhorn's algorithm over the rows of all ranks."""
    q = torch.exp(scores / 0.5).T
    columns, total = q.shape[1] * dist.get_world_size(), q.sum()
    dist.all_reduce(total)
    q /= total
    for _ in range(3):
        row = q.sum(1, keepdim=True)
        dist.all_reduce(row)
        q /= row * q.shape[0]
        q /= q.sum(0, keepdim=True) * columns
    return (q * columns).T


def swav(module: nn.Module, given: Batch) -> Tensor:
    target = assigned(module(given[0]).detach())
    return -(target * F.log_softmax(module(given[0].flip(-1)) / 0.1, -1)).sum(-1).mean()


def of_all_tokens(module: nn.Module, given: Batch) -> Tensor:
    """A mean over the elements under a mask, of which each rank has another number."""
    x, t = given
    kept = t > 1
    count = kept.sum().float()
    dist.all_reduce(count)
    losses = F.cross_entropy(module(x), t, reduction="none")
    return (losses * kept).sum() * dist.get_world_size() / count.clamp(min=1)


def statistics(module: nn.Module, given: Batch) -> Tensor:
    """Whole numbers, a largest value, a product, a mean that is waited for, a bit of each rank and a rank's values."""
    x, t = given
    counts = torch.bincount(t, minlength=5)
    dist.all_reduce(counts)
    most, sign, seen = x.abs().amax(0), x[0].sign(), (t == 4).any()
    dist.all_reduce(most, op=dist.ReduceOp.MAX)
    dist.all_reduce(sign, op=dist.ReduceOp.PRODUCT)
    bits = seen.long() << dist.get_rank()
    dist.all_reduce(bits, op=dist.ReduceOp.BOR)
    mean = x.mean(0)
    work: Any = dist.all_reduce(mean, async_op=True)
    work.wait()
    first = x[0].clone()
    dist.barrier()
    dist.broadcast(first, src=1)
    x = (x - mean / dist.get_world_size()) / most + 0.01 * sign + 0.1 * first + 0.01 * bits
    return F.cross_entropy(module(x), t, weight=(1 / (counts + 1)).to(x.dtype))


def in_place(module: nn.Module, given: Batch) -> Tensor:
    """Values with a gradient are exchanged in place, which torch does not record."""
    y = module(given[0]) * 1.5
    dist.all_reduce(y)
    z = module(given[0].flip(-1)) * 0.5
    dist.broadcast(z, src=1)
    return F.cross_entropy(y, given[1]) + z.square().mean()


def log_of_sum(module: nn.Module, given: Batch) -> Tensor:
    y = module(given[0])
    most = y.detach().amax()
    dist.all_reduce(most, op=dist.ReduceOp.MAX)
    return torch.log(functional.all_reduce(torch.exp(y - most).sum())) - y.mean()


def from_rank(module: nn.Module, given: Batch) -> Tensor:
    """The gradients of all ranks for what one of them has."""
    y = module(given[0])
    return (y - 0.5 * functional.broadcast(y.flip(0), 1)).square().mean()


def experts(module: nn.Module, given: Batch) -> Tensor:
    """Rows go to the ranks whose experts compute them, and come back."""
    y = module(given[0])
    there: Any = functional.all_to_all_single(torch.empty_like(y), y)
    there = there * (1 + dist.get_rank())
    back: Any = functional.all_to_all_single(torch.empty_like(y), there)
    return F.cross_entropy(back, given[1])


def passed(x: Tensor, by: int) -> Tensor:
    """Rows of the rank so many places before."""
    rank, count = dist.get_rank(), dist.get_world_size()
    come = torch.zeros_like(x)
    sent = dist.P2POp(dist.isend, x.contiguous(), (rank + by) % count)
    for each in dist.batch_isend_irecv([sent, dist.P2POp(dist.irecv, come, (rank - by) % count)]):
        each.wait()
    return come


class Passed(torch.autograd.Function):
    """The same with gradients, which go back by the same function."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, by: int) -> Tensor:
        ctx.by = by
        return passed(x, by)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        function: Any = Passed
        return function.apply(gradients[0], -ctx.by), None


def siglip(module: nn.Module, given: Batch) -> Tensor:
    """The rows of each other rank come by turns."""
    a, b = views(module, given)
    signs = 2 * torch.eye(len(a), dtype=a.dtype, device=a.device) - 1
    function: Any = Passed
    loss = -F.logsigmoid(signs * (10 * a @ b.T - 10)).sum()
    for _ in range(dist.get_world_size() - 1):
        b = function.apply(b, 1)
        loss = loss - F.logsigmoid(10 - 10 * a @ b.T).sum()
    return loss / len(a)


def in_parts(module: nn.Module, given: Batch) -> Tensor:
    y, count = module(given[0]), dist.get_world_size()
    part, whole = y.new_empty(len(y) // count, 5), y.new_empty(len(y) * count, 5)
    TORCH.reduce_scatter_tensor(part, y.detach())
    TORCH.all_gather_into_tensor(whole, y.detach())
    away = (y.mean(0) - part.mean(0)).square().sum() + (y.mean(0) - whole.mean(0)).square().sum()
    return F.cross_entropy(y, given[1]) + away


def functionally(module: nn.Module, given: Batch) -> Tensor:
    """Functional collectives, whose gradients torch has in 2.13 for all of them."""
    y, world = module(given[0]), dist.group.WORLD
    assert world is not None
    rows = collectives.all_gather_tensor_autograd(y, 0, world)
    part = collectives.reduce_scatter_tensor_autograd(y, "sum", 0, world)
    turned = collectives.all_to_all_single_autograd(y, None, None, world)
    largest = collectives.all_reduce(y.detach().amax(0), "max", world)
    first = collectives.broadcast(y.detach(), 0, world)
    labels = torch.arange(len(y), device=y.device) + len(y) * dist.get_rank()
    loss = F.cross_entropy(5 * y @ rows.T, labels) + part.square().mean()
    return loss + (turned - 0.3 * y).square().mean() + (y - first - largest).square().mean()


LOSSES: Mapping[str, Loss] = {
    each.__name__: each
    for each in (
        *(clip, clip_of_own_rows, clip_without_gradients, simclr, barlow_twins, vicreg, dino, swav),
        *(
            of_all_tokens,
            statistics,
            in_place,
            log_of_sum,
            from_rank,
            experts,
            siglip,
            in_parts,
            functionally,
        ),
    )
}
