"""What ranks do in tests of models in DistributedDataParallel, and of other wrappers; see `rank_programs.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from rank_programs import Batch, adam, batch, digest, furthest, loss_of, plain, told_by
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from aicf_mlir import compile_step, compile_train_step


class Unused(nn.Module):
    """A model with a parameter that its result does not depend on."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = plain(), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.used(x)


def compiled(module: nn.Module, rank: int, optimizer: Any = None, **options: Any) -> Any:
    """A step with the group that the module brings along, or with `mesh`."""
    given = {"loss_fn": loss_of, "example": batch(0, rank), **options}
    return compile_train_step(module, optimizer or adam(module), **given)


def wrapped_with_flags(rank: int, count: int) -> dict[str, Any]:
    """Each flag that changes how DistributedDataParallel computes, and not what: next to torch, and next to no flag."""
    flags: dict[str, dict[str, Any]] = {
        "none": {},
        "unused": {"find_unused_parameters": True},
        "static": {"static_graph": True},
        "views": {"gradient_as_bucket_view": True},
        "all": {"static_graph": True, "gradient_as_bucket_view": True, "bucket_cap_mb": 1},
    }
    found: dict[str, Any] = {}
    for name, given in flags.items():
        make: Callable[[], nn.Module] = Unused if name == "unused" else plain
        torch.manual_seed(0)
        first = make()
        ours, theirs = (DistributedDataParallel(make(), **given) for _ in range(2))
        for each in (ours, theirs):
            each.module.load_state_dict(first.state_dict())
        other = adam(theirs)
        step = compiled(ours, rank)
        for number in range(6):
            mine = batch(number, rank)
            step.train_step(mine)
            other.zero_grad()
            loss_of(theirs, mine).backward()
            other.step()
        found[name] = {"far": furthest(ours.module, theirs.module), "digest": digest(ours.module)}
    return found


def refused_wrappers(rank: int, count: int) -> dict[str, str]:
    """What a step does not follow is refused, by name, when it is compiled or when it comes."""

    def wrapped() -> Any:
        return DistributedDataParallel(plain())

    hooked, built_in, later = wrapped(), wrapped(), wrapped()
    hooked.register_comm_hook(None, default_hooks.fp16_compress_hook)
    kinds: Any = dist
    built_in._register_builtin_comm_hook(kinds.BuiltinCommHookType.FP16_COMPRESS)
    sharded = plain()
    fully_shard(sharded, mesh=dist.device_mesh.init_device_mesh("cpu", (count,)))
    in_part = plain()
    fully_shard(in_part[0], mesh=dist.device_mesh.init_device_mesh("cpu", (count,)))
    divided = plain()

    class Derived(ZeroRedundancyOptimizer):
        pass

    zero = ZeroRedundancyOptimizer(divided.parameters(), torch.optim.AdamW, lr=1e-2)
    derived = Derived(divided.parameters(), torch.optim.SGD, lr=1e-2)

    def body(given: Batch) -> torch.Tensor:
        zero.zero_grad()
        loss = loss_of(divided, given)
        loss.backward()
        zero.step()
        return loss

    world = dist.group.WORLD
    found = {
        "hook": told_by(lambda: compiled(hooked, rank)),
        "built-in hook": told_by(lambda: compiled(built_in, rank)),
        "sharded": told_by(lambda: compiled(sharded, rank, mesh=world)),
        "sharded without mesh": told_by(lambda: compiled(sharded, rank)),
        "sharded in part": told_by(lambda: compiled(in_part, rank, mesh=world)),
        "divided": told_by(lambda: compiled(divided, rank, zero, mesh=world)),
        "divided without mesh": told_by(lambda: compiled(divided, rank, zero)),
        "divided by a subclass": told_by(lambda: compiled(divided, rank, derived, mesh=world, zero=1)),
        "divided in a body": told_by(lambda: compile_step(body, example=batch(0, rank))),
    }
    ours = wrapped()
    step = compiled(ours, rank)
    given: Batch = batch(0, rank)
    with ours.no_sync():
        found["no_sync"] = told_by(lambda: step.train_step(given))
    found["afterwards"] = told_by(lambda: step.train_step(given))
    with ours.join():
        found["join"] = told_by(lambda: step.train_step(given))
    late = compiled(later, rank)
    late.train_step(given)
    if rank == 0:
        later.register_comm_hook(None, default_hooks.fp16_compress_hook)
    found["late hook"] = told_by(lambda: late.train_step(given))
    return found
