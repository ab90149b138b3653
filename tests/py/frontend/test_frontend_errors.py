"""What the front end refuses: one error each, with the op, its shapes, and the user's file and line."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import nn

from aicf_mlir.errors import TraceError
from aicf_mlir.frontend import trace

Batch = Mapping[str, torch.Tensor]
Body = Callable[[Any, torch.Tensor], Any]


class Net(nn.Module):
    """A linear layer, and then whatever a test wants to see refused."""

    def __init__(self, body: Body):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("count", torch.zeros(4))
        self.body = body

    def forward(self, x: torch.Tensor) -> Any:
        return self.body(self, self.layer(x))


def batch(**changed: Any) -> dict[str, Any]:
    return {"x": torch.randn(2, 4), "t": torch.randn(2, 4), **changed}


def message_of(call: Callable[[], Any]) -> str:
    with pytest.raises(TraceError) as caught:
        call()
    return str(caught.value)


def caught(m: Any, h: torch.Tensor) -> torch.Tensor:
    try:
        return torch.distributions.Normal(h, 1.0).log_prob(h)
    except ValueError:
        return h


def branch(m: Any, h: torch.Tensor) -> torch.Tensor:
    if h.sum() > 0:
        return h
    return -h


def in_place_without_gradient(m: Any, h: torch.Tensor) -> torch.Tensor:
    h = h + 1
    with torch.no_grad():
        h.mul_(2)
    return h


def stop(m: Any, h: torch.Tensor) -> torch.Tensor:
    return h + (h * 2).requires_grad_(True).detach_()


def hook(h: torch.Tensor) -> torch.Tensor:
    h.register_hook(lambda gradient: 2 * gradient)
    return h


REFUSED: dict[str, tuple[Body, str, str]] = {
    # name: what the model does, the text at whose line the error must point, the message
    "unknown op": (
        lambda m, h: h.i0(),
        "h.i0()",
        r"aten\.i0\.default\(float32\[2, 4\]\) is not supported \(`.*`\): there is no such op here yet; docs/ops\.md has all",
    ),
    "op that decomposes into an unknown one": (
        lambda m, h: torch.special.log_ndtr(h),
        "log_ndtr",
        r"aten\.special_log_ndtr\.default\(float32\[2, 4\]\).*: torch decomposes it into aten\.special_erfcx\.default\(",
    ),
    "hypotenuse": (
        lambda m, h: h.hypot(h),
        "h.hypot(h)",
        r"aten\.hypot\.default.*is not supported",
    ),
    "power of integers": (
        lambda m, h: h * m.count.long() ** 70,
        "** 70",
        r"aten\.pow.*an exponent of 70 for integers",
    ),
    "beta=0": (lambda m, h: torch.addmm(m.count, h, h.t() @ h, beta=0), "beta=0", r"beta=0"),
    "branch": (
        branch,
        "if h.sum() > 0",
        r"branches on the value of a tensor \(`if h\.sum\(\) > 0:`\), which depends on 'x' of the batch; a compiled",
    ),
    "a checked distribution": (
        caught,
        "Normal(h, 1.0)",
        r"branches on the value of a tensor.*: leave out the checks of the distribution, validate_args=False",
    ),
    "item": (lambda m, h: h * h.sum().item(), "item()", r"reads the value of a tensor"),
    "float": (lambda m, h: h * float(h.sum()), "float(h", r"reads the value of a tensor"),
    "list": (lambda m, h: h * h.tolist()[0][0], "tolist()", r"reads the values? of a tensor"),
    "numpy": (
        lambda m, h: h * torch.from_numpy(h.detach().numpy()),
        "numpy()",
        r"converts a tensor to NumPy",
    ),
    "format": (lambda m, h: h * len(f"{h.sum():.3f}"), ":.3f", r"formats the value of a tensor"),
    "equal": (lambda m, h: h if torch.equal(h, m.count) else -h, "torch.equal", r"compares the values"),
    "shape by value": (lambda m, h: h.unique(), "h.unique()", r"a tensor whose shape depends on values"),
    "no_grad in place": (
        in_place_without_gradient,
        "h.mul_(2)",
        r"in place under `no_grad`.*would not follow; remove it",
    ),
    "detach in place": (stop, "detach_", r"calls `detach_\(\)`"),
    "data": (lambda m, h: setattr(h, "data", h * 2), 'setattr(h, "data"', r"replaces `\.data`"),
    "data in place": (lambda m, h: h.data.mul_(2) * h, "h.data.mul_", r"changes a detached tensor in place"),
    "requires_grad off": (lambda m, h: (h * 2).requires_grad_(False), "(False)", r"requires_grad_\(False\)"),
    "gradient hook": (lambda m, h: hook(h), "register_hook", r"registers a gradient hook"),
    "backward": (lambda m, h: h.sum().backward() or h, "backward()", r"calls `backward\(\)`"),
    "op that checks values": (
        lambda m, h: torch.linalg.lu_factor(h @ h.t())[0] @ h,
        "torch.linalg.lu_factor",
        r"aten\.linalg_lu_factor\.default\(float32\[2, 2\]\) is not supported \(`.*`\): torch's rule for it looks at values"
        r" while it runs; docs/ops\.md has all that there are; in layer Net",
    ),
    "random counts": (lambda m, h: h + torch.poisson(h), "poisson", r"aten\.poisson.*draws random numbers"),
    "shapes that do not fit": (
        lambda m, h: h @ torch.zeros(3, 3),
        "zeros(3, 3)",
        r"RuntimeError: .*\[2, 4\]",
    ),
    "error in the model": (
        lambda m, h: h.no_such_attribute,  # pyright: ignore[reportAttributeAccessIssue]
        "no_such",
        r"AttributeError: .*no_such_attribute",
    ),
    "captured result": (
        lambda m, h: h * COMPUTED,
        "COMPUTED,",
        r"float32\[4\], was computed outside the step from tensors that require a gradient",
    ),
    "complex numbers": (lambda m, h: (h * 1j).acosh().imag, "1j", r"aten\.acosh\.default of complex numbers"),
    "buffer of bytes": (
        lambda m, h: h * MASK,
        "* MASK",
        r"is a tensor of torch\.uint8; supported are float32, ",
    ),
}

HELD = torch.ones(4, requires_grad=True)
COMPUTED = HELD * 2
MASK = torch.ones(4, dtype=torch.uint8)


@pytest.mark.parametrize("name", REFUSED)
def test_refused_models(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    body, text, pattern = REFUSED[name]
    message = message_of(lambda: trace(Net(body), None, batch()))
    place = re.match(re.escape(__file__) + r":(\d+): ", message)
    assert place, f"no line of this file: {message}"
    assert text in inspect.getsource(inspect.getmodule(branch)).splitlines()[int(place[1]) - 1]  # pyright: ignore
    assert re.search(pattern, message), message
    assert "\n" not in message
    assert capfd.readouterr() == ("", ""), "nothing else is printed"


LOSSES: dict[str, tuple[Any, dict[str, Any], str]] = {
    "missing key": (
        lambda m, b: m(b["image"]).mean(),
        {},
        r"the loss asks for batch\['image'\], but the batch has 'x', 't'",
    ),
    "not reduced": (
        lambda m, b: m(b["x"]),
        {},
        r"0-d float tensor, got float32\[2, 4\]; reduce it with \.mean\(\)",
    ),
    "two elements": (lambda m, b: m(b["x"]).mean(0)[:2], {}, r"got float32\[2\]; reduce it"),
    "integer": (lambda m, b: m(b["x"]).mean().long(), {}, r"0-d float tensor, got int64\[\]"),
    "several": (lambda m, b: (m(b["x"]).mean(), 1), {}, r"expected one tensor as the result, got tuple"),
    "number": (lambda m, b: 1.0, {}, r"expected one tensor as the result, got float"),
    "batch changed": (lambda m, b: m(b["x"].relu_()).mean(), {}, r"changes the batch entry 'x' in place"),
    "constant": (
        lambda m, b: b["x"].mean(),
        {},
        r"the loss depends on no parameter that the optimizer trains",
    ),
}


@pytest.mark.parametrize("name", LOSSES)
def test_refused_losses(name: str) -> None:
    loss_fn, changed, pattern = LOSSES[name]
    model = Net(lambda m, h: h)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    message = message_of(lambda: trace(model, loss_fn, batch(**changed), optimizer=optimizer))
    assert re.match(re.escape(__file__) + r":\d+: ", message), message
    assert re.search(pattern, message), message


BATCHES: dict[str, tuple[Any, str]] = {
    "tensor": (torch.zeros(2), r"expected a batch of two, \(x, t\), got one tensor; pass loss_fn="),
    "number": (
        3.0,
        r'must be a dictionary such as \{"x": x, "t": t\}, a dataclass, a tuple or a list of tensors, or one tensor, got float',
    ),
    "tuple of one": ((torch.zeros(2),), r"expected a batch of two, \(x, t\), got 1 entries; pass loss_fn="),
    "empty": ({}, r"the batch is empty; expected a dictionary"),
    "list inside": ({"x": [1.0]}, r"entry 'x\.0' must be a torch\.Tensor, got float"),
    "number as name": (
        {0: torch.zeros(2)},
        r"names of batch entries must be strings that are not empty, got 0",
    ),
    "no rows": ({"x": torch.zeros(0, 4)}, r"entry 'x' has no elements: its shape is \(0, 4\)"),
    "short integers": (
        {"x": torch.zeros(2, dtype=torch.int16)},
        r"entry 'x' is a tensor of torch\.int16; supported are .*, bool, uint8",
    ),
    "complex": ({"x": torch.zeros(2, dtype=torch.complex64)}, r"torch\.complex64"),
    "sparse": ({"x": torch.zeros(2, 2).to_sparse()}, r"torch\.sparse_coo tensor"),
}


@pytest.mark.parametrize("name", BATCHES)
def test_refused_batches(name: str) -> None:
    example, pattern = BATCHES[name]
    assert re.search(pattern, message_of(lambda: trace(nn.Linear(4, 4), None, example)))


def test_refused_arguments() -> None:
    model = nn.Linear(4, 4)
    assert "both B= (batch size) and D=" in message_of(lambda: trace(model, B=2))
    assert "at least 1, got B=0" in message_of(lambda: trace(model, B=0, D=4))
    assert "either example=, or B= and D=" in message_of(lambda: trace(model, None, batch(), B=2, D=4))
    assert "must be a torch.nn.Module, got int" in message_of(lambda: trace(3, B=2, D=4))  # pyright: ignore
    assert "loss_fn must be a function" in message_of(lambda: trace(model, 3, batch()))  # pyright: ignore
    assert "RuntimeError" in message_of(lambda: trace(model, B=2, D=5))
    assert "RuntimeError" in message_of(lambda: trace(model, B=2, D=4, dtype=torch.float64))


def test_refused_models_as_a_whole() -> None:
    lazy = nn.LazyLinear(4)
    assert "'weight' has no shape yet; run the model once" in message_of(lambda: trace(lazy, B=2, D=4))

    hooked = nn.Linear(4, 4)
    hooked.weight.register_post_accumulate_grad_hook(lambda parameter: None)
    assert "'weight' has post_accumulate_grad_hooks" in message_of(lambda: trace(hooked, B=2, D=4))

    one, other = nn.Linear(4, 4), nn.Linear(4, 4)
    other.weight.data = one.weight.data
    shared = nn.Sequential(one, other)
    assert re.search(
        r"'0\.weight' and '1\.weight' are two tensors over the same memory; to tie weights, use one",
        message_of(lambda: trace(shared, B=2, D=4)),
    )

    scattered = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4, device="meta"))
    assert re.search(
        "reads a tensor on the meta device, which has no values",
        message_of(lambda: trace(scattered, B=2, D=4)),
    )


def test_of_two_ops_on_a_line_the_one_without_a_form_is_named() -> None:
    """Torch takes `special.log1p` apart first, and there is a form for that."""
    model = Net(lambda m, h: torch.special.log1p(h.exp()) + torch.erfinv(h.exp()))
    text = message_of(lambda: trace(model, example=batch()))
    assert "aten.erfinv.default(float32[2, 4]) is not supported" in text
    assert "log1p.default" not in text
