"""Optimizers as people write them: state made on the first step, numbers counted in Python, old calls and new ones."""
# pyright: reportIncompatibleMethodOverride=false, reportUnknownMemberType=false

from __future__ import annotations

import math
from abc import ABC
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_torch: Any = torch


class Written(torch.optim.Optimizer):
    """One param group entry a hyperparameter."""

    def __init__(self, params: Any, **defaults: Any):
        super().__init__(params, defaults)

    def entries(self) -> Any:
        """Each parameter that has a gradient, with its gradient, state and group."""
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    yield p, p.grad, self.state[p], group


class Lion(Written):
    """arXiv:2302.06675."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for p, grad, state, group in self.entries():
            if len(state) == 0:
                state["exp_avg"] = torch.zeros_like(p)
            exp_avg, (beta1, beta2) = state["exp_avg"], group["betas"]
            p.data.mul_(1 - group["lr"] * group["weight_decay"])
            update = exp_avg.clone().mul_(beta1).add(grad, alpha=1 - beta1).sign_()
            p.add_(update, alpha=-group["lr"])
            exp_avg.mul_(beta2).add_(grad, alpha=1 - beta2)


class SignSGD(Written):
    """With momentum, without in-place operations."""

    def step(self, closure: Any = None) -> None:
        for p, grad, state, group in self.entries():
            momentum = state.get("momentum", torch.zeros_like(p))
            state["momentum"] = group["momentum"] * momentum + (1 - group["momentum"]) * grad
            p.data = p.data - group["lr"] * torch.sign(state["momentum"])


class PlainAdam(Written):
    """Adam from the paper, its steps counted in Python."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for p, grad, state, group in self.entries():
            if not state:
                state["step"] = 0
                state["exp_avg"] = torch.zeros_like(p, memory_format=torch.preserve_format)
                state["exp_avg_sq"] = torch.zeros_like(p, memory_format=torch.preserve_format)
            state["step"] += 1
            beta1, beta2 = group["betas"]
            if group["weight_decay"] != 0:
                grad = grad.add(p, alpha=group["weight_decay"])
            state["exp_avg"].mul_(beta1).add_(grad, alpha=1 - beta1)
            state["exp_avg_sq"].mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
            bias1, bias2 = 1 - beta1 ** state["step"], 1 - beta2 ** state["step"]
            denominator = (state["exp_avg_sq"].sqrt() / math.sqrt(bias2)).add_(group["eps"])
            p.addcdiv_(state["exp_avg"], denominator, value=-group["lr"] / bias1)


class AdaBelief(Written):
    """arXiv:2010.07468."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for p, grad, state, group in self.entries():
            if len(state) == 0:
                state["step"] = torch.tensor(0.0)
                state["mean"], state["var"] = torch.zeros_like(p), torch.zeros_like(p)
            state["step"] += 1
            beta1, beta2 = group["betas"]
            p.mul_(1.0 - group["lr"] * group["weight_decay"])
            state["mean"].mul_(beta1).add_(grad, alpha=1 - beta1)
            residual = grad - state["mean"]
            state["var"].mul_(beta2).addcmul_(residual, residual, value=1 - beta2).add_(group["eps"])
            step = state["step"].item()
            denominator = (state["var"].sqrt() / math.sqrt(1 - beta2**step)).add_(group["eps"])
            p.addcdiv_(state["mean"], denominator, value=-group["lr"] / (1 - beta1**step))


class Lamb(Written):
    """arXiv:1904.00962, the trust ratio on the device."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for p, grad, state, group in self.entries():
            if len(state) == 0:
                state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(p), torch.zeros_like(p)
            beta1, beta2 = group["betas"]
            state["exp_avg"].lerp_(grad, 1 - beta1)
            state["exp_avg_sq"].mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
            update = state["exp_avg"] / (state["exp_avg_sq"].sqrt() + group["eps"])
            update = update + group["weight_decay"] * p
            weight, size = p.norm(), update.norm()
            trust = torch.where((weight > 0) & (size > 0), weight / size, torch.ones_like(weight))
            p.sub_(update * trust * group["lr"])


