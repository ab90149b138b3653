"""The lock that a step is compiled with."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aicf_mlir.errors import BindError, SelectionError
from aicf_mlir.tuning.held import FIRST
from aicf_mlir.tuning.lock import Lock


def lock_options(path: str) -> Mapping[str, str]:
    """The options of passes that take the lock at `path`."""
    escaped = path.replace("\\", "\\\\").replace('"', '\\"')
    return {FIRST: f'lock="{escaped}"'}


@dataclass(frozen=True)
class Locked:
    """The file whose kernels a step takes, or none."""

    path: str = ""

    @classmethod
    def of(cls, lock: Any, plan: Any = None) -> Locked:
        """Of the option `lock=` beside `plan=`. LockError for what is no lock, BindError for both at once."""
        if lock is None:
            return cls()
        if plan is not None:
            raise BindError("got lock= and plan=: a plan names its kernels itself; leave one of the two out")
        Lock.read(lock)
        return cls(str(Path(lock).absolute()))

    def passes(self, device: str) -> Mapping[str, str]:
        """The options of passes for a step on `device` of this machine. LockError where another one was measured."""
        if not self.path:
            return {}
        Lock.read(self.path).check_machine(device)
        return lock_options(self.path)

    @contextmanager
    def told(self) -> Generator[None]:
        """Say in an error of a kernel that cannot run that the lock has named it."""
        try:
            yield
        except SelectionError as error:
            if not self.path:
                raise
            raise SelectionError(f"{error}; the kernels are those of the lock {self.path}") from error
