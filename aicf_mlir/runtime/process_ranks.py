"""The ranks of a process group of torch.distributed: they exchange bytes, and agree on each call that all make together."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache, partial
from hashlib import sha256
from types import TracebackType
from typing import Any, Self, cast
from weakref import WeakKeyDictionary

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from aicf_mlir import _C
from aicf_mlir.errors import BindError, RankError, StateError
from aicf_mlir.host.interrupts import held
from aicf_mlir.host.ranks import Bytes, in_groups
from aicf_mlir.runtime.gpu_ranks import GpuRanks
from aicf_mlir.runtime.neighbours import Neighbours

GROUP = "dp"
"""The name of the group whose ranks have different batches."""

WORD = 1024
"""Bytes of what a rank says when all agree."""

COMPARES = "compares"
"""The news of a rank that asks whether all have the same."""

COLLECTIVES: Any = dist
GATHER: Any = (
    vars(dist).get("all_gather_single") or COLLECTIVES.all_gather_into_tensor
)  # its name before torch 2.13

GPUS: WeakKeyDictionary[dist.ProcessGroup, tuple[int, GpuRanks]] = WeakKeyDictionary()
"""The last device of this process for each group, and its connections: to make them takes a second."""

NEIGHBOURS: WeakKeyDictionary[dist.ProcessGroup, Neighbours] = WeakKeyDictionary()
"""What is known of the other processes of a group, once a step has been compiled for it."""

STEPS: WeakKeyDictionary[dist.ProcessGroup, int] = WeakKeyDictionary()
"""How many steps have been compiled for each group: one that several threads use must not take one step for another."""


class LostRankError(RankError):
    """An exchange has failed: another rank left, or did not come in time. A call of all ranks names its step in addition."""


class ProcessRanks:
    """A process group, as this process sees it.

    What the processes tell each other is on the host: the group needs a backend for the CPU, such as gloo, by which they meet.
    Those of one host then share memory. GPUs exchange among themselves.
    """

    def __init__(self, group: dist.ProcessGroup):
        """Raises BindError for a group without this process, or that cannot exchange memory of the host."""
        self.rank, self.count = dist.get_rank(group), dist.get_world_size(group)
        self.group, self._lost, self._process = group, "", os.getpid()
        self._gpus: GpuRanks | None = None
        self.step = 0
        self.call: Together | None = None
        """The call that all ranks make now."""
        if self.rank < 0:
            raise BindError("mesh: this process is not one of the ranks of the group")
        try:
            backend: Any = group._get_backend(torch.device("cpu"))  # pyright: ignore[reportPrivateUsage]
        except RuntimeError as error:
            raise BindError(
                "mesh: the process group has no backend for the CPU;"
                ' call torch.distributed.init_process_group("gloo"), or "cpu:gloo,cuda:nccl"'
            ) from error
        options: Any = getattr(backend, "options", None)
        limit: timedelta = getattr(options, "_timeout", distributed_c10d.default_pg_timeout)
        self._seconds = limit.total_seconds()

    @property
    def lost(self) -> str:
        """Why this rank cannot go on; empty if it can."""
        if not self._lost and self._gpus is not None and self._gpus.lost:
            self._lost = self._lost_as(self._gpus.lost)
        return self._lost

    def _lost_as(self, reason: str) -> str:
        return (
            f"rank {self.rank} of {self.count} has lost another rank: it left, or it did not come in time"
            f" ({reason})"
        )

    def meet(self) -> None:
        """Get to know the other processes, and give the step that is compiled a number; all ranks call it together."""
        if self.group not in NEIGHBOURS:
            NEIGHBOURS[self.group] = Neighbours(self.rank, self.told)
        known = STEPS.get(self.group, 0)
        self.step = STEPS[self.group] = 1 + max(
            int(each["known"]) for each in self.told({"known": str(known)})
        )

    def use_gpu(self, device: torch.device) -> None:
        """Let the ranks exchange among their GPUs; all of them call it together. Raises RankError where one cannot."""
        with torch.cuda.device(device):
            number = torch.cuda.current_device()
        before = GPUS.get(self.group)
        known = "yes" if before and before[0] == number and not before[1].lost else ""
        if not all(each["known"] for each in self.told({"known": known})):
            GPUS[self.group] = number, GpuRanks(number, self.rank, self.told, NEIGHBOURS[self.group])
        self._gpus = GPUS[self.group][1]

    @contextmanager
    def in_scope(self) -> Generator[None]:
        """Exchange with these ranks inside, on the host and among GPUs."""
        if self._gpus is not None:
            self._gpus.on_current_stream()
        before = _C.use_communicators({GROUP: self._gpus.communicator} if self._gpus else {})
        try:
            with in_groups({GROUP: self}):
                yield
        finally:
            _C.use_communicators(before)

    def expect_usable(self, name: str) -> None:
        """Raise StateError in a forked child, which has the memory of the group and none of its threads."""
        if os.getpid() != self._process:
            raise StateError(
                f"{name}: a step of several ranks was created before fork(); create it in the child process"
            )

    def exchange(self, given: Bytes, into: Bytes) -> None:
        """Exchange as `host.ranks.Ranks` says. Once it has failed, the group is lost."""
        neighbours = NEIGHBOURS.get(self.group)
        if neighbours is not None and neighbours.board is not None:
            self._done(partial(neighbours.board.exchange, given, into, self._seconds))
        else:
            source, target = map(cast(Any, torch).from_numpy, (given, into))
            self._done(partial(GATHER, target, source, group=self.group))

    def shared(self, tensors: Sequence[torch.Tensor]) -> None:
        """Give each tensor the values that it has on rank 0."""
        root = dist.get_global_rank(self.group, 0)
        for tensor in tensors:
            with torch.no_grad():
                sent = tensor.detach().cpu().contiguous()
                flat = sent.reshape(-1).view(torch.uint8)
                self._done(partial(COLLECTIVES.broadcast, flat, root, group=self.group))
                if self.rank and sent.data_ptr() != tensor.data_ptr():
                    tensor.copy_(sent)

    def _done(self, collective: Callable[[], object]) -> None:
        if self.lost:
            raise LostRankError(self.lost)
        try:
            collective()
        except Exception as error:
            reason = str(error).strip().splitlines()
            self._lost = self._lost_as(reason[0] if reason else type(error).__name__)
            raise LostRankError(self._lost) from error

    def told(self, mine: Mapping[str, str]) -> list[dict[str, str]]:
        """Return what each rank tells. Texts are cut where all together are too long."""
        given = packed(*mine.items())
        into = np.empty(given.size * self.count, np.uint8)
        self.exchange(given, into)
        rows = into.reshape(self.count, given.size)
        if (rows == given).all():
            return [json.loads(bytes(given))] * self.count
        return [json.loads(bytes(row)) for row in rows]


@lru_cache(maxsize=16)
def packed(*words: tuple[str, str]) -> Bytes:
    """`WORD` bytes that say these words, cut where they are too long; not to be changed."""
    cut = dict(words)
    while len(text := json.dumps(cut).encode()) > WORD:
        longest = max(cut, key=lambda key: len(cut[key]))
        cut[longest] = cut[longest][: len(cut[longest]) * 3 // 4]
    return np.frombuffer(text.ljust(WORD), np.uint8).copy()


@dataclass
class Together:
    """One call that all ranks make: all of them go on, or all of them raise.

    Inside, nothing may change before `reached`. Whoever raises before that tells the others, who raise RankError.
    Signals wait to the end: one that came before `reached` is told as an error too.
    """

    ranks: ProcessRanks
    name: str
    what: str
    """What is done, in words: "train_step"."""
    so: str = "No rank has changed anything"
    """What follows where the ranks differ."""
    is_reached: bool = False
    news: str = ""
    """What a rank has to say beside, once all are there."""

    def __enter__(self) -> Self:
        self.ranks.expect_usable(self.name)
        with ExitStack() as stack:
            self.waiting = stack.enter_context(held())
            stack.enter_context(self.ranks.in_scope())
            self._stack = stack.pop_all()
        self.ranks.call = self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.ranks.call = None
        with self._stack:
            if error is None:
                self.reached()
            elif not self.is_reached:
                self.is_reached = True
                with suppress(RankError):  # its own error tells more
                    self._votes("", f"{type(error).__name__}: {error}")
            if isinstance(error, LostRankError):
                raise RankError(f"{self.name}: {error}. {self.so}") from error

    def compared(self, text: str) -> bool:
        """True if all ranks have this text; all of them ask at the same place before `reached`. Raises RankError where one does
        not.
        """
        votes = self._votes(text, "", COMPARES)
        if all(vote["news"] == COMPARES for vote in votes):
            return len({vote["detail"] for vote in votes}) == 1
        self.is_reached = True
        self._expect_no_error(votes)
        raise RankError(
            f"{self.name}: the ranks differ: one exchanges by itself in its step, and another does not. {self.so}"
        )

    def reached(self, detail: str = "", news: str = "") -> None:
        """Go on once every rank is here, with the same `detail`. Raises RankError where one is not."""
        if self.is_reached:
            return
        self.is_reached = True
        try:
            votes = self._votes(detail, "it was interrupted" if self.waiting else "", news)
        except LostRankError as lost:
            raise RankError(f"{self.name}: {lost}. {self.so}") from lost
        self._expect_no_error(votes)
        for key, told in (("step", "is at step"), ("what", "calls"), ("detail", "has")):
            if len({vote[key] for vote in votes}) > 1:
                each = ", ".join(f"rank {rank} {told} {vote[key]}" for rank, vote in enumerate(votes))
                raise RankError(f"{self.name}: the ranks differ: {each}. {self.so}")
        self.news = next((vote["news"] for vote in votes if vote["news"]), "")

    def _expect_no_error(self, votes: Sequence[Mapping[str, str]]) -> None:
        for rank, vote in enumerate(votes):
            if vote["error"]:
                raise RankError(f"{self.name}: rank {rank} cannot go on: {vote['error']}. {self.so}")

    def _votes(self, detail: str, error: str, news: str = "") -> list[dict[str, str]]:
        what = (
            self.what if len(self.what) < WORD // 8 else f"{self.what[: WORD // 16]}… ({digest(self.what)})"
        )
        return self.ranks.told(
            {"what": what, "detail": detail, "error": error, "news": news, "step": str(self.ranks.step)}
        )


def digest(text: str) -> str:
    """A short name of a text."""
    return sha256(text.encode()).hexdigest()[:16]


def digest_of(tensors: Sequence[torch.Tensor]) -> str:
    """A short name of the values of tensors on the host."""
    sha = sha256()
    for tensor in tensors:
        sha.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return sha.hexdigest()[:16]
