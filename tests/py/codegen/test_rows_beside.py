"""Rows that lie side by side, as of a sum over a middle dimension: a thread has neighbouring rows. Here on the host."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from beside_cases import NAMES, beside, beside_case
from cuda_on_host import HostKernels
from generated_cases import difference, make, view

from aicf_mlir.codegen import nvrtc, schedule
from aicf_mlir.codegen.cuda.row_forms import given
from aicf_mlir.codegen.cuda.row_schedules import RowSchedule
from aicf_mlir.errors import SelectionError
from aicf_mlir.kernels.kernel import Kernel

Dims = tuple[int, ...]
SHAPES: tuple[tuple[str, Dims, Dims], ...] = (
    ("bf16", (3, 9, 4, 16), (1,)),
    ("bf16", (5, 4, 14), (1,)),
    ("f16", (2, 3, 5, 7, 28), (1, 3)),
    ("f32", (2, 70, 36), (1,)),
    ("f32", (130, 2, 5), (1,)),
    ("f64", (2, 11, 6), (1,)),
)
"""The last dimension is kept: 8, 2, 4, 4, 1 and 2 of its elements are read at once."""


def sided(kernel: Kernel) -> list[Kernel]:
    """The kernel with each schedule of rows side by side."""
    return [each for each in schedule.candidates(kernel) if "side=" in each.schedule]


def plan_of(kernel: Kernel) -> RowSchedule:
    """The schedule that a kernel names."""
    plan = given(kernel, kernel.schedule)
    assert isinstance(plan, RowSchedule)
    return plan


@pytest.mark.parametrize(("element", "shape", "dims"), SHAPES)
@pytest.mark.parametrize("name", NAMES)
def test_each_kernel_is_what_it_means(
    name: str, element: str, shape: Dims, dims: Dims, tmp_path: Path
) -> None:
    case = beside_case(name, element, shape, dims)
    found = sided(case.kernel)
    assert found and found[0].schedule == schedule.scheduled(case.kernel).schedule
    host = HostKernels(some := found[:: -(-len(found) // 12)], tmp_path)
    for kernel in some:
        own = replace(case, kernel=kernel)
        forwards, backwards = host.run(own), host.run(own, backwards=True)
        assert [a.tobytes() for a in forwards] == [b.tobytes() for b in backwards], kernel.id
        for number, block in enumerate(forwards):
            why = difference(own, number, view(block, kernel.results[number]))
            assert not why, f"{kernel.id} result {number}: {why}"


@pytest.mark.parametrize("shape", [(3, 70, 32), (6, 5, 20)])
def test_a_row_is_added_by_lanes_from_first_to_last(shape: Dims, tmp_path: Path) -> None:
    """The bits of each schedule are those of this order, for any width."""
    kernel = beside("total", "f32", shape, (1,))
    x = np.random.default_rng(0).uniform(1, 1000, shape).astype(np.float32)
    case = make("order", kernel, np.random.default_rng(0), [x.ravel()])
    found = sided(kernel)
    assert {plan_of(each).width for each in found} == {1, 2, 4}
    host = HostKernels(found, tmp_path)
    for each in found:
        lanes = plan_of(each).lanes
        sums = np.zeros((lanes, shape[0], shape[2]), np.float32)
        for place in range(shape[1]):
            sums[place % lanes] += x[:, place]
        want = sums[0]
        for lane in range(1, lanes):
            want = want + sums[lane]
        (got,) = host.run(replace(case, kernel=each))
        assert np.array_equal(view(got, each.results[0]), want), each.id


def test_a_result_may_take_the_place_of_an_operand(tmp_path: Path) -> None:
    for name in ("softmax", "mixed"):
        case = beside_case(name, "f32", (2, 40, 24), (1,))
        found = sided(case.kernel)[:6]
        pair = next(iter(case.kernel.in_place))
        (folder := tmp_path / name).mkdir()
        host = HostKernels(found, folder)
        for kernel in found:
            own = replace(case, kernel=kernel)
            apart, over = host.run(own), host.run(own, in_place=pair)
            assert all(np.array_equal(x, y) for x, y in zip(apart, over, strict=True)), kernel.id


MEASURED: tuple[tuple[str, str, Dims, Dims, str], ...] = (
    ("total", "bf16", (64, 2, 28, 28, 28, 28), (4,), "width=4 lanes=1 ahead=16 side=128"),
    ("total", "bf16", (64, 1, 56, 56, 14, 14), (4,), "width=2 lanes=1 ahead=16 side=128"),
    ("total", "bf16", (64, 8, 7, 7, 7, 7), (4,), "width=1 lanes=1 ahead=8 side=128"),
    ("largest", "bf16", (64, 4, 784, 192), (1,), "width=8 lanes=1 ahead=4 side=128"),
    ("shared", "bf16", (64, 4, 784, 192), (1,), "width=8 lanes=1 chunks=4 side=128"),
    ("total", "bf16", (64, 197, 768), (1,), "width=4 lanes=8 ahead=16 side=32"),
    ("total", "bf16", (64, 56, 56, 256), (1, 2), "width=2 lanes=16 ahead=16 side=32"),
    ("total", "bf16", (64, 14, 14, 1024), (1, 2), "width=8 lanes=8 ahead=8 side=32"),
    ("softmax", "bf16", (64, 81, 4096), (1,), "width=4 lanes=16 chunks=6 side=32"),
    ("softmax", "f32", (64, 1024, 4096), (1,), "width=1 lanes=32 ahead=16 side=32"),
    ("total", "f32", (8, 1000, 64), (1,), "width=1 lanes=32 ahead=16 side=32"),
)
"""Reductions of vision transformers and of others; few rows have many threads, and those few neighbours."""


@pytest.mark.parametrize(("name", "element", "shape", "dims", "text"), MEASURED)
def test_the_schedule_follows_from_sizes_and_strides(
    name: str, element: str, shape: Dims, dims: Dims, text: str
) -> None:
    kernel = schedule.scheduled(beside(name, element, shape, dims))
    assert kernel.schedule == f"rows {text}"
    assert kernel.id.endswith(f"[rows {text}]")


def test_the_width_divides_rows_strides_and_alignment() -> None:
    kernel = beside("total", "bf16", (64, 4, 784, 192), (1,))
    (x,) = kernel.operands
    for tensor, width in (
        (x, 8),
        (replace(x, alignment=8), 4),
        (replace(x, alignment=2), 1),
        (replace(x, strides=(x.strides[0] + 2, *x.strides[1:])), 2),
        (replace(x, strides=(*x.strides[:-1], x.strides[-1] + 4)), 4),
    ):
        found = schedule.scheduled(replace(kernel, operands=(tensor,)))
        assert f"rows width={width} lanes=1 " in found.schedule


def test_rows_of_three_neighbours_do_not_lie_side_by_side() -> None:
    assert "side=" not in schedule.scheduled(beside("total", "bf16", (1000, 60, 3), (1,))).schedule
    assert "side=" in schedule.scheduled(beside("total", "bf16", (1000, 60, 4), (1,))).schedule
    assert "side=" not in schedule.scheduled(beside("total", "bf16", (1000, 600, 4), (1,))).schedule


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("rows width=16 lanes=1 ahead=4 side=32", "expected width in"),
        ("rows width=8 lanes=1 ahead=4 side=48", "expected side in"),
        ("rows width=8 lanes=8 ahead=4 side=256", "expected lanes in"),
        ("rows width=8 lanes=1 ahead=32 side=32", "expected ahead in"),
        ("rows width=8 lanes=1 chunks=5 side=32", "expected chunks in"),
        ("rows width=8 lanes=1 ahead=4 once=1 side=32", "expected once in"),
        ("rows width=8 lanes=1 ahead=4 block=64 side=32", "expected block in"),
        ("rows width=8 lanes=32 ahead=1 side=32", "more than there is shared memory"),
    ],
)
def test_what_such_rows_cannot_have_is_refused(text: str, why: str) -> None:
    kernel = beside("mixed", "bf16", (64, 4, 784, 192), (1,))
    with pytest.raises(SelectionError, match=why):
        schedule.scheduled(kernel, text)


@pytest.mark.nvrtc
@pytest.mark.parametrize(("name", "element", "shape", "dims"), [row[:4] for row in MEASURED])
def test_what_is_chosen_compiles_without_spills(name: str, element: str, shape: Dims, dims: Dims) -> None:
    made = schedule.generate(beside(name, element, shape, dims))
    report = nvrtc.compile_with_report(made.source, "sm_90")[1]
    assert "bytes spill stores" in report and not nvrtc.spills(report), report


@pytest.mark.parametrize("name", NAMES)
def test_neighbours_are_read_and_written_at_once(name: str) -> None:
    kernel = schedule.scheduled(beside(name, "bf16", (64, 4, 784, 192), (1,)))
    width = plan_of(kernel).width
    assert width == 8
    made = schedule.generate(kernel).source
    assert f"load<{width}>(p0 + " in made and "store(" in made
