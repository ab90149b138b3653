"""Shapes and Python that depend on the values of tensors that the step closes over, buffers and literals, beside eager torch."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from in_place_steps import KINDS, assert_as_torch
from torch import Tensor, nn
from torch.nn import functional

import aicf_mlir
from aicf_mlir import GuardError, TraceError, compile_train_step
from aicf_mlir.step.compile import compile_eval_step

NODES, WIDTH = 8, 4
EDGES = torch.tensor([[0, 1, 2, 3, 4, 5, 6, 7, 2, 3], [1, 1, 3, 2, 4, 7, 0, 6, 2, 5]])
COUNTS = torch.tensor([1, 0, 3, 1, 2, 0, 1, 1])
TABLE = {"keep": torch.tensor([True, False, True, True, False, False, True, True])}
TIMES = torch.linspace(0, 1, 4)


class Net(nn.Module):
    """A linear layer, and tensors that are looked into."""

    mask: Tensor
    ready: Tensor
    scale: Tensor
    running: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)
        self.register_buffer("mask", torch.tensor([True, False, True, True, False, True, True, False]))
        self.register_buffer("ready", torch.tensor(True))
        self.register_buffer("scale", torch.tensor(2.0))
        self.register_buffer("running", torch.zeros(WIDTH))
        self.frozen = nn.Parameter(torch.tensor([0.5, -1.0, 2.0, 1.0]), requires_grad=False)


def without_loops(m: Net, x: Tensor) -> Tensor:
    edges = EDGES[:, EDGES[0] != EDGES[1]]
    h = m.layer(x)
    return h + torch.zeros_like(h).index_add(0, edges[1], h[edges[0]])


def loops_kept(m: Net, x: Tensor) -> Tensor:
    """As torch_geometric's add_remaining_self_loops, with weights that depend on the batch."""
    weights, mask = x[:, 0].repeat(2)[: EDGES.shape[1]], EDGES[0] != EDGES[1]
    loops = torch.ones(NODES)
    loops[EDGES[0][~mask]] = weights[~mask]
    return m.layer(x) * loops[:, None]


def euler(m: Net, x: Tensor) -> Tensor:
    assert (TIMES[1:] > TIMES[:-1]).all() or (TIMES[1:] < TIMES[:-1]).all(), "times in order"
    for begin, end in pairwise(TIMES):
        x = x + (end - begin) * torch.tanh(m.layer(x)) * float(end)
    return x


def in_place(m: Net, x: Tensor) -> Tensor:
    table = torch.zeros(NODES)
    table[m.mask] = 1
    view = table.view(2, 4)
    view[1] += m.frozen
    return m.layer(x)[table > 0.9]


def buffer_after_write(m: Net, x: Tensor) -> Tensor:
    """What a buffer is given in the step depends on the batch; another one is only read."""
    with torch.no_grad():
        m.running.mul_(0.9).add_(0.1 * x.mean(0))
    return m.layer(x)[m.mask] * m.running


