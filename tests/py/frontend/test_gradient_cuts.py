"""Where torch records no gradient, a step takes none, and only there: no_grad, detach, views of both, and what is refused."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from in_place_steps import KINDS, Body, Writer, assert_as_torch, batch_of
from torch.nn import functional as F

from aicf_mlir import TraceError, trace

Tensor = torch.Tensor
CHOSEN = torch.tensor([2, 0, 2, 1])


def aggregated(m: Any, x: Tensor, h: Tensor) -> Tensor:
    """Message passing, as graph libraries write it: the first layer trains by this alone."""
    source, target = torch.tensor([0, 1, 2, 3, 0, 2]), torch.tensor([1, 0, 3, 2, 2, 0])
    index = target[:, None].expand(6, 3)
    messages = h.index_select(0, source)
    total = h.new_zeros(4, 3).scatter_add_(0, index, messages)
    count = h.new_zeros(4).scatter_add_(0, target, h.new_ones(6)).clamp_(min=1)
    return torch.relu(m.two(total / count[:, None])) + h.new_empty(4, 3).zero_().index_add_(
        0, target, messages
    )


def alias(write: str) -> Body:
    """Constants with a detached name; `write` says which of the two is written to."""

    def body(m: Any, x: Tensor, h: Tensor) -> Tensor:
        o = torch.zeros(4, 3, dtype=x.dtype)
        c = o.detach()
        (c if write == "alias" else o).add_(h)
        return o * c + o + 2 * c + m.two(x)

    return body


def quiet_into_fresh(m: Any, x: Tensor, h: Tensor) -> Tensor:
    o = h.new_zeros(4, 3)
    with torch.no_grad():
        o[:, 0] = h[:, 0]
    return o * h


def fresh_from_quiet(m: Any, x: Tensor, h: Tensor) -> Tensor:
    with torch.no_grad():
        o = h * 2
    before = o * 1
    o[:, 0] = h[:, 0]
    return o * h + before


def quiet_view(m: Any, x: Tensor, h: Tensor) -> Tensor:
    with torch.no_grad():
        v = h[:, 0]
    return h * v[:, None]


def quiet_pad_changed(m: Any, x: Tensor, h: Tensor) -> Tensor:
    """While torch traces, the result of `F.pad` says that it has a gradient."""
    with torch.no_grad():
        o = F.pad(h, (0, 2)).t()
        o[0].add_(o[1])
        o[3:] = 2.0
    return h * o.t()[:, :3] + o[3][:, None]


def nested(m: Any, x: Tensor, h: Tensor) -> Tensor:
    with torch.no_grad():
        a = h * 2
        with torch.enable_grad():
            b = h * 3
        c = a + b
    return c + b


@torch.no_grad()
def decorated(a: Tensor) -> Tensor:
    r = torch.zeros_like(a)
    r += a
    return r.abs().clamp_(max=1.0)


def in_autocast(m: Any, x: Tensor, h: Tensor) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        with torch.no_grad():
            a = h.float() @ h.float().t()
        b = h.float() @ h.float().t()
    return a.to(x.dtype) * b.to(x.dtype) @ h


def inference(m: Any, x: Tensor, h: Tensor) -> Tensor:
    with torch.inference_mode():
        v = h * 2
    return h + v.clone()


@torch.inference_mode()
def seen(h: Tensor) -> Tensor:
    v = h * 2
    v[:, 0].add_(1)
    return (v > 0).to(h.dtype) * v.abs()


def inference_changed(m: Any, x: Tensor, h: Tensor) -> Tensor:
    """What is made there has versions in a trace."""
    with torch.inference_mode():
        mean = (h - seen(h)).abs().flatten().view(-1).mean()
        with torch.inference_mode(False):
            inner = h * 3
    return h + seen(h).clone() * inner + mean.clone()


def own_leaf(m: Any, x: Tensor, h: Tensor) -> Tensor:
    return h * h.detach().requires_grad_() + torch.zeros(4, 3, dtype=x.dtype, requires_grad=True)


def straight_through(m: Any, x: Tensor, h: Tensor) -> Tensor:
    soft = h.softmax(1)
    hard = torch.zeros_like(h).scatter_(1, soft.argmax(1, keepdim=True), 1.0)
    return hard - soft.detach() + soft


def recurrent(m: Any, x: Tensor, h: Tensor) -> Tensor:
    states, state = h.new_empty(4, 3), h.new_zeros(3)
    for i in range(4):
        state = torch.tanh(state + h[i])
        states[i] = state
    return states


def loose_views(m: Any, x: Tensor, h: Tensor) -> Tensor:
    """Torch says that these have a gradient, and it leads nowhere."""
    with torch.no_grad():
        first, rest = h.split([1, 2], 1)
    return h * torch.tanh(first.expand(4, 3) * 2) + rest.sum()


def packed(m: Any, x: Tensor, h: Tensor) -> Tensor:
    """One layer of LSTM of the input: torch calls another function for it once it is exported."""
    gates = (m.one.weight, m.two.weight, m.one.bias, m.two.bias)
    w, u, b, c = (each.repeat(4, *[1] * (each.dim() - 1)) for each in gates)
    state = x.new_zeros(1, 1, 3), x.new_zeros(1, 1, 3)
    return torch.lstm(x[:, None], state, [w, u, b, c], True, 1, 0.0, True, False, False)[0][:, 0] + h


def of_values(m: Any, x: Tensor, h: Tensor) -> Tensor:
    chosen = F.one_hot(h.argmax(1), 3).to(h.dtype)
    m.kept.copy_(chosen)
    return h * chosen + torch.where(h > 0, 1.0, 0.5) * h + (h > x).to(h.dtype)


def quiet_statistics(m: Any, x: Tensor, h: Tensor) -> Tensor:
    with torch.no_grad():
        m.kept.mul_(0.9).add_(h, alpha=0.1)
    return h + m.kept


def parts_of_detached(m: Any, x: Tensor, h: Tensor) -> Tensor:
    first, second, _ = h.detach().split(1, 1)
    return h * first + second


def rows_of_detached_rows(m: Any, x: Tensor, h: Tensor) -> Tensor:
    """Each write reads a detached part of the memory that it writes to."""
    h = h * 1
    h[0] -= h[1].detach()
    h[2] = h.detach()[3]
    h[:, 0].copy_(h.detach()[:, 1])
    h.addcmul_(h[0].detach() * 1, x[:, :3])
    return h * h


BODIES: dict[str, Body] = {
    "writes of detached parts of the same memory": rows_of_detached_rows,
    "message passing": aggregated,
    "a constant whose alias is written": alias("alias"),
    "a constant with an alias is written": alias("base"),
    "a write under no_grad": quiet_into_fresh,
    "a write into a value of no_grad": fresh_from_quiet,
    "a view under no_grad": quiet_view,
    "a write into a padded value of no_grad": quiet_pad_changed,
    "views under no_grad": loose_views,
    "a recurrent layer": packed,
    "enable_grad in no_grad": nested,
    "a function under no_grad": lambda m, x, h: h * decorated(h),
    "no_grad in autocast": in_autocast,
    "inference_mode": inference,
    "inference_mode, changed": inference_changed,
    "leaves of the step's own": own_leaf,
    "straight through": straight_through,
    "a loop over rows": recurrent,
    "one-hot, where, comparisons": of_values,
    "statistics under no_grad": quiet_statistics,
    "parts of a detached value": parts_of_detached,
    "a centred value": lambda m, x, h: (h - h.mean(0).detach()) / (h.std(0).detach() + 1),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", BODIES)
def test_gradients_are_those_of_torch(name: str, kind: str) -> None:
    assert_as_torch(BODIES[name], kind, torch.float64)


def changed_under_no_grad(m: Any, x: Tensor, h: Tensor) -> Tensor:
    h = h * 1
    with torch.no_grad():
        h.mul_(2)
    return h


REFUSED: dict[str, tuple[Body, str]] = {
    "no_grad": (changed_under_no_grad, r"changes a tensor in place under `no_grad` \(`h.mul_\(2\)`\)"),
    "a detached view": (lambda m, x, h: (h.detach().mul_(2), h)[1], "changes a detached tensor in place"),
    "inside of a function": (
        lambda m, x, h: F.embedding(CHOSEN, m.two.weight, max_norm=1.0) + h,
        "changes a tensor in place under `no_grad`|changes a detached tensor in place",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_write_that_torch_does_not_record_is_refused(name: str) -> None:
    body, message = REFUSED[name]
    with pytest.raises(TraceError, match=message) as raised:
        trace(Writer(body), lambda m, b: m(b["x"]).sum(), batch_of(torch.float64))
    assert re.match(r".*test_gradient_cuts.py:\d+: ", str(raised.value))


@pytest.mark.parametrize("body, said", [(nested, True), (recurrent, False)])
def test_a_graph_with_other_gradients_is_an_error(
    body: Body, said: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if an export lost what `no_grad` says, or said it where it is not."""
    monkeypatch.setattr("aicf_mlir.frontend.gradient_cuts.records_gradients", lambda node: said)
    had = "had no gradient in the step, and has one" if said else "had a gradient in the step, and has none"
    with pytest.raises(TraceError, match=rf"the result of aten\.\w+\.\w+ {had} in the graph"):
        trace(Writer(body), lambda m, b: m(b["x"]).sum(), batch_of(torch.float64))


