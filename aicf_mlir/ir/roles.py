"""THE table of roles: the purpose of a tensor of a step, and so the permission of a step to change it.

Everything that treats roles differently derives its list from here: the signature of a function, the slots, arenas
and rules of a plan, what several plans share, snapshots, checkpoints and certificates. So a role that a step
changes cannot be forgotten in any of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

STATUS = "status"
"""The role of the result of a step's checks."""


class Access(Enum):
    """The access of a step to the memory of a role."""

    READ = "has a value before the step and keeps it"
    UPDATED = "has a value before the step, which the step replaces at most once"
    WRITTEN = "has no value until a launch of the step writes one"


class Saved(Enum):
    """The part of an arena that a snapshot copies."""

    NOTHING = "nothing: it is made anew by each step, or says how the last one went"
    WHOLE = "all of it"
    CHANGED = "the slots that a compiled step updates: the others may be large, and stay as they are"


@dataclass(frozen=True)
class Role:
    """One row of the table of roles."""

    name: str
    """The name in signatures and plans; also the name of the arena of its slots."""
    access: Access
    is_argument: bool
    """True if it labels arguments of a function."""
    is_named: bool
    """True if the user knows its slots by name."""
    saved: Saved
    meaning: str


ROLE_TABLE: tuple[Role, ...] = (
    Role("input", Access.READ, True, True, Saved.NOTHING, "read from the batch"),
    Role("param", Access.UPDATED, True, True, Saved.WHOLE, "trained by the optimizer"),
    Role("buffer", Access.UPDATED, True, True, Saved.CHANGED, "of the model, not trained; may be updated"),
    Role("state", Access.UPDATED, True, True, Saved.WHOLE, "kept by the optimizer"),
    Role("host_scalar", Access.UPDATED, True, True, Saved.WHOLE, "scalars that the host may write"),
    Role(
        STATUS,
        Access.UPDATED,
        True,
        True,
        Saved.NOTHING,
        "what the checks say; asks for the host, so it stays",
    ),
    Role("const", Access.READ, False, False, Saved.NOTHING, "one number everywhere"),
    Role("grad", Access.WRITTEN, False, True, Saved.NOTHING, "the gradient of a param"),
    Role("temp", Access.WRITTEN, False, False, Saved.NOTHING, "memory of this step only"),
    Role(
        "copy",
        Access.WRITTEN,
        False,
        False,
        Saved.NOTHING,
        "a param in another type, kept by its update, or made of the batch",
    ),
    Role("output", Access.WRITTEN, False, True, Saved.NOTHING, "any other result"),
)
"""The roles in the order of the text and of the arenas."""


def roles_of(*access: Access) -> tuple[str, ...]:
    """The names of the roles with one of these accesses, in order."""
    return tuple(role.name for role in ROLE_TABLE if role.access in access)


ROLES = roles_of(*Access)
"""The names of all roles."""

ARGUMENT_ROLES = tuple(role.name for role in ROLE_TABLE if role.is_argument)
"""The roles of function arguments, and so of slots that have a value before the step."""

NAMED_ROLES = tuple(role.name for role in ROLE_TABLE if role.is_named)
"""Roles whose slots the user knows by name."""

CAST_ROLES = ("input", "param", "buffer")
"""The roles whose casts a slot of role copy may hold: only the step changes them while it is replayed."""

READ_ONLY_ROLES = roles_of(Access.READ)

UPDATED_ROLES = roles_of(Access.UPDATED)
"""Written at most once a step: by the launch that computes the new value."""

UNDEFINED_ROLES = roles_of(Access.WRITTEN)
"""The roles without a value until a launch writes one."""

RETURNED_ROLES = tuple(role.name for role in ROLE_TABLE if role.access is Access.WRITTEN and role.is_named)
"""Slots that a step must write."""

SHARED_ROLES = UPDATED_ROLES
"""The roles that outlive a step, in the same memory for all plans of a model."""

KEPT_ROLES = tuple(role for role in UPDATED_ROLES if role != STATUS)
"""The roles that outlive a step and stay unchanged if a check has failed."""

OPTIMIZED_ROLES = tuple(role.name for role in ROLE_TABLE if role.saved is Saved.WHOLE)
"""The roles that an optimizer updates, and that a skipped step leaves unchanged; buffers are the forward's."""

SAVED: dict[str, Saved] = {role.name: role.saved for role in ROLE_TABLE}
"""The saved part of each arena in a snapshot."""
