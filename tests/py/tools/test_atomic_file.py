"""Files appear whole or not at all: permissions, links, failures, writers that are killed."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from children import Child

from aicf_mlir.machine.atomic_file import write_file


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("data", [b"", b"abc", bytearray(b"abc"), memoryview(b"abc")])
def test_any_bytes(tmp_path: Path, data: bytes) -> None:
    write_file(tmp_path / "out", data)
    assert (tmp_path / "out").read_bytes() == bytes(data)
    assert names(tmp_path) == ["out"]


def test_several_parts_are_one_file(tmp_path: Path) -> None:
    write_file(tmp_path / "out", b"ab", memoryview(b"c"), b"")
    assert (tmp_path / "out").read_bytes() == b"abc"


@pytest.mark.parametrize("wanted", [0o600, 0o640, 0o444, 0o755])
def test_a_file_keeps_its_mode(tmp_path: Path, wanted: int) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"old")
    path.chmod(wanted)
    write_file(path, b"new")
    assert (path.read_bytes(), mode(path)) == (b"new", wanted)


def test_a_new_file_has_the_mode_of_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_file(tmp_path / "out", b"")
    finally:
        os.umask(before)
    assert mode(tmp_path / "out") == 0o640


def test_a_file_keeps_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"old")
    owner = (1234, 2345) if os.geteuid() == 0 else (os.getuid(), os.getgid())  # only root gives files away
    os.chown(path, *owner)
    write_file(path, b"new")
    assert (path.stat().st_uid, path.stat().st_gid) == owner


def test_a_link_stays_and_its_target_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder" / "target")
    for data in (b"first", b"second"):
        write_file(tmp_path / "link", data)
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "folder" / "target").read_bytes() == data


def test_a_long_name_is_written(tmp_path: Path) -> None:
    name = "é" * 127
    write_file(tmp_path / name, b"abc")
    assert names(tmp_path) == [name]


def test_a_device_is_written_to() -> None:
    write_file("/dev/null", b"abc")
    assert not Path("/dev/null").is_file()


@pytest.mark.parametrize(
    ("path", "reason"), [("missing/out", "No such file or directory"), ("folder", "Is a directory")]
)
def test_errors_name_the_path(tmp_path: Path, path: str, reason: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match=reason) as caught:
        write_file(tmp_path / path, b"")
    assert caught.value.filename == str(tmp_path / path)


def test_a_failed_write_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "out").write_bytes(b"old")

    def fail(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        write_file(tmp_path / "out", b"new")
    assert (tmp_path / "out").read_bytes() == b"old"
    assert names(tmp_path) == ["out"]


def test_file_and_folder_are_synced_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def sync(handle: int) -> None:
        calls.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")

    def replace(source: Path, target: Path) -> None:
        calls.append("rename")
        os.replace(source, target)  # noqa: PTH105 - the method is what this stands in for

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(Path, "replace", replace)
    write_file(tmp_path / "out", b"new")
    assert calls == ["file", "rename", "folder"]


WRITER = """
import os, sys, time
from aicf_mlir.machine import atomic_file
def wait(handle):
    print("written", flush=True)
    time.sleep(60)
os.fsync = wait
atomic_file.write_file(sys.argv[1], b"half")
"""


def test_what_a_killed_writer_left_is_removed_and_a_living_writer_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"old")
    with Child([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE) as writer:
        try:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"written\n"
            write_file(path, b"new")
            assert len(names(tmp_path)) == 2, "the file of a writer that lives was removed"
        finally:
            writer.send_signal(signal.SIGKILL)
            writer.wait(timeout=60)
    assert len(names(tmp_path)) == 2
    assert path.read_bytes() == b"new"
    write_file(path, b"newer")
    assert names(tmp_path) == ["out"]
    assert path.read_bytes() == b"newer"
