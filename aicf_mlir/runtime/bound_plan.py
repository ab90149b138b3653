"""One plan bound to memory: an executor, the input tensors to fill, the output tensors to read."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from aicf_mlir import _C
from aicf_mlir.errors import BindError, PlanError
from aicf_mlir.runtime.program import Program, Slot
from aicf_mlir.runtime.store import SHARED_ROLES, Store
from aicf_mlir.runtime.tensors import view


class BoundPlan:
    """A plan with its arenas: the shared ones of a `Store`, its own for inputs, constants, temporaries and outputs."""

    def __init__(self, program: Program, store: Store):
        store.check_matches(program)
        self.program = program
        own = {
            role: _C.Arena(store.device, size)
            for role, size in program.arenas.items()
            if role not in SHARED_ROLES
        }
        self.arenas = {**store.arenas, **own}
        by_role: dict[str, list[Slot]] = {}
        for slot in program.slots.values():
            by_role.setdefault(slot.role, []).append(slot)
        for slot in by_role.get("const", []):
            self._fill(slot)
        self.inputs = {slot.name: self._view(slot) for slot in by_role.get("input", [])}
        self.gradients = {slot.name: self._view(slot) for slot in by_role.get("grad", [])}
        outputs = {slot.name: self._view(slot) for slot in by_role.get("output", [])}
        if "loss" not in outputs:
            raise PlanError("the plan has no output named 'loss'")
        self.loss = outputs["loss"]
        self.executor = _C.Executor(store.device, self.arenas, program.launches, program.status)
        self._expected = [(name, t, t.shape, t.dtype, t.device) for name, t in self.inputs.items()]

    def _view(self, slot: Slot) -> torch.Tensor:
        return view(self.arenas[slot.arena], slot.offset, slot.dtype, slot.shape)

    def _fill(self, slot: Slot) -> None:
        if slot.value is None:
            raise PlanError(f"constant slot {slot.name!r} has no value")
        self._view(slot).fill_(slot.value)

    def accepts(self, batch: Mapping[str, torch.Tensor]) -> bool:
        """Whether `batch` has the shapes of this plan."""
        return all(name in batch and batch[name].shape == shape for name, _, shape, _, _ in self._expected)

    def load(self, batch: Mapping[str, torch.Tensor]) -> None:
        """Copy `batch` into the input slots, on torch's current stream; nothing is copied unless everything fits."""
        for name, _, shape, dtype, device in self._expected:
            tensor = batch.get(name)
            if not isinstance(tensor, torch.Tensor):
                raise BindError(self._missing(name, batch))
            if tensor.shape != shape or tensor.dtype != dtype or tensor.device != device:
                raise BindError(
                    f"input {name!r}: expected {_describe(shape, dtype, device)}, "
                    f"got {_describe(tensor.shape, tensor.dtype, tensor.device)}"
                    + (_shape_hint if tensor.shape != shape else "")
                )
        if len(batch) != len(self._expected):
            unknown = ", ".join(repr(name) for name in batch if name not in self.inputs)
            raise BindError(
                f"the batch has {unknown} besides what was compiled: expected {sorted(self.inputs)}"
            )
        for name, slot, _, _, _ in self._expected:
            slot.copy_(batch[name].detach())

    def _missing(self, name: str, batch: Mapping[str, torch.Tensor]) -> str:
        if name in batch:
            return f"input {name!r}: expected a torch.Tensor, got {type(batch[name]).__name__}"
        return f"the batch lacks {name!r}: expected {sorted(self.inputs)}, got {sorted(map(str, batch))}"


_shape_hint = "; shapes are fixed at compile time: pass drop_last=True to the DataLoader, or compile with every batch size, B=(…)"


def _describe(shape: torch.Size, dtype: torch.dtype, device: torch.device) -> str:
    return f"{str(dtype).removeprefix('torch.')}{list(shape)} on {device}"
