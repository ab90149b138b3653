"""CUDA C++ of generated kernels: compiled for GPUs without one, run thread by thread on the host, and on a GPU."""

from __future__ import annotations

import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import children
import numpy as np
import pytest
import torch
from cuda_on_host import HostKernels
from generated_cases import (
    Array,
    GeneratedCase,
    dense,
    difference,
    has_periodic,
    random_cases,
    special_cases,
    view,
)
from generated_models import model_cases, model_kernel
from generated_shapes import shape_cases

from aicf_mlir import trace
from aicf_mlir.codegen import nvrtc
from aicf_mlir.codegen.cuda import generate, workspace
from aicf_mlir.dialects.plan import ProgramOp
from aicf_mlir.dialects.plan.kernels import generated_kernels
from aicf_mlir.errors import KernelError
from aicf_mlir.ir import formula as F
from aicf_mlir.kernels.kernel import Kernel, Tensor
from aicf_mlir.stages import run_stages
from aicf_mlir.text.parsing import make_context

COUNT = 20
"""Random kernels of each kind."""


def all_cases() -> list[GeneratedCase]:
    return [*random_cases(0, COUNT), *model_cases(), *special_cases(), *shape_cases()]


@pytest.fixture(scope="module")
def cases() -> list[GeneratedCase]:
    return all_cases()


@pytest.fixture(scope="module")
def results(cases: list[GeneratedCase], host: HostKernels) -> list[list[Array]]:
    return [host.run(case) for case in cases]


@pytest.fixture(scope="module")
def host(cases: list[GeneratedCase], tmp_path_factory: pytest.TempPathFactory) -> HostKernels:
    return HostKernels([case.kernel for case in cases], tmp_path_factory.mktemp("host"))


def test_text_is_deterministic_and_workspace_is_that_of_the_code() -> None:
    for one, other in zip(all_cases(), all_cases(), strict=True):
        code = generate(one.kernel)
        assert code == generate(other.kernel)
        assert workspace(one.kernel) == code.workspace
        assert code.workspace % 256 == 0


def test_on_the_host_every_kernel_is_what_numpy_computes(
    cases: list[GeneratedCase], results: list[list[Array]]
) -> None:
    wrong: list[str] = []
    for case, blocks in zip(cases, results, strict=True):
        for number, block in enumerate(blocks):
            if why := difference(case, number, view(block, case.kernel.results[number])):
                wrong.append(f"{case.name} ({case.kernel.id}) result {number}: {why}")
    assert not wrong, "\n".join(wrong)


def test_on_the_host_the_order_of_threads_does_not_matter(
    cases: list[GeneratedCase], host: HostKernels, results: list[list[Array]]
) -> None:
    for case, forwards in zip(cases, results, strict=True):
        backwards = host.run(case, backwards=True)
        assert [a.tobytes() for a in forwards] == [b.tobytes() for b in backwards], case.name


def test_on_the_host_a_result_may_take_the_place_of_an_operand(
    cases: list[GeneratedCase], host: HostKernels, results: list[list[Array]]
) -> None:
    tried = 0
    for case, apart in zip(cases, results, strict=True):
        for result, operand in sorted(case.kernel.in_place):
            ours, theirs = case.kernel.results[result], case.kernel.operands[operand]
            repeats = any(not s and n > 1 for s, n in zip(ours.strides, ours.shape, strict=True))
            if ours.strides != theirs.strides or ours.alignment != theirs.alignment or repeats:
                continue
            tried += 1
            together = host.run(case, in_place=(result, operand))
            for number, tensor in enumerate(case.kernel.results):
                got, want = view(together[number], tensor), view(apart[number], tensor)
                assert got.tobytes() == want.tobytes(), (case.name, result, operand, number)
    assert tried > 50


def test_on_the_host_nothing_happens_where_the_status_says_so(
    cases: list[GeneratedCase], host: HostKernels
) -> None:
    for case in cases:
        assert all((block.view(np.uint8) == 0xFF).all() for block in host.run(case, skip=True)), case.name


@pytest.mark.nvrtc
def test_every_kernel_compiles_without_spills(cases: list[GeneratedCase]) -> None:
    def report(case: GeneratedCase) -> str:
        return nvrtc.compile_with_report(generate(case.kernel).source, "sm_90")[1]

    with ThreadPoolExecutor(2) as pool:
        for case, log in zip(cases, pool.map(report, cases), strict=True):
            if has_periodic(case.kernel):
                continue
            assert "bytes spill stores" in log, log
            assert not nvrtc.spills(log), (case.name, log)


@pytest.mark.nvrtc
@pytest.mark.parametrize("target", ["sm_80", "sm_90"])
def test_updates_that_spill_are_assembled_again(target: str) -> None:
    """Two updates of ASGD in float64 as one map: ptxas 13.0 spills at 40 registers, and mixes two scalars up."""
    model = torch.nn.Sequential(torch.nn.Linear(8, 17), torch.nn.Linear(17, 8)).double()
    traced = trace(model, B=4, D=8, optimizer=torch.optim.ASGD(model.parameters()))
    run_stages(traced.module, make_context(), target=target)
    (program,) = (op for op in traced.module.ops if isinstance(op, ProgramOp))
    reports = [
        nvrtc.compile_with_report(generate(kernel).source, target)[1]
        for kernel in generated_kernels(program).values()
    ]
    assert reports
    assert not any(nvrtc.spills(report) for report in reports)


