"""The graph of a loop body as a function of the nn and train dialects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from torch.fx import Node
from xdsl.ir import OpResult, SSAValue

from aicf_mlir.dialects import nn
from aicf_mlir.dialects.train import BackwardOp, InputOp, UpdateOp
from aicf_mlir.frontend.bindings import Bindings
from aicf_mlir.frontend.example import TensorSpec
from aicf_mlir.frontend.exported_step import ExportedStep, Update
from aicf_mlir.frontend.importer import Importer
from aicf_mlir.frontend.loop_body.gradients import GradientRecorder
from aicf_mlir.frontend.markers import BACKWARD, LEAF, LEFT, UPDATE, WRITTEN
from aicf_mlir.frontend.metrics import Metrics
from aicf_mlir.frontend.random_state import RandomState
from aicf_mlir.frontend.source import quoted, trace_error
from aicf_mlir.frontend.unsupported import op_name
from aicf_mlir.ir.locations import SourceLocation
from aicf_mlir.ir.signature import Label

WITHOUT_VALUE = tuple(
    f"aten.{name}" for name in ("zero.default", "zeros_like.default", "fill.Scalar", "full_like.default")
)
"""Ops that use only the type of their operand."""


class GradientLeft(Exception):
    """The step depends on the gradient of a parameter that an earlier call has left."""

    def __init__(self, name: str, location: SourceLocation | None):
        super().__init__(name)
        self.name = name
        self.location = location


class LoopImporter(Importer):
    """Builds the function of a loop body: gradients and updates are ops at their places."""

    def __init__(
        self,
        exported: ExportedStep,
        bindings: Bindings,
        inputs: Mapping[str, TensorSpec],
        name: str,
        random: RandomState,
        metrics: Metrics,
    ):
        super().__init__(exported, bindings, inputs, name, random, metrics)
        self._names: dict[SSAValue, str] = {}
        """The parameter that a value is a version of."""
        self._versions: dict[str, list[SSAValue]] = {}
        """The values of each parameter up to here."""
        self.updated: dict[str, None] = {}
        """The parameters that an optimizer updates."""
        self.written: dict[str, None] = {}
        """The parameters that the body itself writes to."""
        self._overwritten: dict[SSAValue, str] = {}
        """The overwritten values, with their names."""
        self._carriers |= {n for n, binding in bindings.arguments.items() if binding.tensor.requires_grad}
        self._names_of = {id(binding.tensor): binding.name for binding in bindings.arguments.values()}
        for node, binding in bindings.arguments.items():
            self._version(binding.name, cast(SSAValue, self._values[node]))

    def _version(self, name: str, value: SSAValue) -> None:
        self._names[value] = name
        versions = self._versions.setdefault(name, [])
        if value not in versions:
            versions.append(value)

    def emit_node(self, node: Node) -> None:
        if node.target not in (BACKWARD, UPDATE, WRITTEN, LEAF, LEFT):
            super().emit_node(node)
            return
        self._emit.location = self._graph.location(node)
        if node.target is LEFT:
            param = self._value(cast(Node, node.args[0]))
            if any(op_name(user) not in WITHOUT_VALUE for user in node.users):
                raise GradientLeft(self._names[param], self._emit.location)
            self._values[node] = param  # only its type is needed
            return
        self._is_forward = False
        if node.target is BACKWARD:
            self._values[node] = self._gradients(*cast(tuple[Node, list[Node]], node.args[:2]))
        elif node.target in (WRITTEN, LEAF):
            self._values[node] = self._leaf(*cast(tuple[Node, int], node.args))
            self._carriers.add(node)
        else:
            self._values[node] = self._updates(*cast(tuple[list[Node], list[Node], Node | None], node.args))
            self._carriers.add(node)

    def _gradients(self, loss: Node, wrt: Sequence[Node]) -> tuple[SSAValue, ...]:
        """Return one gradient for each parameter."""
        value, now = self._value(loss), [self._value(node) for node in wrt]
        return self._summed(self._differentiable([value], now), lambda asked: BackwardOp(value, asked))

    def _differentiable(
        self, of: Sequence[SSAValue], wrt: Sequence[SSAValue]
    ) -> Sequence[Sequence[SSAValue]]:
        """Return all values of each parameter that are reached: more than one if the loss was computed across an update."""
        reached = _behind(of)
        if (
            stale := next((self._overwritten[each] for each in self._overwritten if each in reached), None)
        ) is not None:
            raise trace_error(
                f"the loop body computes a loss with {stale!r}, writes to that, and calls backward() then"
                f"{quoted(self._emit.location)}: torch's gradient would mix both values; call backward() before the write",
                self._emit.location,
            )
        return [
            [version for version in self._versions_of(value) if version in reached] or [value]
            for value in wrt
        ]

    def _updates(
        self, params: Sequence[Node], grads: Sequence[Node], taken: Node | None = None
    ) -> tuple[SSAValue, ...]:
        before = [self._value(node) for node in params]
        names = [self._names[value] for value in before]
        after = self._insert(
            UpdateOp(
                before,
                [self._value(node) for node in grads],
                names,
                None if taken is None else self._value(taken),
            )
        )
        for name, value in zip(names, after, strict=True):
            value.name_hint = f"{self._versions[name][0].name_hint}.next"
            self._version(name, value)
            self.updated[name] = None
        return tuple(after)

    def _leaf(self, value: Node, number: int) -> SSAValue:
        """Return the leaf that the body has made, or a value made from it; for a parameter, its new value."""
        parameters = cast(GradientRecorder, self._exported.recorder).parameters
        after = self._emit.insert(nn.DetachOp(self._value(value)))
        if number < len(parameters):
            name = self._names_of[id(parameters[number])]
            after.name_hint = f"{self._versions[name][0].name_hint}.next"
            self.written[name] = None
        else:
            name = f"leaf {number - len(parameters)}"
            (after,) = self._emit.insert_all(InputOp(after))
        if versions := self._versions.get(name):
            self._overwritten[versions[-1]] = name
        self._version(name, after)
        return after

    def _mark_differentiated(self, node: Node) -> None:
        if self._values[node] not in self._names:
            super()._mark_differentiated(node)

    def _versions_of(self, value: SSAValue) -> Sequence[SSAValue]:
        """Return the values of a leaf up to here; for any other value, the value itself."""
        return self._versions[self._names[value]] if value in self._names else [value]

    def _insert(self, op: Any) -> Sequence[SSAValue]:
        return self._emit.insert_all(op)

    def _update(self, update: Update) -> tuple[SSAValue, Label]:
        binding = self._bindings.arguments[update.placeholder]
        if binding.role != "param" and binding.name not in self.written:
            return super()._update(update)
        return self._value(update.value), Label("update", binding.name, target_role=binding.role)


def _behind(values: Sequence[SSAValue]) -> set[SSAValue]:
    """Return values and those that their gradients reach, up to the parameters; an optimizer's result for one counts as
    one.
    """
    found, pending = set[SSAValue](), [*values]
    while pending:
        each = pending.pop()
        if each in found:
            continue
        found.add(each)
        if isinstance(each, OpResult) and not isinstance(each.op, (UpdateOp, BackwardOp, nn.DetachOp)):
            pending += each.op.operands
    return found
