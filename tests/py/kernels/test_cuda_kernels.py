"""What only CUDA kernels have: paths that small cases do not reach, and graphs of every kernel."""

from __future__ import annotations

import itertools
from collections.abc import Container
from typing import Any

import pytest
from kernel_calls import judge, run, slots, supports
from kernel_cases import FLOATS, Maker, cases
from kernel_cases.large import LARGE

from aicf_mlir import _C
from aicf_mlir.op_call import describe

pytestmark = pytest.mark.gpu

VARIANTS = [variant for variant in _C.kernel_variants() if variant["device"] == "cuda"]


def _kernels(*columns: str, of: Container[str] = {v["op"] for v in VARIANTS}):
    """Of each kernel of these ops what stands in some columns of its row."""
    return [
        pytest.param(
            *(row[column] for column in columns),
            id="-".join(row[column] for column in columns if column != "kind"),
            marks=[getattr(pytest.mark, row["library"])] if row["library"] else [],
        )
        for row in map(dict[str, Any], VARIANTS)
        if row["op"] in of
    ]


@pytest.mark.parametrize(("kernel", "op"), _kernels("name", "op", of=LARGE))
def test_agrees_with_the_interpreter_at_large_sizes(kernel: str, op: str) -> None:
    target = _C.target_of("cuda:0")
    taken = 0
    for dtype in FLOATS:
        for case in LARGE[op](Maker(dtype)):
            if supports(kernel, op, case, target):
                taken += 1
                why = judge(op, case, run(kernel, op, case, "cuda"))
                assert not why, f"{case.label} ({dtype}): {why}"
    assert taken, f"{kernel} takes none of the cases of {op}"


@pytest.mark.parametrize(("kernel", "op", "kind"), _kernels("name", "op", "kind"))
def test_a_graph_replays_the_same_bits(kernel: str, op: str, kind: int) -> None:
    """Every kernel can be captured, and a replay writes what a direct call writes."""
    target = _C.target_of("cuda:0")
    taken = (case for dtype in FLOATS for case in cases(op, dtype) if supports(kernel, op, case, target))
    for case in itertools.islice(taken, 3):
        direct = run(kernel, op, case, "cuda")
        inputs, outputs = slots(case, "cuda")
        for slot, array in zip(inputs, case.inputs, strict=True):
            slot.fill(array)
        described = [[describe(slot.tensor) for slot in side] for side in (inputs, outputs)]
        _C.graph_begin("cuda")
        ran = _C.op_call(kind, described[0], described[1], case.attrs, kernel, counts=case.counts)
        graph = _C.graph_end("cuda")
        assert ran == kernel
        for _ in range(2):
            for slot in outputs:
                slot.fill(None)
            _C.graph_launch(graph, 1)
            assert [slot.read().tobytes() for slot in outputs] == [array.tobytes() for array in direct]
