"""Metrics: outputs of a step, gathered over steps on the device in f64 or i64, and read on request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import torch

from aicf_mlir.errors import BindError, StateError
from aicf_mlir.frontend.source import trace_error
from aicf_mlir.frontend.types import describe
from aicf_mlir.ir.locations import SourceLocation

KINDS = {"mean": "add", "sum": "add", "max": "maximum", "min": "minimum"}
"""The pointwise op that gathers each kind of metric; a mean is a sum that is divided when it is read."""

COUNT = "metrics"
"""The name, among the buffers of a step, of the number of steps."""


class Metrics:
    """The accumulators of one step; they are made once the outputs of the step are known."""

    def __init__(self, kinds: Mapping[str, str] | None = None):
        """Take `kinds`: one of `KINDS` by the name of an output. Raises BindError for another."""
        self.kinds = checked(kinds)
        self._tensors: dict[str, torch.Tensor] = {}
        self._count: torch.Tensor | None = None

    def count(self, device: torch.device) -> torch.Tensor:
        """The number of steps, an i64; always the same tensor."""
        if self._count is None:
            self._count = torch.zeros((), dtype=torch.int64, device=device)
        return self._count

    @property
    def tensors(self) -> list[torch.Tensor]:
        """Return the accumulators and the count, if they exist already."""
        return [*self._tensors.values(), *([] if self._count is None else [self._count])]

    def accumulator(
        self, name: str, output: torch.Tensor, device: torch.device, location: SourceLocation | None
    ) -> torch.Tensor:
        """Return the tensor that gathers an output like `output`, always the same one. Raises TraceError if the shape
        groups differ in it.
        """
        dtype = torch.float64 if output.is_floating_point() else torch.int64
        if name not in self._tensors:
            made = torch.empty(tuple(output.shape), dtype=dtype, device=device)
            self._tensors[name] = made.fill_(initial(self.kinds[name], dtype))
        own = self._tensors[name]
        if (own.dtype, tuple(own.shape)) != (dtype, tuple(output.shape)):
            raise trace_error(
                f"the metric {name!r} gathers {describe(own)}, but the output is {describe(output)} for another batch size;"
                " reduce it, by its sum or mean",
                location,
            )
        return own

    def values(self, step: str, reset: bool) -> dict[str, torch.Tensor]:
        """Return the gathered values as tensors of their own; with `reset`, begin again. Raises StateError before the
        first step.
        """
        if self._count is None:
            raise BindError(f"{step}: the step has no metrics; compile it with metrics={{name: kind}}")
        count = self._count.item()
        if not count:
            raise StateError(
                f"{step}: no step has been taken since the metrics began; there is nothing to read"
            )
        found = {
            name: _mean(tensor, count) if self.kinds[name] == "mean" else tensor.clone()
            for name, tensor in self._tensors.items()
        }
        if reset:
            self._count.zero_()
            for name, tensor in self._tensors.items():
                tensor.fill_(initial(self.kinds[name], tensor.dtype))
        return found


def _mean(total: torch.Tensor, count: float) -> torch.Tensor:
    """Return `total / count`, rounded once: on CUDA torch multiplies by a reciprocal that is rounded already."""
    kind = total.dtype if total.dtype.is_floating_point else torch.get_default_dtype()
    return (total.double() / torch.tensor(count, dtype=torch.float64, device=total.device)).to(kind)


def initial(kind: str, dtype: torch.dtype) -> float:
    """Return the value with which gathering begins."""
    if KINDS[kind] == "add":
        return 0
    most = torch.inf if dtype.is_floating_point else torch.iinfo(dtype).max
    return most if kind == "min" else -most


def checked(kinds: object) -> dict[str, str]:
    """Return the kinds by name. Raises BindError for an unknown kind."""
    if kinds is None:
        return {}
    if not isinstance(kinds, Mapping):
        raise BindError(
            f"metrics must be a dictionary such as {{'accuracy': 'mean'}}, got {type(kinds).__name__}"
        )
    entries = cast(Mapping[str, str], kinds)
    for name, kind in entries.items():
        if kind not in KINDS:
            raise BindError(f"the metric {name!r} must be one of {', '.join(KINDS)}, got {kind!r}")
    return dict(entries)
