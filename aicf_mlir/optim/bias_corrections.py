"""`bc1_inv` and `bc2_inv`: Adam's bias corrections as the compiled step has them on the device."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from aicf_mlir.errors import StateError

if TYPE_CHECKING:
    from aicf_mlir.runtime.hyperparameters import Hyperparameters
    from aicf_mlir.step.compiled_step import CompiledTrainStep


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
        meta, slots = self._slots(optimizer)
        return meta[slots[0]]

    def __set__(self, optimizer: Any, value: float | None) -> None:
        meta, slots = self._slots(optimizer)
        for slot in slots:
            if value is None:
                meta.release(slot)
            else:
                meta[slot] = value

    def _slots(self, optimizer: Any) -> tuple[Hyperparameters, list[str]]:
        """The host scalars of the step, and which of them are this correction of the optimizer's own groups."""
        reference: weakref.ref[CompiledTrainStep] | None = getattr(optimizer, "_aicf_step", None)
        step = None if reference is None else reference()
        slots = [] if step is None else step.meta.named(self._name, optimizer)
        if step is None or not slots:
            raise StateError(
                f"{self._name} belongs to a compiled step; call model.compile(optimizer=...) or"
                " compile_train_step(model, optimizer, ...) first"
            )
        return step.meta, slots
