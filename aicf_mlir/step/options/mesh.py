"""`mesh`: several processes, each with its own batch, take one step together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from xdsl.dialects.builtin import ArrayAttr, IntegerAttr, i64

from aicf_mlir.errors import BindError
from aicf_mlir.frontend import Traced
from aicf_mlir.ir.signature import OF_RANK, argument_labels, steps
from aicf_mlir.passes.vote_ranks import passes_of_ranks
from aicf_mlir.runtime.process_ranks import GROUP, ProcessRanks
from aicf_mlir.step.options.option import Effect

if TYPE_CHECKING:
    from aicf_mlir.step.request import Request


@dataclass(frozen=True)
class DataParallel(Effect):
    """The ranks of a step; none for a step of one process."""

    ranks: ProcessRanks | None = None
    of_model: frozenset[int] = frozenset()
    """The buffers of the model, by `id`: all ranks have those of rank 0."""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        mesh: Any = given["mesh"]
        if mesh is None:
            return cls()
        return cls(ProcessRanks(group_of(mesh)))

    def check(self, request: Request) -> None:
        if self.ranks is not None and request.device.type != "cpu":
            raise BindError(
                f"mesh: steps of several ranks run on the CPU, and not yet on {request.device}; leave mesh= out"
            )

    def added(self, traces: Sequence[Traced], device: torch.device) -> list[Traced]:
        """Return the traces, with a mark on each buffer of the model."""
        if self.ranks is None:
            return list(traces)
        for traced in traces:
            own = {name for name, tensor in traced.buffers.items() if id(tensor) in self.of_model}
            for function in steps(traced.module):
                labels = [
                    replace(label, rest=(*label.rest, (OF_RANK, IntegerAttr(0, i64))))
                    if label.role == "buffer" and label.name in own
                    else label
                    for label in argument_labels(function)
                ]
                function.arg_attrs = ArrayAttr([label.to_attribute() for label in labels])
        return list(traces)

    def passes(self, device: str) -> Mapping[str, str]:
        return {} if self.ranks is None else passes_of_ranks(GROUP, self.ranks.count)

    @property
    def described(self) -> Mapping[str, str | None]:
        ranks = self.ranks
        return {"mesh": None if ranks is None else f"{GROUP}={ranks.count}, this is rank {ranks.rank}"}


def group_of(mesh: Any) -> dist.ProcessGroup:
    """Return the process group of a mesh. Raises BindError for anything but a group, or a mesh of one dimension."""
    if not dist.is_available() or not dist.is_initialized():
        raise BindError("mesh: torch.distributed has no process group yet; call init_process_group first")
    if isinstance(mesh, DeviceMesh):
        if mesh.ndim != 1:
            raise BindError(f"mesh: expected a mesh of one dimension, got {mesh}; pass one of its dimensions")
        return mesh.get_group()
    if isinstance(mesh, dist.ProcessGroup):
        return mesh
    raise BindError(
        f"mesh: expected a DeviceMesh or a ProcessGroup of torch.distributed, got {type(mesh).__name__}"
    )
