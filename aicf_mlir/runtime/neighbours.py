"""The processes of a group that run on one host: how they see each other end, and exchange bytes through shared memory."""

from __future__ import annotations

import json
import os
import socket
import tempfile
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from aicf_mlir import _C
from aicf_mlir.errors import AicfError, RankError

SHARED = Path("/dev/shm")
"""Where files are memory."""

NONE = -1

Told = Callable[[Mapping[str, str]], list[dict[str, str]]]
"""What each rank tells, given what this one does."""


class Neighbours:
    """What this process knows of the other ranks on its host."""

    def __init__(self, rank: int, told: Told):
        """Meet; all ranks call it together. Raises RankError on all where one cannot."""
        own = host()
        places = agreed(told, "place", lambda: json.dumps([os.getpid(), own]))
        processes, hosts = zip(*map(json.loads, places), strict=True)
        self.processes = [
            watched(process) if where == own and process != os.getpid() else NONE
            for process, where in zip(processes, hosts, strict=True)
        ]
        """By rank, a descriptor that is readable once the process has ended; `NONE` for this one, and where there is none."""
        self.is_one_host = self.processes.count(NONE) == 1
        self.board: _C.Board | None = None
        if all(agreed(told, "here", lambda: "yes" if self.is_one_host else "")):
            self.board = self._opened(rank, told)

    def _opened(self, rank: int, told: Told) -> _C.Board | None:
        """The memory that all share; None where one cannot: then they exchange through the process group."""
        boards: list[_C.Board] = []
        with new_file(_C.Board.bytes(len(self.processes)) if rank == 0 else 0) as made:
            path = agreed(told, "path", lambda: made)[0]

            def opened() -> str:
                with suppress(AicfError):
                    boards.append(_C.Board(path, rank, self.processes))
                return "yes" if boards else ""

            return boards[0] if all(agreed(told, "opened", opened)) else None


def watched(process: int) -> int:
    """A descriptor of a process of this host; `NONE` where the system has no such thing."""
    try:
        return os.pidfd_open(process)
    except OSError:
        return NONE


@contextmanager
def new_file(size: int) -> Generator[str]:
    """A file of zeros in memory, which is removed afterwards; its path is empty for no bytes, and where there is no room."""
    path = ""
    try:
        if size and SHARED.is_dir():
            with suppress(OSError):
                descriptor, path = tempfile.mkstemp(prefix="aicf-", dir=SHARED)
                try:
                    os.posix_fallocate(descriptor, 0, size)
                finally:
                    os.close(descriptor)
        yield path
    finally:
        if path:
            Path(path).unlink()


def agreed(told: Told, key: str, make: Callable[[], str]) -> list[str]:
    """Return what each rank has made. Raises RankError on all where one could not."""
    mine = {key: "", "error": ""}
    try:
        mine[key] = make()
    except Exception as error:  # noqa: BLE001  (told to all)
        mine["error"] = f"{error}" or type(error).__name__
    every = told(mine)
    for rank, each in enumerate(every):
        if each["error"]:
            raise RankError(f"mesh: rank {rank} cannot exchange with the others: {each['error']}")
    return [each[key] for each in every]


def host() -> str:
    """A name of this host, and of the processes that one can see on it."""
    started = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{socket.gethostname()} {started} {Path('/proc/self/ns/pid').readlink()}"