def test_a_lost_gradient_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a value with a gradient were cut."""
    monkeypatch.setattr("aicf_mlir.frontend.gradient_cuts.has_none", lambda tensor: True)
    with pytest.raises(TraceError, match=r"has lost the gradient of 'one\.bias', 'one\.weight'"):
        trace(Writer(quiet_into_fresh), lambda m, b: m(b["x"]).sum(), batch_of(torch.float64))


def test_an_output_may_have_no_gradient() -> None:
    def loss(model: Any, batch: Any) -> Any:
        y = model(batch["x"])
        with torch.no_grad():
            size = y.abs().mean()
        return y.sum(), {"size": size}

    module = trace(Writer(lambda m, x, h: h), loss, batch_of(torch.float64)).module
    assert 'aicf.name = "size"' in str(module)


def test_the_refusal_of_a_loss_without_gradient_is_torch_s() -> None:
    def body(m: Any, x: Tensor, h: Tensor) -> Tensor:
        with torch.no_grad():
            return h * 2

    model = Writer(body)
    with pytest.raises(TraceError, match="every gradient is cut by detach or no_grad"):
        trace(
            model,
            lambda m, b: m(b["x"]).sum(),
            batch_of(torch.float64),
            optimizer=torch.optim.SGD(model.parameters(), lr=1.0),
        )
