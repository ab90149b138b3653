"""Variables of the environment: what each may be, and that a tool refuses another value in one line."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import children
import pytest

from aicf_mlir import SettingError
from aicf_mlir.machine import cpu_kernels, environment
from aicf_mlir.machine.environment import (
    CACHE,
    CACHE_FOLDER,
    CPU_LEVEL,
    MOST_THREADS,
    SWITCHES,
    THREADS,
    VARIABLES,
    check,
)
from aicf_mlir.tools import aicf

ROOT = Path(__file__).parents[3]
NUMBERS = f"a number of threads from 1 to {MOST_THREADS}"
LEVELS = f"one of {', '.join(cpu_kernels.built())} in this build"
A_FILE = str(Path(__file__))
WRONG = [
    *((THREADS, value, NUMBERS) for value in ("", "0", "000", "-1", "257", "many", "1e99", "2.0", " 2", "٣")),
    (THREADS, "9" * 5000, NUMBERS),
    *((CPU_LEVEL, value, LEVELS) for value in ("", "x86-64-v9")),
    *((CACHE_FOLDER, value, "a folder") for value in ("", A_FILE, f"{A_FILE}/below/it", "/dev/null")),
    *((switch, value, "0 or 1") for switch in SWITCHES for value in ("", "off", "00", "true", "2")),
]


@pytest.mark.parametrize(("name", "value", "expected"), WRONG)
def test_another_value_is_refused(
    name: str, value: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingError) as refused:
        check()
        cpu_kernels.chosen()
    assert str(refused.value) == f"{name}: expected {expected}, got {value!r}"


@pytest.mark.parametrize(("value", "number"), [("1", 1), ("004", 4), ("256", 256), (None, None)])
def test_a_number_of_threads(value: str | None, number: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(THREADS, raising=False)
    if value is not None:
        monkeypatch.setenv(THREADS, value)
    assert environment.threads() == number


@pytest.mark.parametrize("switch", SWITCHES)
def test_a_switch_is_on_where_nothing_is_said(switch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(switch, raising=False)
    found = [environment.is_on(switch)]
    for value in ("0", "1"):
        monkeypatch.setenv(switch, value)
        found.append(environment.is_on(switch))
    assert found == [True, False, True]


def test_a_folder_need_not_be_there_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in (tmp_path, tmp_path / "new" / "newer", tmp_path / ("long" * 100), Path("relative")):
        monkeypatch.setenv(CACHE_FOLDER, str(folder))
        assert environment.cache_folder() == folder
    dangling = tmp_path / "dangling"
    dangling.symlink_to(tmp_path / "nowhere")
    monkeypatch.setenv(CACHE_FOLDER, str(dangling))
    with pytest.raises(SettingError, match="expected a folder"):
        environment.cache_folder()


def test_every_variable_that_is_read_is_known() -> None:
    """The runtime reads some itself; no other file of the package reads any."""
    read = [path for path in (ROOT / "aicf_mlir").rglob("*.py") if '"AICF_' in path.read_text()]
    assert read == [Path(str(environment.__file__))]
    known = {THREADS, CPU_LEVEL, CACHE_FOLDER, *SWITCHES}
    assert known == VARIABLES.keys()
    texts = [path.read_text() for path in (ROOT / "csrc").rglob("*.c*")]
    native = {text.split('"')[1] for each in texts for text in each.split("getenv(")[1:] if text[0] == '"'}
    assert native
    assert native <= known


def test_the_page_has_the_table() -> None:
    page = (ROOT / "docs" / "environment.md").read_text()
    rows = re.findall(r"^\| `(AICF_\w+)` \| (.*?) \| (.*?) \| (.*?) \|$", page, re.MULTILINE)
    assert rows == [(name, row.values, row.default, row.effect) for name, row in VARIABLES.items()]


def test_info_has_each_value_and_its_meaning(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(CACHE, "0")
    assert aicf.main(["info"]) == 0
    said = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert said[CACHE] == "0 (0 or 1). 0 keeps no compiled kernels on disk"
    assert said[CACHE_FOLDER] == "not set: ~/.cache/aicf (a folder). Where compiled kernels are kept"
    assert said.keys() >= VARIABLES.keys()


@pytest.mark.parametrize(("name", "value"), [(THREADS, "0"), (CPU_LEVEL, "none"), (CACHE_FOLDER, A_FILE)])
def test_python_gets_an_error_of_ours(name: str, value: str) -> None:
    done = children.run([sys.executable, "-c", "import aicf_mlir"], env=os.environ | {name: value})
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"aicf_mlir.errors.SettingError: {name}: expected ")
    assert last.endswith(f", got {value!r}")
