"""torch.library.custom_op in a step: body and registered gradient are traced, to any order; other ops are refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
from beside_torch import assert_trains, compiled
from in_place_steps import KINDS, Body, Writer, assert_as_torch, batch_of, loss_of
from torch import Tensor
from torch.library import Library, custom_op, register_autograd, register_fake

from aicf_mlir import GuardError, TraceError, compile_train_step, trace

vmap: Any = torch.func.vmap
Op = Callable[..., Any]


@custom_op("aicf_test::swish", mutates_args=())
def swish(x: Tensor, beta: float = 1.0) -> Tensor:
    """Its gradient is twice the derivative."""
    return x * torch.sigmoid(beta * x)


def keep_operand(ctx: Any, inputs: Any, output: Any) -> None:
    x, ctx.beta = inputs
    ctx.save_for_backward(x)


def of_swish(ctx: Any, gradient: Tensor) -> Any:
    (x,) = ctx.saved_tensors
    s = torch.sigmoid(ctx.beta * x)
    return 2 * gradient * (s + ctx.beta * x * s * (1 - s)), None


@custom_op("aicf_test::both", mutates_args=())
def both(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.sin(), x.cos()


@custom_op("aicf_test::mixed", mutates_args=())
def mixed(xs: list[Tensor], weights: list[float], *, scale: float = 2.0) -> list[Tensor]:
    """Of lists, with an argument by keyword alone."""
    return [scale * torch.stack([x * w for x, w in zip(xs, weights, strict=True)]).sum(0), xs[0].exp()]


def keep_of_lists(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
    ctx.weights, ctx.scale = inputs[1], keyword_only_inputs["scale"]
    ctx.save_for_backward(output[1])


def of_lists(ctx: Any, gradients: Any) -> Any:
    assert ctx.needs_input_grad[0][0]
    first, *rest = [ctx.scale * w * gradients[0] for w in ctx.weights]
    return [first + gradients[1] * ctx.saved_tensors[0], *rest], None


@custom_op("aicf_test::shift_", mutates_args=("x",))
def shift_(x: Tensor, by: float) -> None:
    x.add_(by)


@custom_op("aicf_test::plain", mutates_args=())
def plain(x: Tensor) -> Tensor:
    """Without a gradient."""
    return x.sin()


@custom_op("aicf_test::in_numpy", mutates_args=())
def in_numpy(x: Tensor) -> Tensor:
    return torch.from_numpy(x.detach().numpy().copy())


@custom_op("aicf_test::narrow", mutates_args=())
def narrow(x: Tensor, most: int) -> Tensor:
    if x.shape[1] > most:
        raise ValueError(f"at most {most} columns")
    return x * 2


RAISED_AT = cast(Any, narrow)._init_fn.__code__.co_firstlineno + 3
"""The line of its error."""


def register(op: Any, backward: Op | None, setup: Op | None, fake: Op = torch.empty_like) -> None:
    op.register_fake(fake)
    if backward is not None:
        op.register_autograd(backward, setup_context=setup)


register(swish, of_swish, keep_operand, lambda x, beta=1.0: torch.empty_like(x))
register(
    both,
    lambda ctx, s, c: s * ctx.saved_tensors[1] - c * ctx.saved_tensors[0],
    lambda ctx, inputs, output: ctx.save_for_backward(*output),
    lambda x: (torch.empty_like(x), torch.empty_like(x)),
)
register(mixed, of_lists, keep_of_lists, lambda xs, weights, *, scale=2.0: [torch.empty_like(xs[0])] * 2)
register(plain, None, None)
register(narrow, lambda ctx, gradient: (gradient * 2, None), None, lambda x, most: torch.empty_like(x))
register(in_numpy, lambda ctx, gradient: gradient, lambda ctx, inputs, output: None)

LIBRARY = Library("aicf_test_low", "DEF")
LIBRARY.define("low(Tensor x) -> Tensor")
LIBRARY.impl("low", torch.sin, "CPU")
register_fake("aicf_test_low::low", torch.empty_like)
register_autograd("aicf_test_low::low", lambda ctx, gradient: gradient)

packets: Any = torch.ops.aicf_test


def differentiated(x: Tensor, h: Tensor) -> Tensor:
    """The gradient of the gradient of an op."""
    (first,) = torch.autograd.grad(swish(h, 0.7).square().sum(), h, create_graph=True)
    (second,) = torch.autograd.grad(swish(first).sum(), h, create_graph=True)
    return first.sin() + second


def shifted(m: Any, x: Tensor, h: Tensor) -> Tensor:
    y = x.clone()
    shift_(y, 2.0)
    return h * y


def narrow_or_not(m: Any, x: Tensor, h: Tensor) -> Tensor:
    """Whoever calls an op catches what its body raises."""
    try:
        return narrow(h, 1)
    except ValueError:
        return narrow(h, 100) + 1


BODIES: dict[str, Body] = {
    "an op": lambda m, x, h: m.two(swish(h, beta=0.7)),
    "of data": lambda m, x, h: h * swish(x),
    "by its packet": lambda m, x, h: m.two(packets.swish(h)),
    "by its overload": lambda m, x, h: m.two(packets.swish.default(h, 0.5)),
    "several results": lambda m, x, h: (y := both(h))[0] * y[1],
    "one of several results": lambda m, x, h: both(h)[0],
    "lists": lambda m, x, h: (y := mixed([h, x, m.two(h)], [1.0, 2.0, 3.0], scale=1.5))[0] * y[1],
    "without a gradient": lambda m, x, h: h * plain(x) + plain(h.detach()),
    "changes an operand": shifted,
    "raises an error": narrow_or_not,
    "gradients of gradients": lambda m, x, h: differentiated(x, h),
}


@pytest.mark.parametrize("kind", KINDS[:2])
@pytest.mark.parametrize("name", BODIES)
def test_a_step_is_torchs(name: str, kind: str) -> None:
    assert_as_torch(BODIES[name], kind)


def test_autocast_casts_the_operands_of_an_op_that_asks_for_it() -> None:
    """In torch the body runs without autocast then."""
    model, batch = Writer(lambda m, x, h: swish(h).to(h.dtype), torch.float32), batch_of(torch.float32)

    def loss(model: Any, batch: Any) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return loss_of(model, batch)

    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    try:
        swish.register_autocast("cpu", torch.bfloat16)
        step = compile_train_step(model, optimizer, loss_fn=loss, example=batch, device="cpu")
        found = step.check(batch)
    finally:
        cast(Any, swish)._autocast_dtype.clear()
    assert found.equal, str(found)


def half(x: Tensor) -> Tensor:
    """What an op is whose gradient is its derivative."""
    return swish(x, 0.7) / 2 + (swish(x, 0.7) / 2).detach()


def written(x: Tensor) -> Tensor:
    return x * torch.sigmoid(0.7 * x)


TRANSFORMED: dict[str, Callable[[Op, Any, Tensor], Tensor]] = {
    "grad": lambda op, m, x: torch.func.grad(lambda y: op(m(y)).sum())(x),
    "grad of grad": lambda op, m, x: torch.func.grad(
        lambda y: torch.func.grad(lambda z: op(m(z)).sum())(y).sin().sum()
    )(x),
    "vmap of grad": lambda op, m, x: vmap(torch.func.grad(lambda y: op(m(y)).sum()))(x),
    "jacrev": lambda op, m, x: torch.func.jacrev(lambda y: op(m(y)).mean(0))(x),
}


@pytest.mark.parametrize("name", TRANSFORMED)
def test_transforms_of_an_op_are_those_of_its_formula(name: str) -> None:
    """Torch has none of an op whose backward is registered."""

    def loss_by(op: Op) -> Any:
        return lambda m, b: TRANSFORMED[name](op, m, b["x"]).square().mean() + m(b["x"]).square().mean()

    torch.manual_seed(0)
    batch = {"x": torch.randn(5, 3, dtype=torch.float64)}
    models = [torch.nn.Linear(3, 3).double() for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    steps = [compiled(model, loss_by(op), batch) for model, op in zip(models, (half, written), strict=True)]
    for _ in range(2):
        torch.testing.assert_close(*(step.train_step(batch) for step in steps), rtol=1e-12, atol=0)
    torch.testing.assert_close(models[0].weight, models[1].weight, rtol=1e-12, atol=1e-14)
    assert_trains(models[1], loss_by(written), batch, 1e-11)


REFUSED: dict[str, tuple[Body, str]] = {
    "a body in NumPy": (
        lambda m, x, h: in_numpy(h),
        r"the custom op 'aicf_test::in_numpy' \(.*\) cannot be traced: the step converts a tensor to NumPy",
    ),
    "no gradient": (
        lambda m, x, h: plain(h),
        "'aicf_test::plain' cannot be traced: RuntimeError: .* no autograd formula was registered",
    ),
    "an error in the body": (
        lambda m, x, h: narrow(h, 1),
        rf"^{__file__}:{RAISED_AT}: ValueError: at most 1 columns$",
    ),
    "another library": (
        lambda m, x, h: torch.ops.aicf_test_low.low(h),
        r"aicf_test_low.low.default\(.*\) is not supported .*: its body is none that a trace can see; define it by torch.lib",
    ),
}


FACTORS = {"body": 2.0, "backward": 3.0}


@custom_op("aicf_test::scaled", mutates_args=())
def scaled(x: Tensor) -> Tensor:
    return x * FACTORS["body"]


register(scaled, lambda ctx, gradient: gradient * FACTORS["backward"], None)


def with_factor(name: str, value: float) -> Op:
    return lambda: FACTORS.update({name: value})


CHANGES: dict[str, Op] = {
    "a number in the body": with_factor("body", 5.0),
    "a number in the backward": with_factor("backward", 5.0),
    "another body": lambda: scaled.register_kernel("cpu")(lambda x: x * 7),
    "another backward": lambda: scaled.register_autograd(lambda ctx, gradient: gradient * 11),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_an_op_is_seen(name: str) -> None:
    model, batch = Writer(lambda m, x, h: scaled(h)), batch_of(torch.float64)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    step = compile_train_step(model, optimizer, loss_fn=loss_of, example=batch, device="cpu")
    step.train_step(batch)
    kept: Any = {key: value for key, value in vars(scaled).items() if key.endswith("_fn")}
    kernels: Any = dict(vars(scaled)["_backend_fns"])
    try:
        CHANGES[name]()
        with pytest.raises(GuardError):
            step.train_step(batch)
    finally:
        vars(scaled).update(kept)
        vars(scaled)["_backend_fns"].clear()
        vars(scaled)["_backend_fns"].update(kernels)
        FACTORS.update(body=2.0, backward=3.0)
    step.train_step(batch)


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_traced_is_refused_by_name(name: str) -> None:
    body, message = REFUSED[name]
    with pytest.raises(TraceError, match=message):
        trace(Writer(body), loss_of, batch_of(torch.float64))
