"""The import of a graph of ATen ops, node by node, into ops of the nn dialect, each at its line."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from operator import getitem
from typing import Any, Protocol, cast

import torch
from torch.fx import Node
from torch.fx.node import map_arg
from xdsl.ir import SSAValue
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.dialects.nn.pointwise import CLASSES
from aicf_mlir.frontend.aten_bytes import WRAPPED, is_bytes, refusal
from aicf_mlir.frontend.aten_rows import detach
from aicf_mlir.frontend.aten_table import TABLE
from aicf_mlir.frontend.call import Call, Value
from aicf_mlir.frontend.cut import CUT
from aicf_mlir.frontend.emitter import Emitter
from aicf_mlir.frontend.refused import Forbidden, Refused
from aicf_mlir.frontend.source import trace_error
from aicf_mlir.frontend.types import OF_BYTES, has_numbers
from aicf_mlir.frontend.unsupported import UnsupportedNode, is_random, op_name
from aicf_mlir.ir.locations import SourceLocation
from aicf_mlir.ir.tensor_op import shape_of

CUTS = ("aten.detach.default", str(CUT))
"""Ops that no gradient flows through."""

CUT_RESULTS = {
    "aten._native_batch_norm_legit_functional.default": (1, 2, 3, 4),
    "aten._native_batch_norm_legit.no_stats": (1, 2),
}
"""Results that no gradient flows through, of ops with several: statistics."""


class Located(Protocol):
    """A graph that knows the user's line of a node."""

    def location(self, node: Node) -> SourceLocation | None:
        """The user's file, line and layer."""
        ...


class NodeImporter(abc.ABC):
    """Emits the nodes of `graph` by `emit`, on existing values."""

    def __init__(self, graph: Located, emit: Emitter, device: torch.device):
        self._graph = graph
        self._emit = emit
        self._device = device
        self._values: dict[Node, Value] = {}
        self._carriers: set[Node] = set()
        """The nodes that a trained parameter reaches."""
        self._is_forward = True
        """False after a body has called backward or written a parameter: torch records no write of these."""

    def emit_node(self, node: Node) -> None:
        """Import one call."""
        self._emit.location = self._graph.location(node)
        self._values[node] = self._import(node)
        if self._carries_gradient(node) and op_name(node) not in CUTS and not is_integer(node):
            self._carriers.add(node)

    def _value(self, node: Node) -> SSAValue:
        value = self._values[node]
        return self.materialize(value) if isinstance(value, torch.Tensor) else cast(SSAValue, value)

    @abc.abstractmethod
    def materialize(self, tensor: torch.Tensor) -> SSAValue:
        """A tensor known while tracing as a value."""

    def operands(self, node: Node) -> Mapping[Node, Value]:
        """The values of the nodes that `node` takes."""
        return self._values

    def _carries_gradient(self, node: Node) -> bool:
        if node.target is getitem:
            of, index = cast(tuple[Node, int], node.args)
            return of in self._carriers and index not in CUT_RESULTS.get(op_name(of), ())
        return any(operand in self._carriers for operand in node.all_input_nodes)

    def _import(self, node: Node) -> Value:
        if node.target is getitem:
            operand, index = cast(tuple[Node, int], node.args)
            return self._checked(node, cast(tuple[Value, ...], self._values[operand])[index])
        is_wrapped = op_name(node) in WRAPPED and is_bytes(node)
        call = Call(
            arguments=bound_arguments(node, self.operands(node)),
            expected=node.meta["val"].to(OF_BYTES) if is_wrapped else node.meta.get("val"),
            emit=self._emit,
            materialize=self.materialize,
            device=self._device,
            carriers=[self._values[each] for each in node.all_input_nodes if each in self._carriers],
            is_forward=self._is_forward,
        )
        try:
            if is_known(node, call.arguments):
                return self._evaluate(node)
            if (why := refusal(node, op_name(node))) is not None:
                raise Forbidden(why)
            call.arguments.update(layout(node))
            row = detach if node.target is CUT else TABLE.get(op_name(node))
            if row is None:
                raise Refused
            made = row(call)
            if is_wrapped:
                made = self._emit.insert(
                    CLASSES["bitwise_and"](cast(SSAValue, made), self._emit.constant(255, OF_BYTES))
                )
            return self._checked(node, made)
        except (Refused, VerifyException) as refused:
            location = self._graph.location(node)
            raise UnsupportedNode(node, str(refused), isinstance(refused, Forbidden), location) from None

    def _checked(self, node: Node, value: Value) -> Value:
        """Return `value`, if it has the shape of torch's trace: later nodes were traced for that shape."""
        expected = node.meta.get("val")
        if not isinstance(value, SSAValue) or not isinstance(expected, torch.Tensor):
            return value
        made, traced = list(shape_of(value)), list(expected.shape)
        if made != traced:
            reason = (
                f"torch {torch.__version__} traces it with the shape {traced}, and it has {made}:"
                " a fault of its tracing; use another release of torch"
            )
            raise UnsupportedNode(node, reason, True, self._graph.location(node))
        return value

    def _evaluate(self, node: Node) -> Value:
        """Run an op on tensors known while tracing, on the CPU."""
        target: Any = node.target
        args, kwargs = with_values(node, self._values)
        if "device" in kwargs:
            kwargs = {**kwargs, "device": torch.device("cpu")}
        try:
            with torch.no_grad():
                return target(*args, **kwargs)
        except RuntimeError as error:
            raise trace_error(f"torch refuses {op_name(node)}: {error}", self._emit.location) from error


