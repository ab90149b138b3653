"""Methods of torch.Tensor and torch.nn.Module that user code has replaced: torch's tracer computes with them, too.

A function in a module, `torch.tanh` or `F.relu`, may be replaced before a step is compiled: the step then contains its
operations. But the tracer and its decompositions call the methods of every tensor and of every module themselves: the
replacement would run twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import FunctionType

import torch

from aicf_mlir.frontend.library import is_librarys
from aicf_mlir.frontend.source import trace_error
from aicf_mlir.frontend.special import HARMLESS
from aicf_mlir.ir.locations import SourceLocation

CALLS = ("__call__", "_wrapped_call_impl", "_call_impl", "__getattr__", "__setattr__", "__delattr__")
"""The methods of a module that every call of it runs."""

METHODS: Mapping[type, frozenset[str]] = {
    torch.Tensor: frozenset(
        name for name in dir(torch.Tensor) if name not in HARMLESS and name != "__format__"
    ),
    torch.nn.Module: frozenset(CALLS),
}
"""The methods that torch has, by class. Methods that others add are ignored."""


def refuse_patched(caller: SourceLocation | None) -> None:
    """Raise TraceError if a method of torch's own is the user's code."""
    for kind, names in METHODS.items():
        for name, value in vars(kind).items():
            if name in names and isinstance(value, FunctionType) and not is_librarys(value):
                raise trace_error(
                    f"{kind.__name__}.{name} was replaced by {value.__qualname__!r}, which torch's tracer would run in its own"
                    " code as well; put it back, and call that function where it is meant",
                    caller,
                )
