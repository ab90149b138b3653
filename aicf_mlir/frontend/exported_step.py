"""The result of torch.export for a step: the graph, and the meaning of its inputs and outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind, OutputSpec
from torch.fx import Node

from aicf_mlir.frontend import source
from aicf_mlir.frontend.cut import CUT
from aicf_mlir.frontend.graph_walk import needed_by
from aicf_mlir.frontend.places import VisitedPlace
from aicf_mlir.frontend.recorder import Recorder
from aicf_mlir.frontend.replaced_data import memory_of
from aicf_mlir.frontend.source import trace_error
from aicf_mlir.ir.locations import SourceLocation

ASSERTIONS = ("aten._assert_async.default", "aten._assert_async.msg")
"""Ops that only check values: nothing reads their results."""

UPDATES = (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION)
"""Outputs that are the new value of a tensor of the model."""


@dataclass(frozen=True)
class Update:
    """The new value of a tensor of the model."""

    placeholder: Node
    """Its value before the step."""
    value: Node


@dataclass(frozen=True)
class Placeholder:
    """An input of the graph that is no part of the batch."""

    path: str
    """The path of the tensor, from the model."""
    tensor: torch.Tensor
    """The user's own tensor."""
    is_captured: bool
    """True if it is neither a parameter nor a buffer, but was found in the user's code or made there."""


