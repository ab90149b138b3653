"""Differential equations, flows, operators and spiking networks."""

from __future__ import annotations

from typing import Any

import normflows
import snntorch
import torch
import torch.nn.functional as F
import zuko
from ncps.torch import LTC, CfC
from neuralop.layers.channel_mlp import ChannelMLP
from neuralop.models import FNO
from snntorch import surrogate
from torch import nn
from torchdiffeq import odeint, odeint_adjoint

from tests.real.case import Batch, Make, Work, trained

ROWS, WIDTH = 8, 4


def points() -> Batch:
    return {"x": torch.randn(ROWS, WIDTH), "t": torch.randn(ROWS, WIDTH)}


def given() -> Batch:
    return {"x": torch.randn(ROWS, 2), "c": torch.randn(ROWS, 3)}


class Field(nn.Module):
    """The right side of an ordinary differential equation."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(WIDTH, 16), nn.Tanh(), nn.Linear(16, WIDTH))

    def forward(self, t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.net(y)


def ode(method: str, solve: Any = odeint, **options: Any) -> Make:
    times = torch.linspace(0, 1, 4)
    return lambda: trained(
        Field(),
        points,
        lambda m, b: F.mse_loss(solve(m, b["x"], times, method=method, **options)[-1], b["t"]),
    )


def flow(name: str, **sizes: Any) -> Make:
    """The mean negative log-likelihood of points, given others."""
    return lambda: trained(
        getattr(zuko.flows, name)(2, 3, hidden_features=(16, 16), **sizes),
        given,
        lambda m, b: -m(b["c"]).log_prob(b["x"]).mean(),
    )


def real_nvp() -> Work:
    masks = [torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])]
    layers = [
        normflows.flows.MaskedAffineFlow(m, normflows.nets.MLP([2, 16, 2]), normflows.nets.MLP([2, 16, 2]))
        for m in masks
    ]
    model = normflows.NormalizingFlow(normflows.distributions.base.DiagGaussian(2), layers)
    return trained(model, given, lambda m, b: m.forward_kld(b["x"]))


class Spiking(nn.Module):
    """Two layers of leaky neurons over five steps of time, as snntorch's tutorials have them."""

    def __init__(self, neuron: Any = snntorch.Leaky, **options: Any):
        super().__init__()
        gradient = surrogate.fast_sigmoid()
        self.first, self.second = nn.Linear(WIDTH, 16), nn.Linear(16, 3)
        self.neuron = neuron(beta=0.9, spike_grad=gradient, **options)
        self.last = neuron(beta=0.9, spike_grad=gradient, **options)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept, out, spikes = self.neuron.init_leaky(), self.last.init_leaky(), []
        for _ in range(5):
            spike, kept = self.neuron(self.first(x), kept)
            spike, out = self.last(self.second(spike), out)
            spikes.append(out)
        return torch.stack(spikes).sum(0)


def labelled() -> Batch:
    return {"x": torch.randn(ROWS, WIDTH), "t": torch.randint(3, (ROWS,))}


def sequence() -> Batch:
    return {"x": torch.randn(ROWS, 6, WIDTH), "t": torch.randn(ROWS, 6, 5)}


def field() -> Batch:
    return {"x": torch.randn(2, 1, 16), "t": torch.randn(2, 1, 16)}


def classified(m: Any, b: Batch) -> torch.Tensor:
    return F.cross_entropy(m(b["x"]), b["t"])


CASES: dict[str, Make] = {
    "torchdiffeq, Euler": ode("euler"),
    "torchdiffeq, Runge-Kutta": ode("rk4", options={"step_size": 0.1}),
    "torchdiffeq, midpoint": ode("midpoint"),
    "torchdiffeq, Dormand-Prince": ode("dopri5"),
    "torchdiffeq, adjoint": ode("rk4", odeint_adjoint),
    "zuko MAF": flow("MAF", transforms=2),
    "zuko NSF": flow("NSF", transforms=2),
    "zuko NICE": flow("NICE", transforms=2),
    "zuko NAF": flow("NAF", transforms=1),
    "normflows RealNVP": real_nvp,
    "snntorch Leaky": lambda: trained(Spiking(), labelled, classified),
    "snntorch Leaky, learned": lambda: trained(
        Spiking(learn_beta=True, reset_mechanism="zero"), labelled, classified
    ),
    "neuraloperator FNO": lambda: trained(
        FNO(n_modes=(4,), in_channels=1, out_channels=1, hidden_channels=8, n_layers=2),
        field,
        lambda m, b: F.mse_loss(m(b["x"]), b["t"]),
    ),
    "neuraloperator channels": lambda: trained(
        ChannelMLP(1, 1, 8, n_dim=1), field, lambda m, b: F.mse_loss(m(b["x"]), b["t"])
    ),
    "ncps CfC": lambda: trained(CfC(WIDTH, 5), sequence, lambda m, b: F.mse_loss(m(b["x"])[0], b["t"])),
    "ncps LTC": lambda: trained(LTC(WIDTH, 5), sequence, lambda m, b: F.mse_loss(m(b["x"])[0], b["t"])),
}
