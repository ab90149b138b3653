"""`bc1_inv` and `bc2_inv`: Adam's bias corrections as the compiled step has them on the device."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from aicf_mlir.errors import StateError

if TYPE_CHECKING:
    from aicf_mlir.compiled_step import CompiledTrainStep
    from aicf_mlir.runtime.hyperparameters import Hyperparameters


class BiasCorrection:
    """
    A property of a compiled optimizer: 1 / (1 - beta^step), which follows each parameter's step counter unless pinned.

    Reading gives the value of the last step for the first parameter of the first param group. Assigning a number
    pins it, for every parameter, for all following steps; assigning None lets it follow the counters again.
    Raises StateError before the step is compiled.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, optimizer: Any, owner: type) -> Any:
        if optimizer is None:
            return self
        return self._meta(optimizer)[self._name]

    def __set__(self, optimizer: Any, value: float | None) -> None:
        meta = self._meta(optimizer)
        for slot in meta.named(self._name):
            if value is None:
                meta.release(slot)
            else:
                meta[slot] = value

    def _meta(self, optimizer: Any) -> Hyperparameters:
        reference: weakref.ref[CompiledTrainStep] | None = getattr(optimizer, "_aicf_step", None)
        step = None if reference is None else reference()
        if step is None:
            raise StateError(
                f"{self._name} belongs to a compiled step; call model.compile(optimizer=...) or"
                " compile_train_step(model, optimizer, ...) first"
            )
        return step.meta
