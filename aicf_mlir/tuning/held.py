"""A lock in a list of passes: what select-kernels takes, later passes take too, and what comes out in the end is held against it.

Passes behind select-kernels change launches (`obeyed.py`). So a lock, which is made of a finished plan, is no measure of what
select-kernels sees where the passes go on: who runs them hands them through here, and asks for the check behind the last.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from aicf_mlir.tuning.lock import Lock
from aicf_mlir.tuning.obeyed import check_module

FIRST = "select-kernels"
LATER = ("keep-copies",)
"""Passes that choose kernels of the registry for launches that they change."""


@dataclass
class Held:
    """The locks that the passes of one run take, in their order."""

    paths: list[str] = field(default_factory=list[str])

    def hand_on(self, passes: Sequence[ModulePass]) -> tuple[ModulePass, ...]:
        """The next passes of the run, with the lock of select-kernels, which leaves it to `check` to say what it lacks."""
        return tuple(self._handed(passes))

    def _handed(self, passes: Sequence[ModulePass]) -> Iterator[ModulePass]:
        for current in passes:
            if current.name != FIRST and current.name not in LATER:
                yield current
                continue
            taking = cast(Any, current)
            if taking.lock:
                self.paths.append(taking.lock)
            if current.name == FIRST:
                yield replace(taking, whole=taking.whole and not taking.lock)
            else:
                yield replace(taking, lock=self.paths[-1] if self.paths else "")

    def check(self, module: ModuleOp) -> None:
        """Of what the last pass has left: errors are those of `obeyed.check_module`."""
        for path in dict.fromkeys(self.paths):
            check_module(module, Lock.read(path))