@dataclass(frozen=True)
class ExportedStep:
    """A functional graph of ATen ops."""

    program: ExportedProgram
    names: tuple[str, ...]
    """Entries of the batch, in order."""
    output_names: tuple[str, ...]
    """The names of the outputs that the step returns with the loss, in order."""
    tensors: Mapping[str, torch.Tensor]
    """Parameters and buffers of the exported module by path."""
    recorder: Recorder
    places: Sequence[VisitedPlace]
    """The Python places that the step has visited."""
    fallback: SourceLocation | None
    """The line that requested the trace, used for an op without a line of its own."""
    trained: frozenset[str] = frozenset()
    """The placeholders to which torch gives a gradient of the loss, by name; none for a loop body."""
    detached: frozenset[str] = frozenset()
    """The placeholders, by name, whose tensor has no gradient when the step is over, even if their memory was written."""
    written: frozenset[str] = frozenset()
    """The placeholders, by name, that an op writes to without declaring it in its schema."""
    needs_dense: str = ""
    """The reason why each batch must be dense; nothing if batches may have any strides."""

    def with_program(self, program: ExportedProgram) -> Self:
        """The same step as another graph."""
        return replace(self, program=program)

    @property
    def result(self) -> Node:
        """Return the node whose value is the loss. Raises TraceError if the step changes its batch."""
        return self._returned[0]

    @property
    def outputs(self) -> dict[str, Node]:
        """The nodes of the outputs that the step returns with the loss, by name."""
        return dict(zip(self.output_names, self._returned[1:], strict=True))

    @cached_property
    def _returned(self) -> list[Node]:
        found: list[Node] = []
        for spec, node in self._outputs:
            if spec.kind is OutputKind.USER_OUTPUT:
                found.append(node)
            elif spec.kind not in UPDATES:
                raise self._mutation(spec, node)
        if not found:
            raise trace_error("the step returns nothing", self.fallback)
        return found

    @cached_property
    def updates(self) -> list[Update]:
        """The tensors of the model that the step changes, in the order of the graph's inputs."""
        placeholders = {node.name: node for node in self.program.graph.find_nodes(op="placeholder")}
        by_target = {
            str(spec.target): placeholders[str(spec.arg.name)]
            for spec in self.program.graph_signature.input_specs
        }
        found = {by_target[str(spec.target)]: node for spec, node in self._outputs if spec.kind in UPDATES}
        return [Update(node, found[node]) for node in placeholders.values() if node in found]

    def expect_all(self) -> None:
        """Raise TraceError if the functional graph has lost a gradient that torch takes, or a write."""
        reached, pending = set[Node](), [self.result]
        while pending:
            node = pending.pop()
            if node not in reached and node.target is not CUT:
                reached.add(node)
                pending += node.all_input_nodes
        updated = {update.placeholder.name for update in self.updates}
        lost = {
            "has lost the gradient of": self.trained - {node.name for node in reached},
            "does not write to": self.written - updated - self.inputs.keys(),
        }
        for how, names in lost.items():
            if names:
                paths = self.placeholders
                what = ", ".join(repr(paths[name].path if name in paths else name) for name in sorted(names))
                raise trace_error(
                    f"the graph that torch {torch.__version__} makes of the step {how} {what}, and torch's own step does not:"
                    " a fault of its tracing or of AICF's; please report it",
                    self.fallback,
                )

    @property
    def _outputs(self) -> list[tuple[OutputSpec, Node]]:
        nodes = {node.name: node for node in self.program.graph.output_node().all_input_nodes}
        return [(spec, nodes[str(spec.arg.name)]) for spec in self.program.graph_signature.output_specs]

    def _mutation(self, spec: OutputSpec, node: Node) -> Exception:
        location = self.location(node)
        if (entry := self.inputs.get(str(spec.target))) is not None:
            what = f"the step changes the batch entry {entry!r} in place, which is not supported; compute with a copy"
            return trace_error(what, location)
        return trace_error(
            "the step calls an op that checks values while it runs, as torch.linalg.lu_factor does, which is not supported"
            f" (an output of kind {spec.kind.name}); compute without it",
            location,
        )

    @cached_property
    def live(self) -> set[Node]:
        """The nodes that the loss, the outputs and the updates depend on, and the assertions."""
        pending = list(self._returned)
        pending += [node for node in self.program.graph.nodes if str(node.target) in ASSERTIONS]
        pending += [node for update in self.updates for node in (update.placeholder, update.value)]
        return needed_by(pending)

    @property
    def inputs(self) -> dict[str, str]:
        """The batch's name of each placeholder that represents one of its entries."""
        return dict(zip(map(str, self.program.graph_signature.user_inputs), self.names, strict=True))

    @property
    def placeholders(self) -> dict[str, Placeholder]:
        """Every other placeholder by name."""
        found = dict[str, Placeholder]()
        for spec in self.program.graph_signature.input_specs:
            path = str(spec.target)
            captured = spec.kind is InputKind.CONSTANT_TENSOR
            tensor = self.program.constants.get(path) if captured else self.tensors.get(path)
            if isinstance(tensor, torch.Tensor):
                found[str(spec.arg.name)] = Placeholder(path.removeprefix("model."), tensor, captured)
        return found

    @property
    def requiring_gradient(self) -> set[str]:
        """Return the placeholders whose tensors require a gradient, by name; torch.export passes aliases of captured ones."""
        memories = {memory_of(tensor) for tensor in self.recorder.captured.values() if tensor.requires_grad}
        return {
            name
            for name, placeholder in self.placeholders.items()
            if placeholder.tensor.requires_grad
            or id(placeholder.tensor) in self.recorder.freed
            or (placeholder.is_captured and memory_of(placeholder.tensor) in memories)
        }

    @property
    def parameters(self) -> dict[int, str]:
        """The placeholders of tensors that require a gradient, by the ids of these tensors."""
        placeholders = self.placeholders
        return {id(placeholders[name].tensor): name for name in self.requiring_gradient}

    def location(self, node: Node) -> SourceLocation | None:
        """Return the user's line and layer of `node`; torch.export loses the line inside `no_grad`, where the recorder
        has it.
        """
        own = source.of_stack_trace(node.meta.get("stack_trace"))
        found = own or next(iter(self.recorder.without_gradient), self.fallback)
        return found and replace(found, layer=layer_of(node))


def layer_of(node: Node) -> str:
    """The innermost layer that computes `node`: `encoder.3.attn: Linear`; empty outside of the model."""
    stack: dict[str, tuple[str, Any]] = node.meta.get("nn_module_stack") or {}
    path, kind = next(reversed(stack.values()), ("", ""))
    model, _, inner = path.partition(".")
    if model != "model":
        return ""
    type_name = kind.__name__ if isinstance(kind, type) else str(kind).rpartition(".")[2]
    return f"{inner.partition('@')[0]}: {type_name}" if inner else type_name
