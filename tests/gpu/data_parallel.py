"""One step of several processes, each with a GPU, beside DistributedDataParallel and beside micro-batches of one GPU.

    python tests/gpu/data_parallel.py [--ranks 2] [--width 256 2048] [--only PART ...] [--times 20] [--device cpu]

steps: 50 steps, half of them replayed, have the same bits in 5 runs, on every rank, and as micro-batches; and torch's numbers.
faults: what one rank does alone fails on all, and changes nothing. killed: the others end with whole steps.
apart: a thousand replays with random pauses have the bits of replays without.
zero: a divided optimizer has the bits and the files of a whole one; zero_faults and zero_killed are the two above with it.
zero_2, zero_2_faults, zero_2_killed: the same with divided gradients.
batch_norm: SyncBatchNorm beside one GPU with all batches. certified: each rank's certificate is equal.
exchanges: losses that exchange by themselves beside torch in f64, and what is moved, in many sizes; it has no width.
models: GPT-2 and ResNet-50 beside DistributedDataParallel, f64 and micro-batches; it has no width.

Ranks may share a GPU. Exit status 1 if anything is wrong.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from exchange_ranks import exchanges
from model_ranks import whole_models
from norm_ranks import batch_norm
from rank_steps import (
    DEVICE,
    Batch,
    adam,
    batch,
    compiled,
    digest,
    digest_of_state,
    loss_of,
    mlp,
    synchronize,
    told,
    under_autocast,
)
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from zero_ranks import zero

from aicf_mlir import AicfError

STEPS, REPLAYED = 50, 25
TIMES = int(os.environ.get("TIMES", "1"))
LIMITS_S = {"zero": 400, "zero_2": 400, "batch_norm": 300, "certified": 300, "exchanges": 300, "models": 600}
LIMIT_S = 150
"""Of the other parts."""
PARTS = (
    *("steps", "apart", "faults", "killed", "batch_norm", "certified", "exchanges", "models"),
    *("zero", "zero_faults", "zero_killed", "zero_2", "zero_2_faults", "zero_2_killed"),
)


def trained(rank: int) -> nn.Module:
    """After `STEPS` steps, half of them replayed."""
    module = mlp()
    step = compiled(module, adam(module), batch(0, rank))
    for number in range(STEPS - REPLAYED):
        step.train_step(batch(number, rank))
    step.capture(batch(STEPS - REPLAYED, rank))
    for number in range(STEPS - REPLAYED, STEPS):
        step.replay(inputs=batch(number, rank))
    synchronize()
    return module


def by_torch(rank: int) -> nn.Module:
    module = DistributedDataParallel(
        mlp(), device_ids=[torch.cuda.current_device()] if DEVICE == "cuda" else None
    )
    optimizer = adam(module)
    for number in range(STEPS):
        optimizer.zero_grad()
        loss_of(module, batch(number, rank)).backward()
        optimizer.step()
    return module.module


def by_micro_batches(ranks: int) -> nn.Module:
    """One GPU with the batches of all ranks, one after the other."""
    module = mlp()
    parts = [[batch(number, rank) for rank in range(ranks)] for number in range(STEPS)]
    step = compiled(module, adam(module), parts[0], mesh=None, accumulate=ranks)
    for each in parts:
        step.train_step(each)
    synchronize()
    return module


def equal_steps(rank: int, ranks: int) -> None:
    first = trained(rank)
    bits = {digest(first), *(digest(trained(rank)) for _ in range(4))}
    assert len(bits) == 1, "runs differ"
    assert len(set(told(digest(first)))) == 1, "ranks differ"
    far = max(
        float((p - q).detach().abs().max())
        for p, q in zip(first.parameters(), by_torch(rank).parameters(), strict=True)
    )
    same = digest(by_micro_batches(ranks)) == digest(first)
    if rank == 0:
        print(
            f"5 runs, one digest; {far:.1e} from DistributedDataParallel; accumulate={ranks} the same bits: {same}"
        )
    assert far < 1e-5
    assert same


def faults(rank: int, divided: int = 0) -> None:
    """Each is done by rank 1 alone, and all raise; then all go on. So many times."""
    module = mlp()
    optimizer = adam(module)
    step = compiled(module, optimizer, batch(0, rank), check_finite=True, zero=divided)
    step.train_step(batch(0, rank))
    step.capture(batch(1, rank))
    odd = rank == 1

    def bad_label(given: Batch) -> Batch:
        return given[0], torch.where(torch.arange(len(given[1]), device=DEVICE) == 3, 77, given[1])

    def with_activation(name: str) -> None:
        module[1].approximate = name if odd else "none"

    def in_time(call: Callable[[], object]) -> None:
        call()
        synchronize()
        step.train_step(batch(6, rank))  # it tells of the one before, and is skipped

    def with_batch(change: Callable[[Batch], Batch], by_replay: bool) -> Callable[[], None]:
        def call() -> None:
            given = change(batch(5, rank)) if odd else batch(5, rank)
            in_time(lambda: step.replay(inputs=given, sync=True) if by_replay else step.train_step(given))

        return call

    def on_guard() -> None:
        with_activation("tanh")
        step.train_step(batch(5, rank))

    def of_other_model() -> None:
        other = mlp(deep=2 if odd else 1)
        compiled(other, adam(other), batch(0, rank))

    changes: dict[str, Callable[[Batch], Batch]] = {
        "label": bad_label,
        "NaN": lambda given: (given[0] * torch.inf, given[1]),
        "shape": lambda given: (given[0][:-1], given[1][:-1]),
    }
    calls = {
        f"{name}{', replayed' * by_replay}": with_batch(change, by_replay)
        for name, change in changes.items()
        for by_replay in (False, True)
    }
    calls |= {"guard": on_guard, "other model": of_other_model}
    longest = dict.fromkeys((*calls, "interrupt"), 0.0)
    first: dict[str, str] = {}
    for _ in range(TIMES):
        for name, call in calls.items():
            before, begun = (digest(module), digest_of_state(optimizer)), time.monotonic()
            try:
                call()
                error = "none"
            except AicfError as raised:
                error = f"{type(raised).__name__}: {raised}"[:110]
            longest[name] = max(longest[name], time.monotonic() - begun)
            assert error != "none", name
            assert (digest(module), digest_of_state(optimizer)) == before, name
            assert first.setdefault(name, error)[:40] == error[:40], (first[name], error)
            with_activation("none")
            step.train_step(batch(6, rank))
        begun = time.monotonic()
        interrupted(step, rank)
        longest["interrupt"] = max(longest["interrupt"], time.monotonic() - begun)
    assert len(set(told(digest(module)))) == 1
    assert max(longest.values()) < 30
    for name, each in zip(first, zip(*told([*first.values()]), strict=True), strict=True):
        if rank == 0:
            print(f"{name}, {TIMES} times, at most {longest[name]:.2f} s: {each[0]} | {each[1]}")


def interrupted(step: Any, rank: int) -> None:
    """Ctrl-C on rank 1 while it waits for the others, who come later: it is told after whole steps, which all have made."""
    if rank == 1:
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
    else:
        time.sleep(0.1)
    try:
        step.train_step(batch(7, rank))
        step.replay(3, sync=True)
        time.sleep(0.2)
    except KeyboardInterrupt:
        assert rank == 1, "another rank was interrupted"
        step.replay(3, sync=True)
        return
    assert rank != 1, "nothing was raised"


def apart(rank: int) -> None:
    """A thousand replays, before each of which a rank sleeps as long as it likes, have the bits of as many without a pause."""
    found: list[str] = []
    for longest in (0.0, 2e-3):
        module = mlp()
        step = compiled(module, adam(module), batch(0, rank))
        step.train_step(batch(0, rank))
        step.capture(batch(1, rank))
        for _ in range(1000):
            time.sleep(random.random() * longest)
            step.replay()
        synchronize()
        found += told(digest(module))
    assert len(set(found)) == 1, found


def killed(rank: int, divided: int = 0) -> None:
    """Rank 1 goes at some time while all replay."""
    module = mlp()
    step = compiled(module, adam(module), batch(0, rank), zero=divided)
    step.warmup(batch(1, rank))
    step.capture(batch(1, rank))
    losses: list[torch.Tensor] = []
    told("ready")
    begun = time.monotonic()
    if rank == 1:
        threading.Timer(0.5 + random.random() / 10, os.kill, (os.getpid(), signal.SIGKILL)).start()
    try:
        while time.monotonic() - begun < LIMIT_S / 2:
            losses.append(step.replay(inputs=batch(len(losses) % 7, rank)))
    except AicfError as error:
        synchronize()
        took = time.monotonic() - begun
        print(f"rank {rank}, {len(losses)} steps and {took:.1f} s: {type(error).__name__}: {error}"[:230])
        assert took < 30
        assert whole_steps(rank, digest(module), len(losses)), "not the bits of whole steps"
        return
    raise AssertionError("rank 1 is still there")


def certified(rank: int) -> None:
    """Certificates of a plain step, of one with checks and micro-batches, of a divided optimizer, and in bf16."""
    cases: dict[str, dict[str, Any]] = {
        "plain": {},
        "checks": {"clip_grad_norm": 0.5, "check_finite": True, "accumulate": 2},
        "zero": {"zero": 1},
        "zero_2": {"zero": 2, "clip_grad_norm": 0.5, "check_finite": True},
        "bf16": {"loss_fn": under_autocast},
    }
    for name, options in cases.items():
        module = mlp()
        parts = [batch(part, rank) for part in range(options.get("accumulate", 1))]
        step = compiled(module, adam(module), parts[0], **options)
        given = parts if len(parts) > 1 else parts[0]
        step.train_step(given)
        before = digest(module)
        certificate = step.capture(given, verify="bitwise", steps=2)
        assert certificate.equal, f"{name}: {certificate}"
        synchronize()
        assert digest(module) == before, f"{name}: a certificate's steps have stayed"
        step.replay(2, sync=True)
        assert len(set(told(digest(module)))) == 1, name
        if rank == 0:
            print(f"{name}: {str(certificate).splitlines()[0]}")


def whole_steps(rank: int, found: str, told: int) -> bool:
    """Whether these are the bits of so many steps of micro-batches, or of one or two fewer."""
    module = mlp()
    ranks = dist.get_world_size()
    first = [batch(0, each) for each in range(ranks)]
    step = compiled(module, adam(module), first, mesh=None, accumulate=ranks)
    seen = {0: digest(module)}
    for number in range(told + 1):
        step.train_step([batch(number % 7, each) for each in range(ranks)])
        synchronize()
        seen[number + 1] = digest(module)
    which = [number for number, bits in seen.items() if bits == found and number >= told - 2]
    print(f"rank {rank} ends with the bits of {which} whole steps")
    return bool(which)


def main() -> None:
    """One rank."""
    rank, ranks = int(os.environ["RANK"]), int(os.environ["RANKS"])
    if DEVICE == "cuda":
        torch.cuda.set_device(rank % torch.cuda.device_count())
    dist.init_process_group("gloo", init_method=f"file://{os.environ['STORE']}", rank=rank, world_size=ranks)
    {
        "steps": partial(equal_steps, rank, ranks),
        "apart": partial(apart, rank),
        "models": partial(whole_models, rank),
        "faults": partial(faults, rank),
        "killed": partial(killed, rank),
        "zero": partial(zero, rank, ranks, Path(os.environ["STORE"]).parent, 1),
        "zero_faults": partial(faults, rank, 1),
        "zero_killed": partial(killed, rank, 1),
        "zero_2": partial(zero, rank, ranks, Path(os.environ["STORE"]).parent, 2),
        "zero_2_faults": partial(faults, rank, 2),
        "zero_2_killed": partial(killed, rank, 2),
        "batch_norm": partial(batch_norm, rank, ranks),
        "exchanges": partial(exchanges, rank, ranks),
        "certified": partial(certified, rank),
    }[os.environ["PART"]]()
    sys.stdout.flush()
    os._exit(0)  # a lost group is not taken down


def started(part: str, width: int, count: int, device: str, times: int) -> bool:
    """Run a part on all ranks; True if each ends as it has to, in time."""
    with tempfile.TemporaryDirectory() as folder:
        given = {
            "STORE": f"{folder}/store", "PART": part, "RANKS": str(count), "WIDTH": str(width),
            "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "DEVICE": device, "TIMES": str(times),
        }  # fmt: skip
        ranks = [
            subprocess.Popen([sys.executable, __file__], env={**os.environ, **given, "RANK": str(rank)})
            for rank in range(count)
        ]
        begun = time.monotonic()
        until = begun + LIMITS_S.get(part, LIMIT_S)
        try:
            ended = [each.wait(max(0.1, until - time.monotonic())) for each in ranks]
        except subprocess.TimeoutExpired:
            ended = ["late"]
        for each in ranks:
            each.kill()
            each.wait()
    wanted = [-signal.SIGKILL if part.endswith("killed") and rank == 1 else 0 for rank in range(count)]
    how = "passed" if ended == wanted else f"FAILED: the ranks ended with {ended}"
    print(f"{part}, width {width}: {how}, {time.monotonic() - begun:.0f} s", flush=True)
    return ended == wanted


if "RANK" in os.environ and "PART" in os.environ:
    main()
parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--ranks", type=int, default=2)
parser.add_argument("--width", type=int, nargs="+", default=[256])
parser.add_argument("--device", default="cuda")
parser.add_argument(
    "--times", type=int, default=1, help="how often a part has each fault, and is run where a rank is killed"
)
parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
given = parser.parse_args()
failed = [
    part
    for part in given.only
    for width in given.width[: 1 if part in ("models", "exchanges") else None]
    for _ in range(given.times if part.endswith("killed") else 1)
    if not started(part, width, given.ranks, given.device, given.times)
]
sys.exit(1 if failed else 0)
