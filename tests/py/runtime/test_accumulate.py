"""`accumulate=k`: k micro-batches and one update, equal to torch's loop of `(loss / k).backward()`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from levels import run_text
from models import Batch, classification, cross_entropy, mlp, mse, regression, to_device, to_dtype, values
from oracle import assert_all_right, assert_same_bits
from torch import nn

from aicf_mlir import BindError, NonFiniteError, OutOfRangeError, compile_train_step
from aicf_mlir.optim import Lion
from aicf_mlir.runtime.micro_batches import each_step, shapes_of_parts
from aicf_mlir.stages import STAGE_NAMES
from aicf_mlir.step.compiled_step import CompiledTrainStep

STEPS, PARTS = 50, 3

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-2, eps=1e-3, weight_decay=0.1),
    "lion": lambda p: Lion(p, lr=1e-3, weight_decay=0.1),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=1e-3, eps=1e-3),
}


def normalized() -> nn.Module:
    """With running statistics; the layer before them has no bias, whose gradient would be rounding alone."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 17, bias=False), nn.BatchNorm1d(17), nn.Tanh(), nn.Linear(17, 8))


def parts(step: int, device: str = "cpu", rows: int = 8, count: int = PARTS) -> list[Batch]:
    """The micro-batches of a step."""
    return [to_device(regression(rows, seed=100 * step + number), device) for number in range(count)]


class Side:
    """A model that is trained: in torch, or compiled."""

    def __init__(self, optimizer: str, dtype: torch.dtype = torch.float32, device: str = "cpu"):
        self.model = normalized().to(dtype).to(device)
        self.optimizer = OPTIMIZERS[optimizer](self.model.parameters())
        self.device = device
        self.losses: list[torch.Tensor] = []

    def compiled(self, **options: Any) -> CompiledTrainStep:
        given = {"loss_fn": mse, "example": regression(8), "accumulate": PARTS, **options}
        return compile_train_step(self.model, self.optimizer, device=self.device, **given)

    def in_torch(self, batches: Sequence[Batch], limit: float = math.inf) -> None:
        self.optimizer.zero_grad()
        total = torch.zeros((), dtype=torch.float64)
        for batch in batches:
            loss = mse(self.model, batch) / len(batches)
            loss.backward()
            total += loss.detach()
        nn.utils.clip_grad_norm_(self.model.parameters(), limit)
        self.optimizer.step()
        self.losses.append(total)

    def values(self) -> dict[str, torch.Tensor]:
        buffers = {name: tensor.detach().cpu().clone() for name, tensor in self.model.named_buffers()}
        return {**values(self.model, self.optimizer), **buffers}


def floats(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor for name, tensor in tensors.items() if tensor.is_floating_point()}


