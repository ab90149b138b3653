"""Kernels of the samples that index and walk rows, as CUDA C++: run on the host, thread by thread."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from cuda_on_host import HostKernels
from generated_cases import GeneratedCase, difference, span, view
from programs import run_pipeline, step_function
from samples import indexing, windows

from aicf_mlir.dialects import kernel
from aicf_mlir.dialects.generated import GeneratedOp, Selection
from aicf_mlir.interpreters import run_function
from aicf_mlir.interpreters.numerics import widen
from aicf_mlir.kernels.kernel import Kernel


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


@pytest.mark.parametrize("element", ["f32", "bf16"])
def test_is_what_the_interpreter_computes(element: str, tmp_path: Path) -> None:
    known = list(cases(element))
    assert {case.name.partition(" ")[0] for case in known} >= {
        *("nn.take", "nn.gather", "nn.scatter", "nn.pad", "nn.flip", "nn.roll", "nn.band"),
        *("nn.cumsum", "nn.rank", "nn.inverse_permutation", "nn.element_number"),
        *("nn.unfold", "nn.fold", "nn.window_sum", "nn.window_max", "nn.window_index", "nn.window_route"),
    }
    host = HostKernels([case.kernel for case in known], tmp_path)
    wrong: list[str] = []
    for case in known:
        for number, block in enumerate(host.run(case)):
            if why := difference(case, number, view(block, case.kernel.results[number])):
                wrong.append(f"{case.name} result {number}: {why}")
    assert not wrong, "\n".join(wrong)
