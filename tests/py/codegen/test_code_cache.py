"""Compiled code on disk: hits, damage, several processes, folders that cannot be written."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import children
import pytest

from aicf_mlir import SettingError
from aicf_mlir.codegen import cache
from aicf_mlir.codegen.cache import cached, key_digest

KEY = ("text", "toolchain")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AICF_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("AICF_CACHE", raising=False)
    return tmp_path / "cache"


class Maker:
    """Counts how often it is asked."""

    def __init__(self, code: bytes = b"code") -> None:
        self.code, self.count = code, 0

    def __call__(self) -> bytes:
        self.count += 1
        return self.code


def file_of(home: Path) -> Path:
    (path,) = (path for path in home.rglob("*") if path.is_file())
    return path


@pytest.mark.parametrize("code", [b"", b"code", bytes(range(256)) * 100])
def test_code_is_made_once(home: Path, code: bytes) -> None:
    make = Maker(code)
    assert [cached(KEY, make), cached(KEY, make)] == [code, code]
    assert make.count == 1
    assert file_of(home).stat().st_size == len(code) + cache.DIGEST_BYTES


def test_another_key_is_other_code(home: Path) -> None:
    cached(KEY, Maker(b"one"))
    assert cached(("texttoolchain", ""), Maker(b"two")) == b"two"
    assert len({key_digest(key) for key in (("ab", "c"), ("a", "bc"), ("abc",), ("abc", ""))}) == 4


@pytest.mark.parametrize("size", [0, 1, 31, 32, 35])
def test_a_file_that_was_cut_off_is_made_again(home: Path, size: int) -> None:
    cached(KEY, Maker())
    path = file_of(home)
    path.write_bytes(path.read_bytes()[:size])
    make = Maker()
    assert [cached(KEY, make), cached(KEY, make)] == [b"code", b"code"]
    assert make.count == 1


@pytest.mark.parametrize("place", [0, 31, 32, 35])
def test_a_flipped_bit_is_noticed(home: Path, place: int) -> None:
    cached(KEY, Maker())
    path = file_of(home)
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)
    make = Maker()
    assert cached(KEY, make) == b"code"
    assert make.count == 1


def test_a_file_of_another_key_is_noticed(home: Path) -> None:
    cached(KEY, Maker())
    path = file_of(home)
    cached(("other",), Maker(b"other"))
    (other,) = (each for each in home.rglob("*") if each.is_file() and each != path)
    shutil.copy(other, path)
    assert cached(KEY, Maker()) == b"code"


def test_no_cache(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AICF_CACHE", "0")
    make = Maker()
    assert [cached(KEY, make), cached(KEY, make)] == [b"code", b"code"]
    assert make.count == 2
    assert not home.exists()


def test_a_folder_that_cannot_be_made(home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("AICF_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "aicf").write_text("a file")
    make = Maker()
    assert [cached(KEY, make), cached(KEY, make)] == [b"code", b"code"]
    assert make.count == 2


def test_a_wrong_value_is_refused_at_each_use(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home.write_text("a file")
    with pytest.raises(SettingError, match=r"^AICF_CACHE_DIR: expected a folder, got '.*cache'$"):
        cached(KEY, Maker())
    monkeypatch.setenv("AICF_CACHE", "off")
    with pytest.raises(SettingError, match=r"^AICF_CACHE: expected 0 or 1, got 'off'$"):
        cached(KEY, Maker())


@pytest.mark.skipif(os.geteuid() == 0 and not shutil.which("setpriv"), reason="root writes everywhere")
def test_a_folder_that_cannot_be_written(home: Path) -> None:
    cached(KEY, Maker())
    for folder in (home, file_of(home).parent):
        folder.chmod(0o555)
    code = "from aicf_mlir.codegen.cache import cached; import sys; sys.stdout.buffer.write(cached(('new',), lambda: b'new'))"
    command = [sys.executable, "-W", "error", "-c", code]
    drop = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []
    done = children.run([*drop, *command], check=True, encoding=None)
    assert (done.stdout, done.stderr) == (b"new", b"")
    assert cached(KEY, Maker(b"other")) == b"code"


def test_where_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("AICF_CACHE", raising=False)
    monkeypatch.delenv("AICF_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.folder() == tmp_path / "aicf"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # the specification says to ignore it
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache.folder() == tmp_path / ".cache" / "aicf"


WRITER = """
import sys
from aicf_mlir.codegen.cache import cached
for turn in range(60):
    key, code = (str(turn % 20),), str(turn % 20).encode() * 5000
    assert cached(key, lambda: code) == code
"""


def test_two_processes(home: Path) -> None:
    command = [sys.executable, "-c", WRITER]
    with children.Child(command) as one, children.Child(command) as other:
        assert (one.wait(), other.wait()) == (0, 0)
    files = [path for path in home.rglob("*") if path.is_file()]
    assert len(files) == 20, "no temporary file stays"
