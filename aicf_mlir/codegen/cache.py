"""Compiled code on disk, indexed by a digest of its sources.

A file is a SHA-256 and the code. The digest covers the key, too: a file that was cut off, changed or renamed is made again, since
damaged code would end the process or compute nonsense. Files appear whole or not at all, so that any number of processes share a
folder. If nothing can be written, nothing is kept, without a message.

The digest has no secret, so it gives no information about the writer of a file. Only files that nobody but this user and root can
have written are read (`trusted_file.py`); instead of any other the code is made again, with one warning.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from aicf_mlir.machine import environment
from aicf_mlir.machine.atomic_file import write_private_file
from aicf_mlir.machine.trusted_file import UntrustedError, open_trusted_folder, read_trusted

DIGEST_BYTES = 32
MOST_BYTES = 64 << 20
"""The most bytes of a file. The code of a kernel has some kilobytes."""

_warned: set[Path] = set()
"""The folders for which this process has warned that they contain untrusted files."""


def folder() -> Path | None:
    """The folder that code is kept in: `AICF_CACHE_DIR`, else `aicf` in the user's cache; None with `AICF_CACHE=0`.

    SettingError for another value of the one, or where the other is no folder.
    """
    if not environment.is_on(environment.CACHE):
        return None
    if (chosen := environment.cache_folder()) is not None:
        return chosen
    if (home := os.environ.get("XDG_CACHE_HOME")) and Path(home).is_absolute():
        return Path(home) / "aicf"
    try:
        return Path.home() / ".cache" / "aicf"
    except RuntimeError:  # a user without a home
        return None


def cached(key: Sequence[str], make: Callable[[], bytes]) -> bytes:
    """The result of `make` for `key`, read from the disk if it is there undamaged. Errors are those of `make`.

    The key covers everything that the code depends on: the text it is made from, the generator, the toolchain.
    """
    name = key_digest(key)
    home = folder()
    if home is None:
        return make()
    path = home / name[:2] / name[2:]
    try:
        if (found := _read(path, name)) is not None:
            return found
    except UntrustedError as error:
        _warn(home, error)
    code = make()
    with suppress(OSError, UntrustedError):  # reading has reported the latter
        os.close(open_trusted_folder(path.parent, make=True))
        write_private_file(path, _digest(name, code), code)
    return code


def key_digest(key: Sequence[str]) -> str:
    """A name for a key: other parts, or the same parts cut elsewhere, give another."""
    joined = hashlib.sha256()
    for part in key:
        raw = part.encode()
        joined.update(len(raw).to_bytes(8, "little"))
        joined.update(raw)
    return joined.hexdigest()


def _digest(name: str, code: bytes) -> bytes:
    return hashlib.sha256(name.encode() + code).digest()


def _read(path: Path, name: str) -> bytes | None:
    try:
        data = read_trusted(path, MOST_BYTES)
    except OSError:
        return None
    code = data[DIGEST_BYTES:]
    return code if data[:DIGEST_BYTES] == _digest(name, code) else None


def _warn(home: Path, error: UntrustedError) -> None:
    if home not in _warned:
        _warned.add(home)
        warnings.warn(
            f"compiled code in {home} is not used where somebody else may have written it, and made again: {error}, "
            "or set AICF_CACHE_DIR to a folder of your own, or AICF_CACHE=0",
            stacklevel=2,
        )
