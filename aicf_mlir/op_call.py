"""One kernel launch from Python, on torch tensors or NumPy arrays: `op_call(OpKind.Gemm, [a, b], [out])`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from aicf_mlir import _C
from aicf_mlir.errors import KernelError
from aicf_mlir.ir.element_types import TENSOR_DTYPES

if TYPE_CHECKING:
    import numpy as np
    import torch
    from typing_extensions import TypeIs

    Tensor = torch.Tensor | np.ndarray[Any, np.dtype[Any]]

OpKind = _C.OpKind

_NUMPY_DTYPES = {row.library: row.name for row in TENSOR_DTYPES}
_TORCH_DTYPES = {"torch." + name: dtype for name, dtype in _NUMPY_DTYPES.items()}


Operands = Sequence["Tensor"] | Mapping[str, "Tensor | Sequence[Tensor]"]


def op_call(
    kind: int,
    inputs: Operands,
    outputs: Operands,
    attrs: Mapping[str, _C.Attr] | None = None,
    kernel_id: str = "",
) -> str:
    """Run one operation into `outputs`, or record it into the open graph; return the id of its kernel.

    Inputs and outputs stand in the order of the operation, or by name: `{"a": a, "b": b, "bias": bias}`, which an
    operation with optional operands, or with operands of several tensors, asks for. They lie on one device, each in
    memory of its own unless the operation may run in place, and contiguous except where the operation takes them
    strided. An empty `kernel_id` takes the first kernel that supports them. On CUDA the launch goes to torch's
    current stream. Raises KernelError for wrong arguments, SelectionError where no kernel, or not the named one,
    supports them.
    """
    counts = None
    if isinstance(inputs, Mapping) or isinstance(outputs, Mapping):
        inputs, outputs, counts = _in_order(kind, inputs, outputs)
    described_inputs = [describe(tensor, f"input {i}") for i, tensor in enumerate(inputs)]
    described_outputs = [describe(tensor, f"output {i}", written=True) for i, tensor in enumerate(outputs)]
    stream = next((_current_stream(tensor) for tensor in (*inputs, *outputs)), 0)
    return _C.op_call(kind, described_inputs, described_outputs, dict(attrs or {}), kernel_id, stream, counts)


@cache
def _schemas() -> dict[int, dict[str, Any]]:
    return {row["number"]: row for row in _C.op_schemas()}


def _in_order(kind: int, inputs: Operands, outputs: Operands) -> tuple[list[Tensor], list[Tensor], _C.Counts]:
    """Operands and results in the order of the operation, and how many each name has."""
    schema = _schemas().get(kind)
    if schema is None:
        raise KernelError(f"expected an operation of aicf_mlir.OpKind, got {kind!r}")
    if not isinstance(inputs, Mapping) or not isinstance(outputs, Mapping):
        raise KernelError(f"{schema['name']}: give inputs and outputs both by name, or both in order")
    given, results = (
        _by_row(schema["name"], tensors, [row[0] for row in schema[side]])
        for side, tensors in (("inputs", inputs), ("outputs", outputs))
    )
    counts = tuple(len(row) for row in given), tuple(len(row) for row in results)
    return [t for row in given for t in row], [t for row in results for t in row], counts


def _by_row(op: str, given: Mapping[str, Tensor | Sequence[Tensor]], names: list[str]) -> list[list[Tensor]]:
    """The tensors of each name."""
    if unknown := [name for name in given if name not in names]:
        raise KernelError(f"{op} has no {unknown[0]!r}; it has {', '.join(names)}")
    return [_listed(given.get(name, ())) for name in names]


def _listed(value: Tensor | Sequence[Tensor]) -> list[Tensor]:
    if _is_array(value) or _is_torch(value):
        return [value]
    return list(value)


def describe(tensor: Tensor, name: str = "tensor", *, written: bool = False) -> _C.TensorDesc:
    """The address, dtype, shape, strides and device of `tensor`; `name` stands in error messages."""
    if _is_array(tensor):
        return _describe_array(tensor, name, written=written)
    if _is_torch(tensor):
        return _describe_torch(tensor, name)
    raise KernelError(f"{name}: expected a torch.Tensor or a numpy.ndarray, got {type(tensor).__name__}")


def _describe_array(array: np.ndarray[Any, np.dtype[Any]], name: str, *, written: bool) -> _C.TensorDesc:
    dtype = _NUMPY_DTYPES.get(array.dtype.name)
    if dtype is None or not array.dtype.isnative:
        raise KernelError(
            f"{name}: no kernel takes the dtype {array.dtype}; cast it to one of {_names(_NUMPY_DTYPES)}"
        )
    if written and not array.flags.writeable:
        raise KernelError(f"{name}: the array is read-only; pass a writable copy")
    strides = [step // array.itemsize for step in array.strides]
    if array.size and any(step % array.itemsize for step in array.strides):
        raise KernelError(
            f"{name}: non-contiguous: strides of {array.strides} bytes; pass numpy.ascontiguousarray(…)"
        )
    return _C.TensorDesc(array.ctypes.data, dtype, array.shape, strides, "cpu", array)


def _describe_torch(tensor: torch.Tensor, name: str) -> _C.TensorDesc:
    import torch

    dtype = _TORCH_DTYPES.get(str(tensor.dtype))
    if dtype is None:
        raise KernelError(
            f"{name}: no kernel takes the dtype {tensor.dtype}; cast it to one of {_names(_TORCH_DTYPES)}"
        )
    if tensor.layout != torch.strided or tensor.is_neg():
        raise KernelError(
            f"{name}: expected a dense tensor, got {tensor.layout}; call .to_dense() or .resolve_neg()"
        )
    if tensor.device.type not in ("cpu", "cuda"):
        raise KernelError(f"{name}: expected a tensor on cpu or cuda, got one on {tensor.device}")
    return _C.TensorDesc(tensor.data_ptr(), dtype, tensor.shape, tensor.stride(), str(tensor.device), tensor)


def _is_array(tensor: object) -> TypeIs[np.ndarray[Any, np.dtype[Any]]]:
    numpy = sys.modules.get("numpy")  # as with torch below
    return numpy is not None and isinstance(tensor, numpy.ndarray)


def _is_torch(tensor: object) -> TypeIs[torch.Tensor]:
    torch = sys.modules.get("torch")  # who passes a tensor has imported it
    return torch is not None and isinstance(tensor, torch.Tensor)


def _current_stream(tensor: Tensor) -> int:
    if _is_array(tensor) or tensor.device.type != "cuda":
        return 0
    import torch

    return torch.cuda.current_stream(tensor.device).cuda_stream


def _names(dtypes: Mapping[str, str]) -> str:
    return ", ".join(dtypes)
