"""
Schedules as texts: a kernel computes the same with each, and the same text gives the same bits.

`pytest tests/py/codegen/test_schedule_texts.py --programs 200 --seed 1000` tries every candidate of 200 random kernels and of 100
random operations over windows, on the CPU, on the host as a GPU would, and on a GPU.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from bodies import check, random_values
from cuda_on_host import HostKernels
from generated_cases import GeneratedCase, dense, difference, make, random_kernel, view

from aicf_mlir.codegen import schedule
from aicf_mlir.errors import SelectionError
from aicf_mlir.ir import formula as F
from aicf_mlir.kernels.kernel import Kernel, Product, Tensor

KINDS = ("map", "rowwise", "colwise")
USUAL = 4
"""The candidates of a kernel that a usual run tries."""
MOST_TOGETHER = 60
"""Kernels that are compiled for the host together."""


def drawn(seed: int, target: str) -> Kernel:
    return random_kernel(np.random.default_rng((57, seed)), KINDS[seed % len(KINDS)], target)


def some(kernel: Kernel, seed: int, every: bool) -> list[Kernel]:
    """The candidates of a kernel, or the one that is chosen and some of the others."""
    found = schedule.candidates(kernel)
    draw = random.Random(seed)
    return found if every else [found[0], *draw.sample(found[1:], min(USUAL, len(found) - 1))]


@pytest.mark.parametrize("target", ["cpu", "sm_80", "sm_90", "sm_100"])
def test_what_is_chosen_has_a_text_that_says_it(target: str) -> None:
    forms = set[str]()
    for seed in range(90):
        kernel = drawn(seed, target)
        chosen = schedule.scheduled(kernel)
        if not chosen.schedule:
            continue
        forms.add(chosen.schedule.partition(" ")[0])
        assert chosen.id == f"{kernel.symbol}[{chosen.schedule}]"
        assert schedule.scheduled(kernel, chosen.schedule) == chosen
        assert schedule.generate(chosen) == schedule.generate(kernel)
        assert schedule.workspace(chosen) == schedule.workspace(kernel)
        found = schedule.candidates(kernel)
        assert found[0] == chosen
        assert len({each.id for each in found}) == len(found)
    assert {"map", "rows", "columns"} <= forms


def test_each_candidate_on_the_cpu(program_seed: int, request: pytest.FixtureRequest) -> None:
    kernel = drawn(program_seed, "cpu")
    values = [random_values(t.element, t.shape, program_seed + n) for n, t in enumerate(kernel.operands)]
    values = [value if value.dtype == bool else np.clip(value.astype(np.float64), -3, 3) for value in values]
    for each in some(kernel, program_seed, request.config.getoption("programs") is not None):
        found = check(each, values, scale=50, cuts=(1, 3))
        again = check(each, values, scale=50, cuts=(1, 2))
        for one, other in zip(found, again, strict=True):
            assert one.tobytes() == other.tobytes(), each.id


def test_each_candidate_of_a_gpu_on_the_host(
    program_seed: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    kernel = drawn(program_seed, "sm_90")
    case = make(f"seed {program_seed}", kernel, np.random.default_rng(program_seed))
    found = some(kernel, program_seed, request.config.getoption("programs") is not None)
    for first in range(0, len(found), MOST_TOGETHER):
        folder = tmp_path / str(first)
        folder.mkdir()
        compare(case, found[first : first + MOST_TOGETHER], folder)


def compare(case: GeneratedCase, kernels: Sequence[Kernel], folder: Path) -> None:
    """Each kernel beside NumPy, in both orders of its threads."""
    host, wrong = HostKernels(kernels, folder), list[str]()
    for kernel in kernels:
        own = replace(case, kernel=kernel)
        forwards, backwards = host.run(own), host.run(own, backwards=True)
        assert [a.tobytes() for a in forwards] == [b.tobytes() for b in backwards], kernel.id
        for number, block in enumerate(forwards):
            if why := difference(own, number, view(block, kernel.results[number])):
                wrong.append(f"{kernel.id} result {number}: {why}")
    assert not wrong, "\n".join(wrong)


def softmax(target: str) -> Kernel:
    body = F.trace(["f32"], lambda x: [F.exp(x - F.row_max(x)) / F.row_sum(F.exp(x - F.row_max(x)))])
    return Kernel("rowwise", target, body, (64, 768), 1, (dense("f32", 64, 768),), (dense("f32", 64, 768),))


def total(target: str) -> Kernel:
    body = F.trace(["f32"], lambda x: [F.row_sum(x)])
    return Kernel("colwise", target, body, (999, 40), 1, (dense("f32", 999, 40),), (dense("f32", 40),))


@pytest.mark.parametrize("target", ["cpu", "sm_90"])
def test_a_kernel_of_one_schedule_refuses_a_text(target: str) -> None:
    body = F.trace(["f32"], lambda x: [x * F.row_max(x), F.column_sum(x)])
    full = dense("f32", 64, 768)
    kernel = Kernel("rowwise", target, body, (64, 768), 1, (full,), (full, dense("f32", 768)))
    assert schedule.candidates(kernel) == [kernel]
    assert schedule.scheduled(kernel) == kernel
    with pytest.raises(SelectionError, match="expected none, a rowwise has no schedule of its own"):
        schedule.scheduled(kernel, "rows")


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100"])
@pytest.mark.parametrize(
    ("element", "tf32", "columns", "forms"),
    [
        ("bf16", False, 64, {"tile": 5, "panel": 2}),
        ("f32", True, 64, {"tile": 5, "panel": 2}),
        ("f32", False, 64, {"tile": 4, "panel": 3, "short": 1}),
        ("f32", False, 1, {"tile": 4, "panel": 3, "short": 1, "column": 1}),
        ("f64", False, 64, {"element": 1}),
    ],
)
def test_a_product_has_tiles(
    target: str, element: str, tf32: bool, columns: int, forms: dict[str, int]
) -> None:
    kernel = product_kernel(target, element, tf32, columns)
    found = schedule.candidates(kernel)
    assert found[0] == schedule.scheduled(kernel)
    assert schedule.generate(found[0]) == schedule.generate(kernel)
    counts = Counter(each.schedule.partition(" ")[0] for each in found)
    assert counts == forms
    sources = {schedule.generate(each).source.replace(each.symbol, "") for each in found}
    assert len(sources) == len(found), "each is other code"
    for each in found:
        assert schedule.scheduled(kernel, each.schedule) == each
    with pytest.raises(SelectionError, match=r"expected '(tile|element) rows=\d+ columns=\d+ resident=\d'"):
        schedule.scheduled(kernel, f"{found[0].schedule.partition(' ')[0]} rows=16 columns=7 resident=1")
    with pytest.raises(SelectionError, match="expected resident in 1 to"):
        schedule.scheduled(kernel, found[0].schedule.rpartition("=")[0] + "=99")


def product_kernel(target: str, element: str, tf32: bool, columns: int) -> Kernel:
    """Relu of a product of 12 terms."""
    z = "f64" if element == "f64" else "f32"
    body = F.trace([z], lambda x: [F.maximum(x, 0.0)])
    shape = (128, columns)
    factors = Product(dense(element, 128, 12), dense(element, 12, columns), False, False, tf32)
    return Kernel("gemm_map", target, body, shape, 0, (dense(z, *shape),), (dense(element, *shape),), factors)


def test_any_number_of_sums_has_a_schedule() -> None:
    body = F.trace(["f64"], lambda x: [F.row_sum(x * (n + 1.0)) for n in range(150)])
    kernel = Kernel(
        "colwise", "cpu", body, (30, 5), 1, (dense("f64", 30, 5),), (dense("f64", 5),) * len(body.results)
    )
    chosen = schedule.scheduled(kernel)
    assert schedule.scheduled(kernel, chosen.schedule) == chosen
    check(chosen, [np.random.default_rng(0).standard_normal((30, 5))], scale=50)


@pytest.mark.parametrize(
    ("kernel", "text", "message"),
    [
        (softmax("sm_90"), "rows", r"expected width in \[1, 2, 4\] for these tensors, got 0"),
        (softmax("sm_90"), "rows width=8 lanes=32 chunks=3 block=64", "expected width in"),
        (softmax("sm_90"), "rows width=4 lanes=48 chunks=4", "expected lanes in"),
        (
            softmax("sm_90"),
            "rows width=4 lanes=64 chunks=2",
            r"expected chunks in \[0, 3\] for 64 lanes, got 2",
        ),
        (softmax("sm_90"), "rows width=4 lanes=64 chunks=3 ahead=4", "expected ahead in"),
        (
            softmax("sm_90"),
            "rows width=4 lanes=1 chunks=192 block=64",
            "a thread has 64 registers for elements",
        ),
        (softmax("sm_90"), "rows width=4 lanes=512 parts=700", "expected parts in 2 to 192"),
        (softmax("sm_90"), "columns width=4", "expected a schedule of form rows"),
        (softmax("sm_90"), "rows width=4 width=4", "expected each of .* once at most, got width"),
        (softmax("sm_90"), "rows wide=4", "once at most, got wide"),
        (softmax("sm_90"), "rows width=04", "expected a schedule such as 'rows width=1 lanes=1"),
        (softmax("sm_90"), "rows width=-4", "expected a schedule such as"),
        (softmax("sm_90"), "rows  width=4", "expected a schedule such as"),
        (softmax("cpu"), "split block=8192", "a row has several levels of reductions"),
        (softmax("cpu"), "map chunk=2048 lanes=8", "expected a schedule of form rows or split"),
        (total("cpu"), "columns rows=65 strip=2048", "expected rows in"),
        (total("cpu"), "columns rows=64 strip=2000", "expected strip in"),
        (
            total("sm_90"),
            "columns width=4 across=16 parts=1000 batch=4",
            "expected parts in 1 to 999, got 1000",
        ),
        (total("sm_90"), "columns width=4 across=512 parts=1 batch=4", "expected across in"),
    ],
)
def test_what_a_kernel_cannot_have_is_refused(kernel: Kernel, text: str, message: str) -> None:
    with pytest.raises(SelectionError, match=message):
        schedule.scheduled(kernel, text)


def test_another_order_of_a_sum_is_in_the_text() -> None:
    """The text alone decides the bits: of two plans with other blocks of rows a sum differs in its last bits."""
    kernel = total("cpu")
    values = [np.random.default_rng(0).standard_normal((999, 40)).astype(np.float32)]
    texts = ("columns rows=64 strip=2048", "columns rows=16 strip=2048")
    one, other = (check(schedule.scheduled(kernel, text), values, scale=50)[0] for text in texts)
    assert one.tobytes() != other.tobytes()


@pytest.mark.parametrize(
    ("read", "written", "form"),
    [
        ((768, 1), (768, 1), "rows"),
        ((1, 64), (1, 64), "beside"),
        ((1, 64), (768, 1), "beside"),
        ((768, 1), (1, 64), "rows"),
    ],
)
def test_rows_that_lie_side_by_side_have_a_lane_each(
    read: tuple[int, int], written: tuple[int, int], form: str
) -> None:
    """By what is read in three walks over a row, and written once."""
    kernel = softmax("cpu")
    shape = kernel.domain
    laid_out = replace(
        kernel, operands=(Tensor("f32", shape, read),), results=(Tensor("f32", shape, written),)
    )
    assert schedule.scheduled(laid_out).schedule.partition(" ")[0] == form
