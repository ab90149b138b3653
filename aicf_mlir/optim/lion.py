"""Lion, which torch does not have: Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms", arXiv:2302.06675."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from aicf_mlir.optim.parameters import Parameters, parameters_of


class Lion(torch.optim.Optimizer):
    """Algorithm 2 of the paper: the sign of a moving average of gradients, and decoupled weight decay, as AdamW has it.

    `params` may be a module. `lr` is about a tenth of that of AdamW, `weight_decay` ten times that. The state of a parameter is
    its `exp_avg`. Raises ValueError in the same cases as torch's optimizers: an `lr` or a `weight_decay` below 0, betas that are
    not from 0 to below 1.
    """

    def __init__(
        self,
        params: Parameters,
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
    ) -> None:
        if not lr >= 0.0:
            raise ValueError(f"Invalid learning rate: {lr}")
        for index, beta in enumerate(betas):
            if not 0.0 <= beta < 1.0:
                raise ValueError(f"Invalid beta parameter at index {index}: {beta}")
        if not weight_decay >= 0.0:
            raise ValueError(f"Invalid weight_decay value: {weight_decay}")
        defaults = {"lr": lr, "betas": betas, "weight_decay": weight_decay, "maximize": maximize}
        super().__init__(parameters_of(params), defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Do one step of every parameter that has a gradient; return the loss if `closure` computes it."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self._update(p, -p.grad if group["maximize"] else p.grad, **group)
        return loss

    def _update(
        self,
        p: torch.Tensor,
        grad: torch.Tensor,
        *,
        lr: float,
        betas: tuple[float, float],
        weight_decay: float,
        **_: object,
    ) -> None:
        if not (state := self.state[p]):
            state["exp_avg"] = torch.zeros_like(p, memory_format=torch.preserve_format)
        exp_avg, (beta1, beta2) = state["exp_avg"], betas
        p.mul_(1 - lr * weight_decay)
        direction = (exp_avg * beta1).add_(grad, alpha=1 - beta1).sign_()
        p.add_(direction, alpha=-lr)
        exp_avg.mul_(beta2).add_(grad, alpha=1 - beta2)
