"""torch.autograd.Function in a step: its gradient is what its backward says, as in torch; what cannot be known is refused."""

from __future__ import annotations

import re
from threading import Event, Thread
from typing import Any, cast

import pytest
import torch
from autograd_functions import FUNCTIONS, Body, Clipped, Forward, OfBuffers, Shifted, Split, Swish, Tensor
from in_place_steps import KINDS, Writer, assert_as_torch, batch_of, compiled, in_torch, loss_of
from torch.autograd import Function, grad

from aicf_mlir import TraceError, compile_step, compile_train_step, trace


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_step_is_torchs(name: str, kind: str) -> None:
    assert_as_torch(FUNCTIONS[name], kind, torch.float32)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_several_steps_are_torchs(name: str) -> None:
    model, batch = Writer(FUNCTIONS[name], torch.float32), batch_of(torch.float32)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    step = compile_train_step(model, optimizer, loss_fn=loss_of, example=batch, device="cpu")
    found = step.check(batch, steps=3)
    assert found.equal, str(found)


def differentiated_again(body: Body) -> Body:
    """A loss of the function, of its gradient, and of the gradient of that."""

    def penalised(m: Any, x: Tensor, h: Tensor) -> Tensor:
        y = body(m, x, h)
        weights = torch.linspace(0.01, 0.1, y.numel(), dtype=y.dtype).reshape(y.shape)
        (first,) = grad((weights * y * y).sum(), h, create_graph=True)
        (second,) = grad(first.sin().sum(), h, create_graph=True, allow_unused=True, materialize_grads=True)
        return y + first.sin() + second.sin()

    return penalised


@pytest.mark.parametrize("kind", KINDS[:2])
@pytest.mark.parametrize(
    "name",
    [name for name in FUNCTIONS if name not in ("once", "changes its operand", "in a reentrant checkpoint")],
)
def test_gradients_of_the_gradient_are_torchs(name: str, kind: str) -> None:
    assert_as_torch(differentiated_again(FUNCTIONS[name]), kind)


class Exp(Function):
    """Its backward applies it again."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.exp()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        again = cast(Any, Exp)
        return grads[0] * again.apply(ctx.saved_tensors[0])


class Tanh(Function):
    """Its backward applies it twice."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.tanh()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (x,), again = ctx.saved_tensors, cast(Any, Tanh)
        return grads[0] * (1 - again.apply(x) * again.apply(x))


@pytest.mark.usual
@pytest.mark.parametrize(("function", "order"), [(Exp, 6), (Tanh, 1)])
def test_a_backward_that_applies_its_own_function_is_torchs(function: Any, order: int) -> None:
    """All derivatives up to `order`, and that of the last; a trace ends, though each derivative has one more."""

    def derived(m: Any, x: Tensor, h: Tensor) -> Tensor:
        y = function.apply(0.3 * h)
        total = y
        for _ in range(order):
            (y,) = grad(y.sum(), h, create_graph=True)
            total = total + y
        return total

    assert_as_torch(derived, KINDS[0])


@pytest.mark.parametrize("kind", KINDS[:2])
def test_a_backward_that_is_differentiable_once_is_refused_as_in_torch(kind: str) -> None:
    body, message = (
        differentiated_again(FUNCTIONS["once"]),
        "trying to differentiate twice a function that was marked",
    )
    with pytest.raises(RuntimeError, match=message):
        in_torch(Writer(body), batch_of(torch.float64), kind)
    with pytest.raises(TraceError, match=message):
        compiled(Writer(body), batch_of(torch.float64), kind)


@pytest.mark.parametrize("name", ["straight through", "sparsemax", "in a reentrant checkpoint"])
def test_replays_and_micro_batches_are_torchs(name: str) -> None:
    model, batch = Writer(FUNCTIONS[name], torch.float32), batch_of(torch.float32)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    step = compile_train_step(
        model, optimizer, loss_fn=loss_of, example=batch, device="cpu", accumulate=2, keep_gradients=True
    )
    step.train_step([batch, batch])
    step.capture([batch, batch], verify="bitwise")
    step.replay(2)
    found = step.check([batch, batch])
    assert found.equal, str(found)


@pytest.mark.parametrize("name", ["decorated", "under autocast", "saved", "sparsemax"])
def test_backward_computes_outside_of_autocast(name: str) -> None:
    """As the backward of the step does: in torch a cast of the user's in it is its own affair."""
    model, batch = Writer(FUNCTIONS[name], torch.float32), batch_of(torch.float32)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    step = compile_train_step(
        model, optimizer, loss_fn=loss_of, example=batch, device="cpu", precision="bf16"
    )
    found = step.check(batch, steps=2)
    assert found.equal, str(found)


def test_a_gradient_is_in_the_text() -> None:
    text = str(trace(Writer(FUNCTIONS["of its operand twice"]), loss_of, batch_of(torch.float64)).module)
    assert len(re.findall(r"nn\.custom_gradient of\(%\w+\) wrt\(%\w+\)", text)) == 2
    assert len(re.findall(r"nn\.clamp %arriving\d*", text)) == 2


class Dirty(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0]


def function_of(backward: Any) -> Any:
    """A function whose forward doubles, with this backward of the context and one gradient."""

    class Doubled(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, m: Any = None) -> Tensor:
            ctx.m = m
            return 2 * x

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            return backward(ctx, grads[0])

    return Doubled


def changed_behind(m: Any, x: Tensor, h: Tensor) -> Tensor:
    y: Tensor = OfBuffers.apply(h, m)
    m.mean.mul_(0.9)
    return y


def kept(ctx: Any, gradient: Tensor) -> Any:
    ctx.m.last = gradient
    return gradient, None


def read_after(m: Any, x: Tensor, h: Tensor) -> Tensor:
    y = h * 2
    return Shifted.apply(y[:2])[0].sum() + y


