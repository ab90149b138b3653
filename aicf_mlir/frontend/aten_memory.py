"""Ops of torch that name places in memory."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from xdsl.ir import SSAValue

from aicf_mlir.dialects import nn
from aicf_mlir.frontend.call import Call
from aicf_mlir.frontend.refused import Forbidden
from aicf_mlir.ir.tensor_op import shape_of


def as_strided(call: Call) -> SSAValue:
    """Return the elements at some places of the memory in which torch has a tensor; whole rows of it where they are such."""
    x, (start, own) = call.value("self"), call["layout"]
    shape, offset = shape_of(x), call["storage_offset"]
    held = _addresses(start, shape, own)
    wanted = _addresses(
        start if offset is None else int(offset), call.shape, [int(n) for n in call["stride"]]
    )
    numbers = torch.full((int(max(held.max(), wanted.max())) + 1,), -1, device="cpu")
    numbers[held] = torch.arange(held.numel(), device="cpu")
    index, row = numbers[wanted], call.shape[-1] if call.shape else 1
    if int(index.min()) < 0:
        raise Forbidden("elements of its memory that the tensor has not")
    rows = index.reshape(-1, row)
    is_rows = bool(((rows == rows[:, :1] + torch.arange(row, device="cpu")) & (rows[:, :1] % row == 0)).all())
    if not is_rows or held.numel() % row:
        rows, row = index[:, None], 1
    flat = call.emit.reshape(x, (held.numel() // row, row))
    found = call.emit.insert(nn.TakeOp(flat, call.materialize(rows[:, 0] // row), 0))
    return call.emit.reshape(found, call.shape)


def _addresses(start: int, shape: Sequence[int], strides: Sequence[int]) -> torch.Tensor:
    """Return the places of all elements in memory, in row-major order."""
    found = torch.tensor([start], device="cpu")
    for size, stride in zip(shape, strides, strict=True):
        found = (found[:, None] + torch.arange(size, device="cpu") * stride).reshape(-1)
    return found
