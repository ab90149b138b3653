"""Schedules of generated CUDA kernels beside the one that is chosen: each is what NumPy computes, on the host."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from cuda_on_host import HostKernels
from generated_cases import GeneratedCase, dense, difference, make, view
from generated_models import SIDE_BY_SIDE, columns_as_rows, model_kernel

from aicf_mlir.codegen import nvrtc
from aicf_mlir.codegen.cuda import beside_schedules, generate, maps, row_schedules, rows, rows_beside
from aicf_mlir.codegen.cuda.pieces import with_pieces
from aicf_mlir.codegen.cuda.rows_and_columns import WalkSchedule, code
from aicf_mlir.ir import formula as F
from aicf_mlir.kernels.column_sums import together
from aicf_mlir.kernels.kernel import Code, Kernel, Tensor

SHAPES = ((37, 96), (300, 160), (5, 1024), (1, 64))


@dataclass(frozen=True)
class Scheduled:
    """A case with the code of one schedule."""

    case: GeneratedCase
    code: Code


def finished(made: Code) -> Code:
    return Code(with_pieces(made.source), made.phases, made.workspace)


def gradients(element: str, shape: tuple[int, int]) -> Kernel:
    """Those of a layer norm."""
    return model_kernel("layer_norm_gradients", element, *shape)


def scaled(shape: tuple[int, int]) -> Kernel:
    """A column sum whose operand the rows do not have, what lies behind it, and a sum of the same along the row."""
    full, by_row = dense("f32", *shape), Tensor("f32", shape, (1, 0))
    weights = Tensor("f32", shape, (0, 1))
    body = F.trace(
        ["f32"] * 3,
        lambda x, w, y: [
            x * F.row_max(w), F.row_sum(x), F.column_sum(x * y) * 0.5 + w, F.column_sum(x), F.row_sum(x * y),
        ],
    )  # fmt: skip
    one, column = dense("f32", shape[0]), dense("f32", shape[1])
    results = (full, one, column, column, one)
    return Kernel("rowwise", "sm_90", body, shape, 1, (full, weights, by_row), results)


def walks() -> Iterator[Scheduled]:
    makers = [(e, lambda s, e=e: gradients(e, s)) for e in ("f32", "bf16")] + [("other", scaled)]
    for shape in SHAPES:
        for label, maker in makers:
            kernel = maker(shape)
            case = make(f"{label} {shape}", kernel, np.random.default_rng(shape[0]))
            both = together(kernel)
            plan = replace(row_schedules.schedule(both.rows), read_once=False)
            for lanes, groups, blocks, ahead, keep in (
                (32, 1, 3, False, False),
                (32, 4, 2, True, False),
                (64, 2, 3, True, True),
                (64, 1, 40, False, True),
                (16, 4, 3, True, True),
            ):
                row = replace(plan, lanes=lanes, chunks=-(-plan.vectors // lanes))
                yield Scheduled(case, finished(code(both, WalkSchedule(row, groups, blocks, ahead, keep))))


def singles() -> Iterator[Scheduled]:
    for element in ("f32", "bf16"):
        for name in ("layer_norm", "softmax"):
            case = make(name, model_kernel(name, element, 37, 768), np.random.default_rng(1))
            plan = row_schedules.schedule(case.kernel)
            for lanes, block, once in ((32, 32, False), (32, 256, True), (64, 128, True), (256, 128, False)):
                chunks = -(-plan.vectors // lanes)
                chosen = replace(plan, lanes=lanes, chunks=chunks, block=block, read_once=once)
                yield Scheduled(case, finished(rows.code(case.kernel, chosen)))
        for size in ((37, 96), (64, 64)):
            case = make("gelu", model_kernel("gelu", element, *size), np.random.default_rng(1))
            plan = maps.schedule(case.kernel)
            for vectors, threads in ((1, 128), (4, 32), (2, 256)):
                chosen = replace(plan, vectors=vectors, threads=threads, resident=2)
                yield Scheduled(case, finished(maps.code(case.kernel, chosen)))


def side_by_side() -> Iterator[Scheduled]:
    for element in ("f32", "bf16"):
        for count, length in SIDE_BY_SIDE:
            kernel = columns_as_rows(element, count, length)
            case = make(f"{count} columns of {length}", kernel, np.random.default_rng(length))
            plan = beside_schedules.beside(kernel)
            assert plan is not None
            yield Scheduled(case, finished(rows_beside.code(kernel, plan)))
            for lanes, held, side in ((1, False, 64), (4, True, 32), (8, False, 128), (16, True, 32)):
                chunks = -(-plan.vectors // lanes) if held else 0
                chosen = replace(plan, lanes=lanes, chunks=chunks, side=side)
                yield Scheduled(case, finished(rows_beside.code(kernel, chosen)))


def test_many_short_rows_of_single_elements_have_a_part_of_a_warp() -> None:
    """Of four tensors, 49 columns wide: a block for each row would have one element a thread. Few rows have one."""
    for rows_, expected in (
        (602_112, "[rows width=1 lanes=16 chunks=4 block=64]"),
        (64, "lanes=64 chunks=1]"),
    ):
        shape = (rows_, 49)
        full, wide = dense("bf16", *shape), dense("f32", *shape)
        body = F.trace(["bf16", "f32"], lambda x, y: [x + y - F.row_max(x + y), (x - F.row_max(x + y))])
        kernel = Kernel("rowwise", "sm_90", body, shape, 1, (full, wide), (wide, full))
        assert expected in f"[{row_schedules.schedule(kernel).text}]"


def test_rows_that_lie_one_after_the_other_are_not_side_by_side() -> None:
    kernel = model_kernel("softmax", "f32", 37, 768)
    assert beside_schedules.beside(kernel) is None


@pytest.mark.parametrize("source", [walks, singles, side_by_side])
def test_every_schedule_is_what_numpy_computes(source: object, tmp_path: Path) -> None:
    assert callable(source)
    found: list[Scheduled] = list(source())  # pyright: ignore[reportUnknownArgumentType]
    numbered = [
        replace(item.case, kernel=replace(item.case.kernel, target=f"sm_{n}")) for n, item in enumerate(found)
    ]
    host = HostKernels(
        [case.kernel for case in numbered],
        tmp_path,
        {case.kernel.id: item.code for case, item in zip(numbered, found, strict=True)},
    )
    wrong: list[str] = []
    for case in numbered:
        forwards, backwards = host.run(case), host.run(case, backwards=True)
        assert [a.tobytes() for a in forwards] == [b.tobytes() for b in backwards], case.name
        for number, block in enumerate(forwards):
            if why := difference(case, number, view(block, case.kernel.results[number])):
                wrong.append(f"{case.name} {case.kernel.target} result {number}: {why}")
        assert all((block.view(np.uint8) == 0xFF).all() for block in host.run(case, skip=True)), case.name
    assert not wrong, "\n".join(wrong)


@pytest.mark.nvrtc
@pytest.mark.parametrize("shape", [(32768, 768), (4096, 1024)])
@pytest.mark.parametrize("element", ["f32", "bf16"])
def test_the_gradients_of_a_norm_compile_without_spills(element: str, shape: tuple[int, int]) -> None:
    made = generate(gradients(element, shape))
    report = nvrtc.compile_with_report(made.source, "sm_90")[1]
    assert report.count("0 bytes spill stores, 0 bytes spill loads") == len(made.phases) == 2


@pytest.mark.parametrize("shape", [(37, 96), (3, 12000), (40, 6), (5, 1)])
def test_in_place_column_sums_are_the_same(shape: tuple[int, int], tmp_path: Path) -> None:
    """In one walk, and as a kernel of columns before one of rows."""
    case = make("in place", gradients("f32", shape), np.random.default_rng(1))
    host = HostKernels([case.kernel], tmp_path)
    apart = host.run(case)
    assert not any(difference(case, n, view(b, case.kernel.results[n])) for n, b in enumerate(apart))
    assert (0, 3) not in case.kernel.in_place
    for place in ((0, 0), (0, 1), (0, 2)):
        assert place in case.kernel.in_place
        assert [a.tobytes() for a in host.run(case, in_place=place)] == [a.tobytes() for a in apart]


def test_what_lies_behind_column_sums_is_not_overwritten() -> None:
    shape = (1, 64)
    full, column, repeated = dense("f32", *shape), dense("f32", 64), Tensor("f32", shape, (0, 1))
    body = F.trace(["f32", "f32"], lambda x, w: [x * w + F.row_max(x), F.column_sum(x) * w])
    kernel = Kernel("rowwise", "sm_90", body, shape, 1, (full, repeated), (full, column))
    kernel.verify()
    assert kernel.in_place == {(0, 0)}


def test_a_division_of_a_row_is_right_for_every_divisor(tmp_path: Path) -> None:
    ends = [
        0.0,
        1e-45,
        1e-40,
        1.1e-38,
        1.2e-38,
        1e-20,
        0.7,
        1.0,
        3.0,
        1e20,
        8.5e37,
        1.7e38,
        3.4e38,
        np.inf,
        np.nan,
    ]
    y = np.array([sign * end for end in ends for sign in (1, -1)], np.float32)
    x = np.tile(np.array([*ends, 49.0, -2.0], np.float32), (len(y), 1))
    full, by_row = dense("f32", *x.shape), Tensor("f32", x.shape, (1, 0))
    body = F.trace(["f32", "f32"], lambda a, b: [a / b, F.row_max(a)])
    kernel = Kernel("rowwise", "sm_90", body, x.shape, 1, (full, by_row), (full, dense("f32", len(y))))
    made = finished(rows.code(kernel, row_schedules.schedule(kernel)))
    assert "shared_quotient" in made.source
    case = make("quotients", kernel, np.random.default_rng(0), [x.reshape(-1), y])
    got = HostKernels([kernel], tmp_path).run(case)[0].reshape(x.shape)
    with np.errstate(all="ignore"):
        want = x / y[:, None]
        near = np.abs(got.astype(np.float64) - want) <= np.maximum(2.0**-22 * np.abs(want), 2e-45)
    assert (near | (got == want) | (np.isnan(got) & np.isnan(want))).all(), (got, want)
