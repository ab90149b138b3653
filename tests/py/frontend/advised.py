"""Ops that are not supported, and what `aicf_mlir.frontend.advice` says to write instead: `test_advice.py` trains both."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

Function = Callable[[torch.Tensor], torch.Tensor]

MATRIX = (4, 6)


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    """Normal numbers, always the same."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


OTHER, EXPONENTS = drawn(*MATRIX), torch.tensor([1.0, 2.0, -1.0, 0.0, 3.0, -2.0])
LEFT, RIGHT = drawn(5, 4, 3), drawn(5, 3, 6)


CASES: dict[str, tuple[tuple[int, ...], Function, Function]] = {
    # op: the shape of x, as one would write it, and as is advised
    "aten.addbmm": (
        MATRIX,
        lambda x: torch.addbmm(x, LEFT, RIGHT),
        lambda x: x + (LEFT @ RIGHT).sum(0),
    ),
    "aten.dist": (MATRIX, lambda x: torch.dist(x, OTHER), lambda x: torch.linalg.vector_norm(x - OTHER)),
    "aten.fmax": (
        MATRIX,
        lambda x: torch.fmax(x, OTHER),
        lambda x: torch.where(x.isnan() | (x < OTHER), OTHER, x),
    ),
    "aten.fmin": (
        MATRIX,
        lambda x: torch.fmin(x, OTHER),
        lambda x: torch.where(x.isnan() | (x > OTHER), OTHER, x),
    ),
    "aten.hypot": (MATRIX, lambda x: torch.hypot(x, OTHER), lambda x: (x * x + OTHER * OTHER).sqrt()),
    "aten.ldexp": (MATRIX, lambda x: torch.ldexp(x, EXPONENTS), lambda x: x * 2.0**EXPONENTS),
    "aten.pdist": (
        MATRIX,
        F.pdist,
        lambda x: torch.cdist(x, x)[torch.triu_indices(4, 4, 1).unbind()],
    ),
    "aten.signbit": (
        MATRIX,
        lambda x: x * torch.signbit(x),
        lambda x: x * (torch.copysign(torch.ones_like(x), x) < 0),
    ),
}


class Applied(torch.nn.Module):
    """A function of a parameter of the given shape; the batch scales it."""

    def __init__(self, function: Function, shape: tuple[int, ...]):
        super().__init__()
        self.x = torch.nn.Parameter(drawn(*shape, seed=5))
        self.function = function

    def forward(self, scale: torch.Tensor) -> torch.Tensor:
        return weighted(self.function(self.x * scale))


def weighted(result: torch.Tensor) -> torch.Tensor:
    """A loss that every element enters with a weight of its own."""
    weights = torch.linspace(0.5, 1.5, result.numel()).reshape(result.shape)
    return (result * weights).sum()


def applied(name: str, advised: bool) -> Applied:
    """The model of a row."""
    shape, written, instead = CASES[name]
    return Applied(instead if advised else written, shape)