class OfView(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        flat = x.view(-1)
        x.mul_(2)
        return flat * 3

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0].view(4, 3)


REFUSED: dict[str, tuple[Body, str]] = {
    "mark_dirty": (lambda m, x, h: Dirty.apply(h * 1), r"'Dirty' changes an operand in place \(mark_dirty\)"),
    "read after it was changed": (
        read_after,
        "reads or returns a tensor .* that the forward of the autograd function 'Shifted' has changed in place",
    ),
    "a part of a parameter": (
        lambda m, x, h: Shifted.apply(m.two.weight[:2])[0].sum() + h,
        "changes a tensor in place under `no_grad`",
    ),
    "a view of what is changed": (
        lambda m, x, h: OfView.apply(h * 1).view(4, 3),
        "reads or returns a tensor .* that the forward of the autograd function 'OfView' has changed in place",
    ),
    "not written": (
        lambda m, x, h: Forward.apply(h),
        "backward of the autograd function 'Forward' cannot be traced: NotImplementedError: only forward",
    ),
    "not all results": (
        lambda m, x, h: Split.apply(h)[1],
        r"'Split' calls set_materialize_grads\(False\), and not all of its results reach the loss",
    ),
    "reads what is changed": (changed_behind, "reads a tensor that the step changes in place behind it"),
    "changes its gradient": (
        lambda m, x, h: function_of(lambda ctx, g: g.mul_(2)).apply(h),
        r"changes a tensor in place that it has not made \(aten.mul_.Tensor\)",
    ),
    "changes a buffer": (
        lambda m, x, h: function_of(lambda ctx, g: (g + ctx.m.mean.add_(1), None)).apply(h, m),
        r"changes a tensor in place that it has not made \(aten.add_.Tensor\)",
    ),
    "reads a value": (
        lambda m, x, h: function_of(lambda ctx, g: g if g.sum() > 0 else -g).apply(h),
        "branches on the value of a tensor",
    ),
    "too few gradients": (
        lambda m, x, h: function_of(lambda ctx, g: g).apply(h, m),
        "cannot be traced: RuntimeError: it returned 1 gradients, expected 2",
    ),
    "a backward that records nothing": (
        differentiated_again(
            lambda m, x, h: function_of(lambda ctx, g: torch.mul(g, 2, out=torch.zeros_like(g))).apply(h)
        ),
        r"of the autograd function 'Doubled' cannot be differentiated again .*: RuntimeError: mul\(\): functions with out",
    ),
    "another shape": (
        lambda m, x, h: function_of(lambda ctx, g: g[0, :2]).apply(h),
        r"a gradient of shape \[2\] for the argument 0 of shape \[4, 3\]",
    ),
    "a gradient of no tensor": (
        lambda m, x, h: function_of(lambda ctx, g: (g, g)).apply(h, m),
        "a gradient for the argument 1, which is no tensor",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_known_is_refused(name: str) -> None:
    body, message = REFUSED[name]
    with pytest.raises(TraceError, match=message) as raised:
        trace(Writer(body), loss_of, batch_of(torch.float64))
    assert re.match(r".*(test_)?autograd_functions.py:\d+: ", str(raised.value))


def test_an_operand_that_was_changed_is_not_returned() -> None:
    def loss(model: Any, batch: Any) -> Any:
        h = model(batch["x"]) * 1
        return Shifted.apply(h)[0].sum(), {"h": h}

    with pytest.raises(
        TraceError, match=r"reads or returns a tensor .* that the forward of the autograd function"
    ):
        trace(Writer(lambda m, x, h: h), loss, batch_of(torch.float64))


@pytest.mark.parametrize("kind", KINDS[:2])
def test_one_that_changes_its_operand_is_differentiable_once(kind: str) -> None:
    """torch takes a second gradient through what is saved, which is another tensor in a step."""
    body = differentiated_again(FUNCTIONS["changes its operand"])
    with pytest.raises(TraceError, match="trying to differentiate twice a function that was marked"):
        compiled(Writer(body), batch_of(torch.float64), kind)


def test_a_gradient_that_leaves_its_backward_is_refused() -> None:
    model = Writer(lambda m, x, h: function_of(kept).apply(h, m))
    with pytest.raises(TraceError, match="the step keeps a gradient: a gradient leaves the backward"):
        trace(model, lambda m, b: (loss_of(m, b), {"last": m.last}), batch_of(torch.float64))


def test_a_gradient_taken_under_autocast_is_refused() -> None:
    model = Writer(lambda m, x, h: Clipped.apply(Swish.apply(h)), torch.float32)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def body(batch: Any) -> Tensor:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = loss_of(model, batch)
            loss.backward()
        optimizer.step()
        return loss

    with pytest.raises(TraceError, match=r"is taken inside torch\.autocast; call backward"):
        compile_step(body, example=batch_of(torch.float32), device="cpu")


def test_another_thread_trains_by_itself_meanwhile() -> None:
    found: list[Tensor] = []
    ended = Event()

    def elsewhere() -> None:
        while not ended.is_set():
            x = torch.linspace(-2.0, 2.0, 5, requires_grad=True)
            Swish.apply(x).sum().backward()
            found.append(cast(Tensor, x.grad))

    thread = Thread(target=elsewhere)
    thread.start()
    try:
        for name in ("sparsemax", "saved"):
            trace(Writer(FUNCTIONS[name], torch.float32), loss_of, batch_of(torch.float32))
    finally:
        ended.set()
        thread.join()
    x = torch.linspace(-2.0, 2.0, 5, requires_grad=True)
    (expected,) = torch.autograd.grad(Swish.apply(x).sum(), x)
    assert found
    for gradient in found:
        torch.testing.assert_close(gradient, expected)