MODELS: dict[str, Callable[[Net, Tensor], Tensor]] = {
    "edges": without_loops,
    "self loops": loops_kept,
    "time grid": euler,
    "writes of a table": in_place,
    "running buffer": buffer_after_write,
    "nonzero": lambda m, x: m.layer(x)[m.mask.nonzero().squeeze(-1)],
    "where": lambda m, x: m.layer(x).index_select(0, torch.where(m.mask)[0]),
    "mask": lambda m, x: m.layer(x)[m.mask],
    "mask and slice": lambda m, x: m.layer(x)[m.mask, 1:],
    "mask of two dimensions": lambda m, x: m.layer(x)[(m.mask[:, None] & (m.frozen > 0))],
    "masked_select": lambda m, x: m.layer(x).masked_select(m.mask[:, None]),
    "closed-over dictionary": lambda m, x: m.layer(x)[TABLE["keep"]],
    "repeat_interleave": lambda m, x: m.layer(x).repeat_interleave(COUNTS, 0),
    "repeat_interleave, flat": lambda m, x: m.layer(x[:, 0:1].expand(8, 4))[:, 0].repeat_interleave(COUNTS),
    "unique": lambda m, x: m.layer(x)[EDGES.unique()[2:]] * COUNTS.bincount().float().sum(),
    "one_hot": lambda m, x: m.layer(x).sum(1) @ nn.functional.one_hot(COUNTS).float(),
    "slice": lambda m, x: m.layer(x)[COUNTS[0] : COUNTS.sum() - 2],
    "item": lambda m, x: m.layer(x) * m.scale.item() + int(m.mask.sum()),
    "tolist": lambda m, x: torch.cat(m.layer(x).split([*COUNTS[[2, 3]].tolist(), 4])[::-1]),
    "numpy": lambda m, x: m.layer(x) * float(COUNTS.numpy().max()),
    "branch": lambda m, x: m.layer(x) if m.ready else x,
    "any": lambda m, x: m.layer(x) * 2 if (m.mask & TABLE["keep"]).any() else x,
    "equal": lambda m, x: m.layer(x) if torch.equal(EDGES, EDGES.flip(1)) else m.layer(x) * 3,
    "frozen parameter": lambda m, x: m.layer(x)[:, m.frozen > 0.6],
    "literal": lambda m, x: m.layer(x)[torch.tensor([1, 0, 1, 0, 0, 0, 0, 1]).bool()],
    "zeros_like": lambda m, x: m.layer(x)[torch.zeros_like(x[:, 0]).index_fill_(0, EDGES[1, :3], 1.0) > 0],
    "arange": lambda m, x: m.layer(x)[torch.arange(NODES) % 3 == 0] * torch.arange(3).max().item(),
    "data": lambda m, x: m.layer(x)[m.mask.data & True],
    "half": lambda m, x: m.layer(x)[(torch.full((NODES,), 0.1).half() * COUNTS).float() > 0.1],
}


def loss_of(body: Callable[[Net, Tensor], Tensor]) -> Callable[[Net, dict[str, Tensor]], Tensor]:
    return lambda m, b: body(m, b["x"]).square().mean()


def pair(device: str) -> tuple[tuple[Net, Any], tuple[Net, Any]]:
    made: list[tuple[Net, Any]] = []
    for _ in range(2):
        torch.manual_seed(0)
        model = Net().to(device)
        made.append((model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)))
    return made[0], made[1]


def batches(count: int, device: str) -> list[dict[str, Tensor]]:
    torch.manual_seed(1)
    return [{"x": torch.randn(NODES, WIDTH, device=device)} for _ in range(count)]


def eager_step(model: Net, optimizer: Any, loss: Any, batch: dict[str, Tensor]) -> Tensor:
    optimizer.zero_grad()
    value = loss(model, batch)
    value.backward()
    optimizer.step()
    return value.detach()


def expect_equal(ours: Net, theirs: Net) -> None:
    for (name, a), b in zip(ours.state_dict().items(), theirs.state_dict().values(), strict=True):
        assert torch.allclose(a, b, rtol=1e-4, atol=1e-5), name


@pytest.mark.parametrize("name", MODELS)
def test_it_trains_as_torch_does(name: str) -> None:
    loss = loss_of(MODELS[name])
    (model, optimizer), (other, others) = pair("cpu")
    drawn = batches(4, "cpu")
    step = compile_train_step(model, optimizer, loss_fn=loss, example=drawn[0], device="cpu")
    for batch in drawn[:3]:
        ours, theirs = step.train_step(batch), eager_step(other, others, loss, batch)
        assert torch.allclose(ours, theirs, rtol=1e-4), name
    step.capture(drawn[3])
    step.replay(2)
    for _ in range(2):
        eager_step(other, others, loss, drawn[3])
    expect_equal(model, other)


def test_in_the_body_of_a_loop_and_in_evaluation(device: str) -> None:
    loss = loss_of(MODELS["mask"])
    (model, optimizer), (other, others) = pair(device)
    drawn = batches(3, device)

    @aicf_mlir.train_step(device=device)
    def body(batch: dict[str, Tensor]) -> Tensor:
        optimizer.zero_grad()
        value = loss(model, batch)
        if model.ready or EDGES[:, EDGES[0] > 2].sum() > 0:
            value = value * model.scale.item()
        value.backward()
        optimizer.step()
        return value

    evaluated = compile_eval_step(model, loss_fn=loss, example=drawn[0], device=device)
    step: Any = body
    for batch in drawn:
        assert torch.allclose(evaluated.eval_step(batch), loss(other, batch), rtol=1e-4)
        step(batch)
        eager_step(other, others, lambda m, b: loss(m, b) * 2, batch)
    expect_equal(model, other)
    before = model.layer.weight.detach().clone()
    model.mask[0] = False
    for call in (step, evaluated.eval_step):
        with pytest.raises(GuardError, match=r"mask holds other values: at \[0\] was True, now False"):
            call(drawn[0])
    assert torch.equal(model.layer.weight, before)


