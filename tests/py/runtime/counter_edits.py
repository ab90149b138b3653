"""Optimizers whose parameters count their steps, and what a user may do to those counts and to the state beside them."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from models import MakeOptimizer, OptimizerConfig
from torch import nn

Edit = Callable[[nn.Module, torch.optim.Optimizer], None]
"""What a user does between two steps, to a compiled optimizer or to one of torch."""


def in_two_groups(config: OptimizerConfig) -> MakeOptimizer:
    """Weights in one group, biases in another with an lr and betas or a momentum of its own."""

    def make(model: nn.Module) -> torch.optim.Optimizer:
        named = dict(model.named_parameters())
        biases = [p for name, p in named.items() if name.endswith("bias")]
        weights = [p for name, p in named.items() if not name.endswith("bias")]
        own = {"momentum": 0.5} if config.kind is torch.optim.SGD else {"betas": (0.5, 0.8)}
        return config.kind([{"params": weights}, {"params": biases, "lr": 0.1, **own}], **config.options)

    return make


ADAM = OptimizerConfig(torch.optim.Adam, {"lr": 1e-2})
MOMENTUM = OptimizerConfig(torch.optim.SGD, {"lr": 0.05, "momentum": 0.9, "dampening": 0.3})
ADAMS: dict[str, MakeOptimizer] = {
    "Adam": ADAM,
    "Adam amsgrad": ADAM.but(amsgrad=True, weight_decay=0.1),
    "AdamW": OptimizerConfig(torch.optim.AdamW, {"lr": 1e-2, "weight_decay": 0.1}),
    "AdamW amsgrad": OptimizerConfig(torch.optim.AdamW, {"lr": 1e-2, "amsgrad": True}),
    "Adam in two groups": in_two_groups(ADAM),
}
SGDS: dict[str, MakeOptimizer] = {
    "SGD": MOMENTUM,
    "SGD nesterov": OptimizerConfig(torch.optim.SGD, {"lr": 0.05, "momentum": 0.9, "nesterov": True}),
    "SGD in two groups": in_two_groups(MOMENTUM),
}


def bias(model: nn.Module) -> nn.Parameter:
    """The parameter whose counter the edits change: neither the first nor the last."""
    return dict(model.named_parameters())["0.bias"]


def write_in_place(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.state[bias(model)]["step"].fill_(40)


def add_in_place(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.state[bias(model)]["step"] += 7


def start_over(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.state[bias(model)]["step"].zero_()


def assign(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.state[bias(model)]["step"] = torch.tensor(5.0)


def load_other_steps(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    saved = copy.deepcopy(optimizer.state_dict())
    for index, state in saved["state"].items():
        state["step"] = torch.tensor(2.0 + 30 * index)
    optimizer.load_state_dict(saved)


def load_without_one(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    saved = copy.deepcopy(optimizer.state_dict())
    del saved["state"][1]
    optimizer.load_state_dict(saved)


def drop_the_buffer(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    del optimizer.state[bias(model)]["momentum_buffer"]


def no_buffer(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.state[bias(model)]["momentum_buffer"] = None


def give_state(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    parameter = bias(model)
    if isinstance(optimizer, torch.optim.SGD):
        optimizer.state[parameter]["momentum_buffer"] = torch.ones_like(parameter)
        return
    moments = {name: torch.full_like(parameter, 0.01) for name in ("exp_avg", "exp_avg_sq")}
    if optimizer.param_groups[0]["amsgrad"]:
        moments["max_exp_avg_sq"] = torch.full_like(parameter, 0.02)
    optimizer.state[parameter] = {"step": torch.tensor(6.0), **moments}


def load_without_one_then_give(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """What is adopted twice before the next step still leaves a parameter without state at its start."""
    load_without_one(model, optimizer)
    key = "momentum_buffer" if isinstance(optimizer, torch.optim.SGD) else "exp_avg"
    first = next(model.parameters())
    optimizer.state[first][key] = torch.full_like(first, 0.1)
