"""The ranks of a process group of torch.distributed: they exchange bytes, and agree on each call that all make together."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, cast

import numpy as np
import torch
import torch.distributed as dist

from aicf_mlir.errors import BindError, RankError
from aicf_mlir.host.interrupts import held
from aicf_mlir.host.ranks import Bytes, Kind, in_groups

GROUP = "dp"
"""The name of the group whose ranks have different batches."""

WORD = 1024
"""Bytes of what a rank says when all agree."""

COLLECTIVES: Any = dist
GATHER: Any = (
    vars(dist).get("all_gather_single") or COLLECTIVES.all_gather_into_tensor
)  # its name before torch 2.13

TOLD = 600
"""Characters of an error that other ranks are told."""


class ProcessRanks:
    """A process group, as this process sees it.

    Its bytes are on the host: the group needs a backend for the CPU, such as gloo.
    """

    def __init__(self, group: dist.ProcessGroup):
        """Raises BindError for a group without this process, or that cannot exchange memory of the host."""
        self.rank, self.count = dist.get_rank(group), dist.get_world_size(group)
        self._group, self.lost = group, ""
        if self.rank < 0:
            raise BindError("mesh: this process is not one of the ranks of the group")
        try:
            group._get_backend(torch.device("cpu"))  # pyright: ignore[reportPrivateUsage]
        except RuntimeError as error:
            raise BindError(
                "mesh: the process group has no backend for the CPU;"
                ' call torch.distributed.init_process_group("gloo"), or "cpu:gloo,cuda:nccl"'
            ) from error

    def exchange(self, kind: Kind, given: Bytes, into: Bytes) -> None:
        """Exchange as `host.ranks.Ranks` says. Once it has failed, the group is lost."""
        if self.lost:
            raise RankError(self.lost)
        try:
            source, target = map(cast(Any, torch).from_numpy, (given, into))
            if kind == "all_gather":
                GATHER(target, source, group=self._group)
            else:
                COLLECTIVES.all_to_all_single(target, source, group=self._group)
        except RuntimeError as error:
            reason = str(error).strip().splitlines()
            self.lost = (
                f"rank {self.rank} of {self.count} has lost another rank: it left, or it did not come in time"
                f" ({reason[0] if reason else type(error).__name__})"
            )
            raise RankError(self.lost) from error

    def told(self, mine: dict[str, Any]) -> list[dict[str, Any]]:
        """Return what each rank tells, a small dictionary for JSON."""
        text = json.dumps(mine).encode()
        if len(text) > WORD:
            raise ValueError(f"expected at most {WORD} bytes, got {len(text)}")
        given = np.frombuffer(text.ljust(WORD), np.uint8).copy()
        into = np.empty(WORD * self.count, np.uint8)
        self.exchange("all_gather", given, into)
        return [json.loads(bytes(row)) for row in into.reshape(self.count, WORD)]

    def shared(self, tensors: Sequence[torch.Tensor]) -> None:
        """Give each tensor the values that it has on rank 0."""
        try:
            for tensor in tensors:
                with torch.no_grad():
                    sent = tensor.detach().contiguous()
                    dist.broadcast(
                        sent.view(-1).view(torch.uint8),
                        dist.get_global_rank(self._group, 0),
                        group=self._group,
                    )
                    if self.rank and sent.data_ptr() != tensor.data_ptr():
                        tensor.copy_(sent)
        except RuntimeError as error:
            self.lost = (
                f"rank {self.rank} of {self.count} has lost another rank ({str(error).splitlines()[0]})"
            )
            raise RankError(self.lost) from error


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
    is_reached: bool = False

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.waiting = stack.enter_context(held())
            stack.enter_context(in_groups({GROUP: self.ranks}))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._stack:
            if self.is_reached:
                return
            if error is None:
                self.reached()
            elif not self.ranks.lost:
                self._vote("", f"{type(error).__name__}: {error}", is_raising=True)

    def reached(self, detail: str = "") -> None:
        """Go on once every rank is here, with the same `detail`. Raises RankError where one is not."""
        if not self.is_reached:
            interrupted = bool(self.waiting)
            self._vote(detail, "it was interrupted" if interrupted else "", is_raising=interrupted)

    def _vote(self, detail: str, error: str, *, is_raising: bool) -> None:
        self.is_reached = True
        mine = {
            "what": self.what,
            "detail": detail,
            "error": error.encode("ascii", "replace").decode()[:TOLD],
        }
        try:
            votes = self.ranks.told(mine)
        except RankError as lost:
            if is_raising and error:
                return  # its own error tells more
            raise RankError(f"{self.name}: {lost}. {NOTHING}") from lost
        for rank, vote in enumerate(votes):
            if vote["error"] and (rank != self.ranks.rank or not is_raising):
                if is_raising:
                    return
                raise RankError(f"{self.name}: rank {rank} cannot go on: {vote['error']}. {NOTHING}")
        if is_raising:
            if self.waiting:
                raise RankError(f"{self.name}: {error}. {NOTHING}")
            return
        for key, told in (("what", "calls"), ("detail", "has")):
            if len({vote[key] for vote in votes}) > 1:
                each = ", ".join(f"rank {rank} {told} {vote[key]}" for rank, vote in enumerate(votes))
                raise RankError(f"{self.name}: the ranks differ: {each}. {NOTHING}")


NOTHING = "No rank has changed anything"
