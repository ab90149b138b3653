"""Files that nobody but this user and root can have written, for files that are loaded as code. The rules are those of ssh.

A file is trusted if it is a regular file, owned by this user or by root, that neither group nor others may write. The same holds
for each folder on the way to it, from the root of the file system. A folder that others may write is trusted only if it is
sticky, as /tmp: there nobody can replace another owner's files. A symbolic link to a folder is followed if this user or root made
it. All checks go through open descriptors, so nothing can be exchanged between the check and the use.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path

MOST_LINKS = 40
"""The most links that are followed on one way, as the kernel does."""

_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class UntrustedError(Exception):
    """Somebody else may have written a file; the message has the path, the reason, and the remedy."""

    def __init__(self, path: str, reason: str, remedy: str):
        super().__init__(f"{path} {reason}; {remedy}")


def read_trusted(path: Path, most_bytes: int) -> bytes:
    """The contents of a trusted file. UntrustedError for another one, or of more bytes; OSError if it cannot be read."""
    folder = open_trusted_folder(path.parent)
    try:
        handle = os.open(path.name, _FILE, dir_fd=folder)
    except OSError as error:
        if error.errno in (
            errno.ELOOP,
            errno.ENXIO,
            errno.ENODEV,
        ):  # a link; a socket or a device without a driver
            raise UntrustedError(str(path), "is no regular file", "remove it") from None
        raise
    finally:
        os.close(folder)
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise UntrustedError(str(path), "is no regular file", "remove it")
        _expect_ours(str(path), status)
        if status.st_size > most_bytes:
            reason = f"has {status.st_size} bytes, expected at most {most_bytes}"
            raise UntrustedError(str(path), reason, "remove it")
        with os.fdopen(handle, "rb", closefd=False) as file:
            return file.read(most_bytes)
    finally:
        os.close(handle)


def open_trusted_folder(path: Path, make: bool = False) -> int:
    """A descriptor of a trusted folder (`O_PATH`), for the caller to close; with `make`, missing folders are made, of mode 0700.

    UntrustedError names the first folder on the way that is not trusted; OSError if one is missing, or cannot be made.
    """
    names = list(reversed((Path.cwd() / path).parts[1:]))
    at, links = "/", 0
    folder = os.open("/", _FOLDER)
    try:
        _expect_ours(at, os.fstat(folder))
        while names:
            name = names.pop()
            inside = os.path.join(at, name)  # noqa: PTH118  # ".." stays: the folder above may be reached through a link
            try:
                below = _open_folder(name, folder, make)
            except NotADirectoryError:
                target = _link_target(inside, name, folder)
                if (links := links + 1) > MOST_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), inside) from None
                parts = Path(target).parts
                if target.startswith("/"):
                    parts, at, root = parts[1:], "/", os.open("/", _FOLDER)
                    os.close(folder)
                    folder = root
                names += reversed(parts)
                continue
            os.close(folder)
            folder, at = below, inside
            _expect_ours(at, os.fstat(folder))
    except BaseException:
        os.close(folder)
        raise
    return folder


def _open_folder(name: str, above: int, make: bool) -> int:
    try:
        return os.open(name, _FOLDER, dir_fd=above)
    except FileNotFoundError:
        if not make:
            raise
    with suppress(FileExistsError):  # another process has just made it
        os.mkdir(name, 0o700, dir_fd=above)
    return os.open(name, _FOLDER, dir_fd=above)


def _link_target(path: str, name: str, above: int) -> str:
    """The target of a trusted symbolic link. NotADirectoryError if it is no link."""
    link = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
    try:
        status = os.fstat(link)
        if not stat.S_ISLNK(status.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        _expect_owner(path, status)
        return os.readlink("", dir_fd=link)  # of the descriptor
    finally:
        os.close(link)


def _expect_ours(path: str, status: os.stat_result) -> None:
    """Raise UntrustedError for a file or folder that another user owns or may write."""
    _expect_owner(path, status)
    mode = stat.S_IMODE(status.st_mode)
    is_sticky_folder = stat.S_ISDIR(status.st_mode) and mode & stat.S_ISVTX
    if mode & (stat.S_IWGRP | stat.S_IWOTH) and not is_sticky_folder:
        raise UntrustedError(path, f"may be written by others (mode {mode:04o})", f"chmod go-w {path}")


def _expect_owner(path: str, status: os.stat_result) -> None:
    if status.st_uid not in (0, os.geteuid()):
        reason = f"belongs to user {status.st_uid}, expected user {os.geteuid()} or root"
        raise UntrustedError(path, reason, "remove it")
