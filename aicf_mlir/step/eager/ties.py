"""Torch with a fixed order of equal elements: torch leaves the order open, and a compiled step takes the first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

aten: Any = torch.ops.aten


class FirstOfEqual(TorchDispatchMode):
    """While active, `sort`, `topk`, `kthvalue` and medians keep the order of equal elements. Values are the same as torch's."""

    def __init__(self) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType]

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        return RULES.get(func, func)(*args, **(kwargs or {}))


def _sort(x: torch.Tensor, dim: int = -1, descending: bool = False) -> Sequence[torch.Tensor]:
    return aten.sort.stable(x, stable=True, dim=dim, descending=descending)


def _topk(
    x: torch.Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> Sequence[torch.Tensor]:
    """Emulate topk; `sorted` means that the order matters; without it, any order is right."""
    found = _sort(x, dim, largest)
    return [each.narrow(dim, 0, k).contiguous() for each in found] if x.dim() else found


def _kthvalue(x: torch.Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Sequence[torch.Tensor]:
    found = [each.narrow(dim, k - 1, 1) if x.dim() else each for each in _sort(x, dim)]
    return [each.contiguous() if keepdim or not x.dim() else each.squeeze(dim).clone() for each in found]


def _median(ignores_nan: bool) -> Callable[..., Sequence[torch.Tensor]]:
    def found(x: torch.Tensor, dim: int = -1, keepdim: bool = False) -> Sequence[torch.Tensor]:
        if not x.dim():
            return x.clone(), x.new_zeros((), dtype=torch.int64)
        size, nans = x.shape[dim], x.isnan().sum(dim, keepdim=True)
        place = torch.where(nans == 0, (size - 1) // 2, size - nans)
        if ignores_nan:
            place = (size - nans - 1).clamp(0) // 2
        both = [each.gather(dim, place) for each in _sort(x, dim)]
        return both if keepdim else [each.squeeze(dim) for each in both]

    return found


RULES: Mapping[Any, Callable[..., Any]] = {
    aten.sort.default: _sort,
    aten.topk.default: _topk,
    aten.kthvalue.default: _kthvalue,
    aten.median.dim: _median(ignores_nan=False),
    aten.nanmedian.dim: _median(ignores_nan=True),
}
"""The replacement of each op by a stable sort."""
