"""Steps that are fused without some of the rules."""

from __future__ import annotations

import pytest

from aicf_mlir.passes import fuse


def leave_out(monkeypatch: pytest.MonkeyPatch, *flags: str) -> None:
    """Have `fuse` apply all rules but these."""
    assert {*flags} <= {rule.name for rule in fuse.RULES}
    monkeypatch.setattr(fuse, "RULES", tuple(rule for rule in fuse.RULES if rule.name not in flags))
