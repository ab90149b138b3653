"""The places at which values would be put into sorted sequences, by the steps of torch's own binary search.

So a sequence that is not sorted, and NaN, give the same places as in torch.
"""

from __future__ import annotations

import torch

Tensor = torch.Tensor


def searchsorted(
    sorted_sequence: Tensor,
    input: Tensor | float,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    """Compute `torch.searchsorted`: before equal numbers; after them with `right`, or with "right" as `side`."""
    shape = tuple(input.shape) if isinstance(input, Tensor) else ()
    if side not in (None, "left", "right"):
        raise ValueError(f'searchsorted: expected "left" or "right" as side, got {side!r}')
    if right and side == "left":
        raise ValueError('searchsorted: expected right=False with side="left"')
    is_of_rows = 0 < sorted_sequence.dim() == len(shape) and sorted_sequence.shape[:-1] == shape[:-1]
    if sorted_sequence.dim() != 1 and not is_of_rows:
        raise ValueError(
            f"searchsorted: expected one sequence, or one for each row of the values, got sequences of shape"
            f" {list(sorted_sequence.shape)} and values of shape {list(shape)}"
        )
    if sorter is not None and sorter.shape != sorted_sequence.shape:
        raise ValueError(
            f"searchsorted: expected a sorter of the shape of the sequences, {list(sorted_sequence.shape)}, got"
            f" {list(sorter.shape)}"
        )
    found = _places(sorted_sequence, input, shape, right or side == "right", sorter)
    return found.int() if out_int32 else found


def bucketize(
    input: Tensor | float, boundaries: Tensor, *, out_int32: bool = False, right: bool = False
) -> Tensor:
    """Compute `torch.bucketize`: the bucket of each number between the boundaries."""
    if boundaries.dim() != 1:
        raise ValueError(
            f"bucketize: expected boundaries in one dimension, got shape {list(boundaries.shape)}"
        )
    return searchsorted(boundaries, input, out_int32=out_int32, right=right)


def _places(
    sequence: Tensor, values: Tensor | float, shape: tuple[int, ...], is_right: bool, sorter: Tensor | None
) -> Tensor:
    common = torch.result_type(sequence, values)
    if common.is_complex or common is torch.bool:
        raise ValueError(f"searchsorted is not defined for {common}")
    sequence = sequence.detach().to(common)
    values = values.detach().to(common) if isinstance(values, Tensor) else values
    count = sequence.shape[-1]
    low = torch.zeros(shape, dtype=torch.int64, device=sequence.device)
    high = torch.full_like(low, count)
    for _ in range(count.bit_length()):
        is_open = low < high
        middle = (low + high) // 2
        at = middle.clamp(max=count - 1)
        number = _taken(sequence, at if sorter is None else _taken(sorter, at))
        is_after = (number > values if is_right else number >= values).logical_not()
        low = torch.where(is_open & is_after, middle + 1, low)
        high = torch.where(is_open & ~is_after, middle, high)
    return low


def _taken(rows: Tensor, at: Tensor) -> Tensor:
    """Return the elements of each row, or of the only one, at these places."""
    return rows.gather(-1, at) if rows.dim() > 1 else rows.gather(0, at.reshape(-1)).reshape(at.shape)
