"""What ranks do in tests of faults: one of them fails, is interrupted or ends; see `rank_programs.py`."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from rank_programs import Batch, adam, batch, digest, loss_of, model, plain, told_by
from torch import nn

from aicf_mlir import compile_train_step
from aicf_mlir.runtime.process_ranks import WORD, ProcessRanks

STAGES = (0, 1, 2)
"""The stages of ZeRO."""
MANY = 100
"""How often a campaign has each fault."""
EXCHANGES = {0: 18, 1: 27, 2: 39}
"""How many exchanges `killed_at` has, by the stage; a rank is killed before each of them, in a run of its own."""
NEVER = 1000
MOMENTS = {"before": 1, "between": 1, "after": 2}
"""When a rank is killed around the exchange that carries the status of its second step; how many steps the others have then
made.
"""


def compiled(
    module: Any, rank: int, zero: int, optimizer: torch.optim.Optimizer | None = None, **options: Any
) -> Any:
    """A step of all ranks, with AdamW where no optimizer is given."""
    given = {"loss_fn": loss_of, "example": batch(0, rank), "mesh": dist.group.WORLD, "zero": zero, **options}
    return compile_train_step(module, optimizer or adam(module), **given)


def state_of(optimizer: torch.optim.Optimizer) -> str:
    """The bits of the optimizer's state of this rank."""
    sha = hashlib.sha256()
    for entries in optimizer.state.values():
        for value in entries.values():
            sha.update(value.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return sha.hexdigest()[:16]


def faults(rank: int, count: int, times: int = 1, zero: int = 0) -> dict[str, Any]:
    """One rank fails, each time another way, so many times; then all go on.

    `odd` is what was not as at the first time, `longest` the seconds of the longest call.
    """
    ours = plain()
    optimizer = adam(ours)
    examples = [batch(0, rank), batch(0, rank, 7)]
    step = compiled(ours, rank, zero, optimizer=optimizer, example=examples, check_finite=True)
    step.train_step(batch(0, rank))
    found: dict[str, Any] = {"odd": [], "longest": 0.0, "counts": {}}

    def case(name: str, call: Callable[[], object], *, undo: Callable[[], object] = lambda: None) -> None:
        before = digest(ours), state_of(optimizer)
        begun = time.monotonic()
        told = told_by(call)
        found["longest"] = max(found["longest"], time.monotonic() - begun)
        found["counts"][name] = found["counts"].get(name, 0) + 1
        same = (digest(ours), state_of(optimizer)) == before
        undo()
        again = told_by(lambda: step.train_step(batch(1, rank)))
        seen = {"told": told, "same": same, "again": again, "digest": digest(ours)}
        first = found.setdefault(name, seen)
        if (told[:30], same, again) != (first["told"][:30], first["same"], first["again"]):
            found["odd"].append([name, told, same, again])
        found[name] = seen

    x, t = batch(2, rank)
    label = t.clone()
    label[3] = 99
    huge = x.clone()
    huge[2, 1] = torch.nan

    def each_once() -> None:
        case("label", lambda: step.train_step((x, label if rank == 1 else t)))
        case("nan", lambda: step.train_step((huge if rank == 2 else x, t)))
        case("shape", lambda: step.train_step(batch(2, rank, 9 if rank == 0 else 16)))
        case("other plan", lambda: step.train_step(batch(2, rank, 7 if rank == 0 else 16)))
        if rank == 1:
            ours[1].approximate = "tanh"
        case("guard", lambda: step.train_step((x, t)), undo=lambda: setattr(ours[1], "approximate", "none"))
        if step.state != "captured":
            step.capture((x, t))
        case("replay of a bad label", lambda: step.replay(3, inputs=(x, label if rank == 1 else t)))
        case("another call", lambda: step.replay(2 if rank == 0 else 3))
        case("interrupt", lambda: _interrupted(step, (x, t), rank == 1))
        case("interrupt of a replay", lambda: _interrupted_replay(step, rank == 1))
        case("interrupt of all", lambda: _interrupted_before(step, (x, t)))
        wrong = batch(2, rank, 9)
        case(
            "interrupt and shape",
            lambda: _interrupted_before(step, (x, t)) if rank == 0 else step.train_step(wrong),
        )
        case("long", lambda: step.replay((x, t)) if rank == 1 else step.train_step((x, t)))
        if rank == 1:
            optimizer.param_groups[0]["lr"] = 0.5
        case("rate", lambda: step.train_step((x, t)), undo=lambda: optimizer.param_groups[0].update(lr=1e-2))
        kept = step.snapshot()
        step.train_step((x, t))
        case("restore", lambda: step.restore(kept) if rank == 1 else step.train_step((x, t)))
        case("recompile", lambda: step.recompile() if rank == 2 else step.train_step((x, t)))
        other = model(24 if rank != 1 else 25)
        case("other model", lambda: compiled(other, rank, zero))
        case("option", lambda: compiled(plain(), rank, zero, clip_grad_norm=-1.0 if rank == 1 else 1.0))

    for _ in range(times):
        each_once()
    found["refused loss"] = told_by(
        lambda: compiled(
            plain(),
            rank,
            zero,
            loss_fn=loss_of if rank != 0 else lambda module, batch: float(module(batch[0]).sum()),
        )
    )
    return found


def _interrupted_before(step: Any, given: Batch) -> None:
    """A step that a signal comes to before the ranks agree."""
    prepare = step._prepare

    def first() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        prepare()

    vars(step)["_prepare"] = first
    try:
        step.train_step(given)
    except KeyboardInterrupt:
        raise InterruptedError("before the step") from None
    finally:
        del vars(step)["_prepare"]


def _interrupted(step: Any, given: Batch, is_mine: bool) -> None:
    """A step that a signal comes to while it waits for the other ranks."""
    if is_mine:
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
    else:
        time.sleep(0.4)
    try:
        step.train_step(given)
    except KeyboardInterrupt:
        raise InterruptedError("after the step") from None


def _interrupted_replay(step: Any, is_mine: bool) -> None:
    """A replay that a signal comes to at some moment."""
    if is_mine:
        threading.Timer(random.uniform(0.0, 0.02), os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        step.replay(500)
        if is_mine:
            time.sleep(1.0)
    except KeyboardInterrupt:
        raise InterruptedError("after the steps") from None


def killed(rank: int, count: int, zero: int = 0) -> dict[str, Any]:
    """One rank ends at some moment while all replay."""
    ours = plain()
    optimizer = adam(ours)
    step = compiled(ours, rank, zero, optimizer=optimizer)
    step.train_step(batch(0, rank))
    step.capture(batch(0, rank))
    if rank == 1:
        threading.Timer(random.uniform(0.0, 0.4), os.kill, (os.getpid(), signal.SIGKILL)).start()
    done, told, numbers = 0, "", [0]
    while not told and done < 1_000_000:
        numbers += [done] * 5
        told = told_by(partial(step.replay, 5, batch(done, rank)))
        told = "" if told == "nothing" else told
        done += 1
    return ended(step, ours, optimizer, count, numbers, told)


def killed_at(rank: int, count: int, number: int, zero: int = 0) -> dict[str, Any]:
    """One rank ends before an exchange: while it trains, captures, replays, saves, recompiles or compiles another step."""
    ours = plain()
    optimizer = adam(ours)
    step = compiled(ours, rank, zero, optimizer=optimizer)
    made, exchange = [0], ProcessRanks.exchange

    def counted(self: ProcessRanks, *given: Any) -> None:
        if made[0] == number:
            os.kill(os.getpid(), signal.SIGKILL)
        made[0] += 1
        exchange(self, *given)

    if rank == 1:
        patch.object(ProcessRanks, "exchange", counted).start()
    folder = os.environ["AICF_TEST_FOLDER"]
    calls: dict[str, Callable[[], object]] = {
        "train_step": lambda: step.train_step(batch(0, rank)),
        "another train_step": lambda: step.train_step(batch(1, rank)),
        "capture": lambda: step.capture(batch(1, rank)),
        "replay": lambda: step.replay(3, batch(2, rank)),
        "save": lambda: step.save(f"{folder}/{rank}.ckpt"),
        "load": lambda: step.load(f"{folder}/{rank}.ckpt"),
        "recompile": lambda: step.recompile(),
        "third train_step": lambda: step.train_step(batch(3, rank)),
        "compile": lambda: compiled(plain(), rank, zero),
    }
    told = at = "nothing"
    while calls and told == "nothing":
        at = next(iter(calls))
        told = told_by(calls.pop(at))
    if told == "nothing":
        return {"exchanges": made[0]}
    numbers = [0, 1, 2, 2, 2, 3]
    return {"at": at, **ended(step, ours, optimizer, count, numbers, told)}


def wide() -> nn.Module:
    """With so many gradients that the host exchanges the status after them, within one launch."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 4096), nn.GELU(), nn.Linear(4096, 5))


def killed_around(rank: int, count: int, moment: str, zero: int = 0) -> dict[str, Any]:
    """One rank ends around the last exchange of a step: before it, after it, or when all but the status has been exchanged."""
    made = wide if moment == "between" else plain
    ours = made()
    optimizer = adam(ours)
    step = compiled(ours, rank, zero, optimizer=optimizer)
    seen, last, exchange = list[int](), [0], ProcessRanks.exchange

    def watched(self: ProcessRanks, given: Any, into: Any) -> None:
        if given.size != WORD:  # what a call says before it has begun
            seen.append(given.size)
        is_last = len(seen) == last[0] and given.size != WORD
        if is_last and moment != "after":
            os.kill(os.getpid(), signal.SIGKILL)
        exchange(self, given, into)
        if is_last:
            os.kill(os.getpid(), signal.SIGKILL)

    patched = patch.object(ProcessRanks, "exchange", watched)
    patched.start()
    step.train_step(batch(0, rank))
    sizes = list(seen)
    seen.clear()
    last[0] = len(sizes)
    if rank != 1:
        patched.stop()
    told = told_by(lambda: step.train_step(batch(1, rank)))
    if told == "nothing":
        told = told_by(lambda: step.train_step(batch(2, rank)))
    return {"sizes": sizes, **ended(step, ours, optimizer, count, [0, 1, 2], told, made)}


def ended(
    step: Any,
    ours: Any,
    optimizer: torch.optim.Optimizer,
    count: int,
    numbers: list[int],
    told: str,
    made: Callable[[], nn.Module] = plain,
) -> dict[str, Any]:
    """What a rank has when another one is lost: the bits of so many whole steps, with the batches of these numbers."""
    begun = time.monotonic()
    afterwards = told_by(lambda: step.train_step(batch(0, 0)))
    waited = time.monotonic() - begun
    steps = sorted({int(entries["step"]) for entries in optimizer.state.values()})
    alone = made()
    whole = compile_train_step(alone, adam(alone), loss_fn=loss_of, example=batch(0, 0), accumulate=count)
    for number in numbers[: steps[0] if steps else 0]:
        whole.train_step([batch(number, each) for each in range(count)])
    return {
        "told": told,
        "afterwards": afterwards,
        "waited": waited,
        "steps": steps,
        "digest": digest(ours),
        "whole": digest(alone) == digest(ours),
    }


PROGRAMS: dict[str, Callable[[int, int], dict[str, Any]]] = {
    **{
        f"faults_{zero}_{times}": partial(faults, times=times, zero=zero)
        for zero in STAGES
        for times in (1, MANY)
    },
    **{f"killed_{zero}": partial(killed, zero=zero) for zero in STAGES},
    **{
        f"killed_{moment}_{zero}": partial(killed_around, moment=moment, zero=zero)
        for moment in MOMENTS
        for zero in STAGES
    },
    **{
        f"killed_at_{zero}_{number}": partial(killed_at, number=number, zero=zero)
        for zero, exchanges in EXCHANGES.items()
        for number in (*range(exchanges), NEVER)
    },
}
