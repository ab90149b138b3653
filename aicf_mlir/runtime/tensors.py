"""Torch tensors over arena memory, as views, and the targets of copies."""

from __future__ import annotations

from typing import Any

import torch

from aicf_mlir import _C
from aicf_mlir.errors import StateError
from aicf_mlir.ir.element_types import TENSOR_DTYPES

TORCH_DTYPES: dict[str, torch.dtype] = {row.name: getattr(torch, row.library) for row in TENSOR_DTYPES}
DTYPE_NAMES: dict[torch.dtype, str] = {dtype: name for name, dtype in TORCH_DTYPES.items()}


class _CudaBytes:
    """A range of device memory in the form that `torch.as_tensor` adopts without a copy; it keeps its arena alive."""

    def __init__(self, arena: _C.Arena, offset: int, nbytes: int):
        self.arena = arena
        self.__cuda_array_interface__: dict[str, Any] = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (arena.ptr + offset, False),
            "strides": None,
            "version": 2,
        }


def view(arena: _C.Arena, offset: int, dtype: str, shape: tuple[int, ...]) -> torch.Tensor:
    """Return a tensor of `shape` and `dtype` (an IR name such as "f32") at byte `offset` of `arena`, sharing its memory."""
    torch_dtype = TORCH_DTYPES[dtype]
    count = 1
    for extent in shape:
        count *= extent
    if count == 0:
        return torch.empty(shape, dtype=torch_dtype, device=arena.device)
    if arena.device == "cpu":
        # It is shaped in place: a torch view keeps a second tensor, and each step reads this one when it is out of the
        # cache.
        return torch.frombuffer(arena, dtype=torch_dtype, count=count, offset=offset).resize_(shape)
    raw = _CudaBytes(arena, offset, count * torch_dtype.itemsize)
    return torch.as_tensor(raw, device=arena.device).view(torch_dtype).view(shape)


class FreshTensors:
    """CPU tensors like a given one without dimensions, each returned once.

    Many are parts of one allocation: to clone a loss takes a fifth of a small step.
    """

    MANY = 256

    def __init__(self, like: torch.Tensor):
        self._dtype = like.dtype
        self._left: list[torch.Tensor] = []

    def take(self) -> torch.Tensor:
        """Return an unused tensor, with any value. Raises StateError if torch makes other tensors than its own at the
        moment.
        """
        if not self._left:
            self._left = self._made()
        return self._left.pop()

    def _made(self) -> list[torch.Tensor]:
        with torch.inference_mode(False), torch.no_grad():
            made = list(torch.empty(self.MANY, dtype=self._dtype, device="cpu").unbind())
        if type(made[0]) is not torch.Tensor or made[0].data_ptr() == 0:
            raise StateError(
                "a mode of torch is active in which new tensors have no memory; replay outside of it"
            )
        return made


def current_stream(device: torch.device) -> int:
    """Return the handle of torch's current stream on `device`; 0 on the CPU."""
    return torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0


def set_to(target: torch.Tensor, value: torch.Tensor) -> None:
    """Copy a tensor that broadcasts; one number is not spread on the host first, as torch does with a tensor of the CPU."""
    if value.dim() == 0 and value.device.type == "cpu":
        target.fill_(value)
    else:
        target.copy_(value)


def exact(value: torch.Tensor | float) -> torch.Tensor:
    """Return a tensor, or a number as one on the CPU: f64, since torch's own choice rounds it to f32."""
    return (
        value if isinstance(value, torch.Tensor) else torch.tensor(value, dtype=torch.float64, device="cpu")
    )
