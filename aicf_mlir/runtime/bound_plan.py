"""One plan bound to memory: an executor, the input tensors to fill, the output tensors to read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from aicf_mlir import _C
from aicf_mlir.errors import BindError, PlanError
from aicf_mlir.ir.roles import SHARED_ROLES
from aicf_mlir.runtime.homes import note_update
from aicf_mlir.runtime.placement import Placement, literal_memory, shared_slots
from aicf_mlir.runtime.program import Program, Slot
from aicf_mlir.runtime.store import Store
from aicf_mlir.runtime.tensors import FreshTensors, view

HOST = torch.device("cpu")
"""The device that may hold a batch for every step."""

Staged = tuple[int, ...]
"""The addresses of a batch that fits, in the order of the inputs."""


class BoundPlan:
    """A plan with its arenas: the shared ones of a `Store`, its own for inputs, constants, temporaries and outputs."""

    def __init__(
        self, program: Program, store: Store, index: int, literals: Mapping[str, torch.Tensor] | None = None
    ):
        """Take `index`, the number of this plan among the plans of its step, and `literals`, the ones that it does not
        share, by name.
        """
        planned = shared_slots(program)
        store.check_matches(planned, store.literals if literals is None else literals)
        own_slots, own_arenas = literal_memory(store.device, planned, literals or {})
        self.placement = Placement(planned, {**store.slots, **own_slots})
        """The actual places of the shared slots: other steps' slots, where it shares memory with them."""
        self.program = program
        own = {
            role: _C.Arena(store.device, size)
            for role, size in program.arenas.items()
            if role not in SHARED_ROLES
        }
        self.arenas = {**store.arenas, **own, **own_arenas}
        by_role: dict[str, list[Slot]] = {}
        for slot in program.slots.values():
            by_role.setdefault(slot.role, []).append(slot)
        for slot in by_role.get("const", []):
            self._fill(slot)
        inputs = by_role.get("input", [])
        self.inputs = {slot.name: self._view(slot) for slot in inputs}
        self.gradients = {slot.name: self._view(slot) for slot in by_role.get("grad", [])}
        self.outputs = {slot.name: self._view(slot) for slot in by_role.get("output", [])}
        if "loss" not in self.outputs:
            raise PlanError("the plan has no output named 'loss'")
        self.loss = self.outputs.pop("loss")
        self.losses = FreshTensors(self.loss)
        self.differentiates = any(
            arena == "param" for each in program.launches for arena, *_ in each["outputs"]
        )
        """True if the step updates parameters by gradients: an evaluation only reads them."""
        self.bound = self.placement(program)
        """The program with its actual addresses."""
        for launch in self.bound.launches:
            for arena, offset, *_ in launch["outputs"]:
                if arena in store.arenas:
                    note_update(store.arenas[arena], offset)
        self.executor = _C.Executor(
            store.device,
            self.arenas,
            self.bound.launches,
            program.status,
            [(slot.arena, slot.offset, slot.nbytes) for slot in inputs],
            store.session,
            index,
            next((slot.arena, slot.offset, slot.nbytes) for slot in by_role["output"] if slot.name == "loss"),
        )
        self._expected = [(name, t.shape, t.dtype, t.device) for name, t in self.inputs.items()]
        places = {t.data_ptr(): t.nbytes for t in self.inputs.values()}
        self._first, self._end = min(places), max(place + nbytes for place, nbytes in places.items())

    def _view(self, slot: Slot) -> torch.Tensor:
        return view(self.arenas[slot.arena], slot.offset, slot.dtype, slot.shape)

    def _fill(self, slot: Slot) -> None:
        if slot.value is None:
            raise PlanError(f"constant slot {slot.name!r} has no value")
        self._view(slot).fill_(slot.value)

    def stage(self, batch: Mapping[str, Any]) -> tuple[Staged, list[torch.Tensor]]:
        """Check the whole batch and make each tensor dense; the step does not change.

        Each tensor is on the device of the step or on the host, which uploads it (csrc/device/upload.h). Returns
        addresses and the tensors that own them, which must live until they are copied.
        """
        staged: list[torch.Tensor] = []
        addresses: list[int] = []
        for name, shape, dtype, device in self._expected:
            tensor: Any = batch.get(name)
            if not isinstance(tensor, torch.Tensor):
                raise BindError(self._missing(name, batch))
            with _C_DISABLE_TORCH_FUNCTION():
                elsewhere = tensor.device != device and tensor.device != HOST
                if tensor.shape != shape or tensor.dtype != dtype or elsewhere:
                    raise BindError(
                        f"input {name!r}: expected {_describe(shape, dtype, device)}{_or_host(device)}, "
                        f"got {_describe(tensor.shape, tensor.dtype, tensor.device)}"
                        + (_shape_hint if tensor.shape != shape else "")
                    )
                if self.differentiates and tensor.requires_grad:
                    raise BindError(
                        f"input {name!r} requires a gradient, which a compiled step does not pass on to it; pass {name}.detach()"
                    )
                dense = _dense(name, tensor)
                address = dense.data_ptr()
                if self._first <= address < self._end and address != self.inputs[name].data_ptr():
                    dense = dense.clone()  # part of another input, which may be overwritten first
                    address = dense.data_ptr()
                staged.append(dense)
                addresses.append(address)
        if len(batch) != len(self._expected):
            unknown = ", ".join(repr(name) for name in batch if name not in self.inputs)
            raise BindError(
                f"the batch has {unknown} besides what was compiled: expected {sorted(self.inputs)}"
            )
        return tuple(addresses), staged

    def _missing(self, name: str, batch: Mapping[str, torch.Tensor]) -> str:
        if name in batch:
            return f"input {name!r}: expected a torch.Tensor, got {type(batch[name]).__name__}"
        return f"the batch lacks {name!r}: expected {sorted(self.inputs)}, got {sorted(map(str, batch))}"


_C_DISABLE_TORCH_FUNCTION: Any = vars(torch._C)["DisableTorchFunctionSubclass"]  # pyright: ignore[reportPrivateUsage]
"""A guard under which a subclass of torch.Tensor is treated as a plain tensor; its own code does not run in the middle
of a step.
"""

_shape_hint = "; shapes are fixed at compile time: pass drop_last=True to the DataLoader, or compile with every batch size, B=(…)"


def _dense(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """Return `tensor` itself or a dense copy. Raises BindError for one without ordinary memory, or whose memory was freed."""
    if tensor.layout is not torch.strided:
        raise BindError(f"input {name!r}: expected a dense tensor, got one of layout {tensor.layout}")
    try:
        storage = tensor.untyped_storage()
        last = tensor.storage_offset() + sum(
            (size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
        )
        present, needed = storage.nbytes(), (last + 1) * tensor.element_size()
        if storage.data_ptr() == 0 or present < needed:
            raise BindError(
                f"input {name!r}: its storage was freed or cut ({present} bytes, the tensor needs {needed}); pass a new tensor"
            )
        return tensor.detach().resolve_neg().contiguous()
    except (RuntimeError, NotImplementedError, TypeError) as error:
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise BindError(
            f"input {name!r}: {type(tensor).__name__} has no ordinary memory ({text}); pass a dense torch.Tensor"
        ) from error


def _or_host(device: torch.device) -> str:
    return "" if device == HOST else f" or {HOST}"


def _describe(shape: torch.Size, dtype: torch.dtype, device: torch.device) -> str:
    return f"{str(dtype).removeprefix('torch.')}{list(shape)} on {device}"