class Adan(Written):
    """arXiv:2208.06677: the gradient before is state."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for p, grad, state, group in self.entries():
            if len(state) == 0:
                for name in ("m", "v", "n", "before"):
                    state[name] = torch.zeros_like(p)
                state["k"] = 0
            state["k"] += 1
            b1, b2, b3 = group["betas"]
            change = grad - state["before"]
            state["m"].lerp_(grad, b1)
            state["v"].lerp_(change, b2)
            state["n"].mul_(1 - b3).add_((grad + (1 - b2) * change).square_(), alpha=b3)
            rate = group["lr"] / (state["n"] / (1 - (1 - b3) ** state["k"])).sqrt_().add_(group["eps"])
            p.sub_(rate * (state["m"] + (1 - b2) * state["v"])).div_(1 + group["weight_decay"] * group["lr"])
            state["before"].copy_(grad)


class Lookahead(Written):
    """Slow weights that begin as the weights, drawn a little way each step."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for p, grad, state, group in self.entries():
            if "slow" not in state:
                state["slow"] = p.clone()
            p.sub_(grad, alpha=group["lr"])
            state["slow"].lerp_(p, group["alpha"])
            p.copy_(state["slow"])


class Foreach(Written):
    """RMSprop on lists of tensors."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            params: list[Tensor] = [p for p in group["params"] if p.grad is not None]
            grads = [p.grad for p in params]
            for p in params:
                self.state[p].setdefault("square", torch.zeros_like(p))
            squares = [self.state[p]["square"] for p in params]
            _torch._foreach_mul_(squares, group["alpha"])
            _torch._foreach_addcmul_(squares, grads, grads, 1 - group["alpha"])
            roots = _torch._foreach_sqrt(squares)
            _torch._foreach_add_(roots, group["eps"])
            _torch._foreach_addcdiv_(params, grads, roots, value=-group["lr"])


class Warmed(Written):
    """SGD whose rate grows with the steps, never beyond the rate of the group; several numbers of one entry."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for p, grad, state, group in self.entries():
            state["t"] = state.get("t", 0) + 1
            start, power = group["warm"]
            rate = min(group["lr"], start * math.pow(state["t"], power))
            p.add_(grad.clamp(-group["limit"], group["limit"]), alpha=-max(rate, 1e-5))


class Bounded(Written, ABC):
    """AdaBound, arXiv:1902.09843: a tensor full of the rate, between bounds that close. Its metaclass is that of abc."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for p, grad, state, group in self.entries():
            if len(state) == 0:
                state["step"], state["exp_avg_sq"] = 0, torch.zeros_like(p)
            state["step"] += 1
            state["exp_avg_sq"].mul_(group["beta"]).addcmul_(grad, grad, value=1 - group["beta"])
            rate = group["lr"] * math.sqrt(1 - group["beta"] ** state["step"])
            lower = group["last"] * (1 - 1 / (0.1 * state["step"] + 1))
            size = torch.full_like(grad, rate).div_(state["exp_avg_sq"].sqrt().add_(group["eps"]))
            p.add_(-size.clamp_(lower, 3 * group["last"]).mul_(grad))


class Centralized(Written):
    """SGD on gradients without their mean over all but the first dimension; the norm is over all parameters."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        entries = list(self.entries())
        total = torch.stack([grad.norm() for _, grad, _, _ in entries]).norm()
        for p, grad, _, group in entries:
            if p.dim() > 1:
                grad = grad - grad.mean(dim=tuple(range(1, p.dim())), keepdim=True)
            p.add_(grad / (total + group["eps"]), alpha=-group["lr"])


class CountsInGroup(Written):
    """One count for all parameters of a group, which its first step makes if the group has none."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            group["step"] = group.get("step", 0) + 1
            scale = group["lr"] / (1 - group["beta"] ** group["step"])
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["exp_avg"] = torch.zeros_like(p)
                state["exp_avg"].lerp_(p.grad, 1 - group["beta"])
                p.add_(state["exp_avg"], alpha=-scale)


class CountsRates(Written):
    """Numbers that the groups have from the beginning, as schedule-free optimizers: a count, and a sum of rates."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            group["k"] += 1
            group["total"] += group["lr"] * group["k"]
            for p in group["params"]:
                p.sub_(p.grad, alpha=group["lr"] * group["k"] / group["total"])


Config = Callable[[Any], torch.optim.Optimizer]

RIGHT: dict[str, Config] = {
    "lion": lambda ps: Lion(ps, lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1),
    "sign-sgd": lambda ps: SignSGD(ps, lr=1e-3, momentum=0.9),
    "plain-adam": lambda ps: PlainAdam(ps, lr=1e-2, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.0),
    "plain-adam-decay": lambda ps: PlainAdam(ps, lr=1e-2, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.1),
    "adabelief": lambda ps: AdaBelief(ps, lr=1e-2, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.1),
    "lamb": lambda ps: Lamb(ps, lr=1e-2, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.1),
    "adan": lambda ps: Adan(ps, lr=1e-3, betas=(0.02, 0.08, 0.01), eps=1e-4, weight_decay=0.02),
    "lookahead": lambda ps: Lookahead(ps, lr=1e-2, alpha=0.5),
    "foreach": lambda ps: Foreach(ps, lr=1e-3, alpha=0.99, eps=1e-6),
    "warmed": lambda ps: Warmed(ps, lr=1e-2, warm=(1e-4, 1.5), limit=0.5),
    "bounded": lambda ps: Bounded(ps, lr=1e-2, beta=0.99, eps=1e-4, last=0.1),
    "centralized": lambda ps: Centralized(ps, lr=1e-2, eps=1e-6),
    "counts-in-group": lambda ps: CountsInGroup(ps, lr=1e-2, beta=0.9),
    "counts-rates": lambda ps: CountsRates(ps, lr=1e-2, k=0, total=0.0),
    "adafactor": lambda ps: torch.optim.Adafactor(ps, lr=1e-2, weight_decay=0.1),
}


