"""Steps whose convolutions are nests, whatever kernels there are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aicf_mlir import stages

ORDINARY = "convolutions{target=$target}"


def write_nests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the pass its option in the list of stages."""
    assert any(ORDINARY in stage.passes for stage in stages.STAGES)
    nests = tuple(
        replace(
            stage,
            passes=tuple(
                each.replace(ORDINARY, "convolutions{target=$target nests=true}") for each in stage.passes
            ),
        )
        for stage in stages.STAGES
    )
    monkeypatch.setattr(stages, "STAGES", nests)
