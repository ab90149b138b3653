"""The compiled-in part of a torch optimizer: per param group its rule with its flags, and its parameters.

Values (lr, betas, eps, weight decay, momentum) are not part of it: they are in device slots and may change at any step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module

import torch
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr

from aicf_mlir.dialects.optimizer_groups import ParamGroup
from aicf_mlir.errors import BindError
from aicf_mlir.frontend.library import is_librarys
from aicf_mlir.frontend.optimizer_verbs import VERBS, replaced, unwrapped, verb_of
from aicf_mlir.frontend.source import trace_error
from aicf_mlir.frontend.types import describe as describe_tensor
from aicf_mlir.frontend.types import has_numbers
from aicf_mlir.optimizers import CLASSES
from aicf_mlir.optimizers.group_values import hyperparameters, switches
from aicf_mlir.optimizers.rule import TorchClass, UpdateRule


def describe(
    optimizer: torch.optim.Optimizer, names: Mapping[torch.Tensor, str]
) -> ArrayAttr[DictionaryAttr]:
    """Return the function attribute `aicf.optimizer`: one dictionary per param group, in order.

    `names` holds the trained parameters of the step; a parameter that the step does not read is left out, as
    torch leaves it alone. Raises TraceError for an optimizer whose update cannot be compiled.
    """
    if (found := rule_of(optimizer)) is None:
        raise trace_error(f"no rule describes {type(optimizer).__name__}")
    torch_class, rule = found
    groups: list[DictionaryAttr] = []
    for index, group in enumerate(optimizer.param_groups):
        for key, reason in rule.REFUSED.items():
            if group.get(key, False):
                raise trace_error(f"param group {index} has {reason}")
        params = tuple(names[parameter] for parameter in group["params"] if parameter in names)
        try:
            hyperparameters(rule, group)
            said = {
                row.name for row in rule.FLAGS if row.key in group
            }  # by the group, which torch's step reads
            fixed = {name: value for name, value in torch_class.fixed.items() if name not in said}
            flags = {**switches(rule, group, fixed), **fixed}
            groups.append(ParamGroup(rule(**flags), params).to_attribute())
        except BindError as error:
            raise trace_error(f"param group {index}: {error}") from None
    return ArrayAttr(groups)


def divided(optimizer: torch.optim.Optimizer) -> str:
    """Why a ZeroRedundancyOptimizer is refused, and what to pass instead; empty for any other optimizer."""
    if all(kind.__name__ != "ZeroRedundancyOptimizer" for kind in type(optimizer).__mro__):
        return ""
    inner = getattr(optimizer, "optim", None)
    wanted = "one of the class that it wraps" if inner is None else f"optimizer={type(inner).__name__}(…)"
    return (
        f"the optimizer is a {type(optimizer).__name__}, which updates the parameters of one process;"
        f" call compile_train_step with {wanted} of all parameters, mesh= and zero=1, which divides the state among"
        " processes too"
    )


def rule_of(optimizer: torch.optim.Optimizer) -> tuple[TorchClass, type[UpdateRule]] | None:
    """Return the most derived class that a rule describes, and the rule; None for an optimizer with a step of its own.

    Raises TraceError for hooks around the step.
    """
    for hooks in ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks"):
        if getattr(optimizer, hooks, None):
            raise trace_error(
                f"the optimizer has step hooks ({hooks.strip('_')}), which a compiled step does not run"
            )
    for verb in VERBS:
        if verb_of(optimizer, verb) is not unwrapped(getattr(type(optimizer), verb)):
            raise trace_error(
                f"the optimizer has a {verb} of its own beside its class ({type(optimizer).__name__}), which a compiled step does"
                " not call; define it in a subclass"
            )
    if not is_librarys(unwrapped(type(optimizer).zero_grad)):
        raise trace_error(
            f"{type(optimizer).__name__}.zero_grad is not torch's, and a compiled step does not call it; use torch's"
        )
    if (path := replaced(optimizer)) is not None:
        raise trace_error(
            f"{path}, which {type(optimizer).__name__} or backward() calls, is not torch's; put it back, or write it in a step of"
            " the optimizer's own class"
        )
    for base in type(optimizer).__mro__:
        for torch_class, rule in CLASSES:
            if base is (known := _loaded(torch_class)):
                step = unwrapped(type(optimizer).step)
                is_known = is_librarys(step) or step.__module__ == torch_class.module
                is_own = step is not unwrapped(known.step) or not is_known
                return None if is_own else (torch_class, rule)
    return None


def _loaded(torch_class: TorchClass) -> type[torch.optim.Optimizer]:
    return getattr(import_module(torch_class.module), torch_class.title)


def trained_parameters(
    optimizer: torch.optim.Optimizer | None, names: Mapping[torch.Tensor, str]
) -> set[torch.Tensor]:
    """Return the parameters among `names` that require a gradient and, if there is an optimizer, are in its groups.

    Raises TraceError for a parameter of the optimizer that is not in `names`, or that is sparse or of integers.
    """
    if optimizer is None:
        return {t for t in names if t.requires_grad and isinstance(t, torch.nn.Parameter)}
    for index, position, parameter in _parameters(optimizer):
        which = f"parameter {position} of param group {index}, {describe_tensor(parameter)},"
        if parameter not in names or not (
            isinstance(parameter, torch.nn.Parameter) or parameter.requires_grad
        ):
            raise trace_error(
                f"{which} is not a parameter of the model; make the optimizer from this model's parameters"
            )
        if not has_numbers(parameter) or parameter.layout is not torch.strided:
            raise trace_error(f"{which} is not a dense tensor of floating-point or complex numbers")
    return {parameter for _, _, parameter in _parameters(optimizer) if parameter.requires_grad}


def _parameters(optimizer: torch.optim.Optimizer) -> Iterator[tuple[int, int, torch.Tensor]]:
    for index, group in enumerate(optimizer.param_groups):
        for position, parameter in enumerate(group["params"]):
            yield index, position, parameter
