"""The graph of an optimizer's step as a private function of the nn dialect, placed after the gradients by
`apply-optimizer`.

    func.func private @step_update(
        %w: {param "w"}, %dw: {input "w"}, %m: {state "w.m"}, %lr: {host_scalar "lr"}) -> ({update "w"}, {update "w.m"})

Its inputs are the gradients, called as their parameters.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch.fx import Node
from xdsl.dialects import func
from xdsl.dialects.builtin import ArrayAttr, FunctionType, StringAttr
from xdsl.ir import Block, BlockArgument, OpResult, Region, SSAValue

from aicf_mlir.dialects import nn
from aicf_mlir.dialects.nn.pointwise import CLASSES
from aicf_mlir.dialects.nn.shape import MOST_EXACT
from aicf_mlir.frontend.call import Value
from aicf_mlir.frontend.emitter import Emitter, tensor_type
from aicf_mlir.frontend.graph_walk import needed_by
from aicf_mlir.frontend.importer import name_hint, only_value
from aicf_mlir.frontend.node_importer import NodeImporter
from aicf_mlir.frontend.refused import Forbidden, Refused
from aicf_mlir.frontend.source import trace_error
from aicf_mlir.frontend.traced_optimizer.first_step import source_of
from aicf_mlir.frontend.traced_optimizer.graph import OptimizerGraph
from aicf_mlir.frontend.unsupported import UnsupportedNode
from aicf_mlir.ir.locations import location_attribute
from aicf_mlir.ir.signature import Label, set_results

aten: Any = torch.ops.aten

_python: Any = operator
SCALARS: dict[Any, str] = {
    **{getattr(_python, name): name for name in ("add", "sub", "mul", "pow", "neg", "abs")},
    _python.truediv: "div",
    _python.mod: "remainder",
}
"""The Python operations on numbers, by the op of the nn dialect that does the same with 0-d tensors of f64."""


@dataclass(frozen=True)
class Argument:
    """An argument of the function."""

    label: Label
    shape: tuple[int, ...]
    dtype: torch.dtype


class UpdateImporter(NodeImporter):
    """Builds the function `name` of a graph whose inputs stand for these arguments."""

    def __init__(self, graph: OptimizerGraph, arguments: Sequence[Argument], name: str, device: torch.device):
        self._block = Block()
        super().__init__(graph, Emitter(self._block, _no_status, _no_random), device)
        self._optimizer = graph
        self._name = name
        self._arguments: dict[Node, tuple[BlockArgument, Label]] = {}
        for node, argument in zip(graph.inputs, arguments, strict=True):
            self._values[node] = self._argument(node, argument)

    def _argument(self, node: Node, argument: Argument) -> SSAValue:
        type = tensor_type(argument.shape, argument.dtype)
        value = self._block.insert_arg(type, len(self._block.args))
        hint = name_hint(argument.label.role, argument.label.name)
        value.name_hint = f"d{hint}" if argument.label.role == "input" else hint
        self._arguments[node] = value, argument.label
        return value

    def run(self) -> func.FuncOp:
        """Return the function. Raises UnsupportedNode at the first node that has no form in nn."""
        live, made = self._live(), self._optimizer.constants
        for node in self._optimizer.program.graph.nodes:
            if node in live and node in made:
                self._values[node] = self._constant(node, made[node])
            if node.op == "call_function" and node in live:
                self.emit_node(node)
        inputs, module = self._optimizer.inputs, self._optimizer.module
        states = {key: inputs[2 * module.count + i] for i, (key, _) in enumerate(module.states)}
        targets = [*inputs[: module.count], *(states[key] for key in module.record.keys)]
        updates: list[tuple[SSAValue, Label]] = []
        for target, result in zip(targets, self._optimizer.results, strict=True):
            if source_of(result) is not target:
                updates.append(self._update(target, result))
        if not any(label.target_role == "param" for _, label in updates):
            title = type(module.optimizer).__name__
            raise trace_error(f"{title}.step changes no parameter", self._optimizer.fallback)
        return self._function(updates)

    def _constant(self, node: Node, tensor: torch.Tensor) -> SSAValue:
        try:
            return self.materialize(tensor)
        except Refused:
            title = type(self._optimizer.module.optimizer).__name__
            raise trace_error(
                f"{title}.step makes a tensor of several numbers anew each time; keep it in self.state[p]",
                self._optimizer.location(next(iter(node.users))),
            ) from None

    def _live(self) -> set[Node]:
        return needed_by(self._optimizer.results)

    def _update(self, target: Node, result: Node) -> tuple[SSAValue, Label]:
        argument, label = self._arguments[target]
        value = self._value(result)
        if value.type != argument.type:
            self._emit.location = self._optimizer.location(result)
            kind: Any = argument.type
            made = self._emit.insert(nn.CastOp(value, kind.element_type))
            value = self._emit.broadcast(made, kind.get_shape())
        if isinstance(value, OpResult):
            value.name_hint = f"{argument.name_hint}.next"
        return value, Label("update", label.name, target_role=label.role)

    def _function(self, updates: Sequence[tuple[SSAValue, Label]]) -> func.FuncOp:
        returned = func.ReturnOp(*(value for value, _ in updates))
        returned.location = location_attribute(self._optimizer.fallback)
        self._block.add_op(returned)
        function = func.FuncOp(
            self._name,
            FunctionType.from_lists(self._block.arg_types, [value.type for value, _ in updates]),
            Region(self._block),
            visibility=StringAttr("private"),
            arg_attrs=ArrayAttr([label.to_attribute() for _, label in self._arguments.values()]),
        )
        set_results(function, updates)
        function.location = location_attribute(self._optimizer.fallback)
        return function

    def _import(self, node: Node) -> Value:
        try:
            if node.target in SCALARS:
                return self._scalar(SCALARS[node.target], node)
            if (function := _named(node.target)) is not None:
                return self._scalar(function, node)
            if node.target in (aten.item.default, aten._local_scalar_dense.default):
                return self._emit.cast(self._value(cast(Node, node.args[0])), torch.float64)
            if node.target is aten.scalar_tensor.default and isinstance(node.args[0], Node):
                return self._emit.cast(self._value(node.args[0]), node.meta["val"].dtype)
        except Refused as refused:
            location = self._graph.location(node)
            raise UnsupportedNode(node, str(refused), isinstance(refused, Forbidden), location) from None
        return super()._import(node)

    def _scalar(self, name: str, node: Node) -> SSAValue:
        operands = [
            self._value(each)
            if isinstance(each, Node)
            else self._emit.constant(float(cast(float, each)), torch.float64)
            for each in node.args
        ]
        return self._emit.insert(CLASSES[name](*operands))

    def operands(self, node: Node) -> dict[Node, Value]:
        """Return its values, with a number of f64 in the type in which torch computes the op."""
        expected: Any = node.meta.get("val")
        tensor = cast(Any, expected[0] if isinstance(expected, (tuple, list)) else expected)  # pyright: ignore[reportUnknownMemberType]
        dtype = tensor.dtype if isinstance(tensor, torch.Tensor) else torch.float64
        dtype = dtype if dtype.is_floating_point else torch.float64
        wide = torch.float32 if dtype.itemsize == 2 else dtype
        return {
            each: self._emit.cast(self._value(each), wide)
            if isinstance(each.meta.get("val"), torch.SymFloat)
            else self._values[each]
            for each in node.all_input_nodes
        }

    def materialize(self, tensor: torch.Tensor) -> SSAValue:
        """Return one number in each element. Raises Refused for other tensors known while tracing."""
        value = only_value(tensor)
        if value is None or (not tensor.is_floating_point() and abs(value) > MOST_EXACT):
            raise Refused(
                "a tensor of several numbers that the step makes anew each time; keep it in the state"
            )
        return self._emit.constant(value, tensor.dtype, tensor.shape)


def _named(target: Any) -> str | None:
    """Return the op of a function of SymFloat: `_sym_sqrt`."""
    name = getattr(target, "__name__", "")
    return (
        name.removeprefix("_sym_")
        if name.startswith("_sym_") and name.removeprefix("_sym_") in CLASSES
        else None
    )


def _no_status() -> SSAValue:
    raise Refused("an index that has to be checked")


def _no_random() -> SSAValue:
    raise Forbidden("an optimizer draws random numbers")