def swapped(model: Net) -> None:
    model.mask.data = ~model.mask


def loaded(model: Net) -> None:
    model.load_state_dict({**model.state_dict(), "mask": torch.ones(NODES, dtype=torch.bool)})


CHANGES: dict[str, Callable[[Net], object]] = {
    "in place": lambda model: model.mask.logical_not_(),
    "an element": lambda model: model.mask.__setitem__(1, True),
    "by a view": lambda model: model.mask[2:4].zero_(),
    "through .data": lambda model: model.mask.data.zero_(),
    "through numpy": lambda model: model.mask.numpy().fill(True),
    "another .data": swapped,
    "load_state_dict": loaded,
}


@pytest.mark.parametrize("how", CHANGES)
def test_a_change_is_refused_and_recompiled(how: str) -> None:
    loss = loss_of(MODELS["mask"])
    (model, optimizer), (other, others) = pair("cpu")
    batch = batches(1, "cpu")[0]
    step = compile_train_step(model, optimizer, loss_fn=loss, example=batch, device="cpu")
    step.train_step(batch)
    step.capture(batch)
    eager_step(other, others, loss, batch)
    for each in (model, other):
        CHANGES[how](each)
    before = model.layer.weight.detach().clone()
    for call in (lambda: step.train_step(batch), lambda: step.replay(2)):
        with pytest.raises(aicf_mlir.AicfError, match="mask"):
            call()
    assert torch.equal(model.layer.weight, before)
    step.recompile()
    for _ in range(2):
        step.train_step(batch)
        eager_step(other, others, loss, batch)
    expect_equal(model, other)


def test_a_change_that_is_taken_back_or_does_not_matter() -> None:
    loss = loss_of(lambda m, x: m.layer(x)[m.frozen > 0] if m.scale > 1 else x)
    (model, optimizer), _ = pair("cpu")
    batch = {"x": torch.randn(4, WIDTH)}
    step = compile_train_step(model, optimizer, loss_fn=loss, example=batch, device="cpu")
    step.train_step(batch)
    model.frozen[1] = 1.0
    with pytest.raises(GuardError, match=r"model\.frozen holds other values: at \[1\] was -1\.0, now 1\.0"):
        step.train_step(batch)
    model.frozen[1] = -1.0
    step.train_step(batch)
    model.scale.fill_(3.0)  # the same branch, and nothing else that reads it
    model.frozen[1] = -2.0
    step.train_step(batch)
    model.scale.fill_(0.5)
    with pytest.raises(GuardError, match=r"model\.scale holds other values"):
        step.train_step(batch)


def test_a_closed_over_tensor_has_its_name() -> None:
    edges = EDGES.clone()
    loss = loss_of(lambda m, x: m.layer(x)[edges[0][edges[0] > edges[1]]])
    (model, optimizer), _ = pair("cpu")
    batch = batches(1, "cpu")[0]
    step = compile_train_step(model, optimizer, loss_fn=loss, example=batch, device="cpu")
    assert [guard.path for guard in step.guards() if guard.kind == "values"] == ["edges"]
    edges[0, 0] = 5
    with pytest.raises(GuardError, match=r"edges holds other values: at \[0, 0\] was 0, now 5"):
        step.train_step(batch)


def counted(m: Net, x: Tensor) -> Tensor:
    with torch.no_grad():
        m.scale += 1
    return m.layer(x) if m.scale > 5 else m.layer(x) * 2


def begun(m: Net, x: Tensor) -> Tensor:
    """As a codebook that the first batch fills."""
    with torch.no_grad():
        if m.ready:
            m.ready.copy_(torch.tensor(False))
    return m.layer(x)


