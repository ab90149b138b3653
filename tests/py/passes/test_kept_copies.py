"""Casts of parameters that last over a replay: the bits of eager steps, whatever happens to the parameters in between."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import written_optimizers
from kernel_calls import run
from kernel_cases import Case, Maker, cases
from models import mlp, mse, regression, to_device
from oracle import assert_same_bits
from precise_training import Training, adam, sgd
from torch import nn

from aicf_mlir import CompiledTrainStep, KernelError, VerifyError, compile_train_step, optim
from aicf_mlir.dialects.plan import ProgramOp, find_program
from aicf_mlir.dialects.plan.copies import first_step_only
from aicf_mlir.interpreters.numerics import NUMPY_TYPES
from aicf_mlir.ir.registry import Schema, schemas
from aicf_mlir.text.parsing import parse_module

MakeOptimizer = Callable[[Any], torch.optim.Optimizer]
OPTIMIZERS: dict[str, MakeOptimizer] = {
    "sgd": partial(torch.optim.SGD, lr=0.05),
    "momentum": sgd,
    "adam": adam,
    "amsgrad": partial(torch.optim.AdamW, amsgrad=True),
    "rmsprop": torch.optim.RMSprop,
    "lion": partial(optim.Lion, lr=0.1),
    "traced": partial(written_optimizers.Lion, lr=0.1, betas=(0.9, 0.99), weight_decay=0.1),
}


def copies(step: CompiledTrainStep) -> list[str]:
    """The slots of role copy in the plan of a step."""
    return [line for line in step.ir("plan").splitlines() if "plan.slot" in line and " copy" in line]


def planned(step: CompiledTrainStep) -> ProgramOp:
    return find_program(parse_module(step.ir("plan")))


def losses_of(steps: int, train: Callable[[], torch.Tensor]) -> list[torch.Tensor]:
    return [train().clone().cpu() for _ in range(steps)]


@pytest.mark.parametrize("case", ["mlp", "attention", "tied", "written"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_replays_have_the_bits_of_eager_steps(optimizer: str, case: str, device: str) -> None:
    """Of one step, of a few, and of more than one graph has; the host writes to parameters in ways that nothing counts."""
    eager, replayed = (Training(case, device, OPTIMIZERS[optimizer]) for _ in range(2))
    steps = [each.compiled(precision="bf16") for each in (eager, replayed)]
    if optimizer in ("sgd", "momentum", "adam", "amsgrad"):  # others may cast in a launch that does more
        assert copies(steps[1])
    steps[1].warmup(replayed.batch)
    steps[1].capture(replayed.batch)
    for n in (1, 4, 37):
        for _ in range(n):
            steps[0].train_step(eager.batch)
        steps[1].replay(n, inputs=replayed.batch)
        assert_same_bits(replayed.values(), eager.values())
        for each in (eager, replayed):
            first = next(each.model.parameters())
            first.data.view(-1)[0] = 0.5
            first.data.mul_(0.75)


@pytest.mark.parametrize("precision", ["bf16", "f16"])
def test_a_step_beside_it_updates_the_same_parameters(precision: str, device: str) -> None:
    """Another compiled step of the model, with an optimizer of its own, between replays."""

    def trained(replays: bool) -> dict[str, torch.Tensor]:
        ours = Training("mlp", device, adam)
        other = torch.optim.SGD(ours.model.parameters(), lr=0.1)
        options = {"example": ours.batch, "device": device, "precision": precision}
        steps = [
            ours.compiled(precision=precision),
            compile_train_step(ours.model, other, loss_fn=mse, **options),
        ]
        if replays:
            for step in steps:
                step.warmup(ours.batch)
                step.capture(ours.batch)
        for _ in range(3):
            for step in steps:
                if replays:
                    step.replay(3)
                else:
                    losses_of(3, partial(step.train_step, ours.batch))
        return ours.values()

    assert_same_bits(trained(True), trained(False))


def test_a_skipped_step_leaves_its_copies(device: str) -> None:
    """Overflows of f16 in the middle of a replay."""

    def trained(replays: bool) -> dict[str, torch.Tensor]:
        ours = Training("mlp", device, adam)
        step = ours.compiled(precision="f16", loss_scale=float(2**24))
        batch = {name: tensor * 4 for name, tensor in ours.batch.items()}
        if not replays:
            losses_of(12, partial(step.train_step, batch))
            return ours.values()
        step.warmup(batch)
        step.capture(batch)
        step.replay(12)
        return ours.values()

    assert_same_bits(trained(True), trained(False))


def test_what_a_replay_runs(device: str) -> None:
    """The casts of parameters once, all else in every step."""
    ours = Training("mlp", device, adam)
    step = ours.compiled(precision="bf16")
    step.warmup(ours.batch)
    step.capture(ours.batch)
    program = planned(step)
    once = len(first_step_only(program.launches, program.slots))
    launches = len(program.launches)
    assert 0 < once < launches
    for n in (1, 2, 40):
        before = step.stats()
        step.replay(n)
        after = step.stats()
        assert after["replays"] - before["replays"] == n
        assert after["launches"] - before["launches"] == n * launches - (n - 1) * once


def test_what_nothing_updates_is_cast_once(device: str) -> None:
    """A frozen layer: its copies have no update that would write them."""

    class Frozen(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 8)
            self.first.requires_grad_(False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.second(torch.relu(self.first(x)))

    def trained(replays: bool) -> dict[str, torch.Tensor]:
        model = Frozen().to(device)
        optimizer = torch.optim.Adam(model.second.parameters(), lr=1e-2)
        batch = to_device(regression(16), device)
        step = compile_train_step(
            model, optimizer, loss_fn=mse, example=batch, device=device, precision="bf16"
        )
        assert len(copies(step)) >= 4
        if replays:
            step.warmup(batch)
            step.capture(batch)
        for factor in (1.0, 0.5):
            with torch.no_grad():
                model.first.weight *= factor
            if replays:
                step.replay(3)
            else:
                losses_of(3, partial(step.train_step, batch))
        return {name: p.detach().cpu() for name, p in model.named_parameters()}

    assert_same_bits(trained(True), trained(False))


def test_a_step_of_f32_has_none(device: str) -> None:
    assert not copies(Training("mlp", device, adam).compiled())


def with_copies(case: Case, schema: Schema, narrow: str, kernel: str, device: str) -> None:
    """The update of a case once more, with copies of all parameters but one: those are the new values, rounded."""
    assert case.counts is not None
    count = case.counts[1][0]
    copied = [number for number in range(count) if number != 1]
    outputs = [*case.outputs, *((narrow, case.outputs[number][1]) for number in copied)]
    counts = case.counts[0], (*case.counts[1][:-1], len(copied))
    assert schema.outputs[-1].name == "copy"
    more = Case("", case.inputs, outputs, {**case.attrs, "copied": copied}, counts)
    results, expected = run(kernel, schema.name, more, device), run(kernel, schema.name, case, device)
    own = results[: len(expected)]
    assert [a.tobytes() for a in own] == [b.tobytes() for b in expected], case.label
    for number, copy in zip(copied, results[len(expected) :], strict=True):
        with np.errstate(all="ignore"):
            rounded = expected[number].astype(NUMPY_TYPES[narrow])
        assert np.array_equal(copy, rounded, equal_nan=True), (case.label, number)


@pytest.mark.parametrize("narrow", ["bf16", "f16"])
@pytest.mark.parametrize("op", ["sgd_step", "adam_step"])
def test_an_update_writes_the_rounded_value_too(op: str, narrow: str, device: str) -> None:
    kernel = f"{op}_cpu" if device == "cpu" else f"{op}_f32"
    found = list(cases(op, "f32"))[::3]
    assert len(found) >= 8
    for case in found:
        with_copies(case, schemas()[op], narrow, kernel, device)


@pytest.mark.parametrize(
    ("copied", "element", "message"),
    [
        ([0, 0], "bf16", "copied: expected ascending numbers from 0 to 6, got 0 at 1"),
        ([7], "bf16", "copied: expected ascending numbers from 0 to 6, got 7 at 0"),
        ([0], "f32", r"copy\[0\]: expected f16 or bf16 of a parameter of f32"),
        ([], "bf16", "copied: expected a parameter for each of 1 copies, got 0"),
    ],
)
def test_copies_that_are_none_are_refused(copied: list[int], element: str, message: str) -> None:
    case = next(iter(cases("sgd_step", "f32")))
    assert case.counts is not None
    more = [(element, case.outputs[0][1])] * max(len(copied), 1)
    counts = case.counts[0], (*case.counts[1][:-1], len(more))
    wrong = Case("", case.inputs, [*case.outputs, *more], {**case.attrs, "copied": copied}, counts)
    with pytest.raises(KernelError, match=message):
        run("sgd_step_cpu", "sgd_step", wrong, "cpu")


PLAN = """\
plan.program @step target "cpu" {
  plan.slot @x : memref<4xf32> input "x"
  plan.slot @w : memref<4xf32> param "w"
  plan.slot @lr : memref<f64> host_scalar "lr"
  plan.slot @w16 : memref<4xbf16> copy
  plan.slot @g : memref<4xbf16> temp
  plan.slot @g32 : memref<4xf32> state "g"
  plan.launch @k0 "copy_cpu" copy x(@w) -> y(@w16)
  plan.launch @k1 "relu_cpu" relu x(@w16) -> y(@g) after @k0
  plan.launch @k2 "sgd_step_cpu" sgd_step p(@w) g(@g) lr(@lr) weight_decay(@lr) -> p(@w) copy(@w16)
    {copied = array<i64: 0>, groups = array<i64: 0>} after @k1
}
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            " copy(@w16)\n    {copied = array<i64: 0>, ",
            "\n    {",
            "@k2 writes @w: expected the same value, rounded, in its copy @w16",
        ),
        (
            "copy x(@w) -> y(@w16)",
            "copy x(@g32) -> y(@w16)",
            "expected a launch that casts input or param or buffer slots",
        ),
        ('"copy_cpu" copy x(@w)', '"neg_cpu" neg x(@x16)', "which is no slot of this plan"),
        (
            'k2 "sgd',
            'k3 "neg_cpu" neg x(@g) -> y(@w16) after @k1\n  plan.launch @k2 "sgd',
            "@k3 writes @w16, the copy of @w, which it does not update",
        ),
        ("memref<4xbf16> temp", "memref<4xbf16> copy", "@k1 writes @g: expected a launch that casts"),
    ],
)
def test_plans_in_which_a_copy_would_not_last_are_refused(old: str, new: str, message: str) -> None:
    parse_module(PLAN).verify()
    assert old in PLAN
    edited = PLAN.replace(old, new)
    if "k3" in new:
        edited = edited.replace("@k1\n}", "@k1, @k3\n}")
    with pytest.raises(VerifyError, match=message):
        parse_module(edited).verify()


