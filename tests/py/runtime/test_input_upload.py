"""Batches of host memory: each step trains its own, however soon the caller writes over it; on CUDA they travel meanwhile."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import children
import pytest
import torch
from models import mlp, regression, to_device, values
from oracle import assert_same_bits

from aicf_mlir import _C, BindError, OutOfRangeError, StateError, compile_eval_step, compile_train_step

ROOT = Path(__file__).resolve().parents[3]
ROWS = (5, 64, 70_000)
"""Of 16 numbers: less than travels with a kernel's arguments, one piece, several pieces."""

Batch = dict[str, torch.Tensor]
Place = Callable[[torch.Tensor], torch.Tensor]


def non_contiguous(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.t().contiguous().t()


PLACES: dict[str, Place] = {
    "pageable": lambda t: t,
    "non-contiguous": non_contiguous,
    "pinned": lambda t: t.pin_memory(),
}
needs_gpu = pytest.mark.gpu
places = pytest.mark.parametrize(
    "place", ["pageable", "non-contiguous", pytest.param("pinned", marks=needs_gpu)]
)


def placed(batch: Batch, place: str) -> Batch:
    return {name: PLACES[place](tensor) for name, tensor in batch.items()}


def made(device: str, rows: int = 64, **options: Any) -> tuple[Any, Any, Any]:
    model = mlp(16, 9, 16).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    example = regression(rows, 16)
    return model, optimizer, compile_train_step(model, optimizer, example=example, device=device, **options)


def batches_of(rows: int, count: int = 9) -> list[Batch]:
    return [regression(rows, 16, seed=seed) for seed in range(count)]


def captured(step: Any, batch: Any) -> Callable[[Any], torch.Tensor]:
    step.warmup(batch)
    step.capture(batch)
    return lambda each: step.replay(inputs=each)


CALLS: dict[str, Callable[[Any, Any], Callable[[Any], torch.Tensor]]] = {
    "train_step": lambda step, batch: step.train_step,
    "replay": captured,
}


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("call", CALLS)
@places
def test_memory_that_is_used_again_at_once(device: str, place: str, call: str, rows: int) -> None:
    trained: list[dict[str, torch.Tensor]] = []
    for host in (False, True):
        model, optimizer, step = made(device, rows)
        buffer = placed(regression(rows, 16), place)
        run = CALLS[call](step, buffer)
        losses: list[torch.Tensor] = []
        for batch in batches_of(rows):
            if not host:
                losses.append(run(to_device(batch, device)))
                continue
            for name, tensor in buffer.items():
                tensor.copy_(batch[name])
            losses.append(run(buffer))
            for tensor in buffer.values():
                tensor.fill_(float("nan"))
        trained.append({"losses": torch.stack(losses).cpu(), **values(model, optimizer)})
    assert_same_bits(*trained)


@places
def test_memory_that_is_freed_at_once(device: str, place: str) -> None:
    _, _, step = made(device, ROWS[-1])
    _, _, other = made(device, ROWS[-1])
    ours = [step.train_step(placed(batch, place)) for batch in batches_of(ROWS[-1], 4)]
    theirs = [other.train_step(to_device(batch, device)) for batch in batches_of(ROWS[-1], 4)]
    assert torch.equal(torch.stack(ours), torch.stack(theirs))


def test_a_batch_that_lies_in_several_places(device: str) -> None:
    _, _, step = made(device)
    _, _, other = made(device)
    for number, batch in enumerate(batches_of(64)):
        mixed = dict(batch)
        mixed["x" if number % 2 else "t"] = batch["x" if number % 2 else "t"].to(device)
        assert torch.equal(step.train_step(mixed), other.train_step(to_device(batch, device)))


@places
def test_micro_batches(device: str, place: str) -> None:
    _, _, step = made(device, accumulate=2)
    _, _, other = made(device, accumulate=2)
    pairs = list(zip(batches_of(64, 6), reversed(batches_of(64, 6)), strict=True))
    run = captured(step, [placed(each, place) for each in pairs[0]])
    for pair in pairs:
        theirs = other.train_step([to_device(each, device) for each in pair])
        assert torch.equal(run([placed(each, place) for each in pair]), theirs)


@places
def test_shape_groups_and_sizes_that_come_unannounced(device: str, place: str) -> None:
    _, _, step = made(device, further_sizes=1)
    _, _, other = made(device, further_sizes=1)
    for rows in (64, 64, 40, 64, 40, 33, 33, 64):
        batch = regression(rows, 16, seed=rows)
        assert torch.equal(step.train_step(placed(batch, place)), other.train_step(to_device(batch, device)))


def test_two_steps_over_one_model(device: str) -> None:
    model, _, step = made(device)
    twin, _, other = made(device)
    ours = compile_eval_step(model, example=regression(64, 16), device=device)
    theirs = compile_eval_step(twin, example=regression(64, 16), device=device)
    for batch, held_out in zip(batches_of(64), reversed(batches_of(64)), strict=True):
        there = [to_device(each, device) for each in (batch, held_out)]
        assert torch.equal(step.train_step(batch), other.train_step(there[0]))
        assert torch.equal(ours.eval_step(held_out), theirs.eval_step(there[1]))


def test_what_comes_between(device: str) -> None:
    """Refused batches, replays without input, reset and recompile leave no batch behind that a later step could take."""
    model, optimizer, step = made(device)
    twin, others, other = made(device)
    run, theirs = captured(step, regression(64, 16)), captured(other, to_device(regression(64, 16), device))
    for number, batch in enumerate(batches_of(64, 12)):
        with pytest.raises(
            BindError, match=r"'t': expected float32\[64, 16\] on .*, got float32\[2, 16\] on cpu"
        ):
            run({"x": batch["x"] + 1, "t": batch["t"][:2]})
        match number % 4:
            case 1:
                assert torch.equal(step.replay(2), other.replay(2))
            case 2:
                step.reset()
                run = captured(step, batch)
            case 3:
                step.recompile()
                run = captured(step, batch)
            case _:
                pass
        assert torch.equal(run(batch), theirs(to_device(batch, device)))
    assert_same_bits(values(model, optimizer), values(twin, others))


def test_a_step_whose_check_fails(device: str) -> None:
    model = mlp(16, 4).to(device)
    step = compile_train_step(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        loss_fn=lambda m, b: torch.nn.functional.cross_entropy(m(b["x"]), b["y"]),
        example={"x": torch.zeros(512, 16), "y": torch.zeros(512, dtype=torch.int64)},
        device=device,
    )
    weight = next(model.parameters())
    good = {"x": torch.randn(512, 16), "y": torch.randint(4, (512,))}
    run = captured(step, good)
    before = weight.detach().clone()
    with pytest.raises(OutOfRangeError, match=r"Target 7 is out of bounds"):
        run({"x": torch.randn(512, 16), "y": torch.full((512,), 7)})
        step.synchronize()
    assert torch.equal(weight, before)
    expected = torch.nn.functional.cross_entropy(model(good["x"].to(device)), good["y"].to(device))
    torch.testing.assert_close(run(good), expected.detach())


def test_memory_for_uploads_is_taken_once_and_freed(device: str) -> None:
    gc.collect()
    before = _C.memory_stats(device)["live_bytes"]
    _, _, step = made(device)
    batches = batches_of(64)
    run = captured(step, batches[0])
    run(batches[1])
    taken = _C.memory_stats(device)
    for batch in batches:
        run(batch)
    assert _C.memory_stats(device) == taken
    step.close()
    assert _C.memory_stats(device)["live_bytes"] == before
    with pytest.raises(StateError, match=r"closed"):
        step.replay(inputs=batches[0])


def test_every_step_has_its_own_batch_on_streams_that_are_threads(tmp_path: Path) -> None:
    program = tmp_path / "upload_streams"
    sources = [
        ROOT / "tests/cpp/upload_streams.cpp",
        *(ROOT / "csrc/device" / name for name in ("upload.cpp", "pool.cpp")),
    ]
    command = ["c++", "-std=c++17", "-pthread", f"-I{ROOT / 'csrc'}", "-o", program, *sources]
    children.run(command, check=True)
    done = children.run([program])
    assert (done.returncode, done.stdout) == (0, "every step had its own batch\n"), done.stdout + done.stderr


@needs_gpu
@pytest.mark.parametrize("place", ["pageable", "non-contiguous"])
def test_a_call_does_not_wait_for_the_step_before(place: str) -> None:
    _, _, step = made("cuda", 4096)
    batch = placed(regression(4096, 16), place)
    run = captured(step, batch)
    run(batch)
    torch.cuda.synchronize()
    torch.cuda._sleep(3_000_000_000)  # pyright: ignore[reportPrivateUsage]
    behind = torch.cuda.Event()
    behind.record()
    for _ in range(3):
        run(batch)
    assert not behind.query(), "three batches were handed over while the device was busy"
    torch.cuda.synchronize()


@needs_gpu
@places
def test_streams_in_turn(place: str) -> None:
    _, _, step = made("cuda", 4096)
    _, _, other = made("cuda", 4096)
    run = captured(step, regression(4096, 16))
    streams = [torch.cuda.Stream(), torch.cuda.current_stream(), torch.cuda.Stream()]
    losses: list[torch.Tensor] = []
    for number, batch in enumerate(batches_of(4096, 12)):
        with torch.cuda.stream(streams[number % 3]):
            losses.append(run(placed(batch, place)))
    torch.cuda.synchronize()
    expected = [other.train_step(to_device(batch, "cuda")) for batch in batches_of(4096, 12)]
    assert torch.equal(torch.stack(losses), torch.stack(expected))
