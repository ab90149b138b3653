"""A value of f16 or bf16 has one value, whatever reads it and whatever is fused: in random programs, and of each pair of ops.

Each program runs by the runtime and, at one stage or at all, by the interpreter. `-k pairs --campaign` has all pairs.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence

import ml_dtypes
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from costs import Some
from function_checks import of_text
from narrow_programs import (
    DTYPES,
    FUNCTIONS,
    READERS,
    Batch,
    Ends,
    Function,
    NarrowProgram,
    narrow_program,
)
from samples.pointwise import CASES
from torch import Tensor, nn

from aicf_mlir import compile_train_step
from aicf_mlir.dialects.nn.rows import ROWS
from aicf_mlir.interpreters.numerics import Array
from aicf_mlir.ir.signature import Key

STAGES = ("nn", "lowered", "fused", "kernel", "plan")
BLOCK = 10
"""Random programs of one test."""


def to_array(tensor: Tensor) -> Array:
    """The same numbers, of NumPy."""
    if tensor.dtype is torch.bfloat16:
        return tensor.detach().contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.detach().cpu().contiguous().numpy()


def to_tensor(array: Array) -> Tensor:
    """The same numbers, of torch."""
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(np.array(array))


def stage_of(number: int) -> tuple[str]:
    """One stage in turn: reading and printing a text is most of the time of a program."""
    return (STAGES[number % len(STAGES)],)


def faults(program: NarrowProgram, device: str, stages: Sequence[str] = STAGES) -> Iterator[str]:
    """What is wrong, at these stages and where it runs."""
    model, batch = program.model(), program.batch()
    expected = model(batch["x"]).detach()
    moved = {name: value.to(device) for name, value in batch.items()}
    step = program.compiled(copy.deepcopy(model).to(device), moved, device)
    step.eval_step(moved)
    runs: dict[str, Ends] = {device: {name: value.cpu() for name, value in step.outputs.items()}}
    given: dict[Key, Array] = {("input", name): to_array(value) for name, value in batch.items()}
    given |= {("param", "w"): to_array(model.w), ("status", "failed"): np.zeros(3, np.int64)}
    store = step._store  # pyright: ignore[reportPrivateUsage]
    given |= {("buffer", name): to_array(store.view("buffer", name)) for name in store.of_role("buffer")}
    for stage in stages if device == "cpu" else ():
        made = of_text(step.ir(stage), stage, given)
        runs[stage] = {name: to_tensor(value) for (_, name), value in made.items()}
    step.close()
    for name, ends in runs.items():
        for fault in program.faults(batch, ends):
            yield f"{program} by {name}: {fault}"
        if fault := differs(ends["y"], expected, program):
            yield f"{program} by {name}: y {fault}"


def differs(y: Tensor, expected: Tensor, program: NarrowProgram) -> str:
    """Why y is not that of torch eager in its own type, bit for bit where it can be; else as some roundings may have it."""
    if program.exact:
        return "" if torch.equal(y, expected) else f"{y} is not {expected}"
    unit = torch.finfo(program.dtype).eps
    allowed = 16 * unit * (expected.float().abs() + expected.float().abs().max() / 4)
    return (
        "" if bool(((y.float() - expected.float()).abs() <= allowed).all()) else f"{y} is not near {expected}"
    )


@pytest.mark.parametrize("block", range(200))
def test_what_reads_a_value_reads_one_value(block: int, device: str, some: Some) -> None:
    found = [
        fault
        for seed in some(range(block * BLOCK, (block + 1) * BLOCK))
        for fault in faults(narrow_program(seed), device, stage_of(seed))
    ]
    assert not found, "\n".join(found)


def of_row(name: str, number: int) -> Function:
    """A row of the registry as a function of y and w; what it gives of other types selects among numbers."""
    case = CASES[name][number]
    count = len(ROWS[name].operands)
    made = [np.asarray(fill(np.random.default_rng(7), (1, 64))) for fill in case.fills]
    ranges = [(float(values.min()), float(values.max()), values.dtype == np.float64) for values in made]
    of, parameters = case.torch, dict(case.parameters)

    def apply(y: Tensor, w: Tensor) -> Tensor:
        others = [y, w, w][:count]
        for at, (low, high, is_float) in enumerate(ranges):  # where it is defined
            others[at] = torch.sigmoid(others[at]) * (high - low) + low if is_float else others[at] > 0
        found = of(*others, **parameters)
        return found if found.is_floating_point() else torch.where(found != 0, y, w)

    return Function(f"{name}{number or ''}", apply, exact=False)


ROWS_OF_FLOATS = [
    (name, number)
    for name, cases in CASES.items()
    if "bf16" in ROWS[name].takes
    for number in range(len(cases))
]


PARTS = 7
"""Into which the readers are divided: those of one part read side by side."""


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("element", DTYPES)
@pytest.mark.parametrize(("name", "number"), ROWS_OF_FLOATS)
def test_pairs(name: str, number: int, element: str, part: int, device: str) -> None:
    """Each pointwise op with each reader of its value; y is torch's to what the roundings of both may do."""
    readers = tuple(READERS)[part::PARTS]
    program = NarrowProgram(element, (4, 9), (of_row(name, number),), readers, 11)
    found = list(faults(program, device, stage_of(part + len(name))))
    assert not found, "\n".join(found)


