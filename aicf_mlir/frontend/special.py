"""Tensors that are no plain block of numbers: no step can hold them, for any dtype."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch._guards import detect_fake_mode
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor

from aicf_mlir.frontend.batched import is_batched
from aicf_mlir.frontend.source import trace_error
from aicf_mlir.ir.locations import SourceLocation

PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
TRACED = (FakeTensor, FunctionalTensor)
"""Types of the tensors that torch.export computes with."""

HARMLESS = frozenset(
    {
        *(
            "__module__",
            "__doc__",
            "__dict__",
            "__weakref__",
            "__slots__",
            "__annotations__",
            "__parameters__",
        ),
        *("__orig_bases__", "__firstlineno__", "__static_attributes__", "__annotate_func__"),
        *("__annotations_cache__", "__new__", "__init__", "__init_subclass__", "__repr__"),
        *("__reduce_ex__", "__deepcopy__", "__setstate__"),
    }
)
"""Attributes that a tensor subclass may define without changing the meaning of any operation."""

FOREIGN = (
    "a fake tensor, which has no values; it was made under another FakeTensorMode, or kept in a list or a"
    " dictionary while an earlier step was traced"
)


def special(tensor: torch.Tensor) -> str | None:
    """Return the difference between `tensor` and a dense tensor in memory, with advice; None for a plain one."""
    if is_batched(tensor):  # the trace has made it
        return None
    if isinstance(tensor, FakeTensor):
        return "a fake tensor, which has no values; compile outside of FakeTensorMode"
    if (method := redefined(type(tensor))) is not None:
        name = type(tensor).__name__
        return f"a {name}, a tensor with its own {method}; convert it to a plain torch.Tensor"
    if tensor.is_nested:
        return "a nested tensor; pad it to one shape with to_padded_tensor()"
    if tensor.is_quantized:
        return "a quantized tensor; use dequantize()"
    if tensor.is_conj() or tensor.is_neg():
        return "a view that is conjugated when it is read; make it a plain tensor with resolve_conj() and resolve_neg()"
    if tensor.layout is not torch.strided:
        return f"a {tensor.layout} tensor; make it dense with to_dense()"
    if not tensor.is_meta and tensor.numel() and missing_bytes(tensor):
        return "a tensor whose storage was freed (resize_); give it its storage back"
    return None


def redefined(kind: type[torch.Tensor]) -> str | None:
    """Return the first method of torch.Tensor to which a subclass gives another meaning."""
    for cls in kind.__mro__:
        if cls in PLAIN:
            return None
        own = (name for name in vars(cls) if name not in HARMLESS and hasattr(torch.Tensor, name))
        if (name := next(own, None)) is not None:
            return name
    return None


def missing_bytes(tensor: torch.Tensor) -> bool:
    """True if the storage is smaller than the extent of shape and strides."""
    strides = zip(tensor.shape, tensor.stride(), strict=True)
    last = tensor.storage_offset() + sum((size - 1) * stride for size, stride in strides)
    return (last + 1) * tensor.element_size() > tensor.untyped_storage().nbytes()


def refuse_special(tensors: Iterable[torch.Tensor], location: SourceLocation | None) -> None:
    """Raise TraceError for a special tensor of the user's; the tracer's tensors are always fake."""
    for tensor in tensors:
        if isinstance(tensor, FakeTensor) and tensor.fake_mode is not detect_fake_mode():
            raise trace_error(f"the step reads {FOREIGN}", location)
        if not isinstance(tensor, TRACED) and (why := special(tensor)) is not None:
            raise trace_error(f"the step reads {why}", location)
