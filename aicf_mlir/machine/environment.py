"""The variables of the environment that AICF knows, and their types.

A variable that is set must have a value of its kind, even if it has no effect on this machine. Anything else, the empty text too,
is refused: a misspelt switch must not look as if it were off. All are checked when the package is imported. Those of Python are
read again at each use; the runtime reads AICF_CUBLASLT, AICF_CUDNN, AICF_NCCL and AICF_PDL itself, as 0 or not.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from aicf_mlir.errors import SettingError

THREADS = "AICF_NUM_THREADS"
CPU_LEVEL = "AICF_CPU_LEVEL"
CACHE = "AICF_CACHE"
CACHE_FOLDER = "AICF_CACHE_DIR"
BRANCHES = "AICF_BRANCHES"
CUBLASLT = "AICF_CUBLASLT"
CUDNN = "AICF_CUDNN"
NCCL = "AICF_NCCL"
PROGRAMMATIC_EDGES = "AICF_PDL"
SWITCHES = (CACHE, BRANCHES, CUBLASLT, CUDNN, NCCL, PROGRAMMATIC_EDGES)
MOST_THREADS = 256


@dataclass(frozen=True)
class Variable:
    """What a variable may be, what holds where it is not set, and what it does: a row of docs/environment.md."""

    values: str
    default: str
    effect: str


VARIABLES: Mapping[str, Variable] = {
    THREADS: Variable(
        f"1 to {MOST_THREADS}",
        "the usable processors",
        "Threads of CPU kernels. No result depends on it",
    ),
    CPU_LEVEL: Variable(
        "`x86-64`, `x86-64-v3`, … of this build",
        "the newest that the processor runs",
        "Which compiled level of the CPU kernels to load",
    ),
    CACHE: Variable("0 or 1", "1", "0 keeps no compiled kernels on disk"),
    CACHE_FOLDER: Variable("a folder", "`~/.cache/aicf`", "Where compiled kernels are kept"),
    CUBLASLT: Variable("0 or 1", "1", "0 disables products by cuBLASLt on a GPU"),
    CUDNN: Variable("0 or 1", "1", "0 disables convolutions and attention by cuDNN on a GPU"),
    NCCL: Variable("0 or 1", "1", "0 disables exchanges among GPUs by NCCL"),
    BRANCHES: Variable(
        "0 or 1", "1", "0 disables parallel branches in the captured graph (multi-stream capture)"
    ),
    PROGRAMMATIC_EDGES: Variable("0 or 1", "1", "0 disables programmatic dependent launch"),
}
"""Every variable, in the order in which `aicf info` and docs/environment.md have them."""


def described(name: str) -> str:
    """The value of a variable of `VARIABLES`, or its default, and what it does: a line of `aicf info`."""
    row, value = VARIABLES[name], os.environ.get(name)
    said = f"not set: {row.default}" if value is None else value
    return f"{said} ({row.values}). {row.effect}".replace("`", "")


def threads() -> int | None:
    """The threads of CPU kernels; None if they are not set. SettingError, as from all below, for another value."""
    if (value := os.environ.get(THREADS)) is None:
        return None
    digits = value.lstrip("0")
    is_number = value.isascii() and value.isdecimal() and len(digits) <= len(str(MOST_THREADS))
    if not is_number or not 1 <= int(digits or "0") <= MOST_THREADS:
        refuse(THREADS, f"a number of threads from 1 to {MOST_THREADS}", value)
    return int(digits)


def cpu_level(built: Collection[str]) -> str | None:
    """The CPU kernels of this build that are requested; None if there is no request."""
    value = os.environ.get(CPU_LEVEL)
    if value is not None and value not in built:
        refuse(CPU_LEVEL, f"one of {', '.join(built)} in this build", value)
    return value


def is_on(switch: str) -> bool:
    """True if one of `SWITCHES` is on, which is the default."""
    value = os.environ.get(switch)
    if value not in (None, "0", "1"):
        refuse(switch, "0 or 1", value)
    return value != "0"


def cache_folder() -> Path | None:
    """The folder for compiled code, which need not exist yet or may be read only; None if it is not set."""
    if (value := os.environ.get(CACHE_FOLDER)) is None:
        return None
    path = Path(value)
    there = next((each for each in (path, *path.parents) if os.path.lexists(each)), None)
    if not value or (there is not None and not os.path.isdir(there)):  # noqa: PTH112  # Path.is_dir raises for a name too long
        refuse(CACHE_FOLDER, "a folder", value)
    return path


def check() -> None:
    """Raise SettingError for the first variable with an invalid value; AICF_CPU_LEVEL depends on the build, see `cpu_level`."""
    threads()
    cache_folder()
    for switch in SWITCHES:
        is_on(switch)


def refuse(name: str, expected: str, got: str) -> NoReturn:
    """Raise the error with the possible values of a variable."""
    raise SettingError(f"{name}: expected {expected}, got {got!r}")
