"""Functions of torch that read values internally, or have no form, rewritten with tensors: the step calls these instead.

`x[i]` with a 0-d tensor `i` reads the value of `i`, and `torch.cov` checks its weights for negative ones. The errors of
these functions become checks of the step, as in code of the user (`assertions.passed`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import torch

from aicf_mlir.frontend.ctc import ctc_loss
from aicf_mlir.frontend.exchange_calls import OPS
from aicf_mlir.frontend.gamma import digamma, lgamma, mvlgamma
from aicf_mlir.frontend.sorted_places import bucketize, searchsorted

Tensor = torch.Tensor
Function = Callable[..., Any]


def gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """Compute torch's loss of that name, whose variance is held above `eps` without a change of its gradient."""
    spread = torch.full_like(input, var) if isinstance(var, (int, float)) else var
    if spread.shape == input.shape[:-1] != input.shape:
        spread = spread.unsqueeze(-1)
    unlike = [n for n, whole in zip(spread.shape, input.shape, strict=False) if n != whole]
    if spread.dim() != input.dim() or unlike not in ([], [1]):
        raise ValueError("var is of incorrect size")
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not valid")
    if torch.any(spread < 0):
        raise ValueError("var has negative entry/entries")
    spread = torch.where(spread < eps, spread - spread.detach() + eps, spread)
    loss = 0.5 * (torch.log(spread) + (input - target) ** 2 / spread)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return loss if reduction == "none" else loss.mean() if reduction == "mean" else loss.sum()


def cov(
    input: Tensor, *, correction: int = 1, fweights: Tensor | None = None, aweights: Tensor | None = None
) -> Tensor:
    """Compute torch's covariance of the rows of `input`, its columns weighted by counts `fweights` and by `aweights`."""
    if input.dim() > 2 or input.dtype is torch.bool:
        raise ValueError(
            f"cov of {input.dtype} in {input.dim()} dimensions; expected numbers in two dimensions at most"
        )
    rows = input if input.dim() == 2 else input.reshape(1, -1)
    weights = [each for each in (fweights, aweights) if each is not None]
    for each in weights:
        if each.dim() != 1 or len(each) != rows.shape[1]:
            raise ValueError(f"cov with weights of shape {list(each.shape)} for {rows.shape[1]} observations")
        if torch.any(each < 0):
            raise ValueError("weights cannot be negative")
    if not weights:
        away = rows - rows.mean(1, keepdim=True)
        return (away @ away.mH / max(rows.shape[1] - correction, 0)).squeeze()
    weight = weights[0] if len(weights) == 1 else weights[0] * weights[1]
    total = weight.sum()
    if total == 0:
        raise ValueError("weights sum to zero, can't be normalized")
    away = rows - (rows * weight).sum(1, keepdim=True) / total
    freedom = total - correction
    if aweights is not None and correction:
        freedom = total - correction * (weight * aweights).sum() / total
    return (away @ (away * weight).mH / freedom.clamp(min=0)).squeeze()


def corrcoef(input: Tensor) -> Tensor:
    """Compute torch's correlation coefficients of the rows of `input`."""
    found = cov(input)
    if not found.dim():
        return found / found
    deviation = found.diagonal().sqrt()
    return (found / deviation[:, None] / deviation).clip(-1, 1)


def fill_diagonal_(input: Tensor, fill_value: float, wrap: bool = False) -> Tensor:
    """Set the elements of equal indices to a number, in place; with `wrap` again below each square of a tall matrix."""
    shape = input.shape
    if input.dim() < 2 or (input.dim() > 2 and len(set(shape)) > 1):
        raise ValueError(f"fill_diagonal_ of shape {list(shape)}; expected a matrix, or equal dimensions")
    apart = sum(math.prod(shape[dim + 1 :]) for dim in range(input.dim()))
    end = input.numel() if wrap or input.dim() > 2 else shape[1] * shape[1]
    number = torch.arange(input.numel(), device=input.device).reshape(shape)
    return input.masked_fill_((number % apart == 0) & (number < end), fill_value)


SPECIAL: Any = torch.special