OF_BATCH = """\
plan.program @step target "cpu" {
  plan.slot @x : memref<4xf32> input "x"
  plan.slot @w : memref<4xf32> param "w"
  plan.slot @y : memref<4xf32> output "y"
  plan.slot @kept : memref<4xf32> copy
  plan.slot @own : memref<4xf32> temp
  plan.launch @k0 "neg_cpu" neg x(@x) -> y(@kept)
  plan.launch @k1 "relu_cpu" relu x(@kept) -> y(@kept) after @k0
  plan.launch @k2 "add_cpu" add x(@kept) y(@w) -> z(@own) after @k1
  plan.launch @k3 "add_cpu" add x(@own) y(@kept) -> z(@y) after @k2
}
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("neg x(@x) -> y(@kept)", "neg x(@w) -> y(@kept)"),
        ("add x(@kept) y(@w) -> z(@own) after @k1", "add x(@kept) y(@w) -> z(@kept) after @k1"),
        ("memref<4xf32> temp", "memref<4xf32> copy"),
    ],
)
def test_what_is_not_made_of_the_batch_alone_is_no_copy(old: str, new: str) -> None:
    """A launch that works in place is one of those that make a copy; none may read a parameter."""
    parse_module(OF_BATCH).verify()
    assert old in OF_BATCH
    edited = OF_BATCH.replace(old, new)
    if "z(@kept)" in new:
        edited = edited.replace("x(@own)", "x(@w)").replace("  plan.slot @own : memref<4xf32> temp\n", "")
    with pytest.raises(VerifyError, match="or one that reads input slots and what is made of them"):
        parse_module(edited).verify()


def test_a_copy_is_read_after_its_last_value() -> None:
    """Later steps find that value alone."""
    late = OF_BATCH.replace(
        '"relu_cpu" relu x(@kept) -> y(@kept) after @k0', '"add_cpu" add x(@kept) y(@w) -> z(@own) after @k0'
    )
    late = late.replace(
        '"add_cpu" add x(@kept) y(@w) -> z(@own) after @k1',
        '"relu_cpu" relu x(@kept) -> y(@kept) after @k0, @k1',
    )
    with pytest.raises(VerifyError, match="or one that reads input slots"):
        parse_module(late).verify()


GENERATED = """\
scalar.body @moved(%0: f32, %1: f32) -> (f32, f32) {
  %2 = arith.subf %0, %1 : f32
  %3 = arith.truncf %2 : f32 to bf16
  %4 = arith.extf %3 : bf16 to f32
  scalar.yield %2, %4 : f32, f32
}
plan.program @step target "cpu" {
  plan.slot @w : memref<4xf32> param "w"
  plan.slot @w16 : memref<4xbf16> copy
  plan.slot @g : memref<4xbf16> temp
  plan.launch @k0 "copy_cpu" copy x(@w) -> y(@w16)
  plan.launch @k1 "relu_cpu" relu x(@w16) -> y(@g) after @k0
  plan.launch @k2 "ID" map x(@w, @g) -> y(@w, @w16) {body = @moved, shape = array<i64: 4>} after @k1
}
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("truncf %2 : f32 to bf16", "truncf %1 : f32 to bf16"),
        (
            "%3 = arith.truncf %2 : f32 to bf16\n  %4 = arith.extf %3 : bf16",
            "%3 = arith.truncf %2 : f32 to f16\n  %4 = arith.extf %3 : f16",
        ),
    ],
)
def test_a_generated_update_writes_the_rounding_of_its_new_value(old: str, new: str) -> None:
    """Of another value, or to another type, it would be another number than that of the cast."""

    def planned_with(text: str) -> None:
        with pytest.raises(VerifyError) as told:
            parse_module(text).verify()
        wanted = re.search(r"that is '(gen_map_\w+)'", str(told.value))
        assert wanted is not None
        parse_module(text.replace("ID", wanted[1])).verify()

    planned_with(GENERATED)
    assert old in GENERATED
    with pytest.raises(
        VerifyError, match="@k2 writes @w: expected the same value, rounded, in its copy @w16"
    ):
        planned_with(GENERATED.replace(old, new))


