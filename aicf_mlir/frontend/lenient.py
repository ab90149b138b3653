"""A trace of a step that continues after each refusal, for a survey: nothing of it is compiled.

Code that reads the values of a tensor gets an invented value, and an op without a form in nn gets a result of its type.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import cached_property
from typing import Any, cast

import numpy as np
import torch
from torch.export.graph_signature import OutputKind
from torch.fx import Node

from aicf_mlir.errors import TraceError
from aicf_mlir.frontend.call import Value
from aicf_mlir.frontend.complex_graph import Refuse, in_real_numbers
from aicf_mlir.frontend.export import decompose
from aicf_mlir.frontend.exported_step import ExportedStep
from aicf_mlir.frontend.importer import Importer
from aicf_mlir.frontend.recorder import Recorder, function_name, tensors
from aicf_mlir.frontend.refused import Forbidden, Refused
from aicf_mlir.frontend.types import is_supported
from aicf_mlir.frontend.unsupported import UnsupportedNode, decomposed_into, decompositions, op_name, origin
from aicf_mlir.ir.locations import SourceLocation


def one(tensor: torch.Tensor) -> float:
    """1 as a Python number of the tensor's kind."""
    return 1.0 if tensor.is_floating_point() else 1


MADE_UP: dict[str, Callable[[torch.Tensor], Any]] = {
    **dict.fromkeys(("__bool__", "__contains__", "equal", "allclose"), lambda tensor: True),
    **dict.fromkeys(("__int__", "__index__"), lambda tensor: 1),
    "item": one,
    "__float__": lambda tensor: 1.0,
    "__format__": lambda tensor: "1",
    "tolist": lambda tensor: np.full(tuple(tensor.shape), one(tensor)).tolist(),
    **dict.fromkeys(("detach_", "requires_grad_"), lambda tensor: tensor),
}
"""Functions of `recorder.READS_VALUES` and `BESIDE_THE_GRAPH` after which the user's code can continue, each with its
invented result.
"""

AGAIN = 100
"""The number of times that one line gets an invented value: a loop until convergence would not end."""


class LenientRecorder(Recorder):
    """Notes an error and continues if `MADE_UP` has a value; any other error ends the trace."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[TraceError] = []
        self._times = Counter[SourceLocation | None]()

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        try:
            return super().__torch_function__(func, types, args, kwargs)
        except TraceError as error:
            made_up = MADE_UP.get(function_name(func))
            self._times[error.location] += 1
            if made_up is None or self._times[error.location] > AGAIN:
                raise
            self.errors.append(error)
            return made_up(next(tensors((args, kwargs or {}))))


class LenientStep(ExportedStep):
    """An exported step that inspects the result even if the graph changes other values: torch's decompositions may
    check values.
    """

    @cached_property
    def _returned(self) -> list[Node]:
        return [node for spec, node in self._outputs if spec.kind is OutputKind.USER_OUTPUT]


class LenientImporter(Importer):
    """Notes each node that it cannot import, and continues with an argument of the node's type instead."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.unsupported: list[UnsupportedNode] = []
        self.errors: list[TraceError] = []
        self._unknown = set[Node]()
        """Nodes whose results have no type of nn; values computed from them are not examined."""

    def survey(self) -> None:
        """Import every node, and the new values of buffers."""
        self._import_nodes()
        for update in self._exported.updates:
            try:
                if update.value not in self._unknown:
                    self._update(update)
            except TraceError as error:
                self.errors.append(error)

    def _import(self, node: Node) -> Value:
        value: Value = None
        if not any(operand in self._unknown for operand in node.all_input_nodes):
            try:
                value = super()._import(node)
            except UnsupportedNode as unsupported:
                self.unsupported.append(unsupported)
                value = self._like_result(node.meta.get("val"))
            except TraceError as error:
                self.errors.append(error)
                value = self._like_result(node.meta.get("val"))
        if value is None:
            self._unknown.add(node)
        return value

    def _like_result(self, result: object) -> Value:
        """Return an argument for each tensor that a node returns; None for a result that no argument can be."""
        if isinstance(result, (list, tuple)):
            return tuple(self._like_result(each) for each in cast(Sequence[object], result))
        if not isinstance(result, torch.Tensor) or not is_supported(result.dtype):
            return None
        return self._argument("buffer", "unsupported", tuple(result.shape), result.dtype)


def unsupported_ops(
    exported: ExportedStep, importer_of: Callable[[ExportedStep], LenientImporter]
) -> tuple[list[tuple[UnsupportedNode, str]], list[TraceError]]:
    """Every op, as the user wrote it, that is not supported even when torch decomposes it, each with its reason, in the
    order of the graph. Other objections of the import follow.

    Raises TraceError if torch cannot decompose the step, or a tensor of the step cannot be an argument.
    """
    written = dict[str, UnsupportedNode]()
    taken_apart = set[Any]()
    rules: dict[Any, Any] = {}
    exported = LenientStep(**{each.name: getattr(exported, each.name) for each in fields(ExportedStep)})
    while True:
        exported = replace(exported, program=decompose(exported.program, rules))
        unsupported, refuse = noted(exported.location)
        importer = importer_of(exported.with_program(in_real_numbers(exported.program, refuse)))
        importer.survey()
        unsupported += importer.unsupported
        for each in unsupported:
            written.setdefault(origin(each.node), each)
        known = decompositions()
        wanted = {each.target for each in unsupported if each.may_decompose and each.target in known}
        if not (wanted := wanted - taken_apart):
            break
        taken_apart |= wanted
        rules = {target: known[target] for target in wanted}
    left = dict[str, UnsupportedNode]()
    for each in unsupported:
        left.setdefault(origin(each.node), each)
    return [(written[name], reason(written[name], last)) for name, last in left.items()], importer.errors


def noted(location: Callable[[Node], SourceLocation | None]) -> tuple[list[UnsupportedNode], Refuse]:
    """Return a list of nodes without a real form, and the function that adds to it."""
    found: list[UnsupportedNode] = []

    def refuse(node: Node, why: Refused) -> None:
        found.append(UnsupportedNode(node, str(why), isinstance(why, Forbidden), location(node)))

    return found, refuse


def reason(written: UnsupportedNode, last: UnsupportedNode) -> str:
    """Return the reason why an op is not supported, if torch's rules lead to the op `last`; empty if there is no more
    to add.
    """
    if written.reason or written.target == last.target:
        return written.reason
    return decomposed_into(op_name(last.node))
