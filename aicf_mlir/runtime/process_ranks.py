"""The ranks of a process group of torch.distributed: they exchange bytes, and agree on each call that all make together."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from types import TracebackType
from typing import Any, Self, cast

import numpy as np
import torch
import torch.distributed as dist

from aicf_mlir.errors import BindError, RankError, StateError
from aicf_mlir.host.interrupts import held
from aicf_mlir.host.ranks import Bytes, in_groups

GROUP = "dp"
"""The name of the group whose ranks have different batches."""

WORD = 1024
"""Bytes of what a rank says when all agree."""

COLLECTIVES: Any = dist
GATHER: Any = (
    vars(dist).get("all_gather_single") or COLLECTIVES.all_gather_into_tensor
)  # its name before torch 2.13


class ProcessRanks:
    """A process group, as this process sees it.

    Its bytes are on the host: the group needs a backend for the CPU, such as gloo.
    """

    def __init__(self, group: dist.ProcessGroup):
        """Raises BindError for a group without this process, or that cannot exchange memory of the host."""
        self.rank, self.count = dist.get_rank(group), dist.get_world_size(group)
        self.group, self.lost, self._process = group, "", os.getpid()
        if self.rank < 0:
            raise BindError("mesh: this process is not one of the ranks of the group")
        try:
            group._get_backend(torch.device("cpu"))  # pyright: ignore[reportPrivateUsage]
        except RuntimeError as error:
            raise BindError(
                "mesh: the process group has no backend for the CPU;"
                ' call torch.distributed.init_process_group("gloo"), or "cpu:gloo,cuda:nccl"'
            ) from error

    def expect_usable(self, name: str) -> None:
        """Raise StateError in a forked child, which has the memory of the group and none of its threads."""
        if os.getpid() != self._process:
            raise StateError(
                f"{name}: a step of several ranks was created before fork(); create it in the child process"
            )

    def exchange(self, given: Bytes, into: Bytes) -> None:
        """Exchange as `host.ranks.Ranks` says. Once it has failed, the group is lost."""
        source, target = map(cast(Any, torch).from_numpy, (given, into))
        self._done(partial(GATHER, target, source, group=self.group))

    def shared(self, tensors: Sequence[torch.Tensor]) -> None:
        """Give each tensor the values that it has on rank 0."""
        root = dist.get_global_rank(self.group, 0)
        for tensor in tensors:
            with torch.no_grad():
                sent = tensor.detach().contiguous()
                flat = sent.reshape(-1).view(torch.uint8)
                self._done(partial(COLLECTIVES.broadcast, flat, root, group=self.group))
                if self.rank and sent.data_ptr() != tensor.data_ptr():
                    tensor.copy_(sent)

    def _done(self, collective: Callable[[], object]) -> None:
        if self.lost:
            raise RankError(self.lost)
        try:
            collective()
        except Exception as error:
            reason = str(error).strip().splitlines()
            self.lost = (
                f"rank {self.rank} of {self.count} has lost another rank: it left, or it did not come in time"
                f" ({reason[0] if reason else type(error).__name__})"
            )
            raise RankError(self.lost) from error

    def told(self, mine: Mapping[str, str]) -> list[dict[str, str]]:
        """Return what each rank tells. Texts are cut where all together are too long."""
        words = dict(mine)
        while len(text := json.dumps(words).encode()) > WORD:
            longest = max(words, key=lambda key: len(words[key]))
            words[longest] = words[longest][: len(words[longest]) * 3 // 4]
        given = np.frombuffer(text.ljust(WORD), np.uint8).copy()
        into = np.empty(WORD * self.count, np.uint8)
        self.exchange(given, into)
        return [json.loads(bytes(row)) for row in into.reshape(self.count, WORD)]


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

    def __enter__(self) -> Self:
        self.ranks.expect_usable(self.name)
        with ExitStack() as stack:
            self.waiting = stack.enter_context(held())
            stack.enter_context(in_groups({GROUP: self.ranks}))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._stack:
            if error is None:
                self.reached()
            elif not self.is_reached:
                self.is_reached = True
                with suppress(RankError):  # its own error tells more
                    self._votes("", f"{type(error).__name__}: {error}")

    def reached(self, detail: str = "") -> None:
        """Go on once every rank is here, with the same `detail`. Raises RankError where one is not."""
        if self.is_reached:
            return
        self.is_reached = True
        try:
            votes = self._votes(detail, "it was interrupted" if self.waiting else "")
        except RankError as lost:
            raise RankError(f"{self.name}: {lost}. {self.so}") from lost
        for rank, vote in enumerate(votes):
            if vote["error"]:
                raise RankError(f"{self.name}: rank {rank} cannot go on: {vote['error']}. {self.so}")
        for key, told in (("what", "calls"), ("detail", "has")):
            if len({vote[key] for vote in votes}) > 1:
                each = ", ".join(f"rank {rank} {told} {vote[key]}" for rank, vote in enumerate(votes))
                raise RankError(f"{self.name}: the ranks differ: {each}. {self.so}")

    def _votes(self, detail: str, error: str) -> list[dict[str, str]]:
        what = (
            self.what if len(self.what) < WORD // 8 else f"{self.what[: WORD // 16]}… ({digest(self.what)})"
        )
        return self.ranks.told({"what": what, "detail": detail, "error": error})


def digest(text: str) -> str:
    """A short name of a text."""
    return sha256(text.encode()).hexdigest()[:16]


def digest_of(tensors: Sequence[torch.Tensor]) -> str:
    """A short name of the values of tensors on the host."""
    sha = sha256()
    for tensor in tensors:
        sha.update(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return sha.hexdigest()[:16]