@pytest.mark.parametrize("limit", [math.inf, 0.05], ids=["", "clipped"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_fifty_steps_beside_torch(optimizer: str, limit: float, device: str) -> None:
    """Half of them replayed; running statistics too. Clipping comes behind the accumulation."""
    runs = [Side(optimizer, dtype) for dtype in (torch.float32, torch.float64)]
    for run, dtype in zip(runs, (torch.float32, torch.float64), strict=True):
        for number in range(STEPS):
            run.in_torch([to_dtype(batch, dtype) for batch in parts(number)], limit)
    ours = Side(optimizer, device=device)
    step = ours.compiled(clip_grad_norm=limit)
    for number in range(STEPS):
        batches = parts(number, device)
        if number == STEPS // 2:
            step.capture(batches)
        loss = step.train_step(batches) if number < STEPS // 2 else step.replay(inputs=batches)
        ours.losses.append(loss.double().cpu())
    assert_all_right(*(floats(run.values()) for run in (ours, *runs)))
    counts = [run.values()["1.num_batches_tracked"].item() for run in (ours, *runs)]
    assert counts == [STEPS * PARTS] * 3
    for got, wanted in zip(ours.losses, runs[1].losses, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-5, atol=0)


types = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)


@types
def test_gradients_are_means_rounded_once(dtype: torch.dtype, device: str) -> None:
    assert_means(dtype, device)


@types
def test_gradients_that_are_kept_apart_are_means_rounded_once(dtype: torch.dtype, device: str) -> None:
    assert_means(dtype, device, accumulate_apart=True)


def assert_means(dtype: torch.dtype, device: str, **options: bool) -> None:
    """Gradients and loss of micro-batches are torch's in f64."""
    model, other = mlp(8, 17, 8).to(dtype).to(device), mlp(8, 17, 8).to(dtype).double()
    step = compile_train_step(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        loss_fn=mse,
        example=to_dtype(regression(8), dtype),
        device=device,
        accumulate=PARTS,
        keep_gradients=True,
        **options,
    )
    batches = [to_dtype(batch, dtype) for batch in parts(0, device)]
    loss = step.train_step(batches)
    losses = [mse(other, to_device(to_dtype(batch, torch.float64), "cpu")) / PARTS for batch in batches]
    sum(losses, torch.zeros(())).backward()
    tolerance = 16 * torch.finfo(dtype).eps
    torch.testing.assert_close(
        loss.cpu().double(), sum(losses, torch.zeros(())).detach(), rtol=tolerance, atol=0
    )
    for name, parameter in other.named_parameters():
        assert parameter.grad is not None
        scale = parameter.grad.abs().max().item()
        ours = step.gradients[name].cpu().double()
        torch.testing.assert_close(ours, parameter.grad, rtol=0, atol=tolerance * scale)


def test_sums_do_not_overflow_where_means_do_not(device: str) -> None:
    """Three gradients of 60,000 in f16, whose sum it does not hold."""

    class Product(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4, dtype=torch.float16))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (self.weight * x).float().sum()

    model = Product().to(device)
    step = compile_train_step(
        model,
        torch.optim.SGD(model.parameters(), lr=0.0),
        loss_fn=lambda m, b: m(b["x"]),
        example={"x": torch.ones(4, dtype=torch.float16, device=device)},
        device=device,
        accumulate=3,
        keep_gradients=True,
    )
    step.train_step([{"x": torch.full((4,), 60_000.0, dtype=torch.float16, device=device)}] * 3)
    assert step.gradients["weight"].tolist() == [60_000.0] * 4


def test_a_replay_of_updates_has_the_bits_of_eager_ones(device: str) -> None:
    eager, replayed = Side("adamw", device=device), Side("adamw", device=device)
    first, second = eager.compiled(), replayed.compiled()
    second.warmup(parts(0, device))
    second.capture(parts(0, device))
    for number in range(3):
        batches = parts(number, device)
        expected = [first.train_step(batches) for _ in range(4)][-1]
        loss = second.replay(4, inputs=batches)
        assert_same_bits({"loss": loss, **replayed.values()}, {"loss": expected, **eager.values()})


def test_the_captured_step_is_certified(device: str) -> None:
    side = Side("rmsprop", device=device)
    step = side.compiled(clip_grad_norm=0.1)
    step.train_step(parts(0, device))
    assert step.capture(parts(1, device), verify="bitwise").equal
    assert all(row.source for row in step.scalars())


def test_snapshot_warmup_file_and_recompilation(device: str, tmp_path: Path) -> None:
    side = Side("adamw", device=device)
    step = side.compiled(warmup_inputs=parts(9, device))
    assert_same_bits(side.values(), Side("adamw", device=device).values())
    step.train_step(parts(0, device))
    before = step.snapshot()
    step.save(tmp_path / "saved")
    step.train_step(parts(1, device))
    onward = side.values()
    step.restore(before)
    step.recompile()
    step.train_step(parts(1, device))
    assert_same_bits(side.values(), onward)
    other = Side("adamw", device=device)
    loaded = other.compiled()
    loaded.load(tmp_path / "saved")
    loaded.train_step(parts(1, device))
    assert_same_bits(other.values(), onward)


