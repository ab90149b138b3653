"""A tool before its own code runs: a wrong environment and Ctrl-C while it imports."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import children
import pytest

from aicf_mlir.host import tool_process

ROOT = Path(__file__).parents[3]
TOOLS = sorted(path.stem for path in (ROOT / "aicf_mlir" / "tools").glob("aicf*.py"))
"""By module."""


def commands(module: str) -> list[list[str | Path]]:
    """How a tool is started: by its command and by its module, written in two ways."""
    script = Path(sys.executable).parent / module.replace("_", "-")
    name = f"aicf_mlir.tools.{module}"
    return [[script], [sys.executable, "-m", name], [sys.executable, "-X", "utf8", f"-m{name}"]]


@pytest.mark.parametrize("module", TOOLS)
def test_a_wrong_variable_is_one_line(module: str) -> None:
    for command in commands(module):
        done = children.run([*command, "--help"], env=os.environ | {"AICF_NUM_THREADS": "many"})
        line = "AICF_NUM_THREADS: expected a number of threads from 1 to 256, got 'many'"
        expected = (2, "", f"{module.replace('_', '-')}: error: {line}\n")
        assert (done.returncode, done.stdout, done.stderr) == expected


def interrupted(folder: Path, package: str, command: Sequence[str | Path]) -> tuple[int, bytes, bytes]:
    """Exit code and output of a command that gets Ctrl-C while it imports `package`."""
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    (folder / f"{package}.py").write_text(f"open({str(pipe)!r}).read()\n")
    with children.Child(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(folder)},
        cwd=ROOT,
    ) as child:
        result = children.interrupted_at(pipe, child)
    pipe.unlink()
    return result


@pytest.mark.parametrize("module", TOOLS)
def test_control_c_during_imports_leaves_without_a_traceback(module: str, tmp_path: Path) -> None:
    first, later = "scipy_openblas32", "xdsl"  # of the package itself, of its tools
    for package in (first,) if module == "aicf" else (first, later):
        folder = tmp_path / package
        folder.mkdir()
        for command in commands(module):
            assert interrupted(folder, package, [*command, "-"]) == (130, b"", b"")


def test_control_c_elsewhere_is_that_of_python(tmp_path: Path) -> None:
    code = [sys.executable, "-c", "import aicf_mlir"]
    status, _, err = interrupted(tmp_path, "scipy_openblas32", code)
    assert status == -signal.SIGINT
    assert err.endswith(b"KeyboardInterrupt\n")


def test_an_ignored_control_c_stays_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/bin/aicf-opt"])
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        tool_process.begin()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    ("argv", "given", "name"),
    [
        (["/usr/bin/aicf-opt", "x"], [], "aicf-opt"),
        (["aicf"], [], "aicf"),
        (["-m", "x"], ["python", "-m", "aicf_mlir.tools.aicf_run", "x"], "aicf-run"),
        (["-m"], ["python", "-maicf_mlir.tools.aicf_run"], "aicf-run"),
        (["-m"], ["python", "-m", "aicf_mlir.tools.compare"], None),
        (["-m", "aicf_mlir.tools.aicf_run"], ["python", "-m", "pdb", "aicf_mlir.tools.aicf_run"], None),
        (["-c"], ["python", "-c", "pass"], None),
        (["train.py"], [], None),
        (["aicf-train"], [], None),
        ([""], [], None),
        ([], [], None),
    ],
)
def test_what_a_process_was_started_as(
    argv: list[str], given: list[str], name: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", argv)
    monkeypatch.setattr(sys, "orig_argv", given)
    assert tool_process.tool() == name
