"""What each placeholder of the graph is in the step: its role, its name, and the user's own tensor.

One tensor is one argument: tied weights arrive as several placeholders and leave as one, under the first of their names.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Literal

import torch
from torch.export.graph_signature import InputKind
from torch.fx import Node

from aicf_mlir.frontend.export import ExportedStep
from aicf_mlir.frontend.source import trace_error
from aicf_mlir.frontend.types import describe, is_supported, supported_dtypes

Role = Literal["input", "param", "buffer"]


@dataclass(frozen=True, eq=False)
class Binding:
    """An argument of the step."""

    role: Role
    name: str
    tensor: torch.Tensor


@dataclass(frozen=True)
class Bindings:
    """Arguments by the placeholder that reads them, and tensors whose values are known while tracing."""

    arguments: dict[Node, Binding]
    literals: dict[Node, torch.Tensor]


def bind(
    exported: ExportedStep, names: Mapping[torch.Tensor, str], trained: AbstractSet[torch.Tensor]
) -> Bindings:
    """Give every placeholder that is read its role and name.

    `names` holds the parameters and buffers of the model, `trained` those parameters that the optimizer updates.
    """
    tensors = exported.tensors()
    known = dict[int, Binding]()
    arguments, literals = dict[Node, Binding](), dict[Node, torch.Tensor]()
    for node in exported.program.graph.find_nodes(op="placeholder"):
        if node.name not in tensors or not node.users:
            continue
        kind, path, tensor = tensors[node.name]
        location = exported.location(next(iter(node.users)))
        if kind is InputKind.CONSTANT_TENSOR and id(tensor) not in exported.step.recorder.captured:
            literals[node] = tensor
            continue
        name = names.get(tensor, path.removeprefix("model.").replace("lifted_tensor_", "captured."))
        if tensor.requires_grad and tensor not in names and kind is InputKind.CONSTANT_TENSOR:
            raise trace_error(
                f"a tensor that requires a gradient, {describe(tensor)}, is not a parameter of the model; register it as"
                " one, or detach it before the step",
                location,
            )
        if not is_supported(tensor.dtype):
            raise trace_error(
                f"{name!r} is a tensor of {tensor.dtype}; supported are {supported_dtypes()}", location
            )
        role: Role = "param" if tensor in trained else "buffer"
        arguments[node] = known.setdefault(id(tensor), Binding(role, name, tensor))
    refuse_overlap(list(known.values()))
    return Bindings(arguments, literals)


def refuse_overlap(bindings: list[Binding]) -> None:
    """Raise TraceError if a trained parameter shares memory with another tensor of the step."""
    previous: tuple[int, Binding] | None = None
    for (start, end), binding in sorted(((memory(b.tensor), b) for b in bindings), key=lambda item: item[0]):
        if previous and start < previous[0] and "param" in (binding.role, previous[1].role):
            raise trace_error(
                f"{previous[1].name!r} and {binding.name!r} are two tensors over the same memory; to tie weights, use"
                " one Parameter in both places (a.weight = b.weight)"
            )
        if previous is None or end > previous[0]:
            previous = end, binding


def memory(tensor: torch.Tensor) -> tuple[int, int]:
    """First byte of a tensor and the byte after its last."""
    strides = zip(tensor.shape, tensor.stride(), strict=True)
    last = sum((size - 1) * stride for size, stride in strides)
    start = tensor.data_ptr()
    return start, start + (last + 1) * tensor.element_size()