def test_what_a_spill_looks_like() -> None:
    none = "ptxas info : 0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"
    assert not nvrtc.spills(none)
    assert nvrtc.spills(
        f"{none}\nptxas info : 24 bytes stack frame, 40 bytes spill stores, 56 bytes spill loads"
    )


@pytest.mark.nvrtc
@pytest.mark.parametrize("target", ["sm_80", "sm_90"])
def test_every_target(target: str) -> None:
    kernel = model_kernel("layer_norm", "bf16", 64, 768, target)
    image = nvrtc.compile_cuda(generate(kernel).source, target)
    assert image[:4] == b"\x7fELF"
    assert image == nvrtc.compile_cuda(generate(kernel).source, target)


@pytest.mark.nvrtc
def test_a_text_that_is_refused_is_shown_with_its_lines() -> None:
    with pytest.raises(nvrtc.CompileError) as caught:
        nvrtc.compile_cuda("int fine;\n__global__ void f() {\n  unknown = 1;\n}\n", "sm_90")
    message = str(caught.value)
    assert "could not compile a generated kernel for sm_90" in message
    assert 'identifier "unknown" is undefined' in message
    assert "    3 |   unknown = 1;" in message


@pytest.mark.nvrtc
def test_toolchain_names_the_version() -> None:
    assert re.fullmatch(r"NVRTC \d+\.\d+", nvrtc.toolchain())


def test_without_the_library_the_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "_candidates", lambda: iter(["libnvrtc.so.of.another.planet"]))
    nvrtc.nvrtc.cache_clear()
    try:
        with pytest.raises(KernelError, match=r"need NVRTC.*install the package nvidia-cuda-nvrtc"):
            nvrtc.toolchain()
        assert not nvrtc.available()
    finally:
        nvrtc.nvrtc.cache_clear()


def test_neighbours_move_16_bytes_at_a_time() -> None:
    for element, count in (("f32", 4), ("bf16", 8), ("f64", 2)):
        type_ = "f64" if element == "f64" else "f32"
        tensor = dense(element, 64, 64)
        kernel = Kernel("map", "sm_90", F.trace([type_], F.tanh), (64, 64), 0, (tensor,), (tensor,))
        assert f"load<{count}>" in generate(kernel).source
        little = Tensor(element, (64, 64), (64, 1), 8)
        kernel = Kernel("map", "sm_90", F.trace([type_], F.tanh), (64, 64), 0, (little,), (tensor,))
        assert f"load<{count}>" not in generate(kernel).source


@pytest.mark.parametrize(
    ("shape", "vectors"),
    [((9, 64), 1), ((9, 60), 0), ((9, 32), 0)],
    ids=["rows of vectors", "rows that are not aligned", "rows that are too short"],
)
def test_neighbours_in_a_table_are_one_read(shape: tuple[int, int], vectors: int) -> None:
    """What is the same for them is computed before."""

    def looked_up(table: F.Scalar) -> F.Scalar:
        row, column = (table.builder.index(d) for d in range(2))
        return table.load(row - 3, column)

    result = dense("bf16", 12, 64)
    table = Tensor("bf16", shape, (shape[1], 1))
    kernel = Kernel("map", "sm_90", F.trace(["?x?xf32"], looked_up), (12, 64), 0, (table,), (result,))
    before, _, loop = generate(kernel).source.rpartition("for (int j = 0")
    assert before.count("= load<8>") == vectors
    assert ("clamped(" in loop) == (not vectors)


def test_a_transcendental_is_computed_once_an_element() -> None:
    source = generate(model_kernel("softmax", "f32", 4096, 1024)).source
    assert source.count("expf(") == 1


def test_partial_results_lie_in_the_workspace() -> None:
    tall = generate(model_kernel("layer_norm_dw", "f32", 32768, 768))
    assert len(tall.phases) == 2
    assert tall.workspace >= 2 * 768 * 4
    few = generate(model_kernel("square_sum", "f32", 1, 1_000_000))
    assert len(few.phases) == 2
    assert few.workspace > 0
    assert len(generate(model_kernel("softmax", "f32", 1, 1_000_000)).phases) == 3
    assert len(generate(model_kernel("softmax", "f32", 100, 1_000_000)).phases) == 3
    assert len(generate(model_kernel("softmax", "f32", 100, 40_000)).phases) == 1
    assert len(generate(model_kernel("softmax", "f32", 300, 1_000_000)).phases) == 1
    assert generate(model_kernel("layer_norm_dw", "f32", 16, 16)).workspace == 0


@pytest.mark.gpu
@pytest.mark.nvrtc
def test_on_a_gpu() -> None:
    script = Path(__file__).resolve().parents[2] / "gpu" / "generated_kernels.py"
    done = children.run([sys.executable, str(script), "--count", "40"])
    assert done.returncode == 0, done.stdout + done.stderr
