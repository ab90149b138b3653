"""`mesh`: several processes, each with its own batch, take one step together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from xdsl.dialects import func
from xdsl.dialects.builtin import ArrayAttr, IntegerAttr, UnitAttr, i64

from aicf_mlir.dialects import nn
from aicf_mlir.errors import BindError
from aicf_mlir.frontend import Traced
from aicf_mlir.frontend.model import ddp_of, unwrapped
from aicf_mlir.frontend.optimizer import divided
from aicf_mlir.ir.division import OWN_TEXT
from aicf_mlir.ir.printing import to_text
from aicf_mlir.ir.signature import OF_EACH_RANK, OF_RANK, ArgumentIndex, argument_labels, result_labels, steps
from aicf_mlir.passes.vote_ranks import passes_of_ranks
from aicf_mlir.runtime.process_ranks import GROUP, ProcessRanks, digest
from aicf_mlir.step.options.option import Effect

if TYPE_CHECKING:
    from aicf_mlir.step.request import Request

DIVIDED = (
    None,
    "1, the state of this rank's parameters",
    "2, the state and the gradients of this rank's parameters",
)
"""What a rank keeps, by the stage of ZeRO."""


@dataclass(frozen=True)
class DataParallel(Effect):
    """The ranks of a step; none for a step of one process."""

    ranks: ProcessRanks | None = None
    shared: Callable[[], Sequence[torch.Tensor]] = tuple
    """The tensors that all ranks have from rank 0: as with torch, parameters and buffers of the model, but no metrics.

    Also parameters that are trained and not the model's.
    """
    zero: int = 0
    """The stage of ZeRO: with 1 each rank keeps the optimizer state of its own parameters only, with 2 their gradients too."""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        mesh, zero = given["mesh"], given["zero"]
        if zero.__class__ is not int or not 0 <= zero <= 2:
            raise BindError(
                f"zero: expected 0, 1 to divide the optimizer's state, or 2 to divide gradients too, got {zero!r}"
            )
        if mesh is None:
            if zero:
                raise BindError("zero: the optimizer's state is divided among processes; give them by mesh=")
            return cls()
        return cls(ProcessRanks(group_of(mesh)), zero=zero)

    def check(self, request: Request) -> None:
        """Raise BindError for an optimizer that is divided already, and for a plan of a file where each rank has its own."""
        for optimizer in request.optimizers:
            if why := divided(optimizer):
                raise BindError(why)
        if self.zero and request.given["plan"] is not None:
            raise BindError(
                f"plan: with zero={self.zero} each rank has a plan of its own; leave one of them out"
            )

    def added(self, traces: Sequence[Traced], device: torch.device) -> list[Traced]:
        """Return the traces, with a mark on each tensor that the forward updates and all ranks have from rank 0, and on each
        parameter that every rank has for itself.
        """
        if self.ranks is None:
            return list(traces)
        shared = {id(tensor) for tensor in self.shared()}
        for traced in traces:
            held = {**traced.parameters, **traced.buffers}
            own = {name for name, tensor in held.items() if id(tensor) not in shared}
            for function in steps(traced.module):
                labels = argument_labels(function)
                index = ArgumentIndex(labels)
                updates = [
                    label
                    for label in result_labels(function)
                    if label.role == "update" and label.name not in own
                ]
                for place in {index.updated_by(label)[0] for label in updates}:
                    if labels[place].role in ("buffer", "param"):
                        mark = (OF_RANK, IntegerAttr(0, i64))
                        labels[place] = replace(labels[place], rest=(*labels[place].rest, mark))
                for place, label in enumerate(labels):
                    if label.role == "param" and label.name in own:
                        labels[place] = replace(label, rest=(*label.rest, (OF_EACH_RANK, UnitAttr())))
                function.arg_attrs = ArrayAttr([label.to_attribute() for label in labels])
        if exchanging := [each for traced in traces for each in steps(traced.module) if exchanges(each)]:
            call, texts = self.ranks.call, "\n".join(map(to_text, exchanging))
            if call is None or call.is_reached or not call.compared(digest(texts)):
                for function in exchanging:
                    function.attributes[OWN_TEXT] = ArrayAttr([])
        return list(traces)

    def passes(self, device: str) -> Mapping[str, str]:
        if self.ranks is None:
            return {}
        return passes_of_ranks(GROUP, self.ranks.count, self.zero, self.ranks.rank)

    @property
    def described(self) -> Mapping[str, str | None]:
        ranks = self.ranks
        return {
            "mesh": None if ranks is None else f"{GROUP}={ranks.count}, this is rank {ranks.rank}",
            "zero": DIVIDED[self.zero],
        }


def shared_by(
    model: torch.nn.Module,
    optimizers: Sequence[torch.optim.Optimizer],
    metrics: Callable[[], Sequence[torch.Tensor]],
) -> list[torch.Tensor]:
    """Return the tensors that all ranks have from rank 0; see `DataParallel.shared`."""
    held, own = unwrapped(model), {id(each) for each in metrics()}
    trained = (p for each in optimizers for group in each.param_groups for p in group["params"])
    found = {id(each): each for each in (*held.parameters(), *held.buffers(), *trained)}
    return [each for number, each in found.items() if number not in own]


def exchanges(function: func.FuncOp) -> bool:
    """True if code of the user exchanges by itself in a step."""
    return any(isinstance(op, nn.AllGatherOp | nn.AllToAllOp) for op in function.walk())


def mesh_of(model: object, mesh: Any) -> Any:
    """Return the mesh that is given, or that DistributedDataParallel brings along. Raises BindError for one of another
    group, for what such a wrapper has that a step does not follow, and for a model whose parameters are sharded.
    """
    refuse_sharded(model)
    if (ddp := ddp_of(model)) is None:
        return mesh
    hook = ddp._get_ddp_logging_data().get("comm_hook")
    given = {
        "mixed_precision": ddp.mixed_precision is not None,
        "parameters to ignore": bool(ddp.parameters_to_ignore),
        "broadcast_buffers=False": not ddp.broadcast_buffers,
        f"the communication hook {hook}": bool(hook) or bool(ddp._comm_hooks),
    }
    for what, is_there in given.items():
        if is_there:
            raise BindError(
                f"the DistributedDataParallel has {what}, which a step does not follow; leave it out"
            )
    if mesh is not None and group_of(mesh) is not ddp.process_group:
        raise BindError("mesh: the DistributedDataParallel has another process group; leave mesh= out")
    return ddp.process_group


def unfollowed(model: object) -> str:
    """Return what a DistributedDataParallel has now that a step does not follow; nothing for any other model."""
    if (ddp := ddp_of(model)) is None:
        return ""
    if not ddp.require_backward_grad_sync:
        return "inside of no_sync(), which a step does not follow; use accumulate="
    if ddp._join_config.enable:
        return (
            "the DistributedDataParallel has been in join(), which a step does not follow;"
            " give each process as many batches"
        )
    if ddp._comm_hooks:
        return "the DistributedDataParallel has a communication hook now, which a step does not follow"
    return ""


def refuse_sharded(model: object) -> None:
    """Raise BindError for a model of which each process has a part of every parameter."""
    modules = model.modules() if isinstance(model, torch.nn.Module) else ()
    kinds = {kind.__name__ for module in modules for kind in type(module).__mro__}
    for kind, function in (("FSDPModule", "fully_shard"), ("FullyShardedDataParallel",) * 2):
        if kind in kinds:
            raise BindError(
                f"the model is sharded by {function}, whose collectives a step does not follow; pass the model without it, with"
                " mesh= and zero=2, which divides gradients and the optimizer's state among the processes"
            )


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