def test_large_tensors_of_any_size(device: str) -> None:
    """More than one chunk, thread and block has."""
    make = Maker("f32")
    shapes = [(511,), (100_003,), (7, 4099)]
    p, g = ([make.normal(*shape) for shape in shapes] for _ in range(2))
    inputs = [*p, *g, np.array(0.1), np.array(0.01)]
    given = {"p": 3, "g": 3, "lr": 1, "weight_decay": 1}
    counts = schemas()["sgd_step"].counts(given)
    case = Case("large", inputs, [make.out(*shape) for shape in shapes], {"groups": [0] * 3}, counts)
    kernel = "sgd_step_cpu" if device == "cpu" else "sgd_step_f32"
    with_copies(case, schemas()["sgd_step"], "bf16", kernel, device)


def test_the_memory_of_copies_is_theirs_alone() -> None:
    """It is no part of that of temporaries, which each step makes anew."""
    model = mlp(64, 64, 64)
    batch = regression(16, 64, 64)
    step = compile_train_step(
        model, torch.optim.SGD(model.parameters(), lr=0.1), loss_fn=mse, example=batch, precision="bf16"
    )
    program = planned(step)
    slots = [slot for slot in program.slots.values() if slot.role.data == "copy" and slot.alias is None]
    assert len(slots) == 5, "weights, biases and the batch"
    assert program.arenas["copy"].nbytes >= sum(slot.nbytes for slot in slots)
