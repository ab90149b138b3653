"""The result of a loss function: the loss, and optional named tensors, the outputs of the step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch

from aicf_mlir.frontend.names import expect_name
from aicf_mlir.frontend.source import trace_error
from aicf_mlir.frontend.special import refuse_special
from aicf_mlir.frontend.types import is_supported, supported_dtypes
from aicf_mlir.frontend.values import is_a, members
from aicf_mlir.ir.locations import SourceLocation

LOSS = "loss"
"""The name among a plan's outputs that no other result can have."""


def outcome(result: object, location: SourceLocation | None) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Return the loss and the outputs in the result of a loss function: `loss`, or `(loss, {name: tensor})`.

    Raises TraceError, at `location`, for anything else.
    """
    loss, outputs = cast(Any, result) if _is_pair(result) else (result, None)
    named: dict[str, torch.Tensor] = dict(members(outputs) or ())
    if not is_a(loss, torch.Tensor):
        raise trace_error(
            f"expected one tensor as the result, got {_kind(result)}; return the loss, or (loss, {{name: tensor}})",
            location,
        )
    for name, tensor in named.items():
        _expect_output(name, tensor, location)
    return loss, named


def _kind(result: object) -> str:
    if type(result) is not tuple:
        return type(result).__name__
    return f"tuple of {', '.join(type(each).__name__ for each in cast(tuple[object, ...], result))}"


def _is_pair(result: object) -> bool:
    pair = cast("tuple[object, ...]", result) if type(result) is tuple else ()
    return len(pair) == 2 and issubclass(type(pair[1]), Mapping)


def _expect_output(name: object, tensor: object, location: SourceLocation | None) -> None:
    expect_name("outputs", "output", name, location)
    if name == LOSS:
        raise trace_error("no output can be called 'loss': that is what the step returns", location)
    if not is_a(tensor, torch.Tensor):
        hint = (
            "; a number of Python is the same after every step: leave it out, or make it a tensor"
            if is_a(tensor, (int, float))
            else ""
        )
        raise trace_error(
            f"output {name!r} must be a torch.Tensor, got {type(tensor).__name__}{hint}", location
        )
    refuse_special([tensor], location)
    if tensor.layout is not torch.strided:
        raise trace_error(
            f"output {name!r} is a {tensor.layout} tensor; make it dense with to_dense()", location
        )
    if not is_supported(tensor.dtype):
        raise trace_error(
            f"output {name!r} is a tensor of {tensor.dtype}; supported are {supported_dtypes()}", location
        )
    if not tensor.numel():
        raise trace_error(f"output {name!r} has no elements: its shape is {tuple(tensor.shape)}", location)
