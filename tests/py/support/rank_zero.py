"""What ranks do in tests of divided steps, `zero=1` and `zero=2`; see `rank_programs.py`."""

from __future__ import annotations

import math
import os
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from rank_programs import adam, batch, digest, furthest, loss_of, plain, told_by
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from aicf_mlir import ClipGradNorm, LossScale, compile_train_step
from aicf_mlir.tools import aicf_tune

STAGES = (0, 1, 2)
"""The stages of ZeRO."""


def in_groups(module: nn.Module) -> torch.optim.Optimizer:
    """Two groups, the second with fewer parameters than there are ranks."""
    first, *others = module.parameters()
    groups = [{"params": others}, {"params": [first], "lr": 3e-3}]
    return torch.optim.AdamW(groups, lr=1e-2, eps=1e-3, amsgrad=True)


def momentum(module: nn.Module) -> torch.optim.Optimizer:
    """An optimizer whose state has no count."""
    return torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)


def compiled(module: nn.Module, optimizer: Any, rank: int, **options: Any) -> Any:
    """A step of all ranks, or of `mesh`."""
    given = {"loss_fn": loss_of, "example": batch(0, rank), "mesh": dist.group.WORLD, **options}
    return compile_train_step(module, optimizer, **given)


def divided(rank: int, count: int) -> dict[str, Any]:
    """The bits of parameters, state, norms and scales of divided steps next to a step that is not, and the bytes of state."""
    cases: dict[str, tuple[Any, dict[str, Any]]] = {
        "plain": (adam, {}),
        "clipped": (adam, {"clip_grad_norm": 0.1, "check_finite": True}),
        "clipped values": (adam, {"clip_grad_norm": ClipGradNorm(0.1, math.inf), "clip_grad_value": 0.01}),
        "clipped groups": (in_groups, {"clip_grad_norm": [0.1, 0.2], "precision": "bf16"}),
        "averaged": (adam, {"ema": 0.9}),
        "accumulated": (adam, {"accumulate": 2, "clip_grad_norm": 0.1}),
        "16 bits": (adam, {"precision": "bf16"}),
        "scaled": (adam, {"precision": "f16", "loss_scale": LossScale(2.0**20, growth_interval=2)}),
        "gradients": (adam, {"keep_gradients": True}),
        "groups": (in_groups, {}),
        "momentum": (momentum, {}),
    }
    if count > len(list(plain().parameters())):  # some ranks have nothing
        cases = {name: cases[name] for name in ("clipped", "averaged", "scaled", "gradients", "groups")}
    found: dict[str, Any] = {}
    for name, (make, options) in cases.items():
        models = [plain() for _ in STAGES]
        optimizers = [make(each) for each in models]
        steps = [
            compiled(each, optimizer, rank, zero=zero, **options)
            for zero, each, optimizer in zip(STAGES, models, optimizers, strict=True)
        ]
        schedules = [torch.optim.lr_scheduler.StepLR(each, 2, 0.5) for each in optimizers]
        parts = options.get("accumulate", 1)
        numbers: list[list[Any]] = [[] for _ in STAGES]
        for number in range(6):
            mine = [batch(10 * number + part, rank) for part in range(parts)]
            given = mine if "accumulate" in options else mine[0]
            for step, schedule, seen in zip(steps, schedules, numbers, strict=True):
                if number == 4:
                    step.capture(given)
                if number < 4:
                    step.train_step(given)
                else:
                    step.replay(1, inputs=given)
                schedule.step()
                if "clip_grad_norm" in options:
                    seen.append(step.grad_norm.tolist())
                if "loss_scale" in options:
                    seen.append([float(step.loss_scale), step.skipped])
        found[name] = {"whole": bytes_in(steps[0], "state"), "all gradients": bytes_in(steps[0], "grad")}
        found[name]["numbers"] = numbers
        found[name]["bits"] = [digest(each) for each in models]
        for zero in (1, 2):
            whole = dict(zip(models[zero].parameters(), models[0].parameters(), strict=True))
            own = optimizers[zero].state
            found[name][f"zero={zero}"] = {
                "same state": all(
                    torch.equal(value, optimizers[0].state[whole[p]][key])
                    for p, entries in own.items()
                    for key, value in entries.items()
                ),
                "owned": [number for number, p in enumerate(models[zero].parameters()) if own.get(p)],
                "gradients": [
                    number for number, p in enumerate(models[zero].parameters()) if p.grad is not None
                ],
                "same gradients": all(p.grad is None or torch.equal(p.grad, whole[p].grad) for p in whole),
                "bytes": bytes_in(steps[zero], "state"),
                "bytes of gradients": bytes_in(steps[zero], "grad"),
                "held": sum(
                    4
                    + sum(
                        value.nbytes for key, value in entries.items() if key != "step"
                    )  # SGD counts out of sight
                    for entries in own.values()
                ),
            }
    return found


