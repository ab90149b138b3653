"""From the exported graph to one function of the nn dialect, node by node, each op at its line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import getitem
from typing import Any, cast

import torch
from torch.fx import Node
from torch.fx.node import map_arg
from xdsl.dialects import func
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, FunctionType, ModuleOp
from xdsl.ir import Attribute, Block, BlockArgument, OpResult, Region, SSAValue
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.dialects import nn
from aicf_mlir.dialects.nn.shape import MOST_EXACT
from aicf_mlir.frontend.aten_table import TABLE
from aicf_mlir.frontend.bindings import Binding, Bindings
from aicf_mlir.frontend.call import Call, Value
from aicf_mlir.frontend.emitter import Emitter, tensor_type
from aicf_mlir.frontend.example import TensorSpec
from aicf_mlir.frontend.exported_step import ExportedStep, Update
from aicf_mlir.frontend.model import free_name
from aicf_mlir.frontend.random_state import RANDOM, RandomState
from aicf_mlir.frontend.refused import Forbidden, Refused
from aicf_mlir.frontend.source import trace_error
from aicf_mlir.frontend.types import is_supported
from aicf_mlir.frontend.unsupported import UnsupportedNode, is_random, op_name
from aicf_mlir.ir.locations import location_attribute
from aicf_mlir.ir.signature import STATUS_LABEL, STATUS_TYPE, Label, set_results
from aicf_mlir.ir.tensor_op import shape_of

CUTS = ("aten.detach.default",)
"""Ops that no gradient flows through."""

CUT_RESULTS = {"aten._native_batch_norm_legit_functional.default": (1, 2, 3, 4)}
"""Results that no gradient flows through, of ops with several: statistics."""


class Importer:
    """
    Builds the function `name` of an exported step whose batch is `inputs`.

    Its arguments are the entries of the batch, the trained parameters, then what is only read. `bound`
    lists the user's tensors behind the latter two, in order.
    """

    def __init__(
        self,
        exported: ExportedStep,
        bindings: Bindings,
        inputs: Mapping[str, TensorSpec],
        name: str,
        random: RandomState,
    ):
        self.bound: list[Binding] = []
        self.loss_has_gradient = False
        """Whether a trained parameter reaches the loss."""
        self._exported = exported
        self._bindings = bindings
        self._name = name
        self._block = Block()
        self._emit = Emitter(self._block, self._status_argument, self._random_argument)
        self._random = random
        self._device = next(iter(inputs.values())).device
        self._labels: list[DictionaryAttr] = []
        self._values: dict[Node, Value] = {**bindings.literals}
        self._carriers = {node for node, binding in bindings.arguments.items() if binding.role == "param"}
        self._add_inputs(inputs)
        self._add_bindings(bindings)

    def _add_inputs(self, inputs: Mapping[str, TensorSpec]) -> None:
        names = self._exported.inputs
        for node in self._exported.program.graph.find_nodes(op="placeholder"):
            if (name := names.get(node.name)) is not None:
                self._values[node] = self._argument("input", name, inputs[name].shape, inputs[name].dtype)

    def _add_bindings(self, bindings: Bindings) -> None:
        made = dict[Binding, SSAValue]()
        for node, binding in bindings.arguments.items():
            if binding not in made:
                made[binding] = self._bind(binding)
            self._values[node] = made[binding]

    def _bind(self, binding: Binding) -> SSAValue:
        self.bound.append(binding)
        return self._argument(binding.role, binding.name, tuple(binding.tensor.shape), binding.tensor.dtype)

    def _argument(self, role: str, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> BlockArgument:
        return self._append_argument(role, name, tensor_type(shape, dtype))

    def _status_argument(self) -> BlockArgument:
        return self._append_argument(STATUS_LABEL.role, STATUS_LABEL.name, STATUS_TYPE)

    def _random_argument(self) -> SSAValue:
        name = free_name(RANDOM, [binding.name for binding in self.bound])
        return self._bind(Binding("buffer", name, self._random.on(self._device), is_updated=True))

    def _append_argument(self, role: str, name: str, type: Attribute) -> BlockArgument:
        argument = self._block.insert_arg(type, len(self._block.args))
        argument.name_hint = name_hint(role, name)
        self._labels.append(Label(role, name).to_attribute())
        return argument

    def run(self) -> ModuleOp:
        """The module with the function; UnsupportedNode at the first node that has no form in nn."""
        for node in self._exported.program.graph.nodes:
            if node.op == "call_function" and node in self._exported.live:
                self._emit.location = self._exported.location(node)
                self._values[node] = self._import(node)
                if self._carries_gradient(node) and op_name(node) not in CUTS:
                    self._carriers.add(node)
        self.loss_has_gradient = self._exported.result in self._carriers
        loss = self._value(self._exported.result)
        loss.name_hint = "loss"
        updates = [self._update(update) for update in self._exported.updates]
        return self._function(loss, [*updates, *self._next_random()])

    def _value(self, node: Node) -> SSAValue:
        value = self._values[node]
        return self.materialize(value) if isinstance(value, torch.Tensor) else cast(SSAValue, value)

    def _update(self, update: Update) -> tuple[SSAValue, Label]:
        """A new value for a buffer, under the label that says of which."""
        binding = self._bindings.arguments[update.placeholder]
        if update.value in self._carriers:
            raise trace_error(
                f"the new value of the buffer {binding.name!r} carries the gradient of a trained parameter into the"
                " next step; compute it from detached tensors, x.detach(), or under torch.no_grad()",
                self._exported.location(update.value),
            )
        self._emit.location = self._exported.location(update.value)
        value = self._like(binding, self._value(update.value))
        if isinstance(value, OpResult) and value.name_hint != "loss":
            value.name_hint = f"{name_hint(binding.role, binding.name)}.next"
        return value, Label("update", binding.name, target_role=binding.role)

    def _next_random(self) -> list[tuple[SSAValue, Label]]:
        """The count of steps, where random numbers are drawn."""
        if (random := self._emit.random) is None:
            return []
        self._emit.location = self._exported.fallback
        value = self._emit.insert(nn.NextRandomOp(random))
        value.name_hint = f"{random.name_hint}.next"
        name = next(binding.name for binding in self.bound if binding.tensor is self._random.on(self._device))
        return [(value, Label("update", name, target_role="buffer"))]

    def _like(self, binding: Binding, value: SSAValue) -> SSAValue:
        """`value` as torch writes it to a tensor: cast, and repeated."""
        tensor = binding.tensor
        return self._emit.broadcast(self._emit.cast(value, tensor.dtype), tuple(tensor.shape))

    def _function(self, loss: SSAValue, updates: Sequence[tuple[SSAValue, Label]]) -> ModuleOp:
        status = [] if self._emit.status is None else [(self._emit.status, STATUS_LABEL)]
        returned = func.ReturnOp(loss)
        returned.location = location_attribute(self._emit.location)
        self._block.add_op(returned)
        function = func.FuncOp(
            self._name,
            FunctionType.from_lists(self._block.arg_types, [loss.type]),
            Region(self._block),
            arg_attrs=ArrayAttr(self._labels),
        )
        set_results(function, [(loss, Label("loss", "loss")), *status, *updates])
        function.location = location_attribute(self._exported.fallback)
        return ModuleOp([function])

    def _carries_gradient(self, node: Node) -> bool:
        if node.target is getitem:
            of, index = cast(tuple[Node, int], node.args)
            return of in self._carriers and index not in CUT_RESULTS.get(op_name(of), ())
        return any(operand in self._carriers for operand in node.all_input_nodes)

    def _import(self, node: Node) -> Value:
        if node.target is getitem:
            operand, index = cast(tuple[Node, int], node.args)
            return self._checked(node, cast(tuple[Value, ...], self._values[operand])[index])
        call = Call(
            arguments=bound_arguments(node, self._values),
            expected=node.meta.get("val"),
            emit=self._emit,
            materialize=self.materialize,
            device=self._device,
            carriers=[self._values[each] for each in node.all_input_nodes if each in self._carriers],
        )
        try:
            if is_known(node, call.arguments):
                return self._evaluate(node)
            if (row := TABLE.get(op_name(node))) is None:
                raise Refused
            return self._checked(node, row(call))
        except (Refused, VerifyException) as refused:
            location = self._exported.location(node)
            raise UnsupportedNode(node, str(refused), isinstance(refused, Forbidden), location) from None

    def _checked(self, node: Node, value: Value) -> Value:
        """`value`, if it has the shape that torch's trace went on with: what follows was traced for that one."""
        expected = node.meta.get("val")
        if not isinstance(value, SSAValue) or not isinstance(expected, torch.Tensor):
            return value
        made, traced = list(shape_of(value)), list(expected.shape)
        if made != traced:
            reason = (
                f"torch {torch.__version__} traces it with the shape {traced}, and it has {made}:"
                " a fault of its tracing; use another release of torch"
            )
            raise UnsupportedNode(node, reason, True, self._exported.location(node))
        return value

    def _evaluate(self, node: Node) -> torch.Tensor:
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

    def materialize(self, tensor: torch.Tensor) -> SSAValue:
        """A tensor known while tracing as a value: a constant if it is one number, else an argument."""
        if not is_supported(tensor.dtype):
            raise Refused(f"a constant tensor of {tensor.dtype}")
        if (value := only_value(tensor)) is not None and (
            tensor.is_floating_point() or abs(value) <= MOST_EXACT
        ):
            return self._emit.constant(value, tensor.dtype, tensor.shape)
        constants = sum(binding.name.startswith("constant.") for binding in self.bound)
        name = free_name(f"constant.{constants}", [binding.name for binding in self.bound])
        value = self._bind(Binding("buffer", name, tensor.contiguous().to(self._device)))
        self._labels[-1] = Label.literal(name).to_attribute()
        return value


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
    """Whether the one result of `node` follows from tensors known while tracing, or from none at all."""
    values: list[Any] = []
    for value in arguments.values():
        values += value if isinstance(value, (list, tuple)) else [value]
    depends = any(isinstance(value, SSAValue) for value in values)
    return isinstance(node.meta.get("val"), torch.Tensor) and not depends and not is_random(node)


def only_value(tensor: torch.Tensor) -> float | None:
    """The number that stands everywhere in `tensor`, or None; any in one without elements."""
    if not tensor.numel():
        return 0.0
    first = tensor.reshape(-1)[0]
    same = bool(tensor.isnan().all()) if bool(first.isnan()) else bool((tensor == first).all())
    return first.item() if same else None


def name_hint(role: str, name: str) -> str:
    """`name` as an SSA name: `0.weight` becomes `p0.weight`, for a name cannot begin with a digit."""
    legal = "".join(c if c.isascii() and (c.isalnum() or c in "_.-$") else "_" for c in name) or role
    return f"{role[0]}{legal}" if legal[0].isdigit() else legal
