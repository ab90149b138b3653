"""The meaning of each placeholder of the graph in the step: its role, its name, and the user's own tensor.

One tensor is one argument: tied weights arrive as several placeholders and leave as one, under the first of
their names.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch.fx import Node

from aicf_mlir.frontend.autograd_graph import leaves_of
from aicf_mlir.frontend.exported_step import ExportedStep
from aicf_mlir.frontend.model import free_name
from aicf_mlir.frontend.recorder import value_read
from aicf_mlir.frontend.replaced_data import memory_of
from aicf_mlir.frontend.shared_memory import refuse_shared
from aicf_mlir.frontend.source import quoted, trace_error
from aicf_mlir.frontend.special import special
from aicf_mlir.frontend.torch_errors import ON_META
from aicf_mlir.frontend.types import describe, in_real, is_supported, supported_dtypes
from aicf_mlir.ir.locations import SourceLocation

Role = Literal["param", "buffer"]

TWICE = "which it also reaches in another way (another module, a closure, a list); read it in one place"


@dataclass(frozen=True, eq=False)
class Binding:
    """An argument of the step other than the batch."""

    role: Role
    name: str
    tensor: torch.Tensor
    is_updated: bool = False
    """True if the step replaces its value."""


@dataclass(frozen=True)
class Bindings:
    """Arguments by the placeholder that reads them, and tensors whose values are known while tracing."""

    arguments: dict[Node, Binding]
    literals: dict[Node, torch.Tensor]


def bind(
    exported: ExportedStep,
    names: Mapping[torch.Tensor, str],
    trained: AbstractSet[torch.Tensor],
    *,
    writes_parameters: bool = False,
) -> Bindings:
    """Give every placeholder that a result depends on its role and name.

    Trained parameters come first, then the buffers that the step updates.

    `names` holds the parameters and buffers of the model, `trained` the parameters that the optimizer updates.
    `writes_parameters` is True if the graph contains these updates and the writes of a loop body.
    """
    known = dict[int, Binding]()
    bindings = Bindings({}, {})
    placeholders = exported.placeholders
    updated = {update.placeholder: update.value for update in exported.updates}
    captured = {memory_key(tensor): tensor for tensor in exported.recorder.captured.values()}
    sources = {memory_of(source) for source in exported.recorder.known.sources.values()}
    for node in exported.program.graph.find_nodes(op="placeholder"):
        placeholder = placeholders.get(node.name)
        if placeholder is None or node not in exported.live:
            continue
        tensor = placeholder.tensor
        location = exported.location(updated[node] if node in updated else next(iter(node.users)))
        if (why := special(tensor)) is not None:
            raise trace_error(f"{placeholder.path!r} is {why}", location)
        if tensor.is_meta and any(not other.is_meta for other in names):
            what = ON_META.format(line=quoted(location))
            raise trace_error(f"the step reads {placeholder.path!r} {what}", location)
        if node in updated and memory_of(tensor) in sources:
            raise value_read(
                f"writes to {placeholder.path!r}, and its shapes or its Python depend on what is there",
                location,
            )
        if placeholder.is_captured:  # torch.export passes aliases of the user's tensors
            tensor = captured.get(memory_key(tensor))
        if tensor is None:
            bindings.literals[node] = in_real(placeholder.tensor.cpu())
        else:
            if id(tensor) not in known:
                binding = binding_of(placeholder.path, tensor, names, trained, location)
                known[id(tensor)] = replace(binding, is_updated=node in updated)
                if node in updated and not writes_parameters:
                    refuse_update(binding, location)
            elif node in updated or known[id(tensor)].is_updated:
                raise trace_error(f"the step updates {known[id(tensor)].name!r}, {TWICE}", location)
            bindings.arguments[node] = known[id(tensor)]
    present = [binding for binding in known.values() if binding.tensor.device.type != "meta"]
    refuse_shared({binding.name: binding.tensor for binding in present}, names)
    order = {name: position for position, name in enumerate(names.values())}

    def rank(item: tuple[Node, Binding]) -> tuple[bool, bool, int, str]:
        return (
            item[1].role != "param",
            not item[1].is_updated,
            order.get(item[1].name, len(order)),
            item[1].name,
        )

    return Bindings(dict(sorted(bindings.arguments.items(), key=rank)), bindings.literals)


def memory_key(tensor: torch.Tensor) -> tuple[object, ...]:
    """Return a key that is equal for two tensors that are the same view of the same memory."""
    address = 0 if tensor.is_meta else tensor.data_ptr()
    unplaced = id(tensor) if tensor.is_meta or not tensor.numel() else 0
    return address, unplaced, tensor.device, tensor.dtype, tensor.shape, tensor.stride()


def binding_of(
    path: str,
    tensor: torch.Tensor,
    names: Mapping[torch.Tensor, str],
    trained: AbstractSet[torch.Tensor],
    location: SourceLocation | None,
) -> Binding:
    """Return the argument for a tensor of the user's. Raises TraceError for a tensor that cannot be one."""
    name = names.get(tensor) or free_name(path.replace("lifted_tensor_", "captured."), names.values())
    if tensor.grad_fn is not None and is_seen(tensor):
        raise trace_error(
            f"{name!r}, {describe(tensor)}, was computed outside the step from tensors that require a gradient, which"
            " the step would not reach; compute it inside, or pass it detached",
            location,
        )
    if not is_supported(tensor.dtype.to_real() if tensor.is_complex() else tensor.dtype):
        raise trace_error(
            f"{name!r} is a tensor of {tensor.dtype}; supported are {supported_dtypes()}", location
        )
    return Binding("param" if tensor in trained else "buffer", name, tensor)


def is_seen(tensor: torch.Tensor) -> bool:
    """True if Python code holds a leaf that `tensor` is computed from, and so sees its gradient.

    It holds none of `torch.tensor(…, requires_grad=True).float()`.
    """
    alone = references(torch.zeros(1, requires_grad=True, device="cpu").double())
    return any(count > alone[0] for count in references(tensor))


def references(tensor: torch.Tensor) -> list[int]:
    """Return the number of references to each leaf that a tensor is computed from."""
    return [sys.getrefcount(leaf) for leaf in leaves_of(tensor)]


def refuse_update(binding: Binding, location: SourceLocation | None) -> None:
    """Raise TraceError for a tensor that only the optimizer may update."""
    tensor, what = binding.tensor, f"the step changes {binding.name!r} in place"
    if binding.role == "param" or tensor.requires_grad:
        raise trace_error(
            f"{what}, a parameter, which is not supported; let the optimizer train it", location
        )