class Alike(nn.Module):
    """Two weights with one gradient, one weight that is used twice, and one that no optimizer takes."""

    def __init__(self, norm: type[nn.Module]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two = (nn.Parameter(torch.randn(8, 8) / 4) for _ in range(2))
        self.twice, self.untrained = nn.Linear(8, 8), nn.Linear(8, 8)
        self.norm, self.last = norm(8), nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.twice(self.twice(x @ (self.one + self.two)).tanh())
        return self.last(self.norm(self.untrained(x)))


def divided_models(rank: int, count: int) -> dict[str, list[str]]:
    """The bits of a model with unusual gradients, once in DistributedDataParallel, with each stage."""
    found: dict[str, list[str]] = {"kept": [], "wrapped": []}
    for zero in STAGES:
        for name, bits in found.items():
            is_wrapped = name == "wrapped"
            ours = Alike(nn.BatchNorm1d if is_wrapped else nn.SyncBatchNorm)  # as torch wraps on a CPU
            trained = [p for path, p in ours.named_parameters() if "untrained" not in path]
            optimizer = torch.optim.AdamW(trained, lr=1e-2, eps=1e-3)
            if is_wrapped:
                options: dict[str, Any] = {"mesh": None, "clip_grad_norm": 0.1, "ema": 0.5}
                step = compiled(DistributedDataParallel(ours), optimizer, rank, zero=zero, **options)
            else:
                step = compiled(ours, optimizer, rank, zero=zero, keep_gradients=True)
            for number in range(4):
                step.train_step(batch(number, rank))
            untrained = [None if p.grad is None else p.grad.tolist() for p in ours.untrained.parameters()]
            bits.append(f"{digest(ours)} {untrained}")
    return found


def bytes_in(step: Any, wanted: str) -> int:
    """The bytes of the slots of an arena in the plan of a rank."""
    return sum(size for arena, _, _, size in step.memory_report().slots if arena == wanted)


def divided_files(rank: int, count: int, zero: int) -> dict[str, Any]:
    """A file of all ranks is loaded by a step that is not divided, by fewer ranks, and by one process."""
    folder = os.environ["AICF_TEST_FOLDER"]
    pair = dist.new_group([0, 1])
    ours = plain()
    step = compiled(ours, in_groups(ours), rank, zero=zero)
    for number in range(3):
        step.train_step(batch(number, rank))
    step.save(f"{folder}/{rank}.ckpt")
    saved = digest(ours)
    alone = told_by(
        lambda: step.save(f"{folder}/alone.ckpt") if rank == 0 else step.train_step(batch(3, rank))
    )
    for number in range(3, 6):
        step.train_step(batch(number, rank))
    found: dict[str, Any] = {"wanted": digest(ours), "alone": alone, "saved": saved}
    for stage in STAGES:
        again = plain()
        other = compiled(again, in_groups(again), rank, zero=stage)
        other.load(f"{folder}/0.ckpt")
        for number in range(3, 6):
            other.train_step(batch(number, rank))
        found[f"zero={stage}"] = digest(again)
        if not stage:
            other.save(f"{folder}/whole-{rank}.ckpt")
    back = plain()
    step = compiled(back, in_groups(back), rank, zero=zero)
    step.load(f"{folder}/whole-0.ckpt")
    found["from whole"] = digest(back)
    step.save(f"{folder}/back-{rank}.ckpt")
    with open(f"{folder}/back-{rank}.ckpt", "rb") as one, open(f"{folder}/whole-0.ckpt", "rb") as other_file:  # noqa: PTH123
        found["same file"] = one.read() == other_file.read()
    if rank < 2:
        bits = list[str]()
        for stage in (0, zero):
            fewer = plain()
            step = compiled(fewer, in_groups(fewer), rank, mesh=pair, zero=stage)
            step.load(f"{folder}/2.ckpt")
            step.train_step(batch(9, rank))
            bits.append(digest(fewer))
        found["fewer"] = bits[0] == bits[1]
    one = plain()
    single = compiled(one, in_groups(one), rank, mesh=None)
    single.load(f"{folder}/1.ckpt")
    found["one"] = digest(one)
    other_kind = plain()
    wrong = compiled(other_kind, momentum(other_kind), rank, zero=zero)
    found["other"] = told_by(lambda: wrong.load(f"{folder}/0.ckpt"))
    return found


def divided_faults(rank: int, count: int, zero: int) -> dict[str, Any]:
    """A check that fails on one rank, another model, and state that no rank would update; each changes nothing."""
    ours = plain()
    optimizer = adam(ours)
    step = compiled(ours, optimizer, rank, zero=zero, check_finite=True)
    step.train_step(batch(0, rank))

    def bits() -> list[Any]:
        states = [value.tolist() for entries in optimizer.state.values() for value in entries.values()]
        return [digest(ours), states]

    found: dict[str, Any] = {}

    def case(name: str, call: Any) -> None:
        before = bits()
        found[name] = {"told": told_by(call), "same": bits() == before}

    x, t = batch(1, rank)
    case("nan", lambda: step.train_step((x * torch.nan if rank == 1 else x, t)))
    kept = step.snapshot()
    step.train_step((x, t))
    step.restore(kept)
    case("snapshot", lambda: None)
    if rank == 0:
        optimizer.param_groups[0]["lr"] = 0.5
    case("rate", lambda: step.train_step((x, t)))
    optimizer.param_groups[0]["lr"] = 1e-2
    case("again", lambda: None)
    clipped = plain()
    other = compiled(clipped, adam(clipped), rank, zero=zero, clip_grad_norm=1.0 + rank)
    found["clip"] = told_by(lambda: other.train_step((x, t)))
    valued = plain()
    options = {"clip_grad_value": 1.0} if rank == 0 else {}
    found["option"] = told_by(lambda: compiled(valued, adam(valued), rank, zero=zero, **options))
    second = plain()
    trained = adam(second)
    loss_of(second, batch(9, 0)).backward()
    trained.step()
    state = deepcopy(trained.state_dict())
    whole = plain()
    whole.load_state_dict(second.state_dict())
    before = adam(whole)
    before.load_state_dict(deepcopy(state))
    for module, begun, stage in ((second, trained, zero), (whole, before, 0)):
        resumed = compiled(module, begun, rank, zero=stage)
        for number in range(2):
            resumed.train_step(batch(number, rank))
    found["resumed"] = digest(second) == digest(whole)
    found["owned"] = len(trained.state) < len(before.state)
    found["shared"] = told_by(lambda: compiled(whole, before, rank, zero=zero))
    found["whole"] = len(before.state) == len([*whole.parameters()])
    traced = plain()
    mixed = torch.optim.Adafactor(traced.parameters())
    found["traced"] = told_by(lambda: compiled(traced, mixed, rank, zero=zero))
    found["digest"] = digest(ours)
    optimizer.load_state_dict(state)
    found["loaded"] = told_by(lambda: step.train_step((x, t)))
    return found


def divided_again(rank: int, count: int, zero: int) -> dict[str, Any]:
    """Batches of other sizes and a recompiled step, next to a step that is not divided."""
    bits = list[str]()
    for stage in (0, zero):
        module = plain()
        optimizer = adam(module)
        step = compiled(module, optimizer, rank, zero=stage, further_sizes=1)
        for number, rows in enumerate((16, 6, 16, 6)):
            step.train_step(batch(number, rank, rows))
        module[1] = nn.Sigmoid()
        told = told_by(lambda step=step: step.train_step(batch(4, rank)))
        step.recompile()
        for number, rows in enumerate((6, 16)):
            step.train_step(batch(5 + number, rank, rows))
        step.capture(batch(7, rank))
        step.replay(2)
        bits.append(digest(module))
    return {"bits": bits, "told": told}


def divided_and_locked(rank: int, count: int, zero: int) -> dict[str, Any]:
    """With one lock for the plans of all ranks, and with one that knows the plan of rank 0 alone."""
    folder = Path(os.environ["AICF_TEST_FOLDER"])
    modules = [plain(), plain()]
    other = plain()
    (folder / f"{rank}.mlir").write_text(compiled(other, adam(other), rank, zero=zero).ir("plan"))
    dist.barrier()
    plans = [str(folder / f"{each}.mlir") for each in range(count)]
    if rank == 0:
        assert aicf_tune.main([*plans, "-o", str(folder / "all.lock")]) == 0
        assert aicf_tune.main([plans[0], "-o", str(folder / "one.lock")]) == 0
    dist.barrier()
    steps = [
        compiled(each, adam(each), rank, zero=zero, lock=lock)
        for each, lock in zip(modules, (None, folder / "all.lock"), strict=True)
    ]
    for number in range(3):
        for step in steps:
            step.train_step(batch(number, rank))
    one = told_by(lambda: compiled(other, adam(other), rank, zero=zero, lock=folder / "one.lock"))
    return {"far": furthest(*modules), "digest": digest(modules[1]), "one": one}


PROGRAMS = {
    f"{program.__name__}_{zero}": partial(program, zero=zero)
    for program in (divided_files, divided_faults, divided_again, divided_and_locked)
    for zero in STAGES[1:]
}
"""Those that are run for each stage of ZeRO."""
