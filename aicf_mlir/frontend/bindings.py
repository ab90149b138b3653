"""What each placeholder of the graph is in the step: its role, its name, and the user's own tensor.

One tensor is one argument: tied weights arrive as several placeholders and leave as one, under the first of
their names.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Literal

import torch
from torch.fx import Node

from aicf_mlir.frontend.exported_step import ExportedStep, Placeholder
from aicf_mlir.frontend.model import free_name
from aicf_mlir.frontend.source import SourceLocation, trace_error
from aicf_mlir.frontend.types import describe, is_supported, supported_dtypes

Role = Literal["param", "buffer"]


@dataclass(frozen=True, eq=False)
class Binding:
    """An argument of the step beside the batch."""

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
    """
    Give every placeholder that the result depends on its role and name; trained parameters come first.

    `names` holds the parameters and buffers of the model, `trained` those parameters that the optimizer
    updates.
    """
    known = dict[int, Binding]()
    bindings = Bindings({}, {})
    placeholders = exported.placeholders
    for node in exported.program.graph.find_nodes(op="placeholder"):
        placeholder = placeholders.get(node.name)
        if placeholder is None or node not in exported.live:
            continue
        tensor = placeholder.tensor
        if placeholder.is_captured and id(tensor) not in exported.recorder.captured:
            bindings.literals[node] = tensor.cpu()
        else:
            if id(tensor) not in known:
                location = exported.location(next(iter(node.users)))
                known[id(tensor)] = binding_of(placeholder, names, trained, location)
            bindings.arguments[node] = known[id(tensor)]
    refuse_overlap([binding for binding in known.values() if binding.tensor.device.type != "meta"])
    order = {name: position for position, name in enumerate(names.values())}

    def rank(item: tuple[Node, Binding]) -> tuple[bool, int, str]:
        return item[1].role != "param", order.get(item[1].name, len(order)), item[1].name

    return Bindings(dict(sorted(bindings.arguments.items(), key=rank)), bindings.literals)


def binding_of(
    placeholder: Placeholder,
    names: Mapping[torch.Tensor, str],
    trained: AbstractSet[torch.Tensor],
    location: SourceLocation | None,
) -> Binding:
    """The argument that stands for a placeholder; TraceError for a tensor that cannot be one."""
    tensor = placeholder.tensor
    name = names.get(tensor) or free_name(
        placeholder.path.replace("lifted_tensor_", "captured."), names.values()
    )
    if placeholder.is_captured and tensor.requires_grad:
        raise trace_error(
            f"{describe(tensor)} requires a gradient but is no parameter of the model; register it as one",
            location,
        )
    if not is_supported(tensor.dtype):
        raise trace_error(
            f"{name!r} is a tensor of {tensor.dtype}; supported are {supported_dtypes()}", location
        )
    return Binding("param" if tensor in trained else "buffer", name, tensor)


def refuse_overlap(bindings: list[Binding]) -> None:
    """Raise TraceError if a trained parameter shares memory with another tensor of the step."""
    previous: tuple[int, Binding] | None = None
    for (start, end), binding in sorted(((memory(b.tensor), b) for b in bindings), key=lambda item: item[0]):
        if previous and start < previous[0] and "param" in (binding.role, previous[1].role):
            raise trace_error(
                f"{previous[1].name!r} and {binding.name!r} are two tensors over the same memory; to tie"
                " weights, use one Parameter in both places (a.weight = b.weight)"
            )
        if previous is None or end > previous[0]:
            previous = end, binding


def memory(tensor: torch.Tensor) -> tuple[int, int]:
    """First byte of a tensor and the byte after its last."""
    strides = zip(tensor.shape, tensor.stride(), strict=True)
    last = sum((size - 1) * stride for size, stride in strides)
    start = tensor.data_ptr()
    return start, start + (last + 1) * tensor.element_size()
