"""The first layer that differs: the outputs of torch's layers compared with the trace's values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any

import numpy as np
import torch
from xdsl.ir import SSAValue

from aicf_mlir.interpreters.numerics import Array
from aicf_mlir.ir.locations import origins


class LayerOutputs:
    """The first result of every layer without layers inside, in the order of their calls, while torch runs a step."""

    def __init__(self, layers: Mapping[str, torch.nn.Module]):
        self._layers = layers
        self.found: list[tuple[str, torch.Tensor]] = []
        """The layers as `encoder.3.attn: Linear`, each with a copy of its output."""
        self._handles: list[Any] = []

    @staticmethod
    def of(model: torch.nn.Module) -> LayerOutputs:
        """Record the outputs of the layers of `model`."""
        parts: list[tuple[str, torch.nn.Module]] = [*model.named_modules()]
        return LayerOutputs(
            {
                f"{path}: {type(layer).__name__}" if path else type(layer).__name__: layer
                for path, layer in parts
                if not list(layer.children())
            }
        )

    def __enter__(self) -> LayerOutputs:
        self._handles = [
            layer.register_forward_hook(self._note(name)) for name, layer in self._layers.items()
        ]
        return self

    def _note(self, name: str) -> Callable[[Any, Any, Any], None]:
        def note(_layer: object, _given: object, result: object) -> None:
            if isinstance(result, torch.Tensor) and result.is_floating_point():
                self.found.append((name, result.detach().to("cpu", copy=True)))

        return note

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for handle in self._handles:
            handle.remove()

    def first_other(
        self, values: Mapping[SSAValue, Array], agrees: Callable[[SSAValue, Array], bool]
    ) -> str | None:
        """Return the first layer whose result does not match a value that the trace has of it; `values` are all of the
        trace.
        """
        made: dict[str, list[SSAValue]] = {}
        for value in values:
            if hasattr(value, "op"):
                for place in origins(value.owner):  # pyright: ignore[reportArgumentType]
                    made.setdefault(place.layer, []).append(value)
        for name, given in self.found:
            array = given.double().numpy()
            alike = [value for value in made.get(name, ()) if values[value].shape == array.shape]
            if alike and not any(agrees(value, array) for value in alike):
                return name
        return None

    def last_owner(self, wrong: Iterable[str]) -> str | None:
        """Return the layer, last in the order of calls, that owns one of the `wrong` parameters: its gradient is
        computed first.
        """
        names = set(wrong)
        order = [name for name, _ in self.found] or [*self._layers]
        for name in reversed(list(dict.fromkeys(order))):
            path = name.rpartition(": ")[0]
            own = dict(self._layers[name].named_parameters(recurse=False))
            if names & {f"parameter {f'{path}.{key}'.strip('.')!r}" for key in own}:
                return f"{name}, in its gradient"
        return None


def agreement(
    expected: Mapping[SSAValue, Array], runs: Sequence[Mapping[SSAValue, Array]]
) -> Callable[[SSAValue, Array], bool]:
    """True if an output of torch's is a value of the trace, up to a hundred times its rounding error."""

    def agrees(value: SSAValue, given: Array) -> bool:
        truth = np.asarray(expected[value], np.float64)
        spread = max(
            (float(np.abs(np.asarray(run[value], np.float64) - truth).max(initial=0)) for run in runs),
            default=0.0,
        )
        scale = float(np.abs(truth[np.isfinite(truth)]).max(initial=0))
        with np.errstate(invalid="ignore"):
            error = np.abs(given - truth)
        return bool((np.nan_to_num(error, nan=0.0, posinf=0.0) <= 10 * spread + 1e-4 * scale).all())

    return agrees
