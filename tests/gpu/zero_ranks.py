"""The parts of data_parallel.py about divided steps, `zero=1` and `zero=2`."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import torch
from rank_steps import (
    DEVICE,
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

STEPS, REPLAYED = 20, 10
DEEP = 4

Make = Callable[[nn.Module], torch.optim.Optimizer]


def momentum(module: nn.Module) -> torch.optim.Optimizer:
    """An optimizer whose state has no count."""
    return torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)


def train(step: Any, rank: int, first: int, last: int) -> None:
    """Run steps `first` to below `last` eagerly."""
    for number in range(first, last):
        step.train_step(batch(number, rank))


def planned(step: Any) -> int:
    """The bytes of the optimizer's state in the plan."""
    return sum(size for arena, _, _, size in step.memory_report().slots if arena == "state")


def held(optimizer: torch.optim.Optimizer) -> int:
    """The bytes of the state that torch sees; each parameter has a count of 4, which SGD keeps out of sight."""
    return sum(
        4 + sum(value.nbytes for key, value in entries.items() if key != "step")
        for entries in optimizer.state.values()
    )


def equal_to_whole(rank: int, ranks: int, stage: int) -> None:
    """Each optimizer, in f32 and under autocast, with and without clipping.

    With stage 2 the norms of a rank's gradients are other launches on a GPU than those of all: a clipped step may be rounded
    otherwise.
    """
    makes: dict[str, Make] = {"AdamW": adam, "SGD": momentum}
    losses = {"f32": loss_of, "bf16": under_autocast}
    clips: dict[str, dict[str, Any]] = {
        "": {},
        ", clipped": {"clip_grad_norm": 0.1, "check_finite": True},
    }
    for (kind, make), (precision, loss), (clip, options) in product(
        makes.items(), losses.items(), clips.items()
    ):
        name = f"{kind} {precision}{clip}"
        models = [mlp(DEEP), mlp(DEEP)]
        optimizers = [make(each) for each in models]
        steps = [
            compiled(each, optimizer, batch(0, rank), loss_fn=loss, zero=zero, **options)
            for zero, each, optimizer in zip((0, stage), models, optimizers, strict=True)
        ]
        begun = digest(models[0])
        for step in steps:
            train(step, rank, 0, STEPS - REPLAYED)
            step.capture(batch(STEPS - REPLAYED, rank))
            for number in range(STEPS - REPLAYED, STEPS):
                step.replay(inputs=batch(number, rank))
        synchronize()
        bits = told([digest(each) for each in models])
        whole = dict(zip(models[1].parameters(), models[0].parameters(), strict=True))
        is_exact = DEVICE == "cpu" or stage < 2 or not options
        near = torch.equal if is_exact else close
        same = [
            near(value, optimizers[0].state[whole[p]][key])
            for p, entries in optimizers[1].state.items()
            for key, value in entries.items()
        ]
        sizes = told((planned(steps[0]), planned(steps[1]), held(optimizers[1]), len(optimizers[1].state)))
        if rank == 0:
            parts = ", ".join(f"{part / all_:.0%}" for all_, part, _, _ in sizes)
            print(f"{name}: whole and divided {bits}; of {sizes[0][0]:,} bytes of state {parts}", flush=True)
        assert len({each[1] for each in bits}) == 1, f"{name}: the ranks differ"
        if is_exact:
            assert len({each for of_rank in bits for each in of_rank}) == 1, f"{name}: other bits"
        assert all(near(p, q) for p, q in whole.items()), f"{name}: other parameters"
        assert bits[0][0] != begun, name
        assert same, name
        assert all(same), f"{name}: other state"
        assert sum(part for _, part, _, _ in sizes) == sizes[0][0], name
        assert all(part == of_torch for _, part, of_torch, _ in sizes), name
        assert sum(count for *_, count in sizes) == len(whole), name
        largest = max(sum(v.nbytes for v in entries.values()) for entries in optimizers[0].state.values())
        parts = [part for _, part, _, _ in sizes]
        assert max(parts) - min(parts) <= largest + 4 * len(whole), name


def close(value: torch.Tensor, wanted: torch.Tensor) -> bool:
    """True for rounding alone."""
    return torch.allclose(value, wanted, rtol=1e-4, atol=1e-6)


def files(rank: int, ranks: int, folder: Path, stage: int) -> None:
    """A file of all ranks goes to a step of one GPU, on as micro-batches, and back."""
    ours = mlp(DEEP)
    optimizer = adam(ours)
    step = compiled(ours, optimizer, batch(0, rank), zero=stage)
    train(step, rank, 0, 3)
    step.save(folder / f"{rank}.ckpt")
    saved = digest(ours), digest_of_state(optimizer)
    train(step, rank, 3, 6)
    synchronize()
    wanted = digest(ours), digest_of_state(optimizer)
    told("saved")
    alone = mlp(DEEP)
    example = [batch(0, each) for each in range(ranks)]
    one = compiled(alone, adam(alone), example, mesh=None, accumulate=ranks)
    one.load(folder / f"{(rank + 1) % ranks}.ckpt")  # that of another rank
    assert digest(alone) == saved[0]
    one.save(folder / f"one-{rank}.ckpt")
    written = [(folder / f"{name}.ckpt").read_bytes() for name in (f"{rank}", f"one-{rank}")]
    assert written[0] == written[1], "the file of one GPU differs"
    for number in range(3, 6):
        one.train_step([batch(number, each) for each in range(ranks)])
    synchronize()
    assert digest(alone) == wanted[0], "one GPU goes on with other bits"
    told("one")
    back = mlp(DEEP)
    again = adam(back)
    step = compiled(back, again, batch(0, rank), zero=stage)
    step.load(folder / "one-0.ckpt")
    assert (digest(back), digest_of_state(again)) == saved, "back on all ranks with other bits"
    train(step, rank, 3, 6)
    synchronize()
    assert (digest(back), digest_of_state(again)) == wanted, "all ranks go on with other bits"
    if rank == 0:
        print(f"a file of {ranks} ranks, {len(written[0]):,} bytes: to one GPU and back, the same bits")


def zero(rank: int, ranks: int, folder: Path, stage: int) -> None:
    """The parts `zero` and `zero_2`."""
    equal_to_whole(rank, ranks, stage)
    files(rank, ranks, folder, stage)
