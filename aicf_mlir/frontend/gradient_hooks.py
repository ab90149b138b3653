"""The hooks of parameters: each parameter is what a function gives whose backward calls its hooks."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.autograd.function import Function

from aicf_mlir.frontend import source
from aicf_mlir.frontend.functions import Applied, Context, Functions
from aicf_mlir.frontend.source import quoted, trace_error
from aicf_mlir.ir.locations import SourceLocation

Hook = Callable[[torch.Tensor], torch.Tensor | None]
"""A function of a gradient; it gives the gradient that goes on, or None for the same."""


def hooks_of(module: torch.nn.Module) -> dict[str, Sequence[Hook]]:
    """Return the hooks of each parameter that has some, by its path; a parameter that modules share has a path for each."""
    named = module.named_parameters(remove_duplicate=False)
    return {path: [*own.values()] for path, parameter in named if (own := parameter._backward_hooks)}


@contextmanager
def calling(
    module: torch.nn.Module, hooks: Mapping[str, Sequence[Hook]], functions: Functions
) -> Generator[None]:
    """Inside, gradients of the parameters of a module pass the hooks, once all uses of a parameter have been added up."""
    made: dict[int, torch.Tensor] = {}
    before: list[tuple[dict[str, Any], str, torch.Tensor]] = []
    for path, own in hooks.items():
        owner, _, name = path.rpartition(".")
        held: dict[str, Any] = vars(module.get_submodule(owner))["_parameters"]
        parameter: torch.Tensor = held[name]
        if not parameter.requires_grad:
            continue
        if id(parameter) not in made:
            made[id(parameter)] = hooked(parameter, own, functions)
        before.append((held, name, parameter))
        held[name] = made[id(parameter)]
    try:
        yield
    finally:
        for held, name, parameter in before:
            held[name] = parameter


def hooked(x: torch.Tensor, hooks: Sequence[Hook], functions: Functions) -> torch.Tensor:
    """Return a tensor whose gradient the hooks change, one after the other."""

    class Hooks(Function):
        @staticmethod
        def backward(ctx: Any, *cotangents: Any) -> Any:
            """The gradient that the last hook leaves."""
            (gradient,) = cotangents
            for hook in hooks:
                changed = hook(gradient)
                gradient = gradient if changed is None else changed
            return gradient

    Hooks.__name__ = "register_hook"
    value = x.detach()
    results: list[Any] = [value]
    applied = Applied(Hooks, source.of_function(hooks[0]))
    functions.carry(applied, Context((True,)), (x,), (value,), results, [0])
    functions.hooked.append(results[0])
    results[0]._is_param = True  # torch's own mark for isinstance
    return results[0]


def expect_none(
    inputs: Sequence[torch.Tensor], functions: Functions, location: SourceLocation | None
) -> None:
    """Raise TraceError if one of them is a parameter with hooks: torch calls these for the gradient of a part of the step too."""
    if any(each is parameter for each in inputs for parameter in functions.hooked):
        raise trace_error(
            f"torch.autograd.grad is taken with respect to a parameter that has hooks{quoted(location)}, which is not"
            " supported; remove the hooks",
            location,
        )
