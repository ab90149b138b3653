"""Kernels of the samples that index and walk rows, as CUDA C++: run on the host, thread by thread."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from cuda_on_host import HostKernels
from generated_cases import GeneratedCase, difference, span, view
from generated_shapes import across_cases, few_row_cases
from programs import run_pipeline, step_function
from samples import indexing, windows
from torch.nn.grad import conv2d_weight

from aicf_mlir.codegen.schedule import scheduled
from aicf_mlir.dialects import kernel
from aicf_mlir.dialects.generated import GeneratedOp, Selection
from aicf_mlir.interpreters import run_function
from aicf_mlir.interpreters.numerics import widen
from aicf_mlir.kernels.kernel import Kernel
from aicf_mlir.text.parsing import parse_module


def cases(element: str) -> Iterator[GeneratedCase]:
    """Those that are one launch of their operands."""
    for sample in (*indexing.indexing(), *windows.windows()):
        module, values = sample.module(element), sample.values(element)
        lowered = run_pipeline(module, "decompose,lower")
        function = step_function(lowered)
        launches = [op for op in function.body.block.ops if isinstance(op, GeneratedOp)]
        if len(launches) != 1 or any(0 in value.shape for value in values):
            continue
        made: Kernel | None = Selection(lowered, "sm_90").generated(launches[0].use)
        assert made is not None
        owners = [function.args.index(kernel.block_of(operand)) for operand in launches[0].operands]  # type: ignore
        blocks = [
            np.ascontiguousarray(values[at]).reshape(-1)[: span(tensor)].copy()
            for at, tensor in zip(owners, made.operands, strict=True)
        ]
        expected = run_function(module, values)
        results = [
            widen(each).reshape(t.shape) if "f" in t.element else each.reshape(t.shape)
            for each, t in zip(expected, made.results, strict=True)
        ]
        name = f"{sample.op_type().name} {sample.name}"
        yield GeneratedCase(name, made, tuple(blocks), tuple(results))


PRODUCT = """
func.func @f(%x: tensor<1x{own}x{side}x{side}xf32>, %dy: tensor<1x{filters}x{side}x{side}xf32>)
    -> tensor<{filters}x{own}x3x3xf32> {{
  %0 = nn.window_product %x, %dy {{own = {own}, kernel = array<i64: 3, 3>, stride = array<i64: 1, 1>,
    dilation = array<i64: 1, 1>, low = array<i64: 1, 1>, spread = array<i64: 1, 1>, size = array<i64: {side}, {side}>}}
    : (tensor<1x{own}x{side}x{side}xf32>, tensor<1x{filters}x{side}x{side}xf32>) -> tensor<{filters}x{own}x3x3xf32>
  func.return %0 : tensor<{filters}x{own}x3x3xf32>
}}
"""


@pytest.mark.parametrize(
    ("filters", "own", "side", "schedule"),
    [
        (3, 3, 364, "rows width=4 lanes=512 parts=6"),
        (3, 3, 363, "rows width=1 lanes=512 parts=6"),
        (7, 7, 190, "rows width=2 lanes=1024 chunks=18"),
        (6, 6, 191, "rows width=1 lanes=1024 ahead=4"),
        (2, 2, 5, "rows width=1 lanes=32 chunks=1 block=64"),
    ],
)
def test_long_rows_of_what_is_looked_up(
    filters: int, own: int, side: int, schedule: str, tmp_path: Path
) -> None:
    """A gradient of weights: neighbours share indices, long rows are walked, and blocks share very long ones."""
    lowered = run_pipeline(
        parse_module(PRODUCT.format(filters=filters, own=own, side=side)), "decompose,lower"
    )
    (launch,) = (op for op in lowered.walk() if isinstance(op, GeneratedOp))
    made: Kernel | None = Selection(lowered, "sm_90").generated(launch.use)
    assert made is not None
    chosen = scheduled(made)
    assert chosen.schedule == schedule
    draw = np.random.default_rng(side)
    images = {
        "%x": draw.standard_normal((1, own, side, side)),
        "%dy": draw.standard_normal((1, filters, side, side)),
    }
    x, dy = (torch.from_numpy(image) for image in images.values())
    right = conv2d_weight(x, (filters, own, 3, 3), dy, padding=1).numpy()
    names = [f"%{operand.name_hint}" for operand in launch.operands]
    blocks = tuple(images[name].astype(np.float32).reshape(-1) for name in names)
    (block,) = HostKernels([chosen], tmp_path).run(GeneratedCase("", chosen, blocks, (right,)))
    found = view(block, chosen.results[0]).reshape(right.shape)
    np.testing.assert_allclose(found, right, rtol=1e-3, atol=2e-6 * side**1.5)


@pytest.mark.parametrize("element", ["f32", "bf16"])
def test_is_what_the_interpreter_computes(element: str, tmp_path: Path) -> None:
    known = list(cases(element))
    assert {case.name.partition(" ")[0] for case in known} >= {
        *("nn.take", "nn.gather", "nn.scatter", "nn.pad", "nn.flip", "nn.roll", "nn.band"),
        *("nn.cumsum", "nn.rank", "nn.inverse_permutation", "nn.element_number"),
        *("nn.unfold", "nn.fold", "nn.window_sum", "nn.window_max", "nn.window_tap"),
        *("nn.window_index", "nn.window_route"),
    }
    host = HostKernels([case.kernel for case in known], tmp_path)
    wrong: list[str] = []
    for case in known:
        for number, block in enumerate(host.run(case)):
            if why := difference(case, number, view(block, case.kernel.results[number])):
                wrong.append(f"{case.name} result {number}: {why}")
    assert not wrong, "\n".join(wrong)


def test_across_and_of_few_rows(tmp_path: Path) -> None:
    """Threads along what lies across, and all of a block along the columns."""
    known = [*across_cases("sm_90"), *few_row_cases("sm_90")]
    host = HostKernels([case.kernel for case in known], tmp_path)
    for case in known:
        assert ("across=256" if "rows" in case.name else "across=1") in scheduled(case.kernel).schedule
        for number, block in enumerate(host.run(case)):
            assert not difference(case, number, view(block, case.kernel.results[number])), case.name
