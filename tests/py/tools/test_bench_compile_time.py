"""bench/compile_time.py: every stage has a row, and the rows add up."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import children

from aicf_mlir.stages import STAGES

SCRIPT = Path(__file__).resolve().parents[3] / "bench" / "compile_time.py"


def test_each_stage_is_measured() -> None:
    done = children.run([sys.executable, str(SCRIPT), "--one", "layers:1"], timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    seconds = json.loads(done.stdout)
    assert seconds.pop("wall") > 0
    total = seconds.pop("CPU")
    assert {f"stage {stage.name}" for stage in STAGES} < seconds.keys()
    assert all(spent > 0 for row, spent in seconds.items() if row != "other")
    assert abs(sum(seconds.values()) - total) < 1e-6