FUNCTIONS: Mapping[Any, Function] = {
    torch.nn.functional.ctc_loss: ctc_loss,
    torch.nn.functional.gaussian_nll_loss: gaussian_nll_loss,
    torch.cov: cov,
    torch.Tensor.cov: cov,
    torch.corrcoef: corrcoef,
    torch.Tensor.corrcoef: corrcoef,
    torch.Tensor.fill_diagonal_: fill_diagonal_,
    torch.searchsorted: searchsorted,
    torch.bucketize: bucketize,
    **dict.fromkeys((torch.lgamma, torch.Tensor.lgamma, SPECIAL.gammaln), lgamma),
    **dict.fromkeys((torch.digamma, torch.Tensor.digamma, SPECIAL.digamma, SPECIAL.psi), digamma),
    **dict.fromkeys((torch.mvlgamma, torch.Tensor.mvlgamma, SPECIAL.multigammaln), mvlgamma),
}
"""The replacements by the function of torch."""


def written(function: Any, args: Sequence[Any]) -> Function | None:
    """Return the function to call in place of `function`; None to call torch's own."""
    if function is torch.Tensor.__getitem__ and any(map(_is_number, _parts(args[1]))):
        return _read
    if function is torch.Tensor.__setitem__ and any(map(_is_number, parts := _parts(args[1]))):
        return _write if all(map(_is_plain, parts)) else None
    return FUNCTIONS.get(function) or OPS.get(function)


def _parts(index: Any) -> tuple[Any, ...]:
    """Return an index between brackets as parts, dimension by dimension."""
    return cast(tuple[Any, ...], index) if isinstance(index, tuple) else (index,)


def _is_number(part: Any) -> bool:
    """True if it is a 0-d tensor of whole numbers; one of booleans or bytes is a mask."""
    if not isinstance(part, Tensor) or part.dim():
        return False
    return not (part.is_floating_point() or part.is_complex() or part.dtype in (torch.bool, torch.uint8))


def _is_plain(part: Any) -> bool:
    """True if it applies to one dimension and is no further tensor, or to none."""
    return _is_number(part) or not isinstance(part, (Tensor, list, tuple, bool))


def _dimensions(x: Tensor, parts: Sequence[Any]) -> list[int]:
    """Return, for each part of an index, the first dimension of x that it applies to."""
    taken = [0 if part is Ellipsis else _taken(part) for part in parts]
    widths = [x.dim() - sum(taken) if part is Ellipsis else n for part, n in zip(parts, taken, strict=True)]
    return [sum(widths[:at]) for at in range(len(parts))]


def _taken(part: Any) -> int:
    """Return the number of dimensions that a part of an index applies to."""
    if part is None or isinstance(part, bool):
        return 0
    is_mask = isinstance(part, Tensor) and part.dtype in (torch.bool, torch.uint8)
    return part.dim() if is_mask else 1


def _read(x: Tensor, index: Any) -> Tensor:
    """Return `x[index]`: a number becomes a slice of one element, then its only index."""
    parts = _parts(index)
    for part, dim in zip(parts, _dimensions(x, parts), strict=True):
        if _is_number(part):
            x = x[(*[slice(None)] * dim, part.reshape(1))]
    return x[tuple(0 if _is_number(part) else part for part in parts)]


def _write(x: Tensor, index: Any, value: Any) -> None:
    """Do `x[index] = value` for an index of plain parts: write into a view whose first dimensions have the numbers."""
    parts = _parts(index)
    view = x[tuple(slice(None) if _is_number(part) else part for part in parts)]
    dims: list[int] = []
    added = 0  # dimensions of the view that x lacks, minus dimensions of x that the view lacks
    for part, dim in zip(parts, _dimensions(x, parts), strict=True):
        if _is_number(part):
            dims.append(dim + added)
        elif part is None:
            added += 1
        elif part is not Ellipsis and not isinstance(part, slice):
            added -= 1
    view = view.movedim(dims, list(range(len(dims))))
    source = value if isinstance(value, Tensor) else torch.full((), value, dtype=x.dtype, device=x.device)
    while source.dim() > view.dim() - len(dims) and source.shape[0] == 1:
        source = source.squeeze(0)
    view.index_put_(tuple(part for part in parts if _is_number(part)), source.to(x.dtype))
