"""Functions with a backward of their own, as people write them: of a model, its input and a differentiable tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch.amp import custom_bwd, custom_fwd
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

Tensor = torch.Tensor
Body = Callable[[Any, Tensor, Tensor], Tensor]


class StraightThrough(Function):
    """Its gradient is not the derivative."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return torch.round(4 * x) / 4

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0]


class Reversal(Function):
    """Returns a view of its operand; a number of Python beside it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: float) -> Tensor:
        ctx.scale = scale
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return -ctx.scale * grads[0], None


class Clipped(Function):
    """A backward that is not linear in the gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0].clamp(-0.02, 0.02)


class Swish(Function):
    """Saves its operand and its result."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = x * x.sigmoid()
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        x, y = ctx.saved_tensors
        return grads[0] * (y + x.sigmoid() * (1 - y))


class MaskedCopy(Function):
    """Writes in place into tensors of its own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        y = x.clone()
        y[x < 0] = 0
        y[:, 0].mul_(2)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (x,) = ctx.saved_tensors
        gradient = grads[0].clone()
        gradient[x < 0] = 0
        gradient[:, 0] *= 2
        return gradient


class Linear(Function):
    """Asks which gradients are needed."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        ctx.save_for_backward(x, weight, bias)
        return x @ weight.t() + (0 if bias is None else bias)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        x, weight, bias = ctx.saved_tensors
        of_x = of_weight = of_bias = None
        if ctx.needs_input_grad[0]:
            of_x = grads[0] @ weight
        if ctx.needs_input_grad[1]:
            of_weight = grads[0].t() @ x * 3
        if bias is not None and ctx.needs_input_grad[2]:
            of_bias = grads[0].sum(0)
        return of_x, of_weight, of_bias


class SetUp(Function):
    """The style with `setup_context`, and a default."""

    @staticmethod
    def forward(x: Tensor, power: int = 3) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return x**power

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, ctx.power = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 0.5 * ctx.power * x ** (ctx.power - 1) * grads[0], None


class Several(Function):
    """Three results, of which one has no gradient, and one is no tensor."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Any:
        largest, where = x.max(1)
        mean = x.mean(1)
        ctx.mark_non_differentiable(where, mean)
        ctx.save_for_backward(x, where)
        return largest, where, mean, x.exp(), "name"

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        of_largest, of_where, of_mean, of_exp, of_name = grads
        assert of_name is None
        x, where = ctx.saved_tensors
        first = torch.zeros_like(x).scatter_(1, where[:, None], of_largest[:, None])
        return 2 * first + of_exp * x.exp() + of_mean[:, None] + 0 * of_where[:, None]


class Split(Function):
    """Of two results; gradients are None where nothing is known of them."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Any:
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        one, other = grads
        total = None
        for factor, gradient in ((5, one), (7, other)):
            if gradient is not None:
                total = factor * gradient if total is None else total + factor * gradient
        return total


class Once(Function):
    """As torch's own that cannot be differentiated twice."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.mask = x > 0
        return x * ctx.mask

    @staticmethod
    @once_differentiable  # pyright: ignore[reportUntypedFunctionDecorator]
    def backward(ctx: Any, *grads: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return grads[0] * ctx.mask * 0.5


class Broadcast(Function):
    """The gradient of a row comes in the shape of the result: torch sums it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, row: Tensor) -> Tensor:
        return x + row

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0], grads[0]


class Narrow(Function):
    """A gradient of another element type: torch casts it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 1.5

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0].float().bfloat16().double() if grads[0].dtype == torch.float64 else grads[0].double()


class Entmax(Function):
    """Sorting, a sum so far and an index: sparsemax, as packages have it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        x = x - x.max(-1, keepdim=True).values
        ordered, _ = x.sort(-1, descending=True)
        rho = torch.arange(1, x.shape[-1] + 1, dtype=x.dtype)
        sums = ordered.cumsum(-1) - 1
        support = (rho * ordered > sums).sum(-1, keepdim=True)
        y = (x - sums.gather(-1, support - 1) / support.to(x.dtype)).clamp(min=0)
        ctx.save_for_backward(support, y)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        support, y = ctx.saved_tensors
        gradient = grads[0].clone()
        gradient[y == 0] = 0
        mean = gradient.sum(-1, keepdim=True) / support.to(y.dtype)
        return torch.where(y != 0, gradient - mean, gradient)


class Cast(Function):
    """torch's decorators for autocast."""

    @staticmethod
    @custom_fwd(device_type="cpu")  # pyright: ignore[reportUntypedFunctionDecorator]
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return x @ weight.t()

    @staticmethod
    @custom_bwd(device_type="cpu")  # pyright: ignore[reportUntypedFunctionDecorator]
    def backward(ctx: Any, *grads: Any) -> Any:
        x, weight = ctx.saved_tensors
        return grads[0] @ weight, 2 * (grads[0].t() @ x)


