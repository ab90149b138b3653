"""Complex numbers in the graph of a step: each complex value becomes two real ones before the import.

So no dialect, pass or kernel knows of complex numbers. A node without complex operands and results stays as it is. Any
other runs on tensors without values: a mode of torch sees the ATen ops that it consists of, and writes each as ops on
real and imaginary parts (`complex_rules`). A complex parameter or buffer is one real tensor with a last dimension of
two, as `torch.view_as_real` shows it. So are values whose gradient the step takes itself, and new values of buffers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import getitem
from typing import Any, cast

import torch
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature, TensorArgument
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg
from torch.utils._pytree import tree_leaves, tree_map

from aicf_mlir.frontend.complex_composites import COMPOSITES
from aicf_mlir.frontend.complex_parts import Pair
from aicf_mlir.frontend.complex_rules import rule_for
from aicf_mlir.frontend.graph_walk import needed_by
from aicf_mlir.frontend.graph_writer import GraphWriter, without_values
from aicf_mlir.frontend.markers import BACKWARD, GRADIENT
from aicf_mlir.frontend.refused import Refused

aten: Any = torch.ops.aten

OURS = ("aicf_train", "aicf_custom")
"""The namespaces of ops that take and return whole tensors."""

DIFFERENTIATED = {BACKWARD: 1, GRADIENT: 2}
"""The number of the argument with the tensors to which an op takes gradients."""

Refuse = Callable[[Node, Refused], None]
"""What is done about a node without a real form: mostly it raises an error. After it the node's results are any."""


@dataclass(frozen=True)
class RealProgram:
    """The parts of an exported program that an import reads, without complex numbers."""

    graph: Graph
    graph_signature: ExportGraphSignature
    constants: dict[str, Any]
    graph_module: GraphModule


def in_real_numbers(program: ExportedProgram, refuse: Refuse) -> ExportedProgram:
    """Return `program` without complex values; itself if it has none."""
    if not any(map(is_complex, program.graph.nodes)):
        return program
    return cast(ExportedProgram, _Walk(program, refuse).walked())


def is_complex(node: Node) -> bool:
    """True if a result of `node` is complex."""
    return any(
        isinstance(each, torch.Tensor) and each.is_complex() for each in tree_leaves(node.meta.get("val"))
    )


