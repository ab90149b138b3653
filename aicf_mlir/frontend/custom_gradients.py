"""The ops in an exported graph for a function with its own backward: its arriving gradients, and the gradients it
computes.

The graph has the backward together with the forward, as plain ops between these two ops. `arriving` gives the gradient
of a result, which is not known yet. `custom_gradient` names the values that are the gradients of the operands, and
returns its results unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

_library: Any = torch.library.Library("aicf_custom", "DEF")
_library.define("arriving(Tensor result, int number) -> Tensor")
_library.define(
    "custom_gradient(Tensor[] results, Tensor[] operands, Tensor[] arriving, Tensor[] leaving, int number) -> Tensor[]"
)


def _empty_like(result: torch.Tensor, _: int) -> torch.Tensor:
    return torch.empty_like(result, memory_format=torch.contiguous_format)


def _same(results: Sequence[torch.Tensor], *_: Any) -> list[torch.Tensor]:
    return [torch.clone(result) for result in results]


class _Recorded(torch.autograd.Function):
    """A function that tells torch's autograd that results depend on operands."""

    @staticmethod
    def forward(ctx: Any, results: Any, given: Any, *operands: torch.Tensor) -> tuple[torch.Tensor, ...]:
        with torch._C._AutoDispatchBelowAutograd():  # pyright: ignore[reportPrivateUsage]
            made = tuple(CUSTOM_GRADIENT(results, operands, *given))
        ctx.operands = operands
        return made

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        """Gradients without values: a gradient inside the step asks torch which tensors have one."""
        return None, None, *(torch.empty_like(operand) for operand in ctx.operands)


def _recorded(results: Any, operands: Sequence[torch.Tensor], *given: Any) -> list[torch.Tensor]:
    function: Any = _Recorded
    return list(function.apply(results, given, *operands))


_library.impl("arriving", _empty_like, "CompositeExplicitAutograd")
_library.impl("arriving", torch.library.fallthrough_kernel, "Autograd")  # it is a leaf
_library.impl("custom_gradient", _same, "CompositeExplicitAutograd")
_library.impl("custom_gradient", _recorded, "Autograd")

_registry: Any = torch.library
_registry.register_fake("aicf_custom::custom_gradient", _same, lib=_library)
"""A fake kernel; without it torch wants all operands on one device."""

_ops: Any = torch.ops.aicf_custom

ARRIVING: Any = _ops.arriving.default
"""The gradient of a result of the function with this number in the step."""
CUSTOM_GRADIENT: Any = _ops.custom_gradient.default
"""The results of the function with this number; `leaving` are the gradients of its operands, made of the `arriving` ones."""
