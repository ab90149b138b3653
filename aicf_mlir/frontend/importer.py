"""The import of an exported graph into one function of the nn dialect, node by node, each op at its line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import torch
from torch.fx import Node
from xdsl.dialects import func
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, FunctionType, ModuleOp, StringAttr
from xdsl.ir import Attribute, Block, BlockArgument, OpResult, Region, SSAValue

from aicf_mlir.dialects import nn
from aicf_mlir.dialects.nn.pointwise import CLASSES
from aicf_mlir.dialects.nn.shape import MOST_EXACT
from aicf_mlir.dialects.train import TRAINED, BackwardOp, GradientOp, InputOp
from aicf_mlir.frontend.bindings import Binding, Bindings
from aicf_mlir.frontend.custom_gradients import ARRIVING, CUSTOM_GRADIENT
from aicf_mlir.frontend.emitter import GRADIENT_LEAVES, Emitter, tensor_type
from aicf_mlir.frontend.example import TensorSpec
from aicf_mlir.frontend.exported_step import ExportedStep, Update
from aicf_mlir.frontend.markers import GRADIENT, INPUT, LEAF
from aicf_mlir.frontend.metrics import COUNT, KINDS, Metrics
from aicf_mlir.frontend.model import free_name
from aicf_mlir.frontend.node_importer import NodeImporter
from aicf_mlir.frontend.random_state import RANDOM, RandomState
from aicf_mlir.frontend.refused import Refused
from aicf_mlir.frontend.source import trace_error
from aicf_mlir.frontend.types import in_real, is_supported, stored
from aicf_mlir.ir.locations import location_attribute
from aicf_mlir.ir.names import name_gradient
from aicf_mlir.ir.signature import STATUS_LABEL, STATUS_TYPE, Label, set_results, steps


class Importer(NodeImporter):
    """Builds the function `name` of an exported step whose batch is `inputs`.

    Its arguments are the entries of the batch, the trained parameters, then the tensors that are only read. `bound`
    lists the user's tensors for the latter two, in order.
    """

    def __init__(
        self,
        exported: ExportedStep,
        bindings: Bindings,
        inputs: Mapping[str, TensorSpec],
        name: str,
        random: RandomState,
        metrics: Metrics,
    ):
        self._metrics = metrics
        self.bound: list[Binding] = []
        self.loss_has_gradient = False
        """True if a trained parameter reaches the loss."""
        self._exported = exported
        self._bindings = bindings
        self._name = name
        self._block = Block()
        emit = Emitter(self._block, self._status_argument, self._random_argument)
        super().__init__(exported, emit, next(iter(inputs.values())).device)
        self._random = random
        self._labels: list[DictionaryAttr] = []
        self._materialized: dict[int, tuple[torch.Tensor, SSAValue]] = {}
        """The arguments for tensors known while tracing, by id; they are kept, so that no other tensor has it."""
        self._regions: dict[int, Block] = {}
        """The block with the ops of a function's own backward, by the function's number."""
        gradients = exported.program.graph.find_nodes(op="call_function", target=GRADIENT)
        self._takes_gradients = bool(gradients)
        self._differentiated = {node for each in gradients for node in cast(list[Node], each.args[2])}
        """The nodes with respect to which the step takes gradients."""
        self._values |= bindings.literals
        self._carriers |= {node for node, binding in bindings.arguments.items() if binding.role == "param"}
        self._add_inputs(inputs)
        self._add_bindings(bindings)

    def _add_inputs(self, inputs: Mapping[str, TensorSpec]) -> None:
        names = self._exported.inputs
        for node in self._exported.program.graph.find_nodes(op="placeholder"):
            if (name := names.get(node.name)) is not None:
                spec = inputs[name]
                self._values[node] = self._argument("input", name, spec.shape, stored(spec.dtype))

    def _add_bindings(self, bindings: Bindings) -> None:
        made = dict[Binding, SSAValue]()
        for node, binding in bindings.arguments.items():
            if binding not in made:
                made[binding] = self._bind(binding)
            self._values[node] = made[binding]

    def _bind(self, binding: Binding) -> SSAValue:
        self.bound.append(binding)
        real = in_real(binding.tensor)
        return self._argument(binding.role, binding.name, tuple(real.shape), real.dtype)

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
        """Return the module with the function. Raises UnsupportedNode at the first node that has no form in nn."""
        self._exported.expect_all()
        self._import_nodes()
        loss = self._known(self._exported.result)
        loss.name_hint = "loss"
        outputs = [self._output(name, node) for name, node in self._exported.outputs.items()]
        updates = [self._update(update) for update in self._exported.updates]
        module = self._function(loss, outputs, [*updates, *self._next_random(), *self._gathered()])
        if self._takes_gradients:
            names = [
                StringAttr(binding.name)
                for node, binding in self._bindings.arguments.items()
                if binding.role == "param" and node.name in self._exported.trained
            ]
            (function,) = steps(module)
            function.attributes[TRAINED] = ArrayAttr(names)
        return module

    def _import_nodes(self) -> None:
        for node in self._exported.program.graph.nodes:
            if node.op == "call_function" and node in self._exported.live:
                self.emit_node(node)
                if node in self._differentiated:
                    self._mark_differentiated(node)
        carries = self._exported.result in self._carriers
        self.loss_has_gradient = carries and (not self._takes_gradients or bool(self._exported.trained))

    def emit_node(self, node: Node) -> None:
        if node.target not in (ARRIVING, CUSTOM_GRADIENT, GRADIENT, INPUT, LEAF):
            super().emit_node(node)
            return
        self._emit.location = self._exported.location(node)
        if node.target in (LEAF, INPUT):
            of = self._value(cast(Node, node.args[0]))
            (same,) = self._emit.insert_all(
                InputOp(of if node.target is INPUT else self._emit.insert(nn.DetachOp(of)))
            )
            same.name_hint = f"{of.name_hint}.input"
            self._values[node] = same
            if node.target is INPUT and node.args[0] in self._carriers:
                self._carriers.add(node)
            return
        if node.target is GRADIENT:
            self._gradients_of(node)
            return
        if node.target is ARRIVING:
            region = self._regions.setdefault(cast(int, node.args[1]), Block())
            made: torch.Tensor = node.meta["val"]
            self._values[node] = self._emit.arriving(region, tensor_type(made.shape, made.dtype))
            return
        of, wrt, _, leaving = cast(Sequence[Sequence[Node]], node.args[:4])
        values = [self._value(each) for each in of]
        if leaving:
            region = self._regions[cast(int, node.args[4])]
            given = [self._value(each) for each in wrt], region, [self._value(each) for each in leaving]
            values = self._emit.custom_gradient(values, *given)
        self._values[node] = tuple(values)
        if any(each in self._carriers for each in wrt):
            self._carriers.add(node)

    def _gradients_of(self, node: Node) -> None:
        """Import gradients that the step takes itself."""
        outputs, seeds, wrt, create_graph, _ = cast(
            tuple[list[Node], list[Node], list[Node], bool, bool], node.args
        )
        of, by, to = ([self._value(each) for each in nodes] for nodes in (outputs, seeds, wrt))
        self._values[node] = self._summed(
            self._differentiable(of, to), lambda wrt: GradientOp(of, by, wrt, create_graph)
        )
        if create_graph and any(each in self._carriers for each in node.all_input_nodes):
            self._carriers.add(node)

    def _differentiable(
        self, of: Sequence[SSAValue], wrt: Sequence[SSAValue]
    ) -> Sequence[Sequence[SSAValue]]:
        """Return the values whose gradients together are that of each tensor: itself."""
        del of
        return [[value] for value in wrt]

    def _summed(
        self,
        of_each: Sequence[Sequence[SSAValue]],
        make: Callable[[Sequence[SSAValue]], BackwardOp | GradientOp],
    ) -> tuple[SSAValue, ...]:
        """Return one gradient for each list of values: the sum of theirs."""
        wrt = [value for values in of_each for value in values]
        found = iter(self._emit.insert_all(make(wrt)))
        gradients: list[SSAValue] = []
        for values in of_each:
            parts = [next(found) for _ in values]
            for part, value in zip(parts, values, strict=True):
                name_gradient(part, value)
            total = parts[0]
            for part in parts[1:]:
                total = self._emit.insert(nn.AddOp(total, part))
            gradients.append(total)
        return tuple(gradients)

    def _mark_differentiated(self, node: Node) -> None:
        """Mark a value with respect to which a gradient is taken: another one that is computed alike is not this one."""
        value = self._values.get(node)
        if isinstance(value, OpResult) and not isinstance(value.op, InputOp):
            (marked,) = self._emit.insert_all(InputOp(value))
            marked.name_hint = value.name_hint
            self._values[node] = marked

    def _known(self, node: Node) -> SSAValue:
        """Return the value of a node that outlives the step, or is shown."""
        value = self._value(node)
        if self._emit.is_inside(value):
            raise trace_error(f"the step keeps a gradient: {GRADIENT_LEAVES}", self._exported.location(node))
        return value

    def _output(self, name: str, node: Node) -> tuple[SSAValue, Label]:
        self._emit.location = self._exported.location(node)
        return self._known(node), Label("output", name)

    def _update(self, update: Update) -> tuple[SSAValue, Label]:
        """Return a new value for a buffer, with the label that names the buffer."""
        binding = self._bindings.arguments[update.placeholder]
        if update.value in self._carriers and update.placeholder.name not in self._exported.detached:
            raise trace_error(
                f"the new value of the buffer {binding.name!r} carries the gradient of a trained parameter into the"
                " next step; compute it from detached tensors, x.detach(), or under torch.no_grad()",
                self._exported.location(update.value),
            )
        self._emit.location = self._exported.location(update.value)
        value = self._like(binding, self._known(update.value))
        if isinstance(value, OpResult) and value.name_hint != "loss":
            value.name_hint = f"{name_hint(binding.role, binding.name)}.next"
        return value, Label("update", binding.name, target_role=binding.role)

    def _next_random(self) -> list[tuple[SSAValue, Label]]:
        """Return the next count of steps, if random numbers are drawn."""
        if (random := self._emit.random) is None:
            return []
        self._emit.location = self._exported.fallback
        value = self._emit.insert(nn.NextRandomOp(random))
        value.name_hint = f"{random.name_hint}.next"
        name = next(binding.name for binding in self.bound if binding.tensor is self._random.on(self._device))
        return [(value, Label("update", name, target_role="buffer"))]

    def _gathered(self) -> list[tuple[SSAValue, Label]]:
        """The new values of the metrics, and of their count of steps."""
        if not self._metrics.kinds:
            return []
        outputs, gathered = self._exported.outputs, list[tuple[SSAValue, Label]]()
        for name, kind in self._metrics.kinds.items():
            if (node := outputs.get(name)) is None:
                known = ", ".join(map(repr, outputs)) or "none"
                raise trace_error(
                    f"the metric {name!r} is no output: let loss_fn return (loss, {{{name!r}: tensor}}); the outputs are {known}",
                    self._exported.fallback,
                )
            self._emit.location = location = self._exported.location(node)
            tensor = self._metrics.accumulator(name, node.meta["val"], self._device, location)
            new = self._emit.cast(self._value(node), tensor.dtype)
            gathered.append(self._next(f"{COUNT}.{name}", tensor, KINDS[kind], new))
        one = self._emit.constant(1, torch.int64)
        return [*gathered, self._next(COUNT, self._metrics.count(self._device), "add", one)]

    def _next(self, name: str, tensor: torch.Tensor, op: str, new: SSAValue) -> tuple[SSAValue, Label]:
        """The update of a buffer of the step's own, by a pointwise op of its value and `new`."""
        name = free_name(name, [binding.name for binding in self.bound])
        old = self._bind(Binding("buffer", name, tensor, is_updated=True))
        make: Any = nn.AddOp if op == "add" else CLASSES[op]
        value = self._emit.insert(make(old, new))
        value.name_hint = f"{old.name_hint}.next"
        return value, Label("update", name, target_role="buffer")

    def _like(self, binding: Binding, value: SSAValue) -> SSAValue:
        """`value` as torch writes it to a tensor: cast, and repeated."""
        tensor = in_real(binding.tensor)
        return self._emit.broadcast(self._emit.cast(value, tensor.dtype), tuple(tensor.shape))

    def _function(
        self,
        loss: SSAValue,
        outputs: Sequence[tuple[SSAValue, Label]],
        updates: Sequence[tuple[SSAValue, Label]],
    ) -> ModuleOp:
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
        set_results(function, [(loss, Label("loss", "loss")), *outputs, *status, *updates])
        function.location = location_attribute(self._exported.fallback)
        return ModuleOp([function])

    def materialize(self, tensor: torch.Tensor) -> SSAValue:
        """A tensor known while tracing as a value: a constant if it is one number, else an argument."""
        if not is_supported(tensor.dtype):
            raise Refused(f"a constant tensor of {tensor.dtype}")
        if tensor.layout is not torch.strided:
            raise Refused(f"a {tensor.layout} tensor; make it dense with to_dense()")
        if (value := only_value(tensor)) is not None and (
            tensor.is_floating_point() or abs(value) <= MOST_EXACT
        ):
            constant = self._emit.constant(value, tensor.dtype, tensor.shape)
            self._emit.known[constant] = tensor
            return constant
        if (known := self._materialized.get(id(tensor))) is not None:
            return known[1]
        constants = sum(binding.name.startswith("constant.") for binding in self.bound)
        name = free_name(f"constant.{constants}", [binding.name for binding in self.bound])
        value = self._bind(Binding("buffer", name, tensor.contiguous().to(self._device)))
        self._labels[-1] = Label.literal(name).to_attribute()
        self._materialized[id(tensor)] = tensor, value
        self._emit.known[value] = tensor
        return value


def only_value(tensor: torch.Tensor) -> float | None:
    """Return the number in every element of `tensor`, or None; any number for one without elements."""
    if not tensor.numel():
        return 0.0
    first = tensor.reshape(-1)[0]
    same = bool(tensor.isnan().all()) if bool(first.isnan()) else bool((tensor == first).all())
    return first.item() if same else None


def name_hint(role: str, name: str) -> str:
    """Return `name` as an SSA name: `0.weight` becomes `p0.weight`, since a name cannot begin with a digit."""
    legal = "".join(c if c.isascii() and (c.isalnum() or c in "_.-$") else "_" for c in name) or role
    return f"{role[0]}{legal}" if legal[0].isdigit() else legal
