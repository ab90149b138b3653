"""Forward-mode duals, `torch.autograd.forward_ad`, while a step is traced.

A dual is an input of its own, as of `torch.func.jvp`; its level keeps the tangent. The tangent of another value is the
derivative of the value along the tangents of all duals of the level.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch

from aicf_mlir.frontend import source
from aicf_mlir.frontend.inner_gradients import InnerGradients
from aicf_mlir.frontend.source import quoted, trace_error

PLACES: tuple[Any, ...] = tuple(
    import_module(name) for name in ("torch._functorch.predispatch", "torch._C", "torch._VF")
)
"""The modules in which a version of torch may look its functions of duals up."""


def place_of(name: str) -> Any:
    """Return the module in which this torch looks the function up."""
    return next(place for place in PLACES if hasattr(place, name))


Derivatives = Callable[..., list[torch.Tensor | None]]


class Duals:
    """The duals of one trace."""

    def __init__(self, gradients: InnerGradients, derivatives: Derivatives):
        self._gradients = gradients
        self._derivatives = derivatives
        self._duals: list[tuple[torch.Tensor, torch.Tensor]] | None = None
        """The inputs of the level, each with its tangent; None outside of it."""
        self._cuts = 0

    def functions(self) -> dict[str, Callable[..., Any]]:
        """Return the functions that replace torch's, by name."""
        return {
            "_enter_dual_level": self._enter,
            "_exit_dual_level": self._exit,
            "_make_dual": self._made,
            "_unpack_dual": self._unpacked,
        }

    def _enter(self) -> int:
        if self._duals is not None:
            raise RuntimeError("Nested forward mode AD is not supported at the moment")
        self._duals, self._cuts = [], len(self._gradients.without_gradient)
        return 0

    def _exit(self, *, level: int) -> None:
        del level
        self._duals = None

    def _made(self, tensor: torch.Tensor, tangent: torch.Tensor, *, level: int = 0) -> torch.Tensor:
        del level
        if self._duals is None:
            raise RuntimeError("a dual tensor outside of its level")
        self._expect_recorded()
        if tensor.shape != tangent.shape:
            raise RuntimeError(
                f"a tangent of shape {list(tangent.shape)} for a tensor of shape {list(tensor.shape)}"
            )
        dual = self._gradients.new_input(tensor)
        self._duals.append((dual, tangent))
        return dual

    def _unpacked(self, tensor: torch.Tensor, *, level: int = 0) -> tuple[torch.Tensor, torch.Tensor | None]:
        del level
        self._expect_recorded()
        if not self._duals:
            return tensor, None
        for dual, tangent in self._duals:
            if dual is tensor:
                return tensor, tangent
        (found,) = self._derivatives([tensor], *map(list, zip(*self._duals, strict=True)))
        if len(self._gradients.without_gradient) > self._cuts:
            location = self._gradients.without_gradient[-1]
            raise trace_error(
                f"a tangent may pass through no_grad(){quoted(location)}, where a compiled step records no derivative; leave it"
                " out of dual_level()",
                location,
            )
        return tensor, found

    def _expect_recorded(self) -> None:
        if not torch.is_grad_enabled():
            location = source.here()
            raise trace_error(
                f"forward_ad is used under no_grad(){quoted(location)}, where a compiled step records no derivative; leave"
                " no_grad out, and detach the result",
                location,
            )
