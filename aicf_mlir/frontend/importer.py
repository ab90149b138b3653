"""From the exported graph to one function of the nn dialect, node by node, each op at its line of the user's code."""

from __future__ import annotations

from collections.abc import Mapping
from operator import getitem
from typing import Any

import torch
from torch.fx import Node
from torch.fx.node import map_arg
from xdsl.dialects import func
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, FunctionType, ModuleOp, StringAttr
from xdsl.ir import Block, BlockArgument, Region, SSAValue
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.errors import TraceError
from aicf_mlir.frontend import source
from aicf_mlir.frontend.aten_table import TABLE
from aicf_mlir.frontend.bindings import Binding, Bindings
from aicf_mlir.frontend.call import Call, Forbidden, Refused, Value
from aicf_mlir.frontend.emitter import Emitter, tensor_type
from aicf_mlir.frontend.example import TensorSpec
from aicf_mlir.frontend.export import ExportedStep
from aicf_mlir.frontend.source import SourceLocation, location_attribute, quoted, trace_error
from aicf_mlir.frontend.types import describe, is_supported


RANDOM = "it draws random numbers; pass random tensors in the batch instead"


class UnsupportedNode(Exception):
    """An op outside the table, or one whose row refuses its arguments; torch may still decompose it."""

    def __init__(self, node: Node, reason: str, forbidden: bool, location: SourceLocation | None):
        super().__init__(reason)
        self.node = node
        self.reason = reason
        self.may_decompose = not forbidden
        self.location = location
        operands = ", ".join(describe(operand.meta.get("val")) for operand in node.all_input_nodes)
        self.what = f"{op_name(node)}({operands})"

    def error(self, reason: str = "") -> TraceError:
        """What the user is told: the op, its shapes, the line, and why, or what is supported."""
        supported = sorted({name.split(".")[1] for name in TABLE if not name.startswith("aten._")})
        why = self.reason or reason or f"supported are {', '.join(supported)}"
        return trace_error(f"{self.what} is not supported{quoted(self.location)}: {why}", self.location)


