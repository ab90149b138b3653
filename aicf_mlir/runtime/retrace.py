"""Tracing a step again, to see if a change matters to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from xdsl.dialects.builtin import ModuleOp

from aicf_mlir.errors import BindError, TraceError
from aicf_mlir.frontend import Traced
from aicf_mlir.frontend.contents import equal
from aicf_mlir.frontend.example import Form
from aicf_mlir.frontend.reads import Read
from aicf_mlir.frontend.structure import Order, Structure
from aicf_mlir.ir.printing import changed_line, to_text
from aicf_mlir.runtime.binding import Built

if TYPE_CHECKING:
    from aicf_mlir.step.request import Request


class Retrace:
    """Traces the `request` once more and compares it with the built step."""

    def __init__(self, request: Request, built: Built):
        self._request = request
        self._built = built

    def __call__(self) -> tuple[str, list[Read], bool]:
        """Return the first difference in words, empty if there is none, the reads of the new trace, and True if all that
        Python does after a step is the same. If only that differs, it is done as in the new trace from now on.
        """
        traces = self._request.trace(self._built.host_values)
        pairs = list(zip(self._built.traces, self._built.traced_modules, traces, strict=True))
        difference = next((d for before, old, now in pairs if (d := _difference(before, old, now))), "")
        is_same = True
        if not difference:
            followed = [before.followed_by(now) for before, _, now in pairs]
            is_same = all(a is b for a, b in zip(self._built.traces, followed, strict=True))
            self._built.traces[:] = followed
        return difference, [read for traced in traces for read in traced.reads], is_same

    def in_order(self, order: Order) -> str:
        """Return in words what changes if the batch's keys come in another order, empty if nothing does."""
        groups: list[tuple[Any, None]] = [
            (Form({name: traced.inputs[name] for name in of.leaves}, of.in_order(order)), None)
            for traced in self._built.traces
            for of in [traced.structure]
        ]
        try:
            traces = self._request.trace(self._built.host_values, groups)
        except TraceError as error:
            return str(error)
        pairs = zip(self._built.traces, self._built.traced_modules, traces, strict=True)
        return next((d for before, old, now in pairs if (d := _difference(before, old, now))), "")


class Orders:
    """The orders of a batch's keys for which the step is known to be the same."""

    def __init__(self, retrace: Retrace, traces: Sequence[Traced]):
        self._retrace = retrace
        orders = {traced.structure.order for traced in traces}
        self._known: set[Order] = orders if len(orders) == 1 else set()

    def expect(self, told: str, structure: Structure, batch: Any, entries: Mapping[str, Any]) -> None:
        """Raise BindError if the keys of a batch, whose `entries` have names, have an order that the step depends on."""
        order = structure.order_of(batch, entries)
        if order in self._known or set(entries) != set(structure.leaves):  # loading it says what is wrong
            return
        if why := self._retrace.in_order(order):
            raise BindError(
                f"{told}: the keys of the batch are in another order than compiled for, and the step depends on it"
                f" ({why}): pass {structure}, in this order"
            )
        self._known.add(order)


def _difference(before: Traced, module: ModuleOp, now: Traced) -> str:
    if line := changed_line(to_text(module), str(now)):
        return line
    tensors = {**before.parameters, **before.buffers}
    for name, tensor in {**now.parameters, **now.buffers}.items():
        own = tensors[name]
        if own is not tensor and not _equal_constants(name, own, tensor):
            return f"{name!r} is another tensor"
    return ""


def _equal_constants(name: str, a: torch.Tensor, b: torch.Tensor) -> bool:
    """True if two tensors are values known while tracing, and the same."""
    literal = name.startswith("constant.") and not isinstance(a, torch.nn.Parameter)
    return literal and equal(a, b)
