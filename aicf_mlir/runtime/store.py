"""The data that a model's compiled steps of all batch sizes share: parameters, frozen tensors, optimizer state and host
scalars.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import torch

from aicf_mlir import _C
from aicf_mlir.errors import BindError, PlanError
from aicf_mlir.frontend.shared_memory import warn_of_aliases
from aicf_mlir.frontend.types import as_users, in_real
from aicf_mlir.ir.roles import STATUS
from aicf_mlir.runtime.homes import Home, home_of, is_only_user, register, use
from aicf_mlir.runtime.not_copied import NotCopied
from aicf_mlir.runtime.placement import Key, shared_slots
from aicf_mlir.runtime.program import Program, Slot
from aicf_mlir.runtime.tensors import DTYPE_NAMES, view
from aicf_mlir.runtime.watched import HOOKS, Watched

OF_TENSOR, AFTER = HOOKS
"""The attributes of hooks on the gradient of a tensor: those that a step may have, and those after the gradient is kept."""

VERSION = attrgetter("_version")
"""How often a tensor has been written in place."""


@dataclass(frozen=True)
class Bound:
    """A user tensor whose storage is a slot."""

    role: str
    name: str
    tensor: torch.Tensor


class Store(NotCopied):
    """Memory at fixed addresses for everything that outlives a step.

    With `adopt` the user's parameters and buffers become views of their slots, so torch sees each update at once. A
    tensor that another compiled step has already bound stays in place, and both steps use that memory, one call at a
    time. A tensor on another device, as a mask on the host that the forward moves, stays there: its slot is a copy, made
    again at the next call when torch has written the tensor.
    """

    def __init__(
        self,
        program: Program,
        device: str,
        tensors: Mapping[Key, torch.Tensor],
        shared_state: Mapping[Key, torch.Tensor],
        literals: Collection[str] = (),
    ):
        """`tensors` are the user's, by role and name; `shared_state` has the optimizer state that other steps already
        keep.

        `literals` are the names of the buffers that the program has to itself.
        """
        self.literals = literals
        self.device = device
        self.planned = shared_slots(program)
        used = {key: tensor for key, tensor in tensors.items() if key in self.planned}
        for key, tensor in used.items():
            _check(key[1], tensor, self.planned[key])
        self.elsewhere = [
            Bound(*key, used.pop(key))
            for key, tensor in list(used.items())
            if key[1] not in literals and not is_on(tensor, device)
        ]
        """Tensors on another device, which stay there: their slots are copies."""
        kept = {
            key: tensor
            for key, tensor in shared_state.items()
            if key in self.planned and _layout(tensor) == (self.planned[key].dtype, self.planned[key].shape)
        }  # the state of a parameter whose type has changed is copied
        homes = {
            key: home
            for key, tensor in {**used, **kept}.items()
            if key in self.planned and (home := home_of(tensor)) is not None
        }
        self.session = _C.Session([home.session for home in homes.values()])
        self.arenas: dict[str, _C.Arena] = {}
        """The arenas by name: the program's shared roles, and other steps' arenas as `shared.0`, …"""
        self.slots: dict[Key, Slot] = {}
        """The shared slots by role and name, at their actual places."""
        self._zeros: set[Key] = set()
        self._place(program, homes)
        for arena in self.arenas.values():
            use(arena, self)
        self.bound = [Bound(*key, tensor) for key, tensor in used.items()]
        self.hooks = {id(b.tensor): own for b in self.bound if (own := _hooks(b.tensor, OF_TENSOR))}
        """The hooks of gradients that are part of the step, by the tensor."""
        self._to_move = [bound for bound in self.bound if (bound.role, bound.name) not in homes]

    def adopt(self) -> None:
        """Make the user's tensors views of their slots, with their values kept. An earlier failure changes none of
        their tensors.
        """
        warn_of_aliases({bound.name: bound.tensor for bound in self._to_move if bound.role == "param"})
        for bound in self._to_move:
            target = self.view(bound.role, bound.name)
            target.copy_(in_real(bound.tensor.detach()))
            bound.tensor.data = as_users(target, bound.tensor)
        self._to_move.clear()
        self.follow()

    def follow(self) -> None:
        """Copy the values of tensors on other devices. Raises BindError for one whose type or shape has changed."""
        for bound in self.elsewhere:
            _check(bound.name, bound.tensor, self.planned[bound.role, bound.name])
            self.view(bound.role, bound.name).copy_(in_real(bound.tensor.detach()))

    def give_back(self) -> None:
        """Copy the slots of tensors on other devices to these, when all that is under way is done."""
        if self.elsewhere and torch.device(self.device).type == "cuda":
            torch.cuda.synchronize(self.device)
        for bound in self.elsewhere:
            in_real(bound.tensor.detach()).copy_(self.view(bound.role, bound.name))

    def _place(self, program: Program, homes: Mapping[Key, Home]) -> None:
        """Allocate the arenas that hold a slot without a home, and note the place of each slot."""
        needed = {slot.arena for key, slot in self.planned.items() if key not in homes}
        for role in (role for role in program.arenas if role in needed):
            self.arenas[role] = _C.Arena(self.device, program.arenas[role], visible=role == STATUS)
            register(self.arenas[role], self.session)
        others: dict[int, str] = {}
        for key, slot in self.planned.items():
            if key not in homes:
                self.slots[key] = slot
                self._zeros.add(key)
                continue
            home = homes[key]
            name = others.setdefault(home.arena.ptr, f"shared.{len(others)}")
            self.arenas[name] = home.arena
            self.slots[key] = replace(slot, arena=name, offset=home.offset)

    def takes_zeros(self, key: Key) -> bool:
        """True if a slot has the zeros of its new arena; call it once, before the slot is written first or left as it is."""
        if key not in self._zeros:
            return False
        self._zeros.remove(key)
        return True

    def of_role(self, role: str) -> dict[str, Slot]:
        """Return the slots of one role by name."""
        return {name: slot for (slot_role, name), slot in self.slots.items() if slot_role == role}

    def view(self, role: str, name: str) -> torch.Tensor:
        """Return the tensor of a named slot, sharing its memory."""
        slot = self.slots[role, name]
        return view(self.arenas[slot.arena], slot.offset, slot.dtype, slot.shape)

    def release(self) -> list[_C.Arena]:
        """Stop using all arenas; return the ones that no other step uses."""
        arenas = [arena for arena in self.arenas.values() if is_only_user(arena, self)]
        self.arenas.clear()
        return arenas

    def check_matches(self, planned: Mapping[Key, Slot], literals: Collection[str]) -> None:
        """Refuse the shared slots of a plan that differ from these, except its literals."""
        if _specs(self.planned, self.literals) != _specs(planned, literals):
            raise PlanError(
                "the plans of two batch shapes have different parameters, buffers or states; "
                "the loss must use the same for every batch shape"
            )

    def watch(self, watched: Watched, optimized: Collection[int]) -> None:
        """Watch for a bound tensor that gets other memory, is frozen or unfrozen, or gets a gradient hook, and for changes of
        tensors on other devices, which are followed.

        `optimized` has the ids of the optimizer's parameters: the other tensors need no gradient.
        """
        asked = [bound for bound in self.bound if id(bound.tensor) in optimized]
        trained = [bound.tensor for bound in asked if bound.role == "param"]
        frozen = [bound.tensor for bound in asked if bound.role != "param"]
        watched.tensors([bound.tensor for bound in self.bound], self._refuse_moved)
        watched.trained(trained, self._refuse_flags)
        watched.attributes(frozen, "requires_grad", False, self._refuse_flags)
        watched.no_hooks([tensor for tensor in trained if id(tensor) not in self.hooks], self._refuse_hooks)
        for tensor in trained:
            if id(tensor) in self.hooks:
                own: Any = tensor._backward_hooks
                watched.attribute(tensor, OF_TENSOR, own, self._refuse_hooks)
                watched.items(own, self._refuse_hooks)
                watched.attribute(tensor, AFTER, None, self._refuse_hooks)
        for bound in self.elsewhere:
            watched.tensors([bound.tensor], self.follow)
            if not bound.tensor.is_inference():
                watched.word(VERSION, bound.tensor, self.follow)

    def _refuse_moved(self) -> None:
        for bound in self.bound:
            if place(in_real(bound.tensor)) != place(self.view(bound.role, bound.name)):
                raise moved_error(bound.name)

    def _refuse_flags(self) -> None:
        for bound in self.bound:
            trained = bound.role == "param"
            if bound.tensor.requires_grad != trained and (
                trained or isinstance(bound.tensor, torch.nn.Parameter)
            ):
                raise BindError(
                    f"{bound.name!r} had requires_grad={trained} when it was compiled; set it back, or call recompile()"
                )

    def _refuse_hooks(self) -> None:
        for bound in self.bound:
            known = self.hooks.get(id(bound.tensor), [])
            if _hooks(bound.tensor, OF_TENSOR) != known or _hooks(bound.tensor, AFTER):
                others = "has other gradient hooks than when" if known else "got a gradient hook after"
                raise BindError(
                    f"{bound.name!r} {others} it was compiled, which a compiled step does not run; undo that, or call recompile()"
                )


def _hooks(tensor: torch.Tensor, attribute: str) -> list[int]:
    held: dict[int, Any] = getattr(tensor, attribute) or {}
    return [*map(id, held.values())]


def is_on(tensor: torch.Tensor, device: str) -> bool:
    """True if a tensor is on a device, or on none: meta; "cuda" without a number is each."""
    wanted, own = torch.device(device), tensor.device
    return tensor.is_meta or (own.type == wanted.type and wanted.index in (None, own.index))


def place(tensor: torch.Tensor) -> tuple[object, ...]:
    """Return the place and layout of a tensor."""
    return tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()


def moved_error(name: str) -> BindError:
    """Return the error for a parameter or frozen tensor that has left the place where it was bound."""
    return BindError(
        f"parameter {name!r} was moved after compilation (by .to(), load_state_dict(assign=True) or "
        ".data = …): its compiled storage is no longer the model's; copy values in place instead, or call recompile()"
    )


def _specs(slots: Mapping[Key, Slot], literals: Collection[str]) -> dict[Key, tuple[object, ...]]:
    return {
        key: (slot.dtype, slot.shape)
        for key, slot in slots.items()
        if key[0] != "buffer" or key[1] not in literals
    }


def _layout(tensor: torch.Tensor) -> tuple[str, tuple[int, ...]]:
    """Return the IR name of its type, and its shape, in a step."""
    real = in_real(tensor)
    return DTYPE_NAMES.get(real.dtype, str(real.dtype)), tuple(real.shape)


def _check(name: str, tensor: torch.Tensor, slot: Slot) -> None:
    if tensor.is_meta:
        raise BindError(
            f"{name!r} is on the meta device and has no values; give it some (model.to_empty, load_state_dict), "
            "then compile"
        )
    got = _layout(tensor)
    if got != (slot.dtype, slot.shape):
        raise BindError(
            f"{name!r}: the plan expects {slot.dtype}{list(slot.shape)}, the model has {got[0]}{list(got[1])}"
        )