def is_integer(node: Node) -> bool:
    """True if the one result of `node` is a tensor that can have no gradient."""
    made = node.meta.get("val")
    return isinstance(made, torch.Tensor) and not has_numbers(made)


def with_values(node: Node, values: Mapping[Node, Value]) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """Positional and keyword arguments of `node`, with the values of the nodes among them."""
    value: Any = values.__getitem__  # map_arg takes functions to graph arguments only
    both: Any = map_arg((node.args, node.kwargs), value)
    return both


def bound_arguments(node: Node, values: Mapping[Node, Value]) -> dict[str, Any]:
    """The arguments of `node` by the names of its schema, defaults included."""
    target: Any = node.target
    schema: Any = getattr(target, "_schema", None)
    parameters: list[Any] = [] if schema is None else list(schema.arguments)
    args, kwargs = with_values(node, values)
    defaults = {p.name: p.default_value for p in parameters if p.has_default_value()}
    return {**defaults, **dict(zip((p.name for p in parameters), args, strict=False)), **kwargs}


def is_known(node: Node, arguments: Mapping[str, Any]) -> bool:
    """True if the results of `node` follow from tensors known while tracing, or from none at all."""
    values: list[Any] = []
    for value in arguments.values():
        values += value if isinstance(value, (list, tuple)) else [value]
    depends = any(isinstance(value, SSAValue) for value in values)
    made: Any = node.meta.get("val")
    results: list[Any] = [*made] if isinstance(made, (tuple, list)) and made else [made]
    return all(isinstance(each, torch.Tensor) for each in results) and not depends and not is_random(node)


VIEWS = (
    "view",
    "_unsafe_view",
    "reshape",
    "alias",
    "detach",
    "transpose",
    "t",
    "permute",
    "slice",
    "select",
    "unsqueeze",
    "squeeze",
)
"""Ops, by name, whose result is in the memory of their operand."""


def layout(node: Node) -> dict[str, Any]:
    """Return where torch has the operand of `as_strided` in memory; nothing for another op. Raises Forbidden for memory that the
    step has not made, whose layout may change from step to step.
    """
    if op_name(node) != "aten.as_strided.default":
        return {}
    made = base = cast(Node, node.args[0])
    while op_name(base).split(".")[1:2] and op_name(base).split(".")[1] in VIEWS:
        base = base.all_input_nodes[0]
    if base.op == "placeholder":
        raise Forbidden("of memory that the step has not made; use unfold, or clone() before")
    held: torch.Tensor = made.meta["val"]
    return {"layout": (held.storage_offset(), held.stride())}
