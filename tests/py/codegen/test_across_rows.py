"""Rows that lie across: blocks share each row, and meet between walks. Here as a launch for each walk, on the host; on a GPU
`tests/gpu/generated_kernels.py` runs both forms, and `runtime/test_norms_of_batches.py` whole steps.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from across_cases import CASES, SHAPES, across_case, gradient, normalised
from cuda_on_host import HostKernels
from generated_cases import difference, make, view
from native_code import run

from aicf_mlir.codegen import schedule
from aicf_mlir.codegen.cuda.across_schedules import AcrossSchedule, exchanged, streams
from aicf_mlir.codegen.cuda.horizontal import part_of
from aicf_mlir.codegen.cuda.moments import rounds_of
from aicf_mlir.codegen.cuda.row_forms import schedule_of
from aicf_mlir.errors import SelectionError
from aicf_mlir.ir.chips import chip_of


@pytest.mark.parametrize("name", CASES)
def test_each_kernel_is_what_it_means(name: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    cases = [across_case(name, *shape, rng) for shape in SHAPES]
    assert all(isinstance(schedule_of(case.kernel), AcrossSchedule) for case in cases)
    host = HostKernels([case.kernel for case in cases], tmp_path)
    for case in cases:
        for backwards in (False, True):
            for number, got in enumerate(host.run(case, backwards=backwards)):
                what = difference(case, number, view(got, case.kernel.results[number]))
                assert not what, f"{case.name}, result {number}: {what}"


@pytest.mark.parametrize("name", ["normalised", "gradient"])
def test_every_schedule_is_what_it_means(name: str, tmp_path: Path) -> None:
    case = across_case(name, "f32", 40, 90, np.random.default_rng(4))
    found = [k for k in schedule.candidates(case.kernel) if k.schedule.startswith("across")]
    assert len(found) > 8
    host = HostKernels(found, tmp_path)
    for kernel in found:
        results = host.run(replace(case, kernel=kernel))
        for number, got in enumerate(results):
            what = difference(case, number, view(got, kernel.results[number]))
            assert not what, f"{kernel.schedule}, result {number}: {what}"


def test_a_result_may_take_the_place_of_what_is_read_again(tmp_path: Path) -> None:
    case = across_case("normalised", "f32", 64, 300, np.random.default_rng(5))
    assert (0, 0) in case.kernel.in_place
    host = HostKernels([case.kernel], tmp_path)
    apart, over = host.run(case), host.run(case, in_place=(0, 0))
    assert all(np.array_equal(x, y) for x, y in zip(apart, over, strict=True))


def test_a_variance_keeps_its_digits_far_from_zero(tmp_path: Path) -> None:
    """The first element may be like no other, and the mean may be 1000 times the deviation."""
    kernel, count = normalised("f32", 32, 512 * 3), 512 * 3
    rng = np.random.default_rng(6)
    x = rng.normal(1000, 1, (count, 32))
    x[0] += 50
    x[1::7, 5] = 1000
    blocks = [x.astype(np.float32).ravel(), *(np.ones(32, np.float32) for _ in range(2))]
    case = make("far", kernel, rng, blocks)
    got = HostKernels([kernel], tmp_path).run(case)
    for number, results in enumerate(got):
        want = case.expected[number]
        assert np.allclose(view(results, kernel.results[number]), want, rtol=2e-5, atol=2e-3)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("where", [0, 700])
def test_what_is_no_number_stays_in_its_row(value: float, where: int, tmp_path: Path) -> None:
    kernel, count = normalised("f32", 16, 1100), 1100
    rng = np.random.default_rng(7)
    x = rng.normal(0, 1, (count, 16)).astype(np.float32)
    x[where, 3] = value
    case = make("inf", kernel, rng, [x.ravel(), *(np.ones(16, np.float32) for _ in range(2))])
    y, mean, variance = (
        view(got, tensor)
        for got, tensor in zip(HostKernels([kernel], tmp_path).run(case), kernel.results, strict=True)
    )
    assert np.isnan(variance[3]) and not np.isfinite(mean[3])
    others = np.arange(16) != 3
    assert np.isfinite(y[others]).all() and np.isfinite(variance[others]).all()


def test_a_variance_takes_one_walk() -> None:
    assert len(rounds_of(normalised("f32", 64, 2000))) == 2


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100"])
def test_blocks_that_wait_for_each_other_fit_on_the_chip(name: str, target: str) -> None:
    for element, rows, length in SHAPES:
        kernel = replace(
            across_case(name, element, rows, length, np.random.default_rng(0)).kernel, target=target
        )
        code = schedule.generate(kernel)
        assert (code.together is None) == (len(code.phases) == 1)
        if code.together is not None:
            assert code.together.count <= chip_of(target).processors
            assert all(phase.count == code.together.count and not phase.shared for phase in code.phases)
            plan = schedule_of(kernel)
            assert isinstance(plan, AcrossSchedule)
            assert code.together.shared + exchanged(kernel, plan) < chip_of(target).shared_of_block


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("across width=16 across=8 parts=2 batch=1", "expected width"),
        ("across width=4 across=3 parts=2 batch=1", "expected across"),
        ("across width=4 across=8 parts=9000 batch=1", "expected parts"),
        ("across width=4 across=8 parts=2 batch=3", "expected batch"),
        ("across width=4 across=8 parts=2 batch=1 kept=4000", "expected kept"),
    ],
)
def test_a_text_that_the_kernel_cannot_have_is_refused(text: str, why: str) -> None:
    with pytest.raises(SelectionError, match=why):
        schedule.scheduled(normalised("f32", 64, 2000), text)


def test_rows_that_lie_along_have_no_such_schedule() -> None:
    kernel = normalised("f32", 64, 2000)
    dense = replace(
        kernel,
        operands=tuple(replace(t, strides=(2000, 1) if t.strides[1] else t.strides) for t in kernel.operands),
        results=tuple(replace(t, strides=(2000, 1)) if len(t.shape) == 2 else t for t in kernel.results),
    )
    with pytest.raises(SelectionError, match="do not lie across"):
        schedule.scheduled(dense, "across width=1 across=8 parts=2 batch=1")


@pytest.mark.parametrize("name", [name for name in CASES if name != "totals"])
def test_a_colwise_kernel_goes_on_after_its_sums(name: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    shapes = [*SHAPES, ("f32", 1, 40), ("f32", 33, 1), ("f32", 5, 3)]
    cases = [across_case(name, *shape, rng, columns=True) for shape in shapes]
    assert all(case.kernel.goes_on for case in cases)
    host = HostKernels([case.kernel for case in cases], tmp_path)
    for case in cases:
        for number, got in enumerate(host.run(case)):
            what = difference(case, number, view(got, case.kernel.results[number]))
            assert not what, f"{case.name}, result {number}: {what}"


@pytest.mark.parametrize("name", [name for name in CASES if name != "totals"])
def test_so_it_does_on_a_cpu(name: str) -> None:
    for shape in (*SHAPES, ("f32", 1, 40), ("f32", 33, 1), ("f32", 5, 3)):
        case = across_case(name, *shape, np.random.default_rng(9), columns=True)
        kernel = replace(case.kernel, target="cpu")
        for number, got in enumerate(run(kernel, case.operands)):
            what = difference(case, number, view(got, kernel.results[number]))
            assert not what, f"{case.name}, result {number}: {what}"


def test_a_later_walk_reads_what_an_earlier_one_has_written() -> None:
    kernel = gradient("f32", 64, 2000)
    first, second = rounds_of(kernel)
    assert streams(kernel, first) == [0, 1, 2]
    assert streams(kernel, second) == [2, len(kernel.operands)]


def test_a_launch_that_goes_on_is_no_member_of_another() -> None:
    kernel = across_case("normalised", "f32", 8, 8, np.random.default_rng(1), columns=True).kernel
    assert part_of(kernel) == "a colwise has more than one part"
