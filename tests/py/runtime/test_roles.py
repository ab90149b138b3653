"""The table of roles: what a step may change is shared, skipped where a check fails, in snapshots and in checkpoints."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from buffer_models import Compiled, model

from aicf_mlir.ir import roles
from aicf_mlir.ir.roles import ROLE_TABLE, STATUS, Access, Saved
from aicf_mlir.runtime.snapshot import changing

SOURCES = Path(roles.__file__).parents[1]


def test_names_are_different_and_accesses_cover_them() -> None:
    assert len({role.name for role in ROLE_TABLE}) == len(ROLE_TABLE)
    lists = (*roles.READ_ONLY_ROLES, *roles.UPDATED_ROLES, *roles.UNDEFINED_ROLES)
    assert sorted(lists) == sorted(roles.ROLES)


@pytest.mark.parametrize("role", ROLE_TABLE, ids=lambda role: role.name)
def test_what_a_step_changes_is_kept_and_saved(role: roles.Role) -> None:
    changes = role.access is Access.UPDATED
    assert (role.name in roles.SHARED_ROLES) == changes, "it outlives the step"
    assert (role.name in roles.KEPT_ROLES) == (changes and role.name != STATUS), (
        "it is as before where a check fails"
    )
    assert (role.saved is not Saved.NOTHING) == (changes and role.name != STATUS), "it is in snapshots"
    assert changes <= (role.is_argument and role.is_named), "the user has a tensor for it"


def test_a_snapshot_holds_every_byte_that_a_step_writes(device: str) -> None:
    ours = Compiled(model(), device)
    store = ours.step._store  # pyright: ignore[reportPrivateUsage]
    saved = {
        (arena, byte) for arena, offset, size in changing(store) for byte in range(offset, offset + size)
    }
    for plan in ours.step._plans:  # pyright: ignore[reportPrivateUsage]
        written = {slot.role for slot in plan.program.slots.values()} & set(roles.KEPT_ROLES)
        assert "buffer" in written
        for launch in plan.bound.launches:
            for arena, offset, *_ in launch["outputs"]:
                assert arena not in roles.KEPT_ROLES or (arena, offset) in saved


def test_a_checkpoint_has_every_buffer(tmp_path: Path) -> None:
    ours = Compiled(model(), "cpu")
    ours.step.save(tmp_path / "step")
    text = (tmp_path / "step").read_bytes()
    for name, tensor in ours.model.named_buffers():
        assert f'"buffer/{name}"'.encode() in text, name
        assert isinstance(tensor, torch.Tensor)


def test_roles_are_listed_nowhere_else() -> None:
    """Two or more names of roles in a row are a list that the table should have given."""
    names = "|".join(f'"{role.name}"' for role in ROLE_TABLE)
    listed = re.compile(rf"[(\[{{](?:\s*(?:{names}),?){{3,}}\s*[)\]}}]")
    for path in SOURCES.rglob("*.py"):
        if path.name != "roles.py":
            assert not (found := listed.search(path.read_text())), f"{path}: {found}"
