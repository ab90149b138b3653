"""The loader of generated CUDA code: what it refuses without a GPU, and launches in a plan, eager and replayed."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import segment_cases
from generated_cases import GeneratedCase, difference, make, view
from generated_models import model_kernel

from aicf_mlir import _C, KernelError, OpKind, PlanError
from aicf_mlir.codegen import nvrtc
from aicf_mlir.codegen.cuda import generate
from aicf_mlir.interpreters.numerics import NUMPY_TYPES
from aicf_mlir.ir import formula as F
from aicf_mlir.ir.registry import architecture
from aicf_mlir.kernels.kernel import Kernel
from aicf_mlir.kernels.segments import MOST_ADDRESSES, EachKernel

KINDS = {
    "map": OpKind.Map,
    "multi_tensor_map": OpKind.MultiTensorMap,
    "rowwise": OpKind.Rowwise,
    "colwise": OpKind.Colwise,
}


def loaded(kernel: Kernel, sm: int | None = None) -> _C.Code:
    """Its code, compiled for its target and said to be for `sm`."""
    made = generate(kernel)
    phases = [p.row for p in made.phases]
    number = sm or int(kernel.target.removeprefix("sm_"))
    image = nvrtc.compile_cuda(made.source, kernel.target)
    return _C.Code.cuda(kernel.id, number, image, phases, kernel.in_place, made.workspace, made.one_table)


def target() -> str:
    return architecture(_C.target_of("cuda:0"))


def case_of(name: str, rows: int, columns: int) -> GeneratedCase:
    return make(name, model_kernel(name, "f32", rows, columns, target()), np.random.default_rng(3))


def executor(case: GeneratedCase, code: _C.Code) -> tuple[_C.Executor, _C.Arena, list[int]]:
    """A plan of one launch, its memory, and where its results lie."""
    kernel = case.kernel
    starts: list[int] = []
    used = 0
    for tensor in (*kernel.operands, *kernel.results):
        starts.append(used)
        used += -(-int(np.prod(tensor.shape)) * NUMPY_TYPES[tensor.element].itemsize // 256) * 256
    arena = _C.Arena("cuda", used + code.workspace)
    arena.fill(0xFF)
    for start, block in zip(starts, case.operands, strict=False):
        arena.write(start, block.tobytes())
    slots: list[Any] = [
        ("temp", start, tensor.element, tensor.shape)
        for start, tensor in zip(starts, (*kernel.operands, *kernel.results), strict=True)
    ]
    segmented = isinstance(kernel, EachKernel)
    row: dict[str, Any] = {
        "op": KINDS[kernel.kind],
        "kernel_id": kernel.id,
        "inputs": slots[: len(kernel.operands)],
        "outputs": slots[len(kernel.operands) :],
        "counts": ((len(kernel.operands), *([] if segmented else [0])), (len(kernel.results),)),
        "attrs": {"body": "…", "segments": kernel.segments}
        if segmented
        else {"body": "…", "shape": list(kernel.domain), "reduced": kernel.reduced},
        "workspace": ("temp", used, code.workspace) if code.workspace else None,
        "code": code,
    }
    return _C.Executor("cuda", {"temp": arena}, [row]), arena, starts[len(kernel.operands) :]


def read(case: GeneratedCase, arena: _C.Arena, starts: list[int]) -> list[bytes]:
    return [
        arena.read(start, int(np.prod(tensor.shape)) * NUMPY_TYPES[tensor.element].itemsize)
        for start, tensor in zip(starts, case.kernel.results, strict=True)
    ]


@pytest.mark.gpu
@pytest.mark.nvrtc
@pytest.mark.parametrize(("name", "rows", "columns"), [("softmax", 100, 768), ("square_sum", 1, 200_000)])
def test_a_plan_runs_it_and_a_replay_gives_the_same_bits(name: str, rows: int, columns: int) -> None:
    case = case_of(name, rows, columns)
    same_bits_eager_and_replayed(case)


@pytest.mark.gpu
@pytest.mark.nvrtc
@pytest.mark.parametrize("count", [3, 160, MOST_ADDRESSES // 3])
def test_as_many_tensors_as_one_launch_takes(count: int) -> None:
    """A table of 30,000 bytes; every operand lies without gaps, so that the plan of the test can say where."""
    shapes = [(n % 37 + 1, n % 5) if n % 3 else (n * 7,) for n in range(count)]
    kernel = segment_cases.each(lambda x, y: F.tanh(x) * y, "f32 f32", "f32", shapes, target())
    case = segment_cases.case_of("many", kernel)
    together = same_bits_eager_and_replayed(case)
    for own, block in list(zip(segment_cases.alone(kernel, case), together, strict=True))[:12]:
        run, arena, starts = executor(own, loaded(own.kernel))
        run.run()
        assert read(own, arena, starts) == [block]


def same_bits_eager_and_replayed(case: GeneratedCase) -> list[bytes]:
    """What one launch gives, and replays of it."""
    run, arena, starts = executor(case, loaded(case.kernel))
    run.run()
    eager = read(case, arena, starts)
    for number, (data, tensor) in enumerate(zip(eager, case.kernel.results, strict=True)):
        got = view(np.frombuffer(data, NUMPY_TYPES[tensor.element]), tensor)
        assert not difference(case, number, got)
    run.capture()
    for start, data in zip(starts, eager, strict=True):
        arena.write(start, b"\xff" * len(data))
    run.replay(2)
    assert read(case, arena, starts) == eager
    return eager


@pytest.mark.gpu
@pytest.mark.nvrtc
def test_code_of_another_architecture_is_refused() -> None:
    case = case_of("softmax", 4, 64)
    other = 80 if target() != "sm_80" else 120
    with pytest.raises(PlanError, match=rf"it was compiled for sm_{other}, and cuda:0 is of {target()}"):
        executor(case, loaded(case.kernel, other))


@pytest.mark.gpu
@pytest.mark.nvrtc
def test_a_function_that_is_not_there_is_named() -> None:
    case = case_of("softmax", 4, 64)
    image = nvrtc.compile_cuda(generate(case.kernel).source, target())
    code = _C.Code.cuda(case.kernel.id, int(target()[3:]), image, [("another", 1, 1, 32, 0)])
    with pytest.raises(PlanError, match="it has no function 'another'"):
        executor(case, code)


@pytest.mark.skipif(not _C.with_cuda, reason="a build without CUDA")
@pytest.mark.parametrize(
    ("image", "phase", "message"),
    [
        (b"", ("f", 1, 1, 32, 0), "the code of gen_map_0 is empty"),
        (
            b"x",
            ("f", 1, 1, 0, 0),
            "phase f: expected at most 2147483647 blocks of 1 thread or more, got 1 of 0",
        ),
        (b"x", ("f", 1 << 31, 1, 32, 0), "got 2147483648 of 32"),
        (b"x", ("", 1, 1, 32, 0), "a phase needs the name of its function"),
    ],
)
def test_what_cannot_be_code_is_refused(
    image: bytes, phase: tuple[str, int, int, int, int], message: str
) -> None:
    with pytest.raises(KernelError, match=re.escape(message)):
        _C.Code.cuda("gen_map_0", 90, image, [phase])
