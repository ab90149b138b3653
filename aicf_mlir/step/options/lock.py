"""`lock`: the kernels that `aicf-tune` has measured for a step on this machine."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from aicf_mlir.errors import BindError, SelectionError
from aicf_mlir.step.options.option import Effect
from aicf_mlir.tuning.lock import Lock
from aicf_mlir.tuning.obeyed import lock_options


@dataclass(frozen=True)
class Locked(Effect):
    """The path of the lock whose kernels a step takes; empty without one."""

    path: str = ""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Make it from arguments. Raises LockError for an invalid lock, BindError for a lock with a plan."""
        if (lock := given["lock"]) is None:
            return cls()
        if given["plan"] is not None:
            raise BindError("got lock= and plan=: a plan names its kernels itself; leave one of the two out")
        Lock.read(lock)
        return cls(str(Path(lock).absolute()))

    def passes(self, device: str) -> Mapping[str, str]:
        """Return the passes. Raises LockError if the lock was measured on a machine other than this one with `device`."""
        if not self.path:
            return {}
        Lock.read(self.path).check_machine(device)
        return lock_options(self.path)

    @contextmanager
    def explained(self) -> Generator[None]:
        """Add to an error of a kernel that cannot run that the lock has named it."""
        try:
            yield
        except SelectionError as error:
            if not self.path:
                raise
            raise SelectionError(f"{error}; the kernels are those of the lock {self.path}") from error
