"""`aicf.lock`: the kernel of each op of a step, and the machine that it was measured on. TOML, in a stable order:

version = 1
generated = ["gen_map_0123456789ab[map chunk=2048 lanes=16]"]     generated kernels whose schedules were not measured

[machine]                                   the properties that decide the bits of the kernels; another machine refuses the lock
target = "cpu"
device = "AMD EPYC 9655, x86-64-v4"
libraries = "OpenBLAS 0.3.30 for SkylakeX"
build = "0123456789abcdef"                  the digest of the compiled part

[[op]]                                      by the texts of the uses
use = "gemm(a: f32[64, 256], b: f32[256, 8]) -> (out: f32[64, 8])"
kernel = "gemm_cpu_blas[packed]"
microseconds = 3.21                         absent if there was nothing to choose
rejected = ["gemm_cpu_blas[blocks]: 3.88 us"]

[[op]]                                      a generated kernel, by its symbol
use = "gen_colwise_0123456789ab"
kernel = "gen_colwise_0123456789ab[columns rows=32 strip=2048]"
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

from aicf_mlir.errors import LockError
from aicf_mlir.ir.diagnostics import LocatedError
from aicf_mlir.ir.reading import read_text, shown_path
from aicf_mlir.kernels.schedule_text import divided_id
from aicf_mlir.tuning.machine import machine_of

VERSION = 1
MOST_SHOWN = 12
"""Ops of a step that a message names, when the lock has no kernel for them."""


@dataclass(frozen=True)
class Choice:
    """The choice for one use."""

    use: str
    kernel: str
    microseconds: float | None = None
    rejected: tuple[str, ...] = ()
    """Each other candidate with its time, or with the reason why it could not run."""


@dataclass(frozen=True)
class Lock:
    """A lock that has been read, or measured."""

    machine: Mapping[str, str]
    rows: Mapping[str, Choice]
    """The choices by use."""
    generated: frozenset[str] = frozenset()
    name: str = field(default="aicf.lock", compare=False)
    """The name for messages."""

    @classmethod
    def read(cls, path: Any) -> Lock:
        """The lock in the file at `path`; LockError, with the file, if it is none."""
        name = shown_path(str(path))
        if not name or "\n" in name:
            got = "a text of several lines; write it to a file first" if name else "an empty one"
            raise LockError(f"a lock is given by its path, got {got}")
        try:
            contents = tomllib.loads(read_text(partial(Path.open, Path(path), "rb"), name).text)
        except (TypeError, ValueError, LocatedError, RecursionError) as error:
            raise LockError(
                f"cannot read the lock {name}: {_reason(error)}; make one with aicf-tune"
            ) from error
        return _Reader(name).lock(contents)

    @property
    def text(self) -> str:
        """The text of the file."""
        parts = [
            f"version = {VERSION}",
            f"generated = {_list(sorted(self.generated))}",
            "",
            "[machine]",
            *(f"{name} = {_string(value)}" for name, value in self.machine.items()),
        ]
        for _, row in sorted(self.rows.items()):
            parts += ["", "[[op]]", f"use = {_string(row.use)}", f"kernel = {_string(row.kernel)}"]
            if row.microseconds is not None:
                parts.append(f"microseconds = {row.microseconds:.2f}")
            if row.rejected:
                parts.append(f"rejected = {_list(row.rejected)}")
        return "\n".join(parts) + "\n"

    def kernel(self, use: str) -> str:
        """The kernel of the use with this text; "" where the lock does not name it."""
        return self.rows[use].kernel if use in self.rows else ""

    def names(self, generated: str) -> bool:
        """True if the lock has this generated kernel, as it is or as the choice for its symbol."""
        return generated in self.generated or self.kernel(divided_id(generated)[0]) == generated

    def check_target(self, target: str) -> None:
        """Raise LockError if the lock was made for another target."""
        if (own := self.machine["target"]) != target:
            raise LockError(
                f"{self.name} was made for target {own}, and this is {target}; make one with aicf-tune --target {target}"
            )

    def check_machine(self, device: str) -> None:
        """Raise LockError, with the differences, if the lock was made on another machine than this one with `device`."""
        here = machine_of(device)
        wrong = [
            line
            for name in dict.fromkeys((*self.machine, *here))
            if (own := self.machine.get(name, "nothing")) != (other := here.get(name, "nothing"))
            for line in (f"- {name} = {_string(own)}", f"+ {name} = {_string(other)}")
        ]
        if wrong:
            lines = "\n  ".join(wrong)
            raise LockError(
                f"{self.name} was made on another machine (-) than this one (+):\n  {lines}\nmake one here with aicf-tune"
            )

    def check_whole(self, uses: Iterable[str], generated: Iterable[str]) -> None:
        """Raise LockError, with the missing parts, if a step has uses or generated kernels that the lock does not name."""
        missing = [use for use in dict.fromkeys(uses) if use not in self.rows]
        missing += [kernel for kernel in dict.fromkeys(generated) if not self.names(kernel)]
        if not missing:
            return
        shown = [f"+ {use}" for use in missing[:MOST_SHOWN]]
        shown += [f"and {more} more"] if (more := len(missing) - MOST_SHOWN) > 0 else []
        lines = "\n  ".join(shown)
        raise LockError(
            f"{self.name} has no kernel for {len(missing)} {'op' if len(missing) == 1 else 'ops'} of this step:\n"
            f"  {lines}\nthe step is not the one that was locked; lock it again with aicf-tune, of the plan of each batch size"
        )


class _Reader:
    """A reader of parsed TOML, which may hold anything."""

    def __init__(self, name: str):
        self.name = name

    def lock(self, found: Mapping[str, Any]) -> Lock:
        if (version := found.get("version")) != VERSION:
            self.refuse(f"version = {VERSION}", version)
        self.known(found, ("version", "generated", "machine", "op"))
        machine = self.table(found.get("machine"), "[machine]")
        for key, value in machine.items():
            self.text(value, f"machine.{key}")
        if "target" not in machine:
            self.refuse("a target in [machine]", machine)
        rows: dict[str, Choice] = {}
        for row in map(self.row, self.tables(found.get("op", []))):
            if row.use in rows:
                self.refuse("one kernel for each use", f"two for {row.use}")
            rows[row.use] = row
        return Lock(machine, rows, frozenset(self.texts(found.get("generated", []), "generated")), self.name)

    def row(self, found: Mapping[str, Any]) -> Choice:
        self.known(found, ("use", "kernel", "microseconds", "rejected"))
        use = self.text(found.get("use"), "use")
        time = found.get("microseconds")
        if time is not None and (isinstance(time, bool) or not isinstance(time, int | float)):
            self.refuse("a number of microseconds", time)
        kernel = self.text(found.get("kernel"), f"kernel of {use}")
        return Choice(use, kernel, time, self.texts(found.get("rejected", []), "rejected"))

    def known(self, found: Mapping[str, Any], names: tuple[str, ...]) -> None:
        for name in found:
            if name not in names:
                self.refuse(f"one of {', '.join(names)}", f"the key {name!r}")

    def table(self, found: Any, what: str) -> dict[str, Any]:
        if not isinstance(found, dict):
            self.refuse(f"a table {what}", found)
        return cast("dict[str, Any]", found)

    def tables(self, found: Any) -> list[dict[str, Any]]:
        if not isinstance(found, list):
            self.refuse("tables [[op]]", found)
        return [self.table(each, "[[op]]") for each in cast("list[Any]", found)]

    def text(self, found: Any, what: str) -> str:
        if not isinstance(found, str) or not found:
            self.refuse(f"a text for {what}", found)
        return cast(str, found)

    def texts(self, found: Any, what: str) -> tuple[str, ...]:
        if not isinstance(found, list):
            self.refuse(f"a list of texts for {what}", found)
        return tuple(self.text(each, what) for each in cast("list[Any]", found))

    def refuse(self, expected: str, got: object) -> None:
        raise LockError(f"{self.name} is no lock: expected {expected}, got {got}; make one with aicf-tune")


def _reason(error: Exception) -> str:
    if isinstance(error, LocatedError):
        return error.diagnostic.message.removeprefix("cannot be read: ")
    return "brackets are nested too deeply" if isinstance(error, RecursionError) else str(error)


def _string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)  # TOML's basic strings have JSON's escapes


def _list(texts: Iterable[str]) -> str:
    return f"[{', '.join(map(_string, texts))}]"