def test_one_micro_batch_is_a_step(device: str) -> None:
    one, plain = Side("adamw", device=device), Side("adamw", device=device)
    (batch,) = parts(0, device, count=1)
    loss = one.compiled(accumulate=1).train_step([batch])
    expected = plain.compiled(accumulate=None).train_step(batch)
    assert_same_bits({"loss": loss, **one.values()}, {"loss": expected, **plain.values()})


class Dropped(nn.Module):
    """The gradient of `weight` is what dropout leaves of x."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(256))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.weight * nn.functional.dropout(x, 0.5)).sum()


def test_each_micro_batch_draws_other_numbers(device: str) -> None:
    """As many as the same number of steps would: the mean of their gradients, and the same place afterwards."""

    def compiled(accumulate: int | None) -> CompiledTrainStep:
        model = Dropped().to(device)
        return compile_train_step(
            model,
            torch.optim.SGD(model.parameters(), lr=0.0),
            loss_fn=lambda m, b: m(b["x"]),
            example={"x": torch.ones(256, device=device)},
            device=device,
            accumulate=accumulate,
            keep_gradients=True,
            seed=7,
        )

    batch = {"x": torch.ones(256, device=device)}
    together, single = compiled(2), compiled(None)
    for number in range(3):
        together.train_step([batch, batch])
        masks: list[torch.Tensor] = []
        for _ in range(2):
            single.train_step(batch)
            masks.append(single.gradients["weight"].clone())
        assert not torch.equal(*masks), number
        assert torch.equal(together.gradients["weight"], (masks[0] + masks[1]) / 2)


def test_shape_groups(device: str) -> None:
    side, theirs = Side("adamw", device=device), Side("adamw")
    step = side.compiled(example=[regression(4), regression(8)])
    for number, rows in enumerate((8, 4, 4, 8)):
        step.train_step(parts(number, device, rows))
        theirs.in_torch(parts(number, rows=rows))
    torch.testing.assert_close(side.values(), theirs.values(), rtol=1e-4, atol=1e-5)
    with pytest.raises(BindError, match=r"no shape group for x\.0 \[4, 8\].*x\.2 \[8, 8\]"):
        step.train_step([*parts(0, device, 4)[:2], *parts(0, device, 8)[:1]])


@pytest.mark.parametrize("stage", [name for name in STAGE_NAMES[1:] if name != "buffers"])
def test_every_text_reads_back_and_means_the_same(stage: str) -> None:
    side = Side("adamw")
    step = side.compiled()
    named = {f"{name}.{n}": t for n, batch in enumerate(parts(0)) for name, t in batch.items()}
    arguments = {**side.values(), **named, **step.meta}
    loss = step.train_step(parts(0))
    made = run_text(step.ir(stage), arguments)
    torch.testing.assert_close(made["loss"], loss)
    if stage != "grad":
        expected = {name: t for name, t in floats(side.values()).items() if not name.endswith(".step")}
        torch.testing.assert_close({name: made[name] for name in expected}, expected)


def test_temporary_memory_does_not_grow_with_the_number_of_micro_batches() -> None:
    """Beside what one micro-batch takes there are the sums."""

    def temporaries(count: int) -> int:
        model = mlp(64, 256, 256, 8, activation=nn.GELU)
        step = compile_train_step(
            model,
            torch.optim.AdamW(model.parameters()),
            loss_fn=mse,
            example=regression(32, 64, 8),
            device="cpu",
            accumulate=count,
        )
        return step.memory_report().arenas["temp"]

    two, eight = temporaries(2), temporaries(8)
    assert eight < 1.05 * two


def test_a_bad_number_in_one_micro_batch_skips_the_whole_step(device: str) -> None:
    side = Side("adamw", device=device)
    step = side.compiled(check_finite=True)
    step.train_step(parts(0, device))
    before = side.values()
    for number in range(PARTS):
        wrong = parts(1, device)
        wrong[number]["x"][2, 3] = math.inf
        with pytest.raises(NonFiniteError, match=rf"\[2, 3\] of the batch's 'x\.{number}' is inf"):
            step.train_step(wrong)
            step.synchronize()
        assert_same_bits(side.values(), before)
    step.train_step(parts(1, device))


def test_a_class_out_of_range_names_its_micro_batch(device: str) -> None:
    model = mlp(8, 17, 4).to(device)
    good = [to_device(classification(seed=number), device) for number in range(2)]
    step = compile_train_step(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        loss_fn=cross_entropy,
        example=good[0],
        device=device,
        accumulate=2,
    )
    step.train_step(good)
    before = values(model, torch.optim.SGD(model.parameters()))
    for number in range(2):
        wrong = [dict(batch) for batch in good]
        wrong[number]["t"] = wrong[number]["t"].clone()
        wrong[number]["t"][3] = 4
        with pytest.raises(OutOfRangeError, match=rf"got 4 at \[3\] of the batch's 't\.{number}'"):
            step.train_step(wrong)
            step.synchronize()
        assert_same_bits(values(model, torch.optim.SGD(model.parameters())), before)


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "one batch": (
        lambda: parts(0)[0],
        "a step with accumulate=3 takes a list or tuple of 3 batches, got dict",
    ),
    "too few": (lambda: parts(0)[:2], "takes a list or tuple of 3 batches, got 2; leave out what is left"),
    "too many": (lambda: [*parts(0), *parts(1)], "takes a list or tuple of 3 batches, got 6"),
    "iterator": (lambda: iter(parts(0)), "takes a list or tuple of 3 batches, got list_iterator"),
    "tensor inside": (
        lambda: [*parts(0)[:2], torch.ones(1)],
        "a batch is a dict of tensors, got Tensor",
    ),
    "an entry lacks": (lambda: [*parts(0)[:2], {"x": torch.ones(8, 8)}], "the batch lacks 't.2'"),
    "an entry more": (
        lambda: [*parts(0)[:2], {**parts(0)[2], "z": torch.ones(1)}],
        "the batch has 'z.2' besides what was compiled",
    ),
    "another type": (
        lambda: [*parts(0)[:2], to_dtype(parts(0)[2], torch.float64)],
        "input 'x.2': expected float32[8, 8] on cpu, got float64[8, 8] on cpu",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_no_step_of_micro_batches_changes_nothing(case: str) -> None:
    side = Side("sgd")
    step = side.compiled()
    step.train_step(parts(0))
    step.capture(parts(0))
    before = side.values()
    make, text = WRONG[case]
    for call in (step.train_step, step.warmup, step.capture, lambda batch: step.replay(inputs=batch)):
        with pytest.raises(BindError) as raised:
            call(make())
        assert text in str(raised.value)
    assert_same_bits(side.values(), before)


@pytest.mark.parametrize("apart", [1, None, "yes"])
def test_what_is_no_choice_of_an_order(apart: Any) -> None:
    with pytest.raises(BindError, match="accumulate_apart must be True or False, got"):
        Side("sgd").compiled(accumulate_apart=apart)
    with pytest.raises(BindError, match="accumulate_apart is for steps of several micro-batches"):
        Side("sgd").compiled(accumulate=None, accumulate_apart=True)


@pytest.mark.parametrize("count", [0, -1, 2.0, True, "2"])
def test_what_is_no_number_of_micro_batches(count: Any) -> None:
    with pytest.raises(BindError, match="accumulate must be a whole number of micro-batches, 1 or more, got"):
        Side("sgd").compiled(accumulate=count)


def test_examples_and_warm_ups_may_be_those_of_whole_steps() -> None:
    small, large = regression(4), regression(8)
    assert shapes_of_parts(small) == [small]
    assert shapes_of_parts([small, small, small]) == [small]
    assert shapes_of_parts([[small, small], (large, large), small]) == [small, large]
    assert each_step([small, small], 2) == [[small, small]]
    assert each_step([[small, small], [large, large]], 2) == [[small, small], [large, large]]
    assert each_step([small, large], None) == [small, large]
    side = Side("sgd")
    step = side.compiled(example=parts(0))
    step.train_step(parts(0))
