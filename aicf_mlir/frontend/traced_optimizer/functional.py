"""Conversion of a graph that writes to its tensors to a graph of values: each write makes a new value, which all later
nodes read.

Torch does that for any graph by tracing it again, which takes longer than the rest of a compilation. The step of an
optimizer writes to whole tensors in nearly all cases, and then it is a walk through the graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch._ops import HigherOrderOperator, OpOverload
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from aicf_mlir.frontend.effects import schema_of

aten: Any = torch.ops.aten

SAME = (aten.detach.default, aten.alias.default)
"""Ops that return the tensor they take."""


def without_writes(graph: Graph) -> bool:
    """Remove all writes from `graph`; return False, without a change, if that takes more than values in place of
    tensors.

    This is the case for a write to a tensor that has a view, by an op without a form that returns its result, or in a
    nested graph.
    """
    replaced = _replacements(graph)
    if replaced is None:
        return False
    now: dict[Node, Node] = {}  # the value of a tensor by its first name
    owner: dict[Node, Node] = {}
    gone: list[Node] = []

    def value(node: Node) -> Node:
        first = owner.get(node, node)
        return now.get(first, first)

    for node in list(graph.nodes):
        if node.target in SAME:
            owner[node] = owner.get(tensor := cast(Node, node.args[0]), tensor)
            gone.append(node)
            continue
        node.args, node.kwargs = map_arg(node.args, value), map_arg(node.kwargs, value)
        if node in replaced:
            first = owner.get(replaced[node][0], replaced[node][0])
            owner[node] = first
            now[first] = _returned(graph, node, replaced[node][1])
            gone.append(node)
    for node in reversed(gone):
        graph.erase_node(node)
    return True


def _replacements(graph: Graph) -> Mapping[Node, tuple[Node, OpOverload]] | None:
    """Return, for each node that writes, the tensor and the op that returns the written value; None if there is no op
    for one.
    """
    known, viewed, written = set[int](), set[int](), set[int]()
    found: dict[Node, tuple[Node, OpOverload]] = {}
    for node in graph.nodes:
        if node.op not in ("placeholder", "call_function", "output") or isinstance(
            node.target, HigherOrderOperator
        ):
            return None
        if _writes(node):
            tensor, returning = node.args[0], _returning(node.target)
            if returning is None or not isinstance(tensor, Node):
                return None
            written |= _memory(tensor)
            found[node] = tensor, returning
        elif node.target not in SAME:
            viewed |= _memory(node) & known
        known |= _memory(node)
    return None if written & viewed else found


def _writes(node: Node) -> bool:
    target: Any = node.target
    return isinstance(target, OpOverload) and schema_of(target).is_mutable


def _memory(node: Node) -> set[int]:
    """Return the memory of a node's tensors; several ops that may return their own argument do not declare it, as
    `torch.atleast_1d`.
    """
    made: Any = node.meta.get("val")
    return {
        each.untyped_storage()._cdata  # pyright: ignore[reportPrivateUsage]
        for each in (made if isinstance(made, (tuple, list)) else (made,))  # pyright: ignore[reportUnknownVariableType]
        if isinstance(each, torch.Tensor)
    }


def _returning(op: OpOverload) -> OpOverload | None:
    """Return the op that returns the value `op` writes to its first argument: `aten.add.Tensor` for `aten.add_.Tensor`."""
    namespace, name = schema_of(op).name.split("::")
    packet = getattr(aten, name.removesuffix("_"), None) if namespace == "aten" else None
    other: Any = getattr(packet, schema_of(op).overload_name or "default", None)
    if other is None or other is op or schema_of(other).is_mutable:
        return None
    names, others = ([argument.name for argument in schema_of(each).arguments] for each in (op, other))
    marked = [argument.name for argument in schema_of(op).arguments if argument.alias_info]
    return other if names == others and marked == ["self"] else None


def _returned(graph: Graph, node: Node, op: OpOverload) -> Node:
    """Return the value that `node` writes, in the type of the written tensor, inserted before the node."""
    before: torch.Tensor = node.meta["val"]
    args: Any = map_arg(node.args, _value)
    kwargs: Any = map_arg(node.kwargs, _value)
    returning: Any = op
    with cast(Any, before).fake_mode:
        made: torch.Tensor = returning(*args, **kwargs)
    with graph.inserting_before(node):
        new = graph.call_function(op, node.args, node.kwargs)
        new.meta = {**node.meta, "val": made}
        if made.dtype != before.dtype:
            new = graph.call_function(aten._to_copy.default, (new,), {"dtype": before.dtype})
            new.meta = {**node.meta}
    return new


def _value(node: Node) -> Any:
    return node.meta["val"]
