"""Compiled code on disk, found again by what it was made from.

A file is a SHA-256 and the code. The digest covers the key, too: a file that was cut off, changed or renamed is made
again, since damaged code would end the process or compute nonsense. Files appear whole or not at all, so that any
number of processes share a folder. Where nothing can be written, nothing is kept, without a word.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from aicf_mlir import environment
from aicf_mlir.atomic_file import write_file

DIGEST_BYTES = 32


def folder() -> Path | None:
    """Where code is kept: `AICF_CACHE_DIR`, else `aicf` in the user's cache; None with `AICF_CACHE=0`.

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
    """What `make` gives for `key`, from the disk where it is there undamaged. Errors are those of `make`.

    The key says all that the code depends on: the text it is made from, the generator, the toolchain.
    """
    name = key_digest(key)
    home = folder()
    if home is None:
        return make()
    path = home / name[:2] / name[2:]
    if (found := _read(path, name)) is not None:
        return found
    code = make()
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_file(path, _digest(name, code), code)
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
        data = path.read_bytes()
    except OSError:
        return None
    code = data[DIGEST_BYTES:]
    return code if data[:DIGEST_BYTES] == _digest(name, code) else None