class Importer:
    """
    Builds the function.

    `arguments` lists role and name of its arguments in order, `bound` the user's tensors behind those that are no inputs.
    """

    def __init__(
        self, exported: ExportedStep, bindings: Bindings, inputs: Mapping[str, TensorSpec], name: str
    ):
        self._exported = exported
        self._name = name
        self._block = Block()
        self._emit = Emitter(self._block)
        self._values: dict[Node, Value] = {**bindings.literals}
        self._carriers = {node for node, binding in bindings.arguments.items() if binding.role == "param"}
        self._device = next(iter(inputs.values())).device
        self.arguments: list[tuple[str, str]] = []
        self.bound: list[Binding] = []
        self._add_inputs(inputs)
        self._add_bindings(bindings)

    def _add_inputs(self, inputs: Mapping[str, TensorSpec]) -> None:
        names = self._exported.inputs
        for node in self._exported.program.graph.find_nodes(op="placeholder"):
            if (name := names.get(node.name)) is not None:
                self._values[node] = self._argument("input", name, inputs[name].shape, inputs[name].dtype)

    def _add_bindings(self, bindings: Bindings) -> None:
        made = dict[Binding, SSAValue]()
        in_order = sorted(bindings.arguments.items(), key=lambda item: item[1].role != "param")
        for node, binding in in_order:
            if binding not in made:
                made[binding] = self._bind(binding)
            self._values[node] = made[binding]

    def _bind(self, binding: Binding) -> SSAValue:
        self.bound.append(binding)
        return self._argument(binding.role, binding.name, binding.tensor.shape, binding.tensor.dtype)

    def _argument(self, role: str, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> BlockArgument:
        argument = self._block.insert_arg(tensor_type(shape, dtype), len(self._block.args))
        argument.name_hint = name_hint(role, name)
        self.arguments.append((role, name))
        return argument

    def run(self) -> ModuleOp:
        """The module with the function; raises UnsupportedNode at the first node that has no form in nn."""
        for node in self._exported.program.graph.nodes:
            if node.op == "call_function":
                self._emit.location = self._location(node)
                self._values[node] = self._import(node)
                if any(operand in self._carriers for operand in node.all_input_nodes):
                    self._carriers.add(node)
        result = self._exported.result
        self._emit.location = self._exported.location(result)
        loss = self._values[result]
        loss = self.materialize(loss) if isinstance(loss, torch.Tensor) else loss
        if not isinstance(loss, SSAValue):
            raise trace_error("the step returns no tensor", self._emit.location)
        return self._function(loss)

    def _function(self, loss: SSAValue) -> ModuleOp:
        loss.name_hint = "loss"
        self._block.add_op(func.ReturnOp(loss))
        roles = [{"aicf.role": StringAttr(r), "aicf.name": StringAttr(n)} for r, n in self.arguments]
        function = func.FuncOp(
            self._name,
            FunctionType.from_lists(self._block.arg_types, [loss.type]),
            Region(self._block),
            arg_attrs=ArrayAttr([DictionaryAttr(role) for role in roles]),
            res_attrs=ArrayAttr(
                [DictionaryAttr({"aicf.role": StringAttr("loss"), "aicf.name": StringAttr("loss")})]
            ),
        )
        function.location = location_attribute(self._exported.fallback)
        return ModuleOp([function])

    def _import(self, node: Node) -> Value:
        if node.target is getitem:
            values: Any = self._values[node.args[0]]  # pyright: ignore[reportArgumentType]
            return values[node.args[1]]
        arguments = bound_arguments(node)
        call = Call(
            arguments=map_arg(arguments, lambda operand: self._values[operand]),  # pyright: ignore
            expected=node.meta.get("val"),
            emit=self._emit,
            materialize=self.materialize,
            device=self._device,
            carries_gradient=any(operand in self._carriers for operand in node.all_input_nodes),
        )
        try:
            if is_known(node, call.arguments):
                return self._evaluate(node)
            if (row := TABLE.get(op_name(node))) is not None:
                return row(call)
            raise Forbidden(RANDOM) if is_random(node) else Refused("")
        except (Refused, VerifyException) as refused:
            forbidden = isinstance(refused, Forbidden)
            raise UnsupportedNode(node, str(refused), forbidden, self._location(node)) from None

    def _location(self, node: Node) -> SourceLocation | None:
        """The line of `node`; torch.export loses it inside `no_grad`, where the recorder has it."""
        own = source.of_stack_trace(node.meta.get("stack_trace"))
        blocked = self._exported.step.recorder.blocked
        return own or (blocked[0] if blocked else self._exported.fallback)

    def _evaluate(self, node: Node) -> torch.Tensor:
        def known(operand: Node) -> Any:
            value = self._values[operand]
            return value.cpu() if isinstance(value, torch.Tensor) else value

        target: Any = node.target
        kwargs: dict[str, Any] = dict(map_arg(node.kwargs, known))  # pyright: ignore
        if "device" in kwargs:
            kwargs["device"] = torch.device("cpu")
        with torch.no_grad():
            return target(*map_arg(node.args, known), **kwargs)  # pyright: ignore

    def materialize(self, tensor: torch.Tensor) -> SSAValue:
        """A tensor known while tracing as a value: a constant if it is one number, else a buffer of its own."""
        if not is_supported(tensor.dtype):
            raise Refused(f"a constant tensor of {tensor.dtype}")
        first = tensor.reshape(-1)[0]
        if tensor.dtype.is_floating_point and bool(
            ((tensor == first) | (tensor.isnan() & first.isnan())).all()
        ):
            return self._emit.constant(first.item(), tensor.dtype, tensor.shape)
        taken = {name for _, name in self.arguments}
        name = next(name for k in range(len(taken) + 1) if (name := f"constant.{k}") not in taken)
        binding = Binding("buffer", name, tensor.contiguous().to(self._device))
        return self._bind(binding)


def op_name(node: Node) -> str:
    """`aten.add.Tensor`."""
    return str(node.target)


def bound_arguments(node: Node) -> dict[str, Any]:
    """The arguments of `node` by the names of its schema, defaults included."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return {**dict(enumerate(node.args)), **node.kwargs}  # pyright: ignore
    values = dict(zip((argument.name for argument in schema.arguments), node.args, strict=False))
    defaults = {a.name: a.default_value for a in schema.arguments if a.has_default_value()}
    return {**defaults, **values, **node.kwargs}


def is_random(node: Node) -> bool:
    """Whether the op draws random numbers."""
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def is_known(node: Node, arguments: Mapping[str, Any]) -> bool:
    """Whether the one result of `node` follows from tensors known while tracing, or from none at all."""
    values: list[Any] = []
    for value in arguments.values():
        values += value if isinstance(value, (list, tuple)) else [value]
    depends = any(isinstance(value, SSAValue) for value in values)
    return isinstance(node.meta.get("val"), torch.Tensor) and not depends and not is_random(node)


def name_hint(role: str, name: str) -> str:
    """`name` as an SSA name: `0.weight` becomes `p0.weight`, for a name cannot begin with a digit."""
    legal = "".join(c if c.isascii() and (c.isalnum() or c in "_.-$") else "_" for c in name) or role
    return f"{role[0]}{legal}" if legal[0].isdigit() else legal
