"""The objects that the code of a loop body reaches: models, optimizers and schedulers, in its closure, its globals or
its object.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler

from aicf_mlir.frontend.behind import Behind
from aicf_mlir.frontend.loop_body.scalers import tensors_of
from aicf_mlir.frontend.model import free_name
from aicf_mlir.frontend.optimizer import divided
from aicf_mlir.frontend.source import of_function, trace_error


@dataclass(frozen=True)
class Found:
    """The objects by name, in the order in which they were met."""

    model: torch.nn.Module
    """The one module with tensors, or one that holds all of them by their names."""
    optimizers: dict[str, torch.optim.Optimizer]
    schedulers: dict[str, LRScheduler]
    scalers: dict[str, torch.amp.GradScaler]
    """The scalers that are enabled."""
    wrappers: list[torch.optim.Optimizer]
    """The optimizers that hold others, which do the steps."""


UNFIT = re.compile(r"[^\w]+")
"""Characters that no name in a module has."""


def found_by(function: Callable[..., Any], states: Sequence[torch.Tensor] = ()) -> Found:
    """Return the objects that `function` reaches; `states` are the tensors outside of modules that it writes to.

    Raises TraceError for a body without a model.
    """
    walk = Behind(function, "body")
    where = of_function(function)
    optimizers = {name: o for name, o in walk.drivers.items() if isinstance(o, torch.optim.Optimizer)}
    for name, optimizer in optimizers.items():
        if why := divided(optimizer):
            raise trace_error(f"{name}: {why}", where)
    wrappers: list[torch.optim.Optimizer] = []
    for name, wrapper in list(optimizers.items()):
        if inner := wrapped_by(wrapper):
            del optimizers[name]
            wrappers.append(wrapper)
            begin_states(wrapper)
            optimizers.update(
                {f"{name}.{key}": o for key, o in inner.items() if o not in optimizers.values()}
            )
    schedulers = {name: s for name, s in walk.drivers.items() if isinstance(s, LRScheduler)}
    scalers = scalers_of(walk.drivers)
    for scheduler in schedulers.values():
        if not any(innermost(scheduler.optimizer) is known for known in optimizers.values()):
            optimizers[free_name("optimizer", optimizers)] = scheduler.optimizer
    trained = {id(p): p for o in optimizers.values() for group in o.param_groups for p in group["params"]}
    wanted = {id(tensor): tensor for tensor in states} | trained
    wanted |= {
        id(tensor): tensor for tensor in walk.tensors.values() if tensor.requires_grad and tensor.is_leaf
    }
    names = {id(tensor): path for path, tensor in walk.tensors.items()}
    device = next(
        (p.device for o in optimizers.values() for p in o.param_groups[0]["params"]), torch.device("cpu")
    )
    for name, scaler in scalers.items():
        for key, tensor in tensors_of(scaler, device).items():
            wanted[id(tensor)], names[id(tensor)] = tensor, f"{name}.{key}"
    own = {id(t) for root in walk.modules.values() for t in (*root.parameters(), *root.buffers())}
    loose: dict[str, list[torch.Tensor]] = {}
    for key, tensor in wanted.items():
        if key not in own:
            loose.setdefault(names.get(key, "tensor"), []).append(tensor)
    return Found(_model_of(walk.modules, loose, where), optimizers, schedulers, scalers, wrappers)


def wrapped_by(optimizer: torch.optim.Optimizer) -> dict[str, torch.optim.Optimizer]:
    """Return the optimizers that one holds in its attributes. It is code of the body then, as SAM is: they do the steps."""
    return {key: value for key, value in vars(optimizer).items() if isinstance(value, torch.optim.Optimizer)}


def innermost(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """Return the optimizer that has the param groups of this one: that which it wraps, or itself."""
    own = [*map(id, optimizer.param_groups)]
    for inner in wrapped_by(optimizer).values():
        if [*map(id, inner.param_groups)] == own:
            return inner
    return optimizer


def begin_states(optimizer: torch.optim.Optimizer) -> None:
    """Make the empty states that `optimizer.state[p]` makes in the first step: a body adds entries to what is there."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            optimizer.state[parameter]


def scalers_of(drivers: Mapping[str, Any]) -> dict[str, torch.amp.GradScaler]:
    """Return the scalers that are enabled."""
    return {
        name: each
        for name, each in drivers.items()
        if isinstance(each, torch.amp.GradScaler) and each.is_enabled()
    }


def expect_scalers(function: Callable[..., Any], scalers: Mapping[str, torch.amp.GradScaler]) -> None:
    """Raise TraceError if a body reaches other scalers now: they would scale tensors of the trace."""
    now = scalers_of(Behind(function, "body").drivers)
    if {*map(id, now.values())} != {*map(id, scalers.values())}:
        raise trace_error(
            f"the loop body reaches the GradScaler {', '.join(now) or 'no longer'}, and was compiled with another",
            of_function(function),
        )


def _model_of(
    modules: dict[str, torch.nn.Module], loose: Mapping[str, Sequence[torch.Tensor]], where: Any
) -> torch.nn.Module:
    """Return one module with all tensors that are trained or written to; `loose` tensors by name without a gradient are
    buffers.
    """
    inner = {id(part) for root in modules.values() for part in root.modules() if part is not root}
    roots = {
        path: root
        for path, root in modules.items()
        if id(root) not in inner
        and (any(True for _ in root.parameters()) or any(True for _ in root.buffers()))
    }
    if not roots and not loose:
        raise trace_error(
            "the loop body reaches no model with parameters in its closure, its globals or its object", where
        )
    if len(roots) == 1 and not loose:
        return next(iter(roots.values()))
    together, names = torch.nn.Module(), dict[str, None]()
    for path, root in roots.items():
        name = free_name(path.rpartition(".")[2], names)
        names[name] = None
        together.add_module(name, root)
    for path, tensors in loose.items():
        for tensor in tensors:
            name = free_name(UNFIT.sub("_", path), names)
            names[name] = None
            if tensor.requires_grad:  # it need not be an nn.Parameter
                vars(together)["_parameters"][name] = tensor
            else:
                together.register_buffer(name, tensor)
    return together
