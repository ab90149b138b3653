"""Values of all ranks of a step of several processes, and the layer of torch.nn that takes them: SyncBatchNorm."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch.nn.modules import batchnorm
from xdsl.ir import SSAValue

from aicf_mlir.dialects import nn
from aicf_mlir.frontend import source
from aicf_mlir.frontend.call import Call
from aicf_mlir.frontend.source import trace_error
from aicf_mlir.host.ranks import GROUPS, Ranks

_library: Any = torch.library.Library("aicf_ranks", "DEF")
for _name in ("sum", "gather", "rows"):
    _library.define(f"{_name}(Tensor x, str group, int ranks) -> Tensor")


def _never(x: torch.Tensor, group: str, ranks: int) -> torch.Tensor:
    """Raise RuntimeError: only a step exchanges."""
    raise RuntimeError(f"values of {ranks} ranks of the group {group!r} are not there before the step runs")


def _like(x: torch.Tensor, group: str, ranks: int) -> torch.Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _gathered(x: torch.Tensor, group: str, ranks: int) -> torch.Tensor:
    return x.new_empty((ranks, *x.shape))


def _inputs(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    ctx.group = inputs[1:]


def _of_sum(context: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
    return SUM(gradient, *context.group), None, None


def _of_gather(context: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
    return ROWS(gradient, *context.group).sum(0), None, None


def _of_rows(context: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
    return ROWS(gradient, *context.group), None, None


_registry: Any = torch.library
for _name, _fake, _backward in (
    ("sum", _like, _of_sum),
    ("gather", _gathered, _of_gather),
    ("rows", _like, _of_rows),
):
    _library.impl(_name, _never, "CompositeExplicitAutograd")
    _registry.register_fake(f"aicf_ranks::{_name}", _fake, lib=_library)
    _registry.register_autograd(f"aicf_ranks::{_name}", _backward, setup_context=_inputs, lib=_library)
_ops: Any = torch.ops.aicf_ranks

SUM: Any = _ops.sum.default
"""The sum of a tensor over all ranks of a group."""
GATHER: Any = _ops.gather.default
"""A tensor as every rank has it, in their order: a first dimension more."""
ROWS: Any = _ops.rows.default
"""The row that every rank has for this one, in their order, of a tensor with a row for each."""


def sum_of_ranks(call: Call) -> SSAValue:
    """Sum over all ranks, in their order."""
    return call.emit.insert(nn.SumOfRanksOp(call.value("x"), call["group"], call["ranks"]))


def gather_of_ranks(call: Call) -> SSAValue:
    """Return x of all ranks."""
    return call.emit.insert(nn.AllGatherOp(call.value("x"), call["group"], call["ranks"]))


def rows_of_ranks(call: Call) -> SSAValue:
    """Return the rows of all ranks that are for this one."""
    return call.emit.insert(nn.AllToAllOp(call.value("x"), call["group"], call["ranks"]))


def group_of(processes: Any, what: str, instead: str) -> tuple[str, int] | None:
    """Return the group of `processes`, all where it is None, and its number of ranks; None for one process alone.

    Raises TraceError if torch would take them over other processes than the step has: `what` does, and one may write `instead`.
    """
    wanted = [0]
    if dist.is_available() and dist.is_initialized():
        wanted = dist.get_process_group_ranks(processes or dist.group.WORLD)
    name, ranks = next(iter(GROUPS.get().items()), ("", None))
    if wanted != _processes_of(ranks, wanted):
        raise trace_error(
            f"{what} the processes {wanted}, and the step has {_processes_of(ranks, wanted)};"
            f" compile with mesh= of the same group{instead}",
            source.here(),
        )
    return None if ranks is None or ranks.count == 1 else (name, ranks.count)


def _processes_of(ranks: Ranks | None, wanted: list[int]) -> list[int]:
    """Return the processes of a step, by their numbers in torch; ranks that are threads take any."""
    if ranks is None:
        return [dist.get_rank()] if dist.is_available() and dist.is_initialized() else [0]
    group = getattr(ranks, "group", None)
    return wanted if group is None else dist.get_process_group_ranks(group)


def is_normalized(layer: Any) -> bool:
    """True if a SyncBatchNorm takes its statistics from the batch; in evaluation it is another batch norm."""
    return layer.training


NORMALIZES = (
    "nn.SyncBatchNorm normalizes over",
    ", or write a BatchNorm for the batch of each process",
)


def synchronized(layer: Any, x: torch.Tensor) -> torch.Tensor:
    """Normalize by the statistics of the batches of all ranks, which have the same size."""
    group = group_of(layer.process_group, *NORMALIZES)
    if group is None:
        return batchnorm._BatchNorm.forward(layer, x)  # pyright: ignore[reportPrivateUsage]
    layer._check_input_dim(x)
    layer._check_non_zero_input_channels(x)
    dims = [0, *range(2, x.dim())]
    channels = [1, -1, *[1] * (x.dim() - 2)]
    wide = x if x.dtype == torch.float64 else x.float()
    mean = SUM(wide.mean(dims), *group) / group[1]
    away = wide - mean.reshape(channels)
    variance = SUM((away * away).mean(dims), *group) / group[1]
    y = away * torch.rsqrt(variance + layer.eps).reshape(channels)
    if layer.weight is not None:
        y = y * layer.weight.reshape(channels)
    if layer.bias is not None:
        y = y + layer.bias.reshape(channels)
    if layer.track_running_stats:
        with torch.no_grad():
            layer.num_batches_tracked.add_(1)
            part = layer.momentum
            if part is None:
                part = 1.0 / layer.num_batches_tracked.to(mean.dtype)
            count = x.numel() // x.shape[1] * group[1]
            unbiased = variance * (count / max(count - 1, 1))
            for old, of_batch in ((layer.running_mean, mean), (layer.running_var, unbiased)):
                old.copy_(old * (1 - part) + of_batch * part)
    return y.to(x.dtype)
