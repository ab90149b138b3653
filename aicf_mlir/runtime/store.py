"""What a model's compiled steps share, whatever their batch size: parameters, frozen tensors, optimizer state and meta slots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from aicf_mlir import _C
from aicf_mlir.errors import BindError, PlanError
from aicf_mlir.runtime.program import Program, Slot
from aicf_mlir.runtime.tensors import DTYPE_NAMES, view

SHARED_ROLES = ("param", "buffer", "state", "meta")


@dataclass(frozen=True)
class _Bound:
    """A user tensor whose storage is a slot."""

    name: str
    tensor: torch.Tensor
    address: int
    requires_grad: bool


class Store:
    """Arenas at fixed addresses for everything that outlives a step.

    The user's parameters and buffers become views of their slots, so torch sees each update at once; their values are kept.
    """

    def __init__(
        self,
        program: Program,
        device: str,
        model: torch.nn.Module,
        tensors: Mapping[tuple[str, str], torch.Tensor],
    ):
        self.device = device
        self.slots = _shared_slots(program)
        self.arenas = {
            role: _C.Arena(device, size) for role, size in program.arenas.items() if role in SHARED_ROLES
        }
        used = {key: tensor for key, tensor in tensors.items() if key in self.slots}
        for key, tensor in used.items():
            _check(key[1], tensor, self.slots[key])
        self._bound = [self._bind(key, tensor) for key, tensor in used.items()]
        self._holders = _holders(model, {id(tensor): name for (_, name), tensor in used.items()})

    @property
    def tensors(self) -> list[torch.Tensor]:
        """The user's tensors whose storage is a slot."""
        return [bound.tensor for bound in self._bound]

    def of_role(self, role: str) -> dict[str, Slot]:
        """The slots of one role by name."""
        return {name: slot for (slot_role, name), slot in self.slots.items() if slot_role == role}

    def view(self, role: str, name: str) -> torch.Tensor:
        """The tensor of a named slot, sharing its memory."""
        slot = self.slots[role, name]
        return view(self.arenas[slot.arena], slot.offset, slot.dtype, slot.shape)

    def _bind(self, key: tuple[str, str], tensor: torch.Tensor) -> _Bound:
        target = self.view(*key)
        target.copy_(tensor.detach())
        tensor.data = target
        return _Bound(key[1], tensor, target.data_ptr(), tensor.requires_grad)

    def check_matches(self, program: Program) -> None:
        """Refuse a plan that lays out the shared slots in another way."""
        if _layout(self.slots) != _layout(_shared_slots(program)):
            raise PlanError(
                "the plans of two batch shapes place the shared parameters or states differently; "
                "the loss must use the same parameters for every batch shape"
            )

    def check_tensors(self) -> None:
        """Refuse to run when a parameter or its storage was replaced, or one was frozen or unfrozen."""
        for bound in self._bound:
            if bound.tensor.data_ptr() != bound.address:
                raise _moved(bound.name)
            if bound.tensor.requires_grad != bound.requires_grad:
                raise BindError(
                    f"{bound.name!r} had requires_grad={bound.requires_grad} when it was compiled; "
                    "set it back, or compile again"
                )
        for tensors, key, tensor, name in self._holders:
            if tensors.get(key) is not tensor:
                raise _moved(name)


_Holder = tuple[Mapping[str, torch.Tensor | None], str, torch.Tensor, str]
"""A module's dictionary of parameters or buffers, a key, the tensor that must stay there, its name."""


def _holders(model: torch.nn.Module, names: Mapping[int, str]) -> list[_Holder]:
    """Where `model` holds the tensors whose id is in `names`; tied ones more than once."""
    return [
        (tensors, key, tensor, names[id(tensor)])
        for module in model.modules()
        for tensors in (module._parameters, module._buffers)  # pyright: ignore[reportPrivateUsage]
        for key, tensor in tensors.items()
        if tensor is not None and id(tensor) in names
    ]


def _moved(name: str) -> BindError:
    return BindError(
        f"parameter {name!r} was moved after compilation (by .to(), load_state_dict(assign=True) or "
        ".data = …): its compiled storage is no longer the model's; copy values in place instead, or compile again"
    )


def _shared_slots(program: Program) -> dict[tuple[str, str], Slot]:
    return {(slot.role, slot.name): slot for slot in program.slots.values() if slot.role in SHARED_ROLES}


def _layout(slots: dict[tuple[str, str], Slot]) -> dict[tuple[str, str], tuple[object, ...]]:
    return {key: (slot.arena, slot.offset, slot.dtype, slot.shape) for key, slot in slots.items()}


def _check(name: str, tensor: torch.Tensor, slot: Slot) -> None:
    if tensor.is_meta:
        raise BindError(
            f"{name!r} is on the meta device and has no values; give it some (model.to_empty, load_state_dict), "
            "then compile"
        )
    got = (DTYPE_NAMES.get(tensor.dtype, str(tensor.dtype)), tuple(tensor.shape))
    if got != (slot.dtype, slot.shape):
        raise BindError(
            f"{name!r}: the plan expects {slot.dtype}{list(slot.shape)}, the model has {got[0]}{list(got[1])}"
        )
