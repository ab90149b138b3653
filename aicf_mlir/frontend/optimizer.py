"""What of a torch optimizer is compiled in: per param group its kind, its structure flags and its parameters.

Values (lr, betas, eps, weight decay, momentum) are not part of it: they live in device slots and may change
at any step.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr

from aicf_mlir.dialects.optimizer_groups import Adam, Group, Sgd
from aicf_mlir.errors import BindError
from aicf_mlir.frontend.group_values import flag, hyperparameter, pair
from aicf_mlir.frontend.source import trace_error
from aicf_mlir.frontend.types import describe as describe_tensor

ParamGroup = dict[str, Any]

Structure = Callable[[ParamGroup], Sgd | Adam]
"""What of a param group is compiled in; raises BindError for values that are no numbers."""


def _adam(group: ParamGroup) -> Sgd | Adam:
    decoupled = bool(group.get("decoupled_weight_decay", False))
    return replace(_adamw(group), decoupled=decoupled)


def _adamw(group: ParamGroup) -> Adam:
    pair(group, "betas")
    for key in ("lr", "eps", "weight_decay"):
        hyperparameter(group, key)
    return Adam(flag(group, "amsgrad"), True, flag(group, "maximize"))


def _sgd(group: ParamGroup) -> Sgd | Adam:
    for key in ("lr", "dampening", "weight_decay"):
        hyperparameter(group, key)
    momentum = hyperparameter(group, "momentum") != 0
    return Sgd(momentum, flag(group, "nesterov"), flag(group, "maximize"))


RULES: dict[type[torch.optim.Optimizer], Structure] = {
    torch.optim.AdamW: _adamw,
    torch.optim.Adam: _adam,
    torch.optim.SGD: _sgd,
}
"""Supported optimizers, the most derived class first, and what is compiled in for a param group."""


def describe(
    optimizer: torch.optim.Optimizer, names: Mapping[torch.Tensor, str]
) -> ArrayAttr[DictionaryAttr]:
    """
    The function attribute `aicf.optimizer`: one dictionary per param group, in order.

    `names` holds the trained parameters of the step; a parameter that the step does not read is left out, as
    torch leaves it alone. Raises TraceError for an optimizer whose update cannot be compiled.
    """
    base, rule = _rule(optimizer)
    _refuse_custom_update(optimizer, base)
    groups: list[DictionaryAttr] = []
    for index, group in enumerate(optimizer.param_groups):
        if group.get("differentiable", False):
            raise trace_error(
                f"param group {index} has differentiable=True, which is not supported; use False"
            )
        params = tuple(names[parameter] for parameter in group["params"] if parameter in names)
        try:
            groups.append(Group(rule(group), params).to_attribute())
        except BindError as error:
            raise trace_error(f"param group {index}: {error}") from None
    return ArrayAttr(groups)


def _rule(
    optimizer: torch.optim.Optimizer,
) -> tuple[type[torch.optim.Optimizer], Structure]:
    for base, rule in RULES.items():
        if isinstance(optimizer, base):
            return base, rule
    raise trace_error(
        f"the optimizer {type(optimizer).__name__} is not supported; use SGD, Adam or AdamW of torch.optim or"
        " aicf_mlir.optim"
    )


def _refuse_custom_update(optimizer: torch.optim.Optimizer, base: type[torch.optim.Optimizer]) -> None:
    """Raise TraceError for a subclass with a `step` of its own, or for hooks around it."""
    if inspect.unwrap(type(optimizer).step) is not inspect.unwrap(base.step):
        raise trace_error(
            f"{type(optimizer).__name__} replaces the step of {base.__name__}; only the updates of SGD, Adam"
            " and AdamW can be compiled"
        )
    for hooks in ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks"):
        if getattr(optimizer, hooks, None):
            raise trace_error(
                f"the optimizer has step hooks ({hooks.strip('_')}), which a compiled step does not run"
            )


def trained_parameters(
    optimizer: torch.optim.Optimizer | None, names: Mapping[torch.Tensor, str]
) -> set[torch.Tensor]:
    """
    The parameters among `names` that require a gradient and, if there is an optimizer, are in its groups.

    Raises TraceError for a parameter of the optimizer that is not in `names`, or that is complex or sparse.
    """
    if optimizer is None:
        return {t for t in names if t.requires_grad and isinstance(t, torch.nn.Parameter)}
    for index, position, parameter in _parameters(optimizer):
        which = f"parameter {position} of param group {index}, {describe_tensor(parameter)},"
        if parameter not in names or not isinstance(parameter, torch.nn.Parameter):
            raise trace_error(
                f"{which} is not a parameter of the model; make the optimizer from this model's parameters"
            )
        if not parameter.is_floating_point() or parameter.layout is not torch.strided:
            raise trace_error(f"{which} is not a dense tensor of floating-point numbers")
    return {parameter for _, _, parameter in _parameters(optimizer) if parameter.requires_grad}


def _parameters(optimizer: torch.optim.Optimizer) -> Iterator[tuple[int, int, torch.Tensor]]:
    for index, group in enumerate(optimizer.param_groups):
        for position, parameter in enumerate(group["params"]):
            yield index, position, parameter