class RealOps(GraphWriter):
    """Writes the ops that run on tensors without values to `graph`, and those of complex ones as ops of their parts."""

    def __init__(self, graph: Graph, fake_mode: Any):
        super().__init__(graph, fake_mode)
        self._pairs: dict[int, Pair] = {}
        self._wholes: dict[int, torch.Tensor] = {}
        """The parts of a complex tensor as one real tensor."""
        self._kept: list[torch.Tensor] = []

    def is_taken_apart(self, func: Any) -> bool:
        return func.namespace == "aten"

    def _ran(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        with self._fake_mode:
            made = func(*args, **kwargs)
        tensors = [each for each in tree_leaves((args, kwargs, made)) if isinstance(each, torch.Tensor)]
        if not tensors or func.namespace == "prim":
            return made
        if not any(each.is_complex() for each in tensors):
            return self._written(func, made, args, kwargs)
        with self:
            return self._by_rule(func, made, args, kwargs)

    def _by_rule(self, func: Any, made: Any, args: Any, kwargs: Any) -> Any:
        rule = rule_for(func)
        if func is aten.view_as_real.default:
            return self.whole(args[0])
        found = rule(made, *tree_map(self._of, args), **tree_map(self._of, kwargs))
        if not isinstance(made, torch.Tensor):
            return [self._result(*each) for each in zip(made, found, strict=True)]
        result = self._result(made, found)
        if func is aten.view_as_complex.default:
            self._wholes[id(result)] = args[0]
        return result

    def _of(self, value: Any) -> Any:
        """A complex tensor as its parts."""
        return self.pair(value) if isinstance(value, torch.Tensor) and value.is_complex() else value

    def _result(self, made: torch.Tensor, found: Any) -> torch.Tensor:
        if not made.is_complex():
            return found
        re, im = found
        re = torch.zeros_like(im) if re is None else re
        re, im = (
            None if part is None else part.to(made.dtype.to_real()).expand(made.shape) for part in (re, im)
        )
        return self.complex_like(made, pair=Pair(re, im))

    def complex_like(
        self, made: torch.Tensor, pair: Pair | None = None, whole: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return a new complex tensor without values, of these parts."""
        new = without_values(made.shape, made.dtype, made.device, self._fake_mode)
        self._kept.append(new)
        if pair is not None:
            self._pairs[id(new)] = pair
        if whole is not None:
            self._wholes[id(new)] = whole
        return new

    def pair(self, tensor: torch.Tensor) -> Pair:
        """Return the parts of a complex tensor."""
        if (found := self._pairs.get(id(tensor))) is None:
            whole = self._wholes[id(tensor)]
            self._pairs[id(tensor)] = found = Pair(whole.select(-1, 0), whole.select(-1, 1))
        return found

    def whole(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the parts of a complex tensor as the last dimension of one real tensor."""
        if (found := self._wholes.get(id(tensor))) is None:
            pair = self._pairs[id(tensor)]
            im = torch.zeros_like(pair.re) if pair.im is None else pair.im
            self._wholes[id(tensor)] = found = torch.stack([pair.re, im], -1)
        return found

    def node(self, tensor: torch.Tensor) -> Node:
        """Return the node of a real tensor; of a complex one that of the real one that has its parts."""
        if tensor.is_complex():
            with self.writing():
                tensor = self.whole(tensor)
        return super().node(tensor)


def is_op(target: object) -> bool:
    """True for an op of torch."""
    return isinstance(target, OpOverload)


class _Walk:
    """One walk through a program."""

    def __init__(self, program: ExportedProgram, refuse: Refuse):
        self._program = program
        self._refuse = refuse
        self._graph = Graph()
        values = [node.meta.get("val") for node in program.graph.nodes]
        fake_mode = next(each.fake_mode for each in tree_leaves(values) if hasattr(each, "fake_mode"))
        self._fake_mode = fake_mode
        self._ops = RealOps(self._graph, fake_mode)
        self._values: dict[Node, Any] = {}
        """The new node of each, or its tensors without values."""
        self._differentiated = {
            wrt
            for op, place in DIFFERENTIATED.items()
            for node in program.graph.find_nodes(op="call_function", target=op)
            for wrt in cast(list[Node], node.args[place])
        }

    def walked(self) -> RealProgram:
        """Return the program without complex values."""
        live = _live(self._program.graph)
        for node in self._program.graph.nodes:
            if node.op == "output":
                self._return(node)
            elif node in live:
                self._values[node] = self._value(node)
        specs = self._program.graph_signature
        (results,) = self._graph.output_node().args
        named = [
            replace(spec, arg=TensorArgument(name=result.name)) if isinstance(result, Node) else spec
            for spec, result in zip(specs.output_specs, cast(Any, results), strict=True)
        ]
        signature = ExportGraphSignature(specs.input_specs, named)
        module = GraphModule(self._program.graph_module, self._graph)
        return RealProgram(self._graph, signature, self._program.constants, module)

    def _value(self, node: Node) -> Any:
        if node.op == "placeholder" and is_complex(node):
            return self._input(node)
        operands = node.all_input_nodes
        is_part = node.target is getitem and not isinstance(self._values[operands[0]], Node)
        if not is_part and not any(map(is_complex, (node, *operands))):
            return self._graph.node_copy(node, lambda each: self._node(self._values[each]))
        self._ops.for_node(node)
        try:
            value = self._computed(node)
        except Refused as refused:
            self._refuse(node, refused)
            value = self._unknown(node)
        except RuntimeError as error:
            self._refuse(node, Refused(f"of complex numbers: {str(error).splitlines()[0]}"))
            value = self._unknown(node)
        if node in self._differentiated and isinstance(value, torch.Tensor) and value.is_complex():
            with self._ops.writing():
                value = self._ops.complex_like(value, whole=self._ops.whole(value))
        return value

    def _input(self, node: Node) -> torch.Tensor:
        """Return a complex tensor with the parts of a real placeholder."""
        new = self._graph.node_copy(node)
        traced: torch.Tensor = node.meta["val"]
        shape, dtype = (*traced.shape, 2), traced.dtype.to_real()
        whole = without_values(shape, dtype, traced.device, self._fake_mode)
        new.meta = {**node.meta, "val": whole}
        self._ops.name(whole, new)
        return self._ops.complex_like(traced, whole=whole)

    def _computed(self, node: Node) -> Any:
        target: Any = node.target
        args, kwargs = cast(Any, map_arg((node.args, node.kwargs), self._operand))
        if target is getitem:
            return args[0][args[1]]
        if not is_op(target):
            raise Refused("complex numbers")
        if str(target) == "aten._assert_tensor_metadata.default":
            return None
        with self._ops.writing():
            if target.namespace not in OURS:
                return COMPOSITES.get(target, target)(*args, **kwargs)
            args = tree_map(self._whole, args)
            traced = node.meta["val"]
            made = target(*args, **kwargs)
            if isinstance(traced, torch.Tensor):
                return self._again(traced, made)
            return [self._again(*each) for each in zip(traced, made, strict=True)]

    def _whole(self, value: Any) -> Any:
        """A complex tensor as the real one that has its parts."""
        return self._ops.whole(value) if isinstance(value, torch.Tensor) and value.is_complex() else value

    def _again(self, traced: torch.Tensor, made: torch.Tensor) -> torch.Tensor:
        return self._ops.complex_like(traced, whole=made) if traced.is_complex() else made

    def _unknown(self, node: Node) -> Any:
        """Return values that nothing is known about, like the results of a node."""

        def unknown(traced: Any) -> Any:
            if not isinstance(traced, torch.Tensor):
                return traced
            drawn = torch.rand(traced.shape, dtype=torch.float32, device=traced.device)
            return drawn.to(traced.dtype)

        with self._ops.writing():
            return tree_map(unknown, node.meta.get("val"))

    def _operand(self, node: Node) -> Any:
        """Return the tensors without values of an operand."""
        value = self._values[node]
        return self._ops.like(value) if isinstance(value, Node) else value

    def _node(self, value: Any) -> Node:
        return value if isinstance(value, Node) else self._ops.node(value)

    def _return(self, node: Node) -> None:
        results = map_arg(node.args[0], lambda each: self._node(self._values[each]))
        self._graph.output(results).meta = dict(node.meta)


def _live(graph: Graph) -> set[Node]:
    """The nodes that results depend on, the assertions and the inputs."""
    pending = [graph.output_node(), *graph.find_nodes(op="placeholder")]
    pending += [node for node in graph.nodes if "_assert_async" in str(node.target)]
    return needed_by(pending)
