"""Buffers that a step updates, when the user changes them; and updates that no step can make, each refused by name."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from buffer_models import Compiled, Normalized, assert_same, model, sgd, tensors_of
from models import mse, regression
from torch import nn

from aicf_mlir import BindError, GuardError, TraceError, compile_step, compile_train_step
from aicf_mlir.frontend.bindings import Binding, refuse_update

Change = Callable[[Any], Any]

FOLLOWED: dict[str, Change] = {
    "written in place": lambda m: m[1].running_mean.fill_(0.5),
    "counter set": lambda m: m[1].count.fill_(40),
    "loaded": lambda m: m.load_state_dict({k: v * 2 for k, v in m.state_dict().items()}),
    "written under no_grad": lambda m: torch.nn.init.ones_(m[4].average),
}

REFUSED: dict[str, tuple[Change, type[Exception], str]] = {
    "replaced": (lambda m: setattr(m[1], "running_mean", torch.zeros(8)), BindError, "running_mean"),
    "replaced, though only written": (
        lambda m: setattr(m[4], "cleared", torch.zeros(8)),
        BindError,
        "cleared",
    ),
    "registered again": (lambda m: m[4].register_buffer("last", torch.zeros(8)), BindError, "last"),
    "removed": (lambda m: delattr(m[4], "twice"), BindError, "twice"),
    "data": (lambda m: setattr(m[1].running_var, "data", torch.zeros(8)), BindError, "running_var"),
    "counter's data": (
        lambda m: setattr(m[1].count, "data", torch.zeros((), dtype=torch.int64)),
        BindError,
        "count",
    ),
    "loaded by assignment": (
        lambda m: m.load_state_dict({k: v.clone() for k, v in m.state_dict().items()}, assign=True),
        BindError,
        "moved",
    ),
    "evaluation mode": (lambda m: m.eval(), GuardError, "training"),
    "momentum": (lambda m: setattr(m[1], "momentum", 0.5), GuardError, "momentum"),
}


@pytest.mark.parametrize("name", FOLLOWED)
def test_live_changes_are_followed(name: str) -> None:
    ours, theirs = Compiled(model(), "cpu"), model()
    optimizer = sgd(theirs)
    for seed in range(4):
        if seed == 2:
            FOLLOWED[name](ours.model)
            FOLLOWED[name](theirs)
        optimizer.zero_grad()
        loss = mse(theirs, ours.batch(seed))
        torch.autograd.backward(loss)
        optimizer.step()
        torch.testing.assert_close(ours.train(seed)[0], loss.detach(), rtol=1e-4, atol=1e-5)
    for key, tensor in tensors_of(theirs).items():
        torch.testing.assert_close(ours.tensors()[key], tensor, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", REFUSED)
def test_live_changes_are_refused_and_recompiled(name: str) -> None:
    change, error, message = REFUSED[name]
    ours = Compiled(model(), "cpu")
    ours.train(1, 2)
    change(ours.model)
    changed = tensors_of(ours.model)
    for _ in range(2):
        with pytest.raises(error, match=message):
            ours.train(3)
    assert_same(tensors_of(ours.model), changed)
    if name not in ("removed", "loaded by assignment"):
        ours.step.recompile()
        twin = copy.deepcopy(ours.model)
        expected = mse(twin, ours.batch(3))
        torch.testing.assert_close(ours.train(3)[0], expected.detach())
        for key, tensor in twin.named_buffers():
            torch.testing.assert_close(dict(ours.model.named_buffers())[key], tensor)


Body = Callable[[Any, torch.Tensor], Any]


class Net(nn.Module):
    """A layer, and what a test does to buffers before it."""

    def __init__(self, body: Body):
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.a: torch.Tensor
        self.register_buffer("a", torch.zeros(8))
        self.register_buffer("b", torch.zeros(8))
        self.register_buffer("n", torch.zeros(8, dtype=torch.int64))
        self.register_buffer("missing", None)
        self.table = torch.zeros(8)
        self.layer.bias.requires_grad_(False)
        self.body = body

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.layer(x)
        self.body(self, h)
        return h + self.a


def quiet_update(m: Any, h: torch.Tensor) -> None:
    with torch.no_grad():
        m.layer.weight.mul_(0.5)


REFUSED_BODIES: dict[str, tuple[Body, str]] = {
    "gradient": (lambda m, h: m.a.add_(h.mean(0)), r"'a' carries the gradient.*x\.detach\(\)"),
    "assigned gradient": (lambda m, h: setattr(m, "a", h.mean(0)), r"'a' carries the gradient"),
    "shape": (lambda m, h: setattr(m, "a", h.detach().mean()), r"'a' float32\[\].*keeps dtype and shape"),
    "dtype": (lambda m, h: setattr(m, "n", m.n.float()), r"'n' float32\[8\].*keeps dtype and shape"),
    "one for two": (lambda m, h: setattr(m, "a", m.b), r"'a', which would then be the same memory as 'b'"),
    "a view of another": (lambda m, h: setattr(m, "a", m.b.view(8)), r"the same memory as 'b'"),
    "nothing": (lambda m, h: setattr(m, "b", None), r"assigns to the buffer 'b' None"),
    "something": (lambda m, h: setattr(m, "missing", m.a + 1), r"'missing' a tensor.*where there was None"),
    "a new one": (lambda m, h: m.register_buffer("new", m.a + 1), r"registers the buffer 'new'; do so in"),
    "another parameter": (
        lambda m, h: setattr(m.layer, "bias", nn.Parameter(m.layer.bias * 2)),
        r"makes 'layer.bias' another parameter, which its optimizer does not have",
    ),
    "one more parameter": (
        lambda m, h: setattr(m, "p", nn.Parameter(m.a + 1)),
        r"makes 'p' another parameter",
    ),
    "a plain tensor": (lambda m, h: m.table.add_(1), r"no buffer of the model.*register_buffer"),
    "a trained parameter": (
        quiet_update,
        r"changes a tensor in place under `no_grad`",
    ),
    "large number": (
        lambda m, h: m.n.add_((1 << 53) + 1),
        r"the number 9007199254740993 in arithmetic on int64",
    ),
}


@pytest.mark.parametrize("name", REFUSED_BODIES)
def test_refused_updates(name: str) -> None:
    body, message = REFUSED_BODIES[name]
    module = Net(body)
    before = tensors_of(module)
    entries = list(vars(module)["_buffers"].items())
    with pytest.raises(TraceError, match=message):
        Compiled(module, "cpu")
    assert_same(tensors_of(module), before)
    assert [(k, id(t)) for k, t in vars(module)["_buffers"].items()] == [(k, id(t)) for k, t in entries]


def test_a_loop_body_that_makes_another_parameter_is_refused() -> None:
    model = nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def body(batch: Any) -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(batch["x"]).square().mean()
        loss.backward()
        optimizer.step()
        model.bias = nn.Parameter(model.bias * 0.5)
        return loss

    with pytest.raises(TraceError, match="makes 'bias' another parameter"):
        compile_step(body, example={"x": torch.ones(4, 8)}, device="cpu")


def test_views_of_an_updated_buffer_are_refused() -> None:
    module = Net(lambda m, h: m.a.add_(1))
    module.register_buffer("view", module.a.view(2, 4))
    with pytest.raises(TraceError, match="reaches in two ways"):
        Compiled(module, "cpu")


def test_a_buffer_that_a_closure_has_too_is_refused() -> None:
    module = Net(lambda m, h: m.a.add_(1))
    alias: Any = module.a
    with pytest.raises(TraceError, match="reaches in two ways"):
        Compiled(module, "cpu", lambda m, b: mse(m, b) + alias.sum())


def test_a_tensor_of_the_loss_that_is_updated_is_refused() -> None:
    seen = torch.zeros(8)
    with pytest.raises(TraceError, match="no buffer of the model"):
        Compiled(nn.Linear(8, 8), "cpu", lambda m, b: mse(m, b) + seen.add_(m(b["x"]).detach().mean(0)).sum())


def test_a_network_of_the_loss_updates_itself() -> None:
    """With its running statistics, which are bound as those of the model are."""
    ours, theirs = nn.Linear(8, 8), nn.Linear(8, 8)
    theirs.load_state_dict(ours.state_dict())
    teachers = [Normalized(8) for _ in range(2)]
    teachers[1].load_state_dict(teachers[0].state_dict())

    def loss_of(teacher: nn.Module) -> Callable[[Any, Any], torch.Tensor]:
        return lambda m, b: mse(m, b) + teacher(m(b["x"])).square().sum()

    batch, optimizer = regression(4), sgd(theirs)
    step = compile_train_step(ours, sgd(ours), loss_fn=loss_of(teachers[0]), example=batch, device="cpu")
    for _ in range(3):
        step.train_step(batch)
        optimizer.zero_grad()
        loss_of(teachers[1])(theirs, batch).backward()
        optimizer.step()
    for one, other in ((ours, theirs), teachers):
        for mine, wanted in zip(one.state_dict().values(), other.state_dict().values(), strict=True):
            torch.testing.assert_close(mine, wanted, rtol=1e-4, atol=1e-5)
    teachers[0].state_dict()["running_mean"].fill_(0.5)
    teachers[1].state_dict()["running_mean"].fill_(0.5)
    step.train_step(batch)
    loss_of(teachers[1])(theirs, batch)
    torch.testing.assert_close(teachers[0].state_dict(), teachers[1].state_dict(), rtol=1e-4, atol=1e-5)


def test_a_parameter_is_never_updated_beside_the_optimizer() -> None:
    """Whatever way the graph may find: the recorder refuses those that are known, with their line."""
    with pytest.raises(TraceError, match=r"changes 'w' in place, a parameter.*let the optimizer train it"):
        refuse_update(Binding("param", "w", torch.zeros(2)), None)


class ByData(nn.Module):
    """A moving average that is written to through `.data`, as codebooks are: it has no gradient, and what is written has one."""

    mean: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.register_buffer("mean", torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.layer(x)
        alias = self.mean.data
        alias.lerp_(h.mean(0), 0.5)
        return (h * self.mean).square() + alias.detach()


def test_what_is_written_by_data_carries_no_gradient() -> None:
    torch.manual_seed(0)
    models = ByData(), ByData()
    models[1].load_state_dict(models[0].state_dict())
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.01) for model in models]
    batch = {"x": torch.randn(8, 4)}
    step = compile_train_step(
        models[0], optimizers[0], loss_fn=lambda m, b: m(b["x"]).mean(), example=batch, device="cpu"
    )
    for _ in range(3):
        loss = step.train_step(batch)
        optimizers[1].zero_grad()
        expected = models[1](batch["x"]).mean()
        expected.backward()
        optimizers[1].step()
        assert torch.allclose(loss, expected, rtol=1e-5)
    for name, value in models[1].state_dict().items():
        assert torch.allclose(models[0].state_dict()[name], value, rtol=1e-4), name
