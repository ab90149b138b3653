"""Complex numbers in a step: values, gradients, parameters, buffers and optimizer states are torch's."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from costs import Some
from test_fourier import Function, expect_torchs, of_complex
from torch import nn

from aicf_mlir import compile_train_step, trace, train_step
from aicf_mlir.errors import TraceError

C, D = torch.complex128, torch.float64

Batch = Mapping[str, torch.Tensor]


def written(z: torch.Tensor) -> torch.Tensor:
    """A new tensor, written in parts."""
    made = torch.zeros(3, 8, dtype=C)
    made[:, :4] = z * 2
    made[1:, ::2] += z[1:].conj()
    return made


FUNCTIONS: dict[str, Function] = {
    "exp": of_complex(torch.exp),
    "log": of_complex(torch.log),
    "sqrt": of_complex(torch.sqrt),
    "tanh": of_complex(torch.tanh),
    "sin": of_complex(lambda z: z.sin() + z.cos() * z.sinh()),
    "sigmoid": of_complex(torch.sigmoid),
    "angle": of_complex(torch.angle),
    "sgn": of_complex(torch.sgn),
    "powers": of_complex(lambda z: z**3 + z**-2 + z**0.5 + (1 + 1j) ** z),
    "quotients": of_complex(lambda z: z / (z.conj() + 2) + 1 / z + z / 3j - (2 - 1j) * z),
    "polar": lambda y: torch.polar(y.abs(), 3 * y),
    "real times complex": of_complex(lambda z: z.real * z + z.imag - z),
    "matrices": of_complex(lambda z: (z @ z.mH).mT @ z.real.to(C) + z[:, 0].outer(z[0])),
    "linear": of_complex(lambda z: F.linear(z, z, z[:, 0])),
    "einsum": of_complex(lambda z: torch.einsum("ij,kj,k->ik", z, z.conj(), z[:, 1])),
    "convolution": of_complex(lambda z: F.conv1d(z[None], z[None, :, :2], padding=1)),
    "written": of_complex(written),
    "parts": of_complex(lambda z: torch.cat([z[:, 1:], z.flip(0)], 1).roll(1, 0).reshape(-1)[[0, 3, 3, 5]]),
    "where": of_complex(lambda z: torch.where(z.real > 0, z, 1j) + (z == z.roll(1)).double()),
    "statistics": of_complex(lambda z: z.mean(0) * z.var() + z.std() + z.norm()),
    "as numbers": of_complex(lambda z: torch.view_as_complex(torch.view_as_real(z).flip(-1).contiguous())),
    "rotary": lambda y: rotated(
        y[:, None], torch.polar(torch.ones(3, 2, dtype=D), torch.arange(6.0, dtype=D).reshape(3, 2))
    ),
}


def rotated(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    """Rotary embedding, as the reference code of Llama has it."""
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * angles[:, None]).flatten(-2).type_as(x)


@pytest.mark.parametrize("part", range(4))
def test_functions_are_torchs(part: int, some: Some) -> None:
    names = some(sorted(FUNCTIONS)[part::4])
    expect_torchs({name: FUNCTIONS[name] for name in names}, torch.randn(3, 4, dtype=D), 1e-12)


def test_derivatives_at_zero_are_torchs() -> None:
    at_zero: dict[str, Function] = {
        "abs": lambda y: torch.complex(0 * y, 0 * y + y - 1).abs(),
        "angle": lambda y: torch.complex(y - 1, 1 - y).angle() + y,
        "sgn": lambda y: torch.complex(y - 1, 1 - y).sgn().real + y,
        "norm": lambda y: torch.complex(y - 1, y - 1).norm() + y,
    }
    expect_torchs(at_zero, torch.ones(2, dtype=D), 1e-12)


class Operator(nn.Module):
    """A small Fourier neural operator: complex weights, a constant and an updated complex buffer."""

    def __init__(self, dtype: torch.dtype = D):
        super().__init__()
        self.lift = nn.Linear(2, 4, dtype=dtype)
        self.weight = nn.Parameter(torch.randn(4, 4, 3, dtype=dtype.to_complex()) / 4)
        self.project = nn.Linear(4, 1, dtype=dtype)
        self.register_buffer("phase", torch.polar(torch.ones(3, dtype=dtype), torch.rand(3, dtype=dtype)))
        self.register_buffer("running", torch.zeros(4, 3, dtype=dtype.to_complex()))

    def spectrum(self, x: torch.Tensor) -> torch.Tensor:
        found = torch.fft.rfft(self.lift(x).mT, norm="ortho")[..., :3] * self.phase
        self.running = 0.9 * self.running + 0.1 * found.detach().mean(0)
        return torch.einsum("bik,iok->bok", found, self.weight) + self.running

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.fft.irfft(self.spectrum(x), n=x.shape[1], norm="ortho")
        return self.project(F.gelu(h).mT)


def batch_of(dtype: torch.dtype = D) -> dict[str, torch.Tensor]:
    return {"x": torch.randn(3, 8, 2, dtype=dtype), "t": torch.randn(3, 8, 1, dtype=dtype)}


def error(model: nn.Module, batch: Batch) -> torch.Tensor:
    return F.mse_loss(model(batch["x"]), batch["t"])


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True, weight_decay=0.01),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.01, initial_accumulator_value=0.1),
    "Rprop": lambda p: torch.optim.Rprop(p),
}


def expect_close(ours: Any, torchs: Any) -> None:
    """The same tensors of the same types, in nested dictionaries and lists."""
    torch.testing.assert_close(ours, torchs, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_parameters_and_states_stay_complex_and_are_torchs(name: str) -> None:
    model, batch = Operator(), batch_of()
    other = copy.deepcopy(model)
    optimizer, its = OPTIMIZERS[name](model.parameters()), OPTIMIZERS[name](other.parameters())
    weight = model.weight
    step = compile_train_step(
        model, optimizer, device="cpu", example=batch, loss_fn=error, keep_gradients=True
    )

    def both() -> None:
        ours = step.train_step(batch)
        its.zero_grad()
        loss = error(other, batch)
        loss.backward()
        its.step()
        expect_close(ours, loss.detach())
        expect_close(step.gradients["weight"], other.weight.grad)
        expect_close(model.weight.grad, other.weight.grad)
        expect_close(dict(model.state_dict()), dict(other.state_dict()))
        expect_close(optimizer.state_dict()["state"], its.state_dict()["state"])

    both()
    both()
    optimizer.load_state_dict(copy.deepcopy(its.state_dict()))
    with torch.no_grad():
        for parameter in (*model.parameters(), *other.parameters()):
            parameter.mul_(0.5)
    both()
    assert model.weight is weight and weight.dtype is C
    step.close()
    expect_close(dict(model.state_dict()), dict(other.state_dict()))


def inner_gradient(model: Operator, batch: Batch) -> torch.Tensor:
    """A penalty on gradients with respect to complex numbers, computed with complex seeds."""
    z = model.spectrum(batch["x"])
    y = z * z.conj() * z
    dz, dw = torch.autograd.grad(y, [z, model.weight], torch.ones_like(y) * (1 + 2j), create_graph=True)
    return dz.abs().mean() + (dw * dw).real.mean() + y.abs().mean()


class Doubled(torch.autograd.Function):
    """A product whose gradient is not its own."""

    @staticmethod
    def forward(ctx: Any, z: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(z, w)
        return z * w

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        (g,) = cotangents
        z, w = ctx.saved_tensors
        return 2 * g * w.conj(), (g * z.conj()).sum((0, 1))


def own_gradient(model: Operator, batch: Batch) -> torch.Tensor:
    function: Any = Doubled
    found = function.apply(model.spectrum(batch["x"]), model.weight[0, 0])
    return (found * found.detach().conj()).real.mean()


@pytest.mark.parametrize("loss_fn", [inner_gradient, own_gradient])
def test_gradients_inside_a_step_are_torchs(loss_fn: Any) -> None:
    model, batch = Operator(), batch_of()
    other = copy.deepcopy(model)
    optimizer, its = (torch.optim.SGD(each.parameters(), lr=0.1) for each in (model, other))
    step = compile_train_step(model, optimizer, device="cpu", example=batch, loss_fn=loss_fn)
    for _ in range(2):
        step.train_step(batch)
        its.zero_grad()
        loss_fn(other, batch).backward()
        its.step()
    expect_close(dict(model.state_dict()), dict(other.state_dict()))
    step.close()


def test_a_loop_body_trains_complex_parameters() -> None:
    model, batch = Operator(), batch_of()
    other = copy.deepcopy(model)
    optimizer, its = (torch.optim.Adam(each.parameters(), lr=0.01) for each in (model, other))

    def body_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> Callable[[Batch], torch.Tensor]:
        def body(batch: Batch) -> torch.Tensor:
            optimizer.zero_grad()
            loss = error(model, batch)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
            return loss

        return body

    ours, torchs = train_step(body_of(model, optimizer)), body_of(other, its)
    for _ in range(2):
        expect_close(ours(batch).detach(), torchs(batch).detach())
    expect_close(dict(model.state_dict()), dict(other.state_dict()))


def refusal(loss_fn: Any, batch: Batch, **options: Any) -> str:
    with pytest.raises(TraceError) as refused:
        trace(Operator(torch.float32), loss_fn, batch, **options)
    return str(refused.value)


def test_what_has_no_real_form_is_refused() -> None:
    x = batch_of(torch.float32)
    assert "aten.acosh.default of complex numbers" in refusal(lambda m, b: m.weight.acosh().abs().sum(), x)
    text = refusal(lambda m, b: m(b["x"]).sum(), {"x": torch.zeros(2, 2, dtype=torch.complex64)})
    assert "pass torch.view_as_real(x)" in text
    assert "output 'z' is a tensor of torch.complex64" in refusal(
        lambda m, b: (m(b["x"]).sum(), {"z": m.weight}), x
    )
    assert "the loss must be a 0-d float tensor, got complex64[]" in refusal(lambda m, b: m.weight.sum(), x)


class Plain(torch.optim.Optimizer):
    """An optimizer that no rule describes."""

    def __init__(self, params: Any):
        super().__init__(params, {"lr": 0.1})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for p in group["params"]:
                p.add_(p.grad, alpha=-group["lr"])


def test_a_traced_optimizer_of_complex_parameters_is_refused() -> None:
    model = Operator(torch.float32)
    with pytest.raises(TraceError, match="'weight' is a complex parameter, which optimizers of torch"):
        trace(model, error, batch_of(torch.float32), optimizer=Plain(model.parameters()))


def test_a_conjugated_view_is_refused() -> None:
    model = Operator(torch.float32)
    model.register_buffer("phase", torch.ones(3, dtype=torch.complex64).conj())
    with pytest.raises(TraceError, match=r"'phase' is a view that is conjugated when it is read; make it"):
        trace(model, error, batch_of(torch.float32))
