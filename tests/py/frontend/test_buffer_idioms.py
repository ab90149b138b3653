"""Each way of writing an update of a buffer, three steps beside torch: values, counters and what the parameters learn."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from buffer_models import assert_same, tensors_of
from models import mse, regression
from torch import nn
from torch.nn import functional as F

from aicf_mlir import TraceError, compile_train_step

Body = Callable[[Any, torch.Tensor], Any]


class Net(nn.Module):
    """A layer, and what a test does to the buffers on the way."""

    def __init__(self, body: Body):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(8, 8)
        self.a: torch.Tensor
        self.b: torch.Tensor
        self.register_buffer("a", torch.arange(8.0))
        self.register_buffer("b", torch.arange(8.0) * -0.1)
        self.register_buffer("n", torch.arange(8))
        self.register_buffer("k", torch.arange(8) * 3)
        self.register_buffer("spare", torch.zeros(8))
        self.body = body

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.layer(x)
        self.body(self, h)
        return h * (self.a + self.b)


def quietly(body: Body) -> Body:
    """The same under no_grad."""

    def run(m: Any, h: torch.Tensor) -> None:
        with torch.no_grad():
            body(m, h)

    return run


def item(key: Any, value: Body) -> Body:
    return lambda m, h: m.a.__setitem__(key, value(m, h))


def keep_old(m: Any, h: torch.Tensor) -> None:
    old = m.a
    m.a = m.a * 0.5 + 1
    m.b.add_(old)


def then(*bodies: Body) -> Body:
    return lambda m, h: [body(m, h) for body in bodies]


def assign(value: Body) -> Body:
    return lambda m, h: setattr(m, "a", value(m, h))


IDIOMS: dict[str, Body] = {
    "mul_ and add_": lambda m, h: m.a.mul_(0.9).add_(0.1 * h.mean(0).detach()),
    "through data": lambda m, h: m.a.data.mul_(0.9).add_(h.detach().mean(0)),
    "through detach": lambda m, h: m.a.detach().mul_(0.9),
    "through a view": lambda m, h: m.a.view(2, 4).t().mul_(2),
    "get_buffer": lambda m, h: m.get_buffer("a").add_(1),
    "entry of _buffers": lambda m, h: m._buffers.__setitem__("a", m.a + 1),
    "all elements": item(..., lambda m, h: h.detach().mean(0)),
    "all elements under no_grad": quietly(item(slice(None), lambda m, h: h.mean(0))),
    "a number": item(..., lambda m, h: 3.0),
    "fill_ and zero_": then(lambda m, h: m.a.fill_(2.0), lambda m, h: m.b.zero_()),
    "init": lambda m, h: nn.init.constant_(m.a, 2.0),
    "out=": lambda m, h: torch.add(m.a, 1, out=m.a),
    "out= under no_grad": quietly(lambda m, h: torch.add(m.a, h.mean(0), out=m.a)),
    "copy_": lambda m, h: m.a.copy_(h.detach().mean(0)),
    "copy_ of a number": lambda m, h: m.a.copy_(h.detach().mean()),
    "copy_ of another dtype": lambda m, h: m.a.copy_(h.detach().double().mean(0)),
    "lerp_": quietly(lambda m, h: m.a.lerp_(h.mean(0), 0.1)),
    "lerp_ from the far end": quietly(lambda m, h: m.a.lerp_(h.mean(0), 0.7)),
    "average of a weight": quietly(lambda m, h: m.a.mul_(0.99).add_(m.layer.weight.sum(0), alpha=0.01)),
    "addcmul_": quietly(lambda m, h: m.a.addcmul_(h.mean(0), h.mean(0), value=0.1)),
    "+= under no_grad": quietly(assign(lambda m, h: m.a.__iadd__(h.mean(0)))),
    "assigned": assign(lambda m, h: 0.9 * m.a + 0.1 * h.detach().mean(0)),
    "assigned under no_grad": quietly(assign(lambda m, h: 0.9 * m.a + h.mean(0))),
    "assigned twice": then(assign(lambda m, h: m.a + 1), assign(lambda m, h: m.a * 2)),
    "assigned, then in place": then(assign(lambda m, h: m.a + 1), lambda m, h: m.a.mul_(2)),
    "in place, then assigned": then(lambda m, h: m.a.mul_(2), assign(lambda m, h: m.a + 1)),
    "assigned, and the old one read": keep_old,
    "the other buffer": lambda m, h: m.a.copy_(m.b),
    "both the same": then(lambda m, h: m.b.add_(1), lambda m, h: m.a.copy_(m.b)),
    "counter": lambda m, h: m.n.add_(1),
    "counter assigned": lambda m, h: setattr(m, "n", m.n + 1),
    "counter by a tensor": lambda m, h: m.n.add_(m.k).sub_(2),
    "counter by alpha": lambda m, h: m.n.add_(3, alpha=2),
    "counter from a number": lambda m, h: setattr(m, "n", 5 - m.n),
    "counter copied": lambda m, h: m.n.copy_(m.k),
    "counter filled": then(lambda m, h: m.n.zero_(), lambda m, h: m.k.fill_(7)),
    "counter of a truth": lambda m, h: m.n.add_(True),
    "counter times a number": lambda m, h: m.n.add_(2).mul_(3),
    "counter beyond float64": lambda m, h: m.n.mul_(1 << 50).add_(1 << 40).mul_(1 << 12).add_(1),
    "counter of truths": lambda m, h: m.n.add_((h.detach() > 0).sum(0)),
    "counter of a float": lambda m, h: m.n.copy_(h.detach().mean(0) * 10),
    "a part": lambda m, h: m.a[0].add_(1),
    "counter in a float": lambda m, h: m.a.add_(m.n),
    "in training mode": lambda m, h: m.a.mul_(2) if m.training else None,
    "data replaced": lambda m, h: setattr(m.a, "data", m.a * 0.9 + 0.1 * h.mean(0)),
    "data replaced under no_grad": quietly(lambda m, h: setattr(m.a, "data", m.a + h.mean(0))),
    "data replaced twice": then(
        lambda m, h: setattr(m.a, "data", m.a + m.b), lambda m, h: setattr(m.a, "data", m.a.data * 0.5)
    ),
    "scratch from a detach": lambda m, h: m.a.add_(h.detach().clone().mul_(2).mean(0)),
}


@pytest.mark.parametrize("name", IDIOMS)
def test_is_what_torch_does(name: str, device: str) -> None:
    ours = Net(IDIOMS[name]).to(device)
    theirs = copy.deepcopy(ours)
    batch = {key: value.to(device) for key, value in regression(4).items()}
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.01) for m in (ours, theirs)]
    step = compile_train_step(ours, optimizers[0], loss_fn=mse, example=batch, device=device)
    assert_same(tensors_of(ours), tensors_of(theirs))
    for _ in range(3):
        optimizers[1].zero_grad()
        expected = mse(theirs, batch)
        torch.autograd.backward(expected)
        optimizers[1].step()
        torch.testing.assert_close(step.train_step(batch), expected.detach(), rtol=1e-4, atol=1e-5)
    for key, tensor in tensors_of(theirs).items():
        torch.testing.assert_close(tensors_of(ours)[key], tensor, rtol=1e-4, atol=1e-5)


def changed(change: Callable[[torch.Tensor], Any]) -> Body:
    return lambda m, h: change(h.detach())


def changed_afterwards(m: Any, h: torch.Tensor) -> None:
    new = m.a * 0.5
    m.a.data = new
    new.add_(1)
    m.b.add_(m.a)


def changed_at_last(m: Any, h: torch.Tensor) -> None:
    new = m.a + h.detach().mean(0)
    m.spare.data = new
    new.add_(1)


def with_a_view(change: Callable[[Any, torch.Tensor], Any], view: Callable[[Any], torch.Tensor]) -> Body:
    def run(m: Any, h: torch.Tensor) -> None:
        before = view(m)
        m.a.data = m.a * 0.5
        change(m, before)

    return run


BESIDE_THE_GRAPH: dict[str, tuple[Body, str]] = {
    "detached": (changed(lambda d: d.mul_(2)), "changes a detached tensor in place"),
    "an element": (changed(lambda d: d.__setitem__(..., 1.0)), "changes a detached tensor in place"),
    "inside a function": (changed(lambda d: F.relu(d, inplace=True)), "changes a detached tensor in place"),
    "out=": (changed(lambda d: torch.mul(d, 2, out=d)), "changes a detached tensor in place"),
    "a view": (changed(lambda d: d.view(-1).mul_(2)), "changes a detached tensor in place"),
    "a parameter": (lambda m, h: m.layer.weight.detach().mul_(0.5), "changes a detached tensor in place"),
    "data of a parameter replaced": (
        lambda m, h: setattr(m.layer.weight, "data", m.layer.weight * 2),
        r"replaces `\.data`",
    ),
    "data of two in one": (
        lambda m, h: setattr(m.a, "data", m.b),
        r"sets \.data.*to memory that another tensor has",
    ),
    "data replaced, then its value changed at last": (
        changed_at_last,
        r"shares its memory with another by \.data",
    ),
    "data replaced, then the old one read": (
        with_a_view(lambda m, old: m.b.add_(old), lambda m: m.a.data),
        r"uses a view of a tensor that has got another memory since",
    ),
    "data replaced, then the old one written": (
        with_a_view(lambda m, old: old.add_(7), lambda m: m.a[:1]),
        r"uses a view of a tensor that has got another memory since",
    ),
    "data of another shape": (
        lambda m, h: setattr(m.a, "data", m.a[:4] * 2),
        r"sets \.data.*where there was",
    ),
    "data replaced, then its value changed": (
        changed_afterwards,
        r"shares its memory with another by \.data",
    ),
}


@pytest.mark.parametrize("name", BESIDE_THE_GRAPH)
def test_changes_beside_the_graph_are_refused(name: str) -> None:
    body, message = BESIDE_THE_GRAPH[name]
    module = Net(body)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
    with pytest.raises(TraceError, match=message):
        compile_train_step(module, optimizer, loss_fn=mse, example=regression(4), device="cpu")


class Centering(nn.Module):
    """A loss with buffers that it updates, in each way."""

    def __init__(self) -> None:
        super().__init__()
        self.center: torch.Tensor
        self.seen: torch.Tensor
        self.register_buffer("center", torch.zeros(8))
        self.register_buffer("spread", torch.ones(8))
        self.register_buffer("seen", torch.tensor(0))

    def forward(self, y: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        loss = F.mse_loss((y - self.center) / self.spread, t)
        with torch.no_grad():
            self.center.data = self.center * 0.9 + 0.1 * y.mean(0)
            self.spread = self.spread * 0.9 + 0.1 * y.std(0)
            self.seen += len(y)
        return loss


def test_a_loss_in_a_closure_updates_its_buffers(device: str) -> None:
    ours = nn.Linear(8, 8).to(device)
    theirs, criteria = copy.deepcopy(ours), [Centering().to(device) for _ in range(2)]
    batch = {key: value.to(device) for key, value in regression(4).items()}

    def loss_of(criterion: nn.Module) -> Callable[[Any, Any], torch.Tensor]:
        return lambda m, b: criterion(m(b["x"]), b["t"])

    optimizers = [torch.optim.SGD(m.parameters(), lr=0.01) for m in (ours, theirs)]
    step = compile_train_step(ours, optimizers[0], loss_fn=loss_of(criteria[0]), example=batch, device=device)
    for _ in range(3):
        step.train_step(batch)
    step.capture(batch)
    step.replay(2, sync=True)
    for _ in range(5):
        optimizers[1].zero_grad()
        loss_of(criteria[1])(theirs, batch).backward()
        optimizers[1].step()
    for one, other in ((ours, theirs), criteria):
        for mine, wanted in zip(one.state_dict().values(), other.state_dict().values(), strict=True):
            torch.testing.assert_close(mine, wanted, rtol=1e-4, atol=1e-5)


def test_a_loss_without_a_gradient_is_refused() -> None:
    module = nn.Linear(8, 8)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
    with pytest.raises(TraceError, match="no parameter that the optimizer trains; every gradient is cut"):
        compile_train_step(
            module, optimizer, loss_fn=lambda m, b: mse(m, b).detach(), example=regression(4), device="cpu"
        )


def test_a_parameter_behind_a_detach_is_left_alone() -> None:
    module = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.1, weight_decay=0.5)
    before = tensors_of(module)

    def loss_fn(m: Any, b: Any) -> torch.Tensor:
        return F.mse_loss(m[1](m[0](b["x"]).detach()), b["t"])

    step = compile_train_step(module, optimizer, loss_fn=loss_fn, example=regression(4), device="cpu")
    step.train_step(regression(4))
    assert torch.equal(module[0].weight, before["0.weight"])
    assert not torch.equal(module[1].weight, before["1.weight"])
    assert module[0].weight not in optimizer.state
