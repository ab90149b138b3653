"""Files that appear whole or not at all, also when the process is killed or the machine loses power.

A temporary file in the same folder is written, synced and renamed, then the folder is synced. A process that is killed leaves its
temporary file; the next write of the same file removes it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex

Data = bytes | bytearray | memoryview

NAME_CHARACTERS = 40
"""The characters of a file's name that the name of its temporary repeats: together they stay below 255 bytes."""


def write_file(path: str | os.PathLike[str], *data: Data) -> None:
    """Write `data`, one part after the other, to `path` durably; the old file stays until all of it is on the disk.

    A file that exists keeps its mode and, if this process may give it away, its owner; a new one has the mode that the umask
    leaves. A symbolic link stays and its target is replaced. Pipes and devices are written to. Raises OSError that names `path`.
    """
    try:
        target = Path(path).resolve()
        if target.exists() and not target.is_file():  # a pipe or a device cannot be replaced
            target.write_bytes(b"".join(data))
        else:
            _replace(target, *data)
    except OSError as error:
        raise OSError(error.errno, error.strerror, os.fspath(path)) from None


def write_private_file(path: str | os.PathLike[str], *data: Data) -> None:
    """Write as `write_file`, but always a new file, of mode 0600: it replaces any entry with the name, a link or a pipe too.

    Raises OSError.
    """
    _replace(Path(path), *data, private=True)


def expect_writable(path: str | os.PathLike[str]) -> None:
    """Raise the OSError that `write_file` would raise now, for callers that want to fail before they start long work."""
    try:
        target = Path(path).resolve()
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not target.exists() or target.is_file():
            with _temporary(target) as (temporary, _):
                temporary.unlink()
    except OSError as error:
        raise OSError(error.errno, error.strerror, os.fspath(path)) from None


def _replace(target: Path, *data: Data, private: bool = False) -> None:
    _remove_abandoned(target)
    with _temporary(target, 0o600 if private else 0o666) as (temporary, handle):
        if not private:
            _copy_permissions(target, handle)
        with os.fdopen(handle, "wb", closefd=False) as file:
            file.writelines(data)
        os.fsync(handle)
        temporary.replace(target)
    _sync_folder(target.parent)


@contextmanager
def _temporary(target: Path, mode: int = 0o666) -> Generator[tuple[Path, int]]:
    """A new locked file in the folder of `target`: its lock shows that its writer lives. It is removed after an error."""
    while True:
        temporary = target.parent / f"{_prefix(target)}{token_hex(8)}.tmp"
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            _lock(handle)
            if os.fstat(handle).st_nlink:  # else another process found it before it was locked
                yield temporary, handle
                return
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        finally:
            os.close(handle)


def _prefix(target: Path) -> str:
    return f".{target.name[:NAME_CHARACTERS]}."


def _lock(handle: int, flags: int = 0) -> bool:
    """True if the lock was taken; some network file systems have none."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | flags)
    except OSError:
        return False
    return True


def _remove_abandoned(target: Path) -> None:
    """Remove the temporary files of writers that were killed: no process holds their lock."""
    prefix = _prefix(target)
    for path in target.parent.iterdir():
        if path.name.startswith(prefix) and path.name.endswith(".tmp"):
            with suppress(OSError):  # it is gone already, or is another user's
                handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
                try:
                    if _lock(handle, fcntl.LOCK_NB):
                        path.unlink()
                finally:
                    os.close(handle)


def _copy_permissions(target: Path, handle: int) -> None:
    """Give the open file the owner and the mode of `target`, if it exists."""
    try:
        status = target.stat()
    except FileNotFoundError:
        return
    own = os.fstat(handle)
    if (own.st_uid, own.st_gid) != (status.st_uid, status.st_gid):
        for owner in (
            status.st_uid,
            -1,
        ):  # giving a file away needs a privilege, giving it to a group of ours none
            with suppress(PermissionError):
                os.fchown(handle, owner, status.st_gid)
                break
    os.fchmod(handle, stat.S_IMODE(status.st_mode))


def _sync_folder(folder: Path) -> None:
    """Make the rename durable; file systems that sync no folders return EINVAL."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(handle)