@pytest.mark.parametrize("element", DTYPES)
def test_an_order_of_what_is_computed_has_each_element_once(element: str, device: str) -> None:
    """A mixture of experts routes by it."""
    affine = next(function for function in FUNCTIONS if function.name == "affine")
    weighted = next(function for function in FUNCTIONS if function.name == "mul")
    for reader in ("sort", "sort downwards", "argsort", "topk", "kthvalue"):
        program = NarrowProgram(element, (16, 33), (weighted, affine), (reader,), 5)
        assert not list(faults(program, device))


@pytest.mark.parametrize("precision", DTYPES)
def test_a_probability_that_rounds_to_one_does_not_divide_by_nothing(precision: str, device: str) -> None:
    """The gradient of its logarithm is divided by 1e-12 there, and multiplied by the sigmoid's, which is 0 there."""
    torch.manual_seed(0)
    linear = nn.Linear(8, 4)
    with torch.no_grad():
        linear.weight.mul_(8)
    model = nn.Sequential(linear, nn.Sigmoid()).to(device)
    batch = {"x": torch.randn(16, 8, device=device) * 3, "t": torch.rand(16, 4, device=device).round()}

    def loss(model: nn.Module, batch: Batch) -> Tensor:
        y = model(batch["x"])
        with torch.autocast(batch["x"].device.type, enabled=False):
            return F.binary_cross_entropy(y.float(), batch["t"])

    reference = copy.deepcopy(model)
    with torch.autocast(torch.device(device).type, DTYPES[precision]):
        expected = loss(reference, batch)
    expected.backward()
    torch.optim.SGD(reference.parameters(), lr=0.1).step()
    step = compile_train_step(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        loss_fn=loss,
        example=batch,
        device=device,
        precision=precision,
        loss_scale=None,
    )
    torch.testing.assert_close(step.train_step(batch), expected.detach(), rtol=1e-2, atol=1e-2)
    for got, wanted in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(got.detach(), wanted.detach(), rtol=1e-2, atol=1e-2, equal_nan=True)


def test_what_is_wrong_is_found() -> None:
    """An element that comes twice, and a sum of numbers that nobody stored."""
    program = NarrowProgram("bf16", (4, 9), FUNCTIONS[:1], ("sort", "sum"), 3)
    model, batch = program.model(), program.batch()
    y = model(batch["x"]).detach()
    right = {
        "y": y,
        "sort0": y.sort(-1)[0],
        "sort1": torch.sort(y, dim=-1, stable=True)[1],
        "sum0": y.float().sum(),
    }
    assert not program.faults(batch, right)
    twice = right["sort0"].clone()
    twice[0, 1] = twice[0, 0]
    (fault,) = program.faults(batch, {**right, "sort0": twice})
    assert fault == "sort: [1] elements are not those of its y"
    unrounded = (batch["x"].float() + model.w.float()).sum().detach()
    (fault,) = program.faults(batch, {**right, "sum0": unrounded})
    assert fault.startswith("sum: ")
