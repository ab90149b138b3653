"""Compiled code that somebody else may have written is not run: owners, modes, links, and what is no regular file.

As root, other users are real: files are given away and children drop their privileges. Elsewhere a file is another's where this
process says that it is somebody else; the modes are tried everywhere.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import stat
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from children import fork

from aicf_mlir.codegen import cache
from aicf_mlir.codegen.cache import cached, key_digest

KEY = ("text", "toolchain")
NAME = key_digest(KEY)
PLANTED = b"planted"
ATTACKER, VICTIM = 65533, 65534
IS_ROOT = os.geteuid() == 0


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that every user reaches, as pytest's own are not; `home` in it is where code is kept."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    monkeypatch.setenv("AICF_CACHE_DIR", str(folder / "home"))
    monkeypatch.delenv("AICF_CACHE", raising=False)
    yield folder
    shutil.rmtree(folder)


def plant(home: Path, mode: int = 0o600) -> Path:
    """A file with a right digest."""
    path = home / NAME[:2] / NAME[2:]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(cache._digest(NAME, PLANTED) + PLANTED)  # pyright: ignore[reportPrivateUsage]
    path.chmod(mode)
    for folder in (home, path.parent):
        folder.chmod(0o700)
    return path


@pytest.fixture
def give_away(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    def give(path: Path) -> None:
        if IS_ROOT:
            os.lchown(path, ATTACKER, ATTACKER)
        else:
            monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)

    return give


def made_again(reason: str) -> None:
    """Look twice: the code is not the planted one, and there is one warning."""
    with pytest.warns(UserWarning, match=reason) as told:
        assert [cached(KEY, lambda: b"own"), cached(KEY, lambda: b"own")] == [b"own", b"own"]
    assert len(told) == 1
    assert "set AICF_CACHE_DIR to a folder of your own, or AICF_CACHE=0" in str(told[0].message)


def quietly(code: bytes) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cached(KEY, lambda: b"own") == code


def test_what_is_kept_is_private(shared: Path) -> None:
    before = os.umask(0)
    try:
        quietly(b"own")
    finally:
        os.umask(before)
    home = shared / "home"
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (home, *home.rglob("*"))]
    assert modes == [0o700, 0o700, 0o600]


def test_own_code_is_used(shared: Path) -> None:
    plant(shared / "home")
    quietly(PLANTED)


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666, 0o777])
def test_a_file_that_others_may_write(shared: Path, mode: int) -> None:
    path = plant(shared / "home", mode)
    made_again(rf"{NAME[2:]} may be written by others \(mode {mode:04o}\); chmod go-w {path}")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600, "it was replaced"


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o777])
@pytest.mark.parametrize("place", ["above", "home", "inside"])
def test_a_folder_that_others_may_write(shared: Path, mode: int, place: str) -> None:
    path = plant(shared / "home")
    folder = {"above": shared, "home": shared / "home", "inside": path.parent}[place]
    folder.chmod(mode)
    made_again(rf"{folder} may be written by others \(mode {mode:04o}\); chmod go-w {folder}")
    assert path.read_bytes().endswith(PLANTED), "nothing is written there"


@pytest.mark.parametrize("place", ["above", "home", "inside", "file"])
def test_what_another_user_owns(shared: Path, give_away: Callable[[Path], None], place: str) -> None:
    path = plant(shared / "home")
    folders = {"above": shared, "home": shared / "home", "inside": path.parent, "file": path}
    give_away(folders[place])
    made_again(r"belongs to user \d+, expected user \d+ or root")


def test_a_sticky_folder_of_root_is_shared(shared: Path) -> None:
    shared.chmod(0o1777)
    plant(shared / "home")
    quietly(PLANTED)


def test_the_folder_of_another_in_a_sticky_one(shared: Path, give_away: Callable[[Path], None]) -> None:
    shared.chmod(0o1777)
    plant(shared / "home")
    give_away(shared / "home")
    made_again(r"belongs to user \d+")


def as_another(user: int, body: Callable[[], str]) -> str:
    """What `body` returns as another user where this process may be one, and else as this one."""

    def child() -> str:
        if IS_ROOT:
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
        return body()

    return fork(child)


@pytest.mark.parametrize("mode", [0o777, 0o1777])
@pytest.mark.parametrize("victim", [None, VICTIM])
def test_planted_code_never_runs(shared: Path, mode: int, victim: int | None) -> None:
    """The attack of issue 31: a shared cache, in which another user has written the code of a key first."""
    home = shared / "home"
    home.mkdir()
    home.chmod(mode)

    def attack() -> str:
        os.umask(0)
        path = home / NAME[:2] / NAME[2:]
        path.parent.mkdir(mode=0o777)
        path.write_bytes(cache._digest(NAME, PLANTED) + PLANTED)  # pyright: ignore[reportPrivateUsage]
        return "planted"

    def look() -> str:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            return f"{cached(KEY, lambda: b'own')!r} {len(told)}"

    assert as_another(ATTACKER, attack) == "planted"
    assert (look() if victim is None else as_another(victim, look)) == "b'own' 1"


def limited(body: Callable[[], None]) -> str:
    """`body` in a child of 20 seconds and 2 GB more memory than it has."""

    def child() -> str:
        signal.alarm(20)
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (2 << 30),) * 2)
        body()
        return "done"

    return fork(child)


def test_a_pipe_does_not_hang(shared: Path) -> None:
    path = plant(shared / "home")
    path.unlink()
    os.mkfifo(path)
    assert limited(lambda: made_again(f"{NAME[2:]} is no regular file")) == "done"
    assert path.is_file(), "it was replaced"


@pytest.mark.parametrize("target", ["/dev/zero", "/dev/null", "elsewhere"])
def test_a_link_is_not_followed(shared: Path, target: str) -> None:
    path = plant(shared / "home")
    path.rename(shared / "elsewhere")
    path.symlink_to(shared / target)
    assert limited(lambda: made_again(f"{NAME[2:]} is no regular file")) == "done"
    assert path.is_file() and not path.is_symlink(), "it was replaced"
    assert (shared / "elsewhere").read_bytes().endswith(PLANTED)


def test_a_file_that_is_too_large(shared: Path) -> None:
    path = plant(shared / "home")
    os.truncate(path, 10 << 30)  # sparse
    assert limited(lambda: made_again(r"has 10737418240 bytes, expected at most 67108864")) == "done"
    assert path.stat().st_size < 100


def test_a_folder_under_the_name_of_a_file(shared: Path) -> None:
    path = plant(shared / "home")
    path.unlink()
    path.mkdir()
    made_again(f"{NAME[2:]} is no regular file")


@pytest.mark.parametrize("target", ["real", "../{name}/real", "{folder}/real", "second"])
def test_a_folder_behind_an_own_link(shared: Path, target: str) -> None:
    plant(shared / "real")
    (shared / "second").symlink_to("./real/.")
    (shared / "home").symlink_to(target.format(name=shared.name, folder=shared))
    quietly(PLANTED)


def test_what_a_link_leads_to_is_looked_at(shared: Path) -> None:
    plant(shared / "open" / "real")
    (shared / "open").chmod(0o777)
    (shared / "home").symlink_to("open/real")
    made_again(f"{shared}/open may be written by others")


def test_a_link_of_another_user(shared: Path, give_away: Callable[[Path], None]) -> None:
    shared.chmod(0o1777)
    plant(shared / "real")
    (shared / "home").symlink_to("real")
    give_away(shared / "home")
    made_again(r"belongs to user \d+")


def test_links_without_an_end(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AICF_CACHE_DIR")  # which must be a folder
    monkeypatch.setenv("XDG_CACHE_HOME", str(shared))
    (shared / "aicf").symlink_to("aicf")
    quietly(b"own")


def test_a_relative_folder(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (shared / "inner").mkdir()
    monkeypatch.chdir(shared / "inner")
    monkeypatch.setenv("AICF_CACHE_DIR", "../home")
    quietly(b"own")
    assert (shared / "home" / NAME[:2] / NAME[2:]).exists()
    monkeypatch.setenv("AICF_CACHE_DIR", str(shared / "home"))
    plant(shared / "home")
    quietly(PLANTED)
    shared.chmod(0o777)
    monkeypatch.setenv("AICF_CACHE_DIR", "../home")
    made_again(f"{shared} may be written by others|{shared}/inner/.. may be written by others")


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_no_descriptor_stays_open(shared: Path) -> None:
    path = plant(shared / "home")
    before = descriptors()
    for _ in range(5):
        quietly(PLANTED)
    path.chmod(0o666)
    made_again("may be written by others")
    path.parent.chmod(0o777)
    cached(KEY, lambda: b"own")
    assert descriptors() == before
