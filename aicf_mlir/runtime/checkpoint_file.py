"""The file of a checkpoint: named tensors and a description in the safetensors layout, under one SHA-256.

    u64      length of the header in bytes, little endian
    header   {"__metadata__":{"format":"aicf.checkpoint","sha256":"<64 hex digits>","version":"2","description":"<JSON>"},
              "param/0.weight":{"dtype":"F32","shape":[16,8],"data_offsets":[0,512]},…}, padded with spaces to 8 bytes
    data     the tensors, wide element types first, without gaps

The digest is that of the whole file with its own digits as zeros, and is checked before anything in the file is used:
neither safetensors nor torch.save notices a flipped bit. The digest finds damage; it is no signature. No torch, no
device, no pickle.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, cast

from aicf_mlir.errors import CheckpointError
from aicf_mlir.ir.element_types import DTYPES, byte_size
from aicf_mlir.machine.atomic_file import write_file

VERSION = "2"

SPELLINGS = {row.name: row.safetensors for row in sorted(DTYPES, key=lambda row: -row.nbytes)}
"""The element types in the spelling of safetensors, the widest first: every tensor is then aligned to its element."""

_START = b'{"__metadata__":{"format":"aicf.checkpoint","sha256":"'
_NO_DIGEST = b"0" * 64
_DIGEST = slice(8 + len(_START), 8 + len(_START) + 64)
_ALIGNMENT = 8

FilePath = str | os.PathLike[str]


@dataclass(frozen=True)
class StoredTensor:
    """The bytes of a dense tensor, row-major, little endian."""

    dtype: str
    """The dtype as an IR name such as "f32"."""
    shape: tuple[int, ...]
    data: bytes | memoryview


def write_checkpoint(
    path: FilePath, tensors: Mapping[str, StoredTensor], description: Mapping[str, Any]
) -> None:
    """Write the file: whole, synced, under its final name, or not at all. The same contents give the same bytes.

    `description` is JSON data. Raises CheckpointError, naming the file, if the system refuses.
    """
    order = list(SPELLINGS)
    rows = sorted(tensors.items(), key=lambda row: (order.index(row[1].dtype), row[0]))
    header = _header(rows, description)
    digest = hashlib.sha256(header)
    for _, tensor in rows:
        digest.update(tensor.data)
    sealed = header[: _DIGEST.start] + digest.hexdigest().encode() + header[_DIGEST.stop :]
    try:
        write_file(path, sealed, *(tensor.data for _, tensor in rows))
    except (OSError, ValueError) as error:  # the latter for a path that this system cannot name
        raise CheckpointError(
            f"{os.fspath(path)}: the checkpoint cannot be written: {_reason(error)}"
        ) from error


def _header(rows: list[tuple[str, StoredTensor]], description: Mapping[str, Any]) -> bytes:
    """Return length and header with a digest of zeros."""
    entries: dict[str, object] = {}
    end = 0
    for name, tensor in rows:
        begin, end = end, end + len(tensor.data)
        entries[name] = {
            "dtype": SPELLINGS[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
    metadata = {
        "format": "aicf.checkpoint",
        "sha256": _NO_DIGEST.decode(),
        "version": VERSION,
        "description": json.dumps(description, sort_keys=True, allow_nan=False),
    }
    text = json.dumps({"__metadata__": metadata, **entries}, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


def read_checkpoint(path: FilePath) -> tuple[dict[str, StoredTensor], dict[str, Any]]:
    """Return tensors and description of a file, all of it checked.

    Raises CheckpointError, naming the file, for one that is missing, foreign, damaged, cut short or of another version.
    """
    name = os.fspath(path)
    try:
        raw = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{name}: the checkpoint cannot be read: {_reason(error)}") from error
    if raw[8 : _DIGEST.start] != _START:
        if _START.startswith(raw[8 : _DIGEST.start]):
            _damaged(name, f"it has {len(raw)} bytes only")
        raise CheckpointError(
            f"{name} is no AICF checkpoint: expected the header of a file that step.save(path) wrote"
        )
    digest = hashlib.sha256(raw[: _DIGEST.start])
    digest.update(_NO_DIGEST)
    digest.update(memoryview(raw)[_DIGEST.stop :])
    if raw[_DIGEST] != digest.hexdigest().encode():
        _damaged(name, "header and data do not have the SHA-256 that it states")
    try:
        return _parse(name, raw)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise CheckpointError(
            f"{name} is no valid checkpoint: its header cannot be read ({error})"
        ) from error


def _reason(error: OSError | ValueError) -> str:
    return str((isinstance(error, OSError) and error.strerror) or error)


def _damaged(name: str, why: str) -> NoReturn:
    raise CheckpointError(f"{name} is damaged or incomplete: {why}; use another checkpoint")


def _parse(name: str, raw: bytes) -> tuple[dict[str, StoredTensor], dict[str, Any]]:
    """Return the contents of a file whose digest is right; a hostile one may have a right digest too."""
    length = int.from_bytes(raw[:8], "little")
    if length > len(raw) - 8:
        raise ValueError(f"a header of {length} bytes in a file of {len(raw)}")
    entries = cast(dict[str, Any], _json(raw[8 : 8 + length]))
    metadata = entries.pop("__metadata__")
    if (version := metadata["version"]) != VERSION:
        raise CheckpointError(
            f"{name} is a checkpoint of version {version!r}; this AICF reads version {VERSION}: use the AICF that wrote it"
        )
    data = memoryview(raw)[8 + length :]
    names = {stored: element for element, stored in SPELLINGS.items()}
    tensors: dict[str, StoredTensor] = {}
    end = 0
    for key, entry in sorted(entries.items(), key=lambda row: row[1]["data_offsets"]):
        begin, stop = entry["data_offsets"]
        tensor = StoredTensor(names[entry["dtype"]], tuple(entry["shape"]), data[begin:stop])
        if any(type(size) is not int or size < 0 for size in tensor.shape) or begin != end:
            raise ValueError(
                f"{key!r} has the shape {list(tensor.shape)} at byte {begin}, expected byte {end}"
            )
        if len(tensor.data) != byte_size(tensor.dtype, tensor.shape):
            raise ValueError(f"{key!r} has {len(tensor.data)} bytes, its shape {list(tensor.shape)}")
        tensors[key], end = tensor, stop
    if end != len(data):
        raise ValueError(f"{len(data)} bytes of data, the tensors have {end}")
    description = _json(metadata["description"])
    if not isinstance(description, dict):
        raise TypeError(f"a description that is {type(description).__name__}")
    return tensors, cast(dict[str, Any], description)


def _json(text: str | bytes) -> object:
    """Parse JSON in which no key occurs twice and every number is finite. Raises ValueError for other text."""
    return json.loads(text, object_pairs_hook=_once, parse_constant=_finite, parse_float=_finite)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice!r} stands there twice")
    return entries


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text} is no finite number")
    return number
