"""bench/rows_gpu.py on the CPU: what it measures, what it compares, and how one contender's end leaves the others alone."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from argparse import ArgumentTypeError
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import children
import pytest
from costs import Some

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "bench"))

import rows_gpu
from in_child import Part, in_child
from rows_gpu import contenders_of, workloads_of
from rows_table import differing, loss_off, ratio, table

ROWS = ["8x8x2:f32", "8x8x2:bf16"]


def run_rows(*options: object) -> Any:
    command = [sys.executable, rows_gpu.__file__, "--device", "cpu", "--seconds", "0.01", *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return children.run([str(part) for part in command], timeout=240, env=environment)


def test_rows_are_measured_compared_and_profiled(tmp_path: Path, some: Some) -> None:
    """A contender that fails is a line, and the others go on."""
    names, found, profiles = some(ROWS), tmp_path / "rows.json", tmp_path / "profiles"
    options = ("--rows", ",".join(names), "--contenders", "eager,graph,aicf", "--json", found)
    done = run_rows(*options, "--profiles", profiles, "--certify")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(found.read_text())["rows"]
    assert list(rows) == names
    for title, row in rows.items():
        assert list(row) == ["aicf", "eager", "graph"], "AICF comes first"
        assert row["graph"]["error"] == "ValueError: a CUDA graph needs --device cuda"
        assert f"{title} graph: error: ValueError: a CUDA graph needs --device cuda" in done.stdout
        for name in ("aicf", "eager"):
            assert row[name]["us"] > 0 and len(row[name]["windows"]) == 5
            assert row[name]["loss"] < row[name]["first"]
        assert row["aicf"]["first"] == pytest.approx(row["eager"]["first"], rel=1e-2)
        off = loss_off(row, "aicf")
        assert off is not None and off < 0.02
        profile = json.loads((profiles / f"{title.replace(':', '-')}-aicf.json").read_text())
        assert row["aicf"]["launches"] == pytest.approx(profile["marked"] * 1e6)
        assert len(profile["launches"]) == len(row["aicf"]["kernels"])
        assert row["aicf"]["equal"] and "its certificate is equal" in done.stdout
    last = done.stdout.splitlines()[-len(names) :]
    assert [line.split()[1] for line in last] == names and all("eager" in line for line in last)


def test_what_the_budget_does_not_hold_is_skipped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--device", "cpu", "--rows", ROWS[0], "--contenders", "aicf,eager", "--budget", "0"]
    monkeypatch.setattr(sys, "argv", [rows_gpu.__file__, *options])
    assert rows_gpu.main() == 0
    printed = capsys.readouterr().out
    for name in ("aicf", "eager"):
        assert f"{ROWS[0]} {name}: skipped: the budget of 0 s is spent" in printed


def test_a_failing_aicf_fails_the_run() -> None:
    """One that has nothing to train, and a variant that needs a GPU."""
    done = run_rows("--rows", "8x8x0:f32", "--contenders", "aicf,aicf+serial,eager")
    assert done.returncode == 1
    for name in ("aicf", "eager"):
        assert f"8x8x0:f32 {name}: error: ValueError: optimizer got an empty parameter list" in done.stdout
    assert "8x8x0:f32 aicf+serial: error: ValueError: AICF_BRANCHES need --device cuda" in done.stdout


def test_bad_options() -> None:
    for row in ("8x8:f32", "8x8x2:f64", ""):
        with pytest.raises(ArgumentTypeError, match=r"BATCHxWIDTHxLAYERS:PRECISION .* got '" + row):
            workloads_of(f"8x8x2:f32,{row}")
    with pytest.raises(
        ArgumentTypeError,
        match=r"are aicf, (aicf\+\w+, ){5}eager, graph, jax, scan, compile, got tvm",
    ):
        contenders_of("aicf,tvm")
    assert contenders_of("scan,aicf+own,aicf") == ["aicf", "aicf+own", "scan"]


def failing() -> Iterator[Part]:
    yield {"us": 1.0}
    raise RuntimeError("out of luck\nand more")


def dying() -> Iterator[Part]:
    yield {"us": 1.0}
    os.kill(os.getpid(), signal.SIGKILL)


def endless() -> Iterator[Part]:
    yield {"us": 1.0}
    time.sleep(1000)


def test_what_a_child_has_found_outlives_it() -> None:
    ends = {failing: "RuntimeError: out of luck", dying: "exit code -9", endless: "its limit of 1 s"}
    for work, said in ends.items():
        first, last = in_child(work, 1.0 if work is endless else 60.0)
        assert first == {"us": 1.0} and said in last["error"]
    assert list(in_child(lambda: iter([{"us": 2.0}]), 60.0)) == [{"us": 2.0}]


def test_a_contender_that_trains_something_else_is_named() -> None:
    row: dict[str, Part] = {
        "aicf": {"us": 3.0, "first": 1.0, "loss": 1.0},
        "eager": {"us": 4.0, "first": 1.0, "loss": 0.9},
        "scan": {"us": 2.0, "loss": 0.9005},
    }
    assert differing(row, "f32") == ["aicf"], "it has not trained at all"
    assert differing({**row, "aicf": {"loss": float("nan")}}, "f16") == ["aicf"]
    assert differing({**row, "aicf": {"loss": 0.9}}, "f32") == []
    assert differing({"aicf": row["aicf"]}, "f32") == [], "nobody to compare with"
    assert ratio(row) == 1.5
    assert "| scan      | 1.50        | aicf |" in table({"8x8x2:f32": row}, list(row))
    faster = {**row, "aicf+own": {"us": 1.0, "loss": 0.9}}
    assert ratio(faster) == 0.5
    assert "| scan      | 0.50        | aicf+own |" in table({"8x8x2:f32": faster}, list(faster))
    assert differing(faster, "f32") == ["aicf"], "no variant of ours says what is right"
