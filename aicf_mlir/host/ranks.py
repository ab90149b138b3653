"""The ranks of a group, of which this process or this thread is one, and how they exchange bytes.

Collectives of interpreters and of CPU kernels find their group by its name among those that are in scope here.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from threading import Barrier, BrokenBarrierError
from typing import Any, Literal, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from aicf_mlir import _C
from aicf_mlir.errors import RankError

Bytes = NDArray[np.uint8]
Kind = Literal["all_gather", "all_to_all"]
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

    def exchange(self, kind: Kind, given: Bytes, into: Bytes) -> None:
        """Fill `into`, one-dimensional as `given`, when every rank has come here.

        `all_gather`: `given` of every rank, in their order. `all_to_all`: `given` has a part for each rank, and `into` what each
        has for this one. Raises RankError where a rank will not come, or came with something else.
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


def exchanged(kind: Kind, group: str, count: int, given: NDArray[Any], shape: Sequence[int]) -> NDArray[Any]:
    """Return what a collective makes of an array, in the type of the array."""
    result = np.empty(shape, given.dtype)
    if count == 1:
        result[...] = given.reshape(shape)
        return result
    sent = np.ascontiguousarray(given).reshape(-1).view(np.uint8)
    group_named(group, count).exchange(kind, sent, result.reshape(-1).view(np.uint8))
    return result


def _at(address: int, size: int) -> Bytes:
    memory: Any = (ctypes.c_uint8 * size).from_address(address or id(GROUPS))  # of no bytes nothing is read
    return np.frombuffer(memory, np.uint8)


def _exchange_memory(kind: Kind, group: str, given: int, into: int, part: int, count: int) -> str | None:
    """Do a collective of a CPU kernel; return the reason where it fails."""
    try:
        size = part if kind == "all_gather" else part * count
        group_named(group, count).exchange(kind, _at(given, size), _at(into, part * count))
    except Exception as error:  # noqa: BLE001  (it goes through C++, as text)
        return str(error)
    return None


_C.use_exchange(_exchange_memory)


class _Meeting:
    """What threads that are ranks share."""

    def __init__(self, count: int):
        self.barrier = Barrier(count)
        self.given: list[tuple[Kind, Bytes] | None] = [None] * count


class RankInThread:
    """A rank that is a thread of this process."""

    def __init__(self, rank: int, meeting: _Meeting):
        self.rank, self._meeting = rank, meeting
        self.count = len(meeting.given)

    def exchange(self, kind: Kind, given: Bytes, into: Bytes) -> None:
        """Exchange as the protocol says."""
        meeting = self._meeting
        meeting.given[self.rank] = (kind, given)
        try:
            meeting.barrier.wait()
            rows = [cast("tuple[Kind, Bytes]", each) for each in meeting.given]
            for number, (other, theirs) in enumerate(rows):
                if (other, theirs.size) != (kind, given.size):
                    raise RankError(
                        f"rank {self.rank} is at {kind} of {given.size} bytes, rank {number} at {other} of {theirs.size}"
                    )
            parts = [
                theirs if kind == "all_gather" else np.split(theirs, self.count)[self.rank]
                for _, theirs in rows
            ]
            into[:] = np.concatenate(parts)
            meeting.barrier.wait()
        except BrokenBarrierError:
            raise RankError(f"rank {self.rank} waits at {kind}, and another rank has failed") from None


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