class SAM(Written):
    """arXiv:2010.01412: a second gradient at another point."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        assert closure is not None, "SAM needs a closure"


class CountsByData(Written):
    """Counts with a gradient."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for p, grad, _, group in self.entries():
            for _ in range(int(grad.norm())):
                p.add_(grad, alpha=-group["lr"])


class FirstIsDifferent(Written):
    """Momentum that begins as the first gradient."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for p, grad, state, group in self.entries():
            if "buffer" not in state:
                state["buffer"] = grad.clone()
            else:
                state["buffer"].mul_(0.9).add_(grad)
            p.add_(state["buffer"], alpha=-group["lr"])


class CountsInSelf(Written):
    """Keeps its count in an attribute."""

    def __init__(self, params: Any, **defaults: Any):
        super().__init__(params, **defaults)
        self.count = 0

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        self.count += 1
        for p, grad, _, group in self.entries():
            p.add_(grad, alpha=-group["lr"])


class Noisy(Written):
    """Draws random numbers."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for p, grad, _, group in self.entries():
            p.add_(grad + torch.randn_like(grad), alpha=-group["lr"])


class KeepsText(Written):
    """State that is neither a tensor nor a number."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for p, grad, state, group in self.entries():
            state["note"] = "seen"
            p.add_(grad, alpha=-group["lr"])


class KeepsForAll(Written):
    """State that belongs to no parameter."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        self.state["all"] = {"steps": 1}
        for p, grad, _, group in self.entries():
            p.add_(grad, alpha=-group["lr"])


class Shampoo(Written):
    """arXiv:1802.09568: inverse roots of matrices."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for p, grad, state, group in self.entries():
            rows = grad.reshape(len(grad), -1)
            if "left" not in state:
                state["left"] = torch.eye(len(grad))
            state["left"].add_(rows @ rows.T)
            values, vectors = torch.linalg.eigh(state["left"])
            root = vectors @ torch.diag(values.pow(-0.25)) @ vectors.T
            p.add_((root @ rows).reshape(p.shape), alpha=-group["lr"])


class BeginsWithRate(Written):
    """State that begins with a hyperparameter, which may be another one by the first step."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for p, grad, state, group in self.entries():
            if "rate" not in state:
                state["rate"] = torch.full_like(p, group["lr"])
            state["rate"].mul_(0.9)
            p.sub_(state["rate"] * grad)


class Idle(Written):
    """Does nothing."""

    def step(self, closure: Any = None) -> None: ...


REFUSED: dict[str, tuple[Config, str]] = {
    "sam": (lambda ps: SAM(ps, lr=0.1), "SAM needs a closure"),
    "counts-by-data": (lambda ps: CountsByData(ps, lr=0.1), "changes from step to step"),
    "first-is-different": (lambda ps: FirstIsDifferent(ps, lr=0.1), "its first step does something else"),
    "counts-in-self": (lambda ps: CountsInSelf(ps, lr=0.1), "changes self.count"),
    "noisy": (lambda ps: Noisy(ps, lr=0.1), "random numbers"),
    "keeps-text": (lambda ps: KeepsText(ps, lr=0.1), "keeps str 'note'"),
    "keeps-for-all": (lambda ps: KeepsForAll(ps, lr=0.1), "no parameter with a gradient"),
    "shampoo": (lambda ps: Shampoo(ps, lr=0.1), "eigh"),
    "tensor-lr": (
        lambda ps: Lion(ps, lr=torch.tensor(0.1), betas=(0.9, 0.9), weight_decay=0.0),
        "the tensor 'lr'",
    ),
    "begins-with-rate": (
        lambda ps: BeginsWithRate(ps, lr=0.1),
        "state 'rate' begins with a gradient or a hyperparameter",
    ),
    "idle": (lambda ps: Idle(ps, lr=0.1), "changes no parameter"),
    "lbfgs": (lambda ps: torch.optim.LBFGS(ps), "LBFGS.step demands 'closure', .* keep_gradients=True"),
}