class Stop(Function):
    """No gradient at all."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return None


class Forward(Function):
    """For a value alone: its backward is not written."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.exp()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise NotImplementedError("only forward")


class Outer(Function):
    """A function inside of a forward, and one inside of a backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return Swish.apply(x) + x

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (x,) = ctx.saved_tensors
        return grads[0] * Swish.apply(x) + Reversal.apply(grads[0], 2.0)


class Derived(Swish):
    """Takes its forward from another."""

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return Swish.backward(ctx, 2 * grads[0])


class OfBuffers(Function):
    """Reads what the model keeps, and a closure's tensors."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, m: Any) -> Tensor:
        ctx.m = m
        return x * m.variance

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0] * (ctx.m.variance + 1) + ctx.m.mean, None


class Shifted(Function):
    """Changes its operand in place without a word of it, saves it and returns it, as TabNet's sparsemax does."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        x -= x.amax(1, keepdim=True)
        x[:, 0] = 0.5
        x.mul_(2)
        ctx.save_for_backward(x)
        return x.exp(), x

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (x,) = ctx.saved_tensors
        return grads[0] * x + grads[1]


reversed_: Any = Reversal.apply


def conditional(m: Any, x: Tensor, h: Tensor) -> Tensor:
    """Where nobody asks for its gradient, a function is what its forward is."""
    with torch.no_grad():
        y = Forward.apply(h)
    return h * y + Forward.apply(x) + Forward.apply(h).detach()


def loop(m: Any, x: Tensor, h: Tensor) -> Tensor:
    for _ in range(3):
        h = Swish.apply(m.two(h))
    return h


def updates(m: Any, x: Tensor, h: Tensor) -> Tensor:
    with torch.no_grad():
        m.mean.mul_(0.9).add_(0.1 * h.mean(0))
    y: Tensor = OfBuffers.apply(h, m)
    m.count += 1
    return y + m.mean


def again(reentrant: bool) -> Body:
    def body(m: Any, x: Tensor, h: Tensor) -> Tensor:
        result: Any = checkpoint(lambda h: m.two(Derived.apply(h)), h, use_reentrant=reentrant)
        return result + Swish.apply(h)

    return body


FUNCTIONS: dict[str, Body] = {
    "straight through": lambda m, x, h: m.two(StraightThrough.apply(h)),
    "reversal": lambda m, x, h: m.two(reversed_(h, 0.3)) + h,
    "of its operand twice": lambda m, x, h: Clipped.apply(h) * 2 + Clipped.apply(h) * torch.arange(3),
    "saved": lambda m, x, h: m.two(Swish.apply(h)),
    "in place": lambda m, x, h: m.two(MaskedCopy.apply(h)),
    "changes its operand": lambda m, x, h: (y := Shifted.apply(m.two(h)))[0] + y[1],
    "linear": lambda m, x, h: Linear.apply(h, m.two.weight, m.two.bias),
    "linear of data": lambda m, x, h: Linear.apply(x, m.two.weight, None) + h,
    "linear without bias": lambda m, x, h: Linear.apply(h, m.two.weight),
    "set up": lambda m, x, h: m.two(SetUp.apply(h)) + SetUp.apply(h, 2),
    "several results": lambda m, x, h: (
        (y := Several.apply(h))[0][:, None] * y[3] + y[1][:, None] + y[2][:, None]
    ),
    "one of several results": lambda m, x, h: h + Several.apply(h)[0][:, None],
    "gradients or None": lambda m, x, h: (y := Split.apply(h))[0] * y[1],
    "once": lambda m, x, h: m.two(Once.apply(h)),
    "summed gradient": lambda m, x, h: Broadcast.apply(h, m.two.bias),
    "cast gradient": lambda m, x, h: m.two(Narrow.apply(h)),
    "sparsemax": lambda m, x, h: m.two(Entmax.apply(h)),
    "decorated": lambda m, x, h: Cast.apply(h, m.two.weight),
    "under autocast": lambda m, x, h: in_low(m, h),
    "no gradient": lambda m, x, h: Stop.apply(h) * h,
    "no gradient is asked for": conditional,
    "nested": lambda m, x, h: m.two(Outer.apply(h)),
    "derived": lambda m, x, h: m.two(Derived.apply(h)),
    "of buffers": updates,
    "in a loop": loop,
    "in a checkpoint": again(False),
    "in a reentrant checkpoint": again(True),
    "a view written to": lambda m, x, h: (y := Swish.apply(h) * 1)[:, 0].mul_(2)[:, None] + y,
    "relu of it": lambda m, x, h: F.relu(Reversal.apply(F.relu(h), 1.0)),
}


def in_low(m: Any, h: Tensor) -> Tensor:
    """The gradient is taken outside of the block."""
    with torch.autocast("cpu", torch.bfloat16):
        y = Cast.apply(h, m.two.weight)
    return Swish.apply(y.to(h.dtype))
