"""Functions of torch whose result has a shape that depends on one operand alone, a mask or counts, of known values.

They are called with whole numbers instead: the elements under a mask are the ones at its indices. A `bincount` of unknown
values has the `minlength` bins that it is given, and a step that meets further ones is skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from aicf_mlir.frontend.known import mapped, real_tensors
from aicf_mlir.frontend.known_values import KnownValues, is_mask
from aicf_mlir.frontend.values import is_a

Tensor = torch.Tensor

NAMES: Mapping[Any, Sequence[str]] = {
    **dict.fromkeys((Tensor.__getitem__, Tensor.__setitem__), ("input", "index", "value")),
    **dict.fromkeys((torch.masked_select, Tensor.masked_select), ("input", "mask")),
    **dict.fromkeys((torch.bincount, Tensor.bincount), ("input", "weights", "minlength")),
    **dict.fromkeys((torch.repeat_interleave, Tensor.repeat_interleave), ("input", "repeats", "dim")),
}
"""The functions, each with the names of its positional arguments."""


def with_known_index(
    known: KnownValues, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Callable[[], Any] | None:
    """Return the function to call in place of `function`; None to call `function` itself."""
    if function not in NAMES:
        return None
    given = {**dict(zip(NAMES[function], args, strict=False)), **kwargs}
    x = given["input"]
    if "index" in given:
        if "value" in given and not (is_a(given["value"], Tensor) and given["value"].numel() != 1):
            return None  # this form chooses between two values for each element
        if "value" not in given and known.has_all((x, given["index"])):
            return None
        index: Any = given["index"]
        parts: tuple[Any, ...] = index if issubclass(type(index), tuple) else (index,)
        found: list[Any] = [each for part in parts for each in _numbers(known, part)]
        if len(found) == len(parts) and all(a is b for a, b in zip(found, parts, strict=True)):
            return None
        return lambda: function(x, tuple(found), *args[2:])
    if (bins := given.get("minlength", 0)) and _is_counted(x, weights := given.get("weights")):
        return None if known.has_all((x,)) else lambda: _counted(x, weights, bins)
    if "mask" in given and not known.has_all((x,)) and known.has_all((given["mask"],)):
        return lambda: _under_mask(x, given["mask"])
    counts, dim = given.get("repeats"), given.get("dim")
    if not is_a(counts, Tensor) or known.has_all((x,)) or not known.has_all((counts,)):
        return None
    if counts.dim() != 1 or len(counts) != (x.numel() if dim is None else x.shape[dim]):
        return None
    places = known.taken(torch.repeat_interleave, counts)
    return lambda: (x.flatten() if dim is None else x).index_select(dim or 0, places)


def _under_mask(x: Tensor, mask: Tensor) -> Tensor:
    shape: torch.Size = vars(torch)["broadcast_shapes"](x.shape, mask.shape)
    return x.expand(shape)[mask.expand(shape)]


def _is_counted(x: Tensor, weights: Tensor | None) -> bool:
    """True unless torch raises an error for them, here or in the backward."""
    of_each = weights is None or (weights.shape == x.shape and not weights.requires_grad)
    return x.dim() == 1 and not x.is_floating_point() and x.dtype is not torch.bool and of_each


def _counted(x: Tensor, weights: Tensor | None, bins: int) -> Tensor:
    if weights is None:
        weights = torch.ones_like(x, dtype=torch.int64)
    elif weights.dtype is not torch.float32:
        weights = weights.to(torch.float64)
    return weights.new_zeros(bins).index_add(0, x.long(), weights)


def _numbers(known: KnownValues, part: Any) -> Sequence[Any]:
    """Return a part of an index: for a mask of known values the indices of each dimension, for a slice whole numbers."""
    if is_mask(part) and part.dim() and known.has_all((part,)):
        return [known.taken(_column, part, dim) for dim in range(part.dim())]
    if is_a(part, slice) and (bounds := real_tensors(part)) and known.has_all(bounds):
        return [mapped(lambda bound: known.read(Tensor.item, (bound,), {}), part)]
    return [part]


def _column(mask: Tensor, dim: int) -> Tensor:
    return mask.nonzero()[:, dim]