def by_another_way(m: Net, x: Tensor) -> Tensor:
    factor = ALIAS[0].sum().item()
    with torch.no_grad():
        m.running.add_(1)
    return m.layer(x) * factor


ALIAS: list[Tensor] = []


def repeated(x: Tensor, mask: Tensor) -> Tensor:
    """Rows under a mask, as a function that takes their number."""
    return x.repeat_interleave(mask.long(), 0)


REFUSED: dict[str, tuple[Callable[[Net, Tensor], Tensor], str]] = {
    "mask of the batch": (
        lambda m, x: repeated(m.layer(x), x[:, 0] > 0),
        "shape depends on values.*'x' of the batch",
    ),
    "branch on the batch": (
        lambda m, x: m.layer(x) if x.sum() > 0 else x,
        "branches on the value.*'x' of the batch",
    ),
    "a trained parameter": (
        lambda m, x: m.layer(x) * m.layer.bias.max().item(),
        "reads the value of a tensor.*depends on the parameter 'layer.bias'",
    ),
    "a counter": (counted, "branches on the value.*depends on 'scale', which the step writes to"),
    "a flag that the step sets": (begun, "depends on 'ready', which the step writes to"),
    "random numbers": (
        lambda m, x: repeated(m.layer(x), torch.rand(NODES) > 0.5),
        "shape depends on values.*depends on random numbers",
    ),
    "dropout of a buffer": (
        lambda m, x: repeated(m.layer(x), nn.functional.dropout(m.frozen, 0.5) > 0),
        "shape depends on values.*depends on random numbers",
    ),
    "written from the batch": (
        lambda m, x: repeated(m.layer(x), torch.zeros(NODES).copy_(x[:, 0]) > 0),
        "shape depends on values.*'x' of the batch",
    ),
    "a buffer reached twice": (by_another_way, "depends on 'running', which the step writes to"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_changes_from_step_to_step_is_refused(name: str) -> None:
    body, pattern = REFUSED[name]
    (model, optimizer), _ = pair("cpu")
    ALIAS[:] = [model.running]
    batch = {"x": torch.randn(NODES if "dropout" not in name else WIDTH, WIDTH)}
    state = torch.random.get_rng_state()
    with pytest.raises(TraceError, match=pattern):
        compile_train_step(model, optimizer, loss_fn=loss_of(body), example=batch, device="cpu")
    assert torch.equal(torch.random.get_rng_state(), state) or "dropout" not in name
    assert model.scale == 2


def test_a_write_by_views_is_seen() -> None:
    """A table of known values that is written to from the batch, through a view that came before."""

    def body(m: Net, x: Tensor) -> Tensor:
        table = torch.ones(NODES)
        view = table[2:]
        view.copy_(x[2:, 0])
        return repeated(m.layer(x), table > 0)

    (model, optimizer), _ = pair("cpu")
    with pytest.raises(TraceError, match="shape depends on values"):
        compile_train_step(
            model, optimizer, loss_fn=loss_of(body), example=batches(1, "cpu")[0], device="cpu"
        )


def test_a_meta_number_cannot_decide() -> None:
    model = Net()
    vars(model)["alpha"] = 2.0
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def loss(m: Net, b: dict[str, Tensor]) -> Tensor:
        alpha: Any = vars(m)["alpha"]
        return (m.layer(b["x"]) * alpha).sum() if alpha > 1 else m.layer(b["x"]).sum()

    with pytest.raises(TraceError, match="depends on a number that meta= lets change"):
        compile_train_step(
            model,
            optimizer,
            loss_fn=loss,
            example=batches(1, "cpu")[0],
            device="cpu",
            meta=["model.alpha"],
        )


@pytest.mark.parametrize("kind", KINDS)
def test_a_norm_of_a_constant_changes_its_statistics_in_the_step_alone(kind: str) -> None:
    """The schema of torch's op does not say that it writes to them."""

    def body(model: Any, x: Tensor, h: Tensor) -> Tensor:
        functional.batch_norm(torch.full_like(h, 3), model.mean, model.variance, training=True)
        functional.instance_norm(torch.ones(2, 3, 4, dtype=x.dtype), model.mean, model.variance)
        return h

    assert_as_torch(body, kind)
