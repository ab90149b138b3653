"""The ops in an exported graph for a function with its own backward: its arriving gradients, and the gradients it
computes.

The graph has the backward together with the forward, as plain ops between these two ops. `arriving` gives what the
backward reads and does not exist yet: the gradient of a result, or a result as it was saved. `custom_gradient` names
the values that are the gradients of the operands, and returns its results unchanged.

A gradient inside the step asks torch which tensors have a gradient. So these ops are functions of torch's autograd, too,
on tensors without values: the gradient of a gradient depends on what the traced backward depends on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from aicf_mlir.frontend.autograd_graph import edges_behind

_library: Any = torch.library.Library("aicf_custom", "DEF")
_library.define("arriving(Tensor result, int number, bool has_gradient) -> Tensor")
_library.define(
    "custom_gradient(Tensor[] results, Tensor[] operands, Tensor[] arriving, Tensor[] leaving, int number, bool once)"
    " -> Tensor[]"
)


def _empty_like(result: torch.Tensor, *_: Any) -> torch.Tensor:
    return torch.empty_like(result, memory_format=torch.contiguous_format)


class _Arriving(torch.autograd.Function):
    """A value with a gradient, and with a place of its own in torch's graph."""

    @staticmethod
    def forward(ctx: Any, root: torch.Tensor, *given: Any) -> torch.Tensor:
        with torch._C._AutoDispatchBelowAutograd():  # pyright: ignore[reportPrivateUsage]
            return ARRIVING(*given)

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        """None: it ends here."""
        return None, None, None, None


ROOT = torch.empty(0, requires_grad=True, device="cpu")
"""The leaf of each value that arrives."""


def _arriving(result: torch.Tensor, number: int, has_gradient: bool) -> torch.Tensor:
    function: Any = _Arriving
    return function.apply(ROOT if has_gradient else ROOT.detach(), result, number, has_gradient)


def _same(results: Sequence[torch.Tensor], *_: Any) -> list[torch.Tensor]:
    return [torch.clone(result) for result in results]


class _Recorded(torch.autograd.Function):
    """A function that tells torch's autograd that results depend on operands."""

    @staticmethod
    def forward(ctx: Any, results: Any, given: Any, *operands: torch.Tensor) -> tuple[torch.Tensor, ...]:
        with torch._C._AutoDispatchBelowAutograd():  # pyright: ignore[reportPrivateUsage]
            made = tuple(CUSTOM_GRADIENT(results, operands, *given))
        ctx.operands = operands
        ctx.arriving, ctx.leaving, _, ctx.once = given
        ctx.save_for_backward(*made)
        return made

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        """Gradients without values, which depend on what they are computed from."""
        empty = [torch.empty_like(operand) for operand in ctx.operands]
        if not torch.is_grad_enabled() or not ctx.leaving:
            return None, None, *empty
        if ctx.once:
            found: Any = DELAYED(ONCE, len(empty))(*(each.requires_grad_() for each in empty))
            return None, None, *(found if isinstance(found, tuple) else (found,))
        given = (*cotangents, *ctx.saved_tensors)
        function: Any = _Depending
        depending: list[torch.Tensor] = []
        for leaving, operand in zip(ctx.leaving, ctx.operands, strict=True):
            nodes = {node for node, _ in edges_behind(leaving)}
            read = [value for each, value in zip(ctx.arriving, given, strict=False) if each.grad_fn in nodes]
            depending.append(function.apply(operand, leaving, *read))
        return None, None, *depending


DELAYED: Any = vars(torch._C)["_functions"].DelayedError  # pyright: ignore[reportPrivateUsage]
ONCE = b"trying to differentiate twice a function that was marked with @once_differentiable"
"""Torch's error."""


class _Depending(torch.autograd.Function):
    """A value like the first operand that depends on the other operands."""

    @staticmethod
    def forward(ctx: Any, like: torch.Tensor, *read: torch.Tensor) -> torch.Tensor:
        ctx.read = read
        return torch.empty_like(like)

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        """Gradients without values, with a graph of their own."""
        return None, *(torch.empty_like(each) * cotangents[0].sum() for each in ctx.read)


def _recorded(results: Any, operands: Sequence[torch.Tensor], *given: Any) -> list[torch.Tensor]:
    function: Any = _Recorded
    return list(function.apply(results, given, *operands))


_library.impl("arriving", _empty_like, "CompositeExplicitAutograd")
_library.impl("arriving", _arriving, "Autograd")
_library.impl("custom_gradient", _same, "CompositeExplicitAutograd")
_library.impl("custom_gradient", _recorded, "Autograd")

_registry: Any = torch.library
_registry.register_fake("aicf_custom::custom_gradient", _same, lib=_library)
"""A fake kernel; without it torch wants all operands on one device."""


def _batched_arriving(
    info: Any, dims: Any, result: torch.Tensor, number: int, has_gradient: bool
) -> tuple[torch.Tensor, int | None]:
    return ARRIVING(result, number, has_gradient), dims[0]


def _batched_gradient(
    info: Any,
    dims: Any,
    results: Sequence[torch.Tensor],
    operands: Sequence[torch.Tensor],
    arriving: Sequence[torch.Tensor],
    leaving: Sequence[torch.Tensor],
    number: int,
    once: bool,
) -> tuple[list[torch.Tensor], list[int | None]]:
    """The gradient of an operand that all rows share is the sum of those of the rows."""

    def like(gradient: torch.Tensor, own: int | None, wanted: int | None) -> torch.Tensor:
        if own is None or wanted is None:
            row = gradient if own is None else gradient.sum(own)
            return row if wanted is None else row.unsqueeze(wanted).repeat_interleave(info.batch_size, wanted)
        return gradient.movedim(own, wanted)

    left = [like(*each) for each in zip(leaving, dims[3], dims[1], strict=False)]
    return CUSTOM_GRADIENT(results, operands, arriving, left, number, once), list(dims[0])


_registry.register_vmap("aicf_custom::arriving", _batched_arriving, lib=_library)
_registry.register_vmap("aicf_custom::custom_gradient", _batched_gradient, lib=_library)

_ops: Any = torch.ops.aicf_custom

ARRIVING: Any = _ops.arriving.default
"""The gradient of a result of the function with this number in the step, or after all of these a result that was saved.
It has a gradient if the backward is traced as it runs with `create_graph`."""
CUSTOM_GRADIENT: Any = _ops.custom_gradient.default
"""The results of the function with this number; `leaving` are the gradients of its operands, made of the `arriving` ones;
`once` if torch refuses to differentiate these."""
