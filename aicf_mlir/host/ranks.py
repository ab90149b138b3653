"""The ranks of a group, of which this process or this thread is one, and how they exchange bytes.

Collectives of interpreters and of CPU kernels find their group by its name among those that are in scope here.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from threading import Barrier, BrokenBarrierError
from typing import Any, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from aicf_mlir import _C
from aicf_mlir.errors import RankError

Bytes = NDArray[np.uint8]
T = TypeVar("T")


class Ranks(Protocol):
    """A group, as one of its ranks sees it."""

    @property
    def rank(self) -> int:
        """The number of this rank, from 0."""
        ...

    @property
    def count(self) -> int:
        """The number of ranks."""
        ...

    def exchange(self, given: Bytes, into: Bytes) -> None:
        """Fill `into` with `given` of every rank, in their order, when every rank has come here; both are one-dimensional.

        Raises RankError where a rank will not come, or came with something else.
        """
        ...


GROUPS: ContextVar[Mapping[str, Ranks]] = ContextVar("aicf_groups", default={})  # noqa: B039  (never written to)
"""The groups in scope, by name."""


def group_named(name: str, count: int) -> Ranks:
    """Return the group in scope. Raises RankError if there is none of that name with so many ranks."""
    found = GROUPS.get().get(name)
    if found is None:
        raise RankError(
            f"the step exchanges with {count} ranks of the group {name!r}, and no such group is here"
        )
    if found.count != count:
        raise RankError(f"the group {name!r} has {found.count} ranks, the step was made for {count}")
    return found


@contextmanager
def in_groups(groups: Mapping[str, Ranks]) -> Generator[None]:
    """Run the block with these groups in scope."""
    token = GROUPS.set(groups)
    try:
        yield
    finally:
        GROUPS.reset(token)


def gathered(group: str, count: int, given: NDArray[Any]) -> NDArray[Any]:
    """Return an array of every rank, in their order: a first dimension more."""
    result = np.empty((count, *given.shape), given.dtype)
    if count == 1:
        result[0] = given
        return result
    sent = np.ascontiguousarray(given).reshape(-1).view(np.uint8)
    group_named(group, count).exchange(sent, result.reshape(-1).view(np.uint8))
    return result


def exchanged(group: str, count: int, given: NDArray[Any]) -> NDArray[Any]:
    """Return the row for this rank of what every rank gives, in their order; each gives a row for every rank."""
    mine = 0 if count == 1 else group_named(group, count).rank
    return gathered(group, count, given)[:, mine]


def _at(address: int, size: int) -> Bytes:
    memory: Any = (ctypes.c_uint8 * size).from_address(address or id(GROUPS))  # of no bytes nothing is read
    return np.frombuffer(memory, np.uint8)


def _exchange_memory(group: str, given: int, into: int, part: int, count: int, apart: bool) -> str | None:
    """Do a collective of a CPU kernel; return the reason where it fails."""
    try:
        if apart:
            _at(into, part * count)[:] = exchanged(
                group, count, _at(given, part * count).reshape(count, part)
            ).reshape(-1)
        else:
            group_named(group, count).exchange(_at(given, part), _at(into, part * count))
    except Exception as error:  # noqa: BLE001  (it goes through C++, as text)
        return str(error)
    return None


_C.use_exchange(_exchange_memory)


class _Meeting:
    """What threads that are ranks share."""

    def __init__(self, count: int):
        self.barrier = Barrier(count)
        self.given: list[Bytes | None] = [None] * count


class RankInThread:
    """A rank that is a thread of this process."""

    def __init__(self, rank: int, meeting: _Meeting):
        self.rank, self._meeting = rank, meeting
        self.count = len(meeting.given)

    def exchange(self, given: Bytes, into: Bytes) -> None:
        """Exchange as the protocol says."""
        meeting = self._meeting
        meeting.given[self.rank] = given
        try:
            meeting.barrier.wait()
            rows = [cast(Bytes, each) for each in meeting.given]
            for number, theirs in enumerate(rows):
                if theirs.size != given.size:
                    raise RankError(
                        f"rank {self.rank} gives {given.size} bytes, rank {number} gives {theirs.size}"
                    )
            into[:] = np.concatenate(rows)
            meeting.barrier.wait()
        except BrokenBarrierError:
            raise RankError(f"rank {self.rank} waits, and another rank has failed") from None


def run_ranks(count: int, work: Callable[[int], T], group: str = "dp") -> list[T]:
    """Return what `work(rank)` gives for each rank of a group, each run in a thread of its own.

    Raises the error of the rank that failed first.
    """
    meeting, failed = _Meeting(count), list[BaseException]()

    def run(rank: int) -> T:
        with in_groups({**GROUPS.get(), group: RankInThread(rank, meeting)}):
            try:
                return work(rank)
            except BaseException as error:
                failed.append(error)
                meeting.barrier.abort()
                raise

    with ThreadPoolExecutor(count) as pool:
        futures = [pool.submit(copy_context().run, run, rank) for rank in range(count)]
    if failed:
        raise failed[0]
    return [future.result() for future in futures]
