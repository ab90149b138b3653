"""Reductions of many tensors in one launch: the bits of a segment do not depend on the others, on both devices.

On the CPU they are those of a launch of rows.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from cuda_on_host import HostKernels
from generated_cases import Array, GeneratedCase, dense, difference, view
from native_code import bits, placed, run
from segment_cases import case_of, norm, one_by_one, reduced, row_kernels
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.codegen import nvrtc
from aicf_mlir.codegen.cuda import generate
from aicf_mlir.ir import formula as F
from aicf_mlir.kernels.kernel import Tensor
from aicf_mlir.kernels.segments import MOST_ADDRESSES, RowEachKernel

CPU = dict(row_kernels("cpu"))
CUDA = dict(row_kernels())


def wrong(case: GeneratedCase, found: list[Array]) -> dict[int, str]:
    """What differs from NumPy, by the number of the result."""
    every = {number: difference(case, number, array) for number, array in enumerate(found)}
    return {number: why for number, why in every.items() if why}


@pytest.mark.parametrize("name", CPU)
def test_on_the_cpu(name: str) -> None:
    kernel = CPU[name]
    case = case_of(name, kernel)
    operands = [placed(t, view(b, t)).array for t, b in zip(kernel.operands, case.operands, strict=True)]
    together = run(kernel, operands)
    assert not wrong(case, together)
    for cuts in (2, 5):  # of threads
        assert bits(run(kernel, operands, cuts)) == bits(together)
    for number, own in enumerate(one_by_one(kernel, case)):
        read, written = kernel.read, kernel.written
        given = operands[number * read : (number + 1) * read]
        rows = run(kernel.parts[number], [array.reshape(-1) for array in given])
        found = bits(run(own.kernel, given))
        assert found == bits(rows) == bits(together[number * written : (number + 1) * written]), number


@pytest.fixture(name="host", scope="module")
def host_kernels(tmp_path_factory: pytest.TempPathFactory) -> HostKernels:
    single = [
        own.kernel for name, kernel in CUDA.items() for own in one_by_one(kernel, case_of(name, kernel))
    ]
    return HostKernels([*CUDA.values(), *single], tmp_path_factory.mktemp("host"))


@pytest.mark.parametrize("name", CUDA)
def test_cuda_on_the_host(name: str, host: HostKernels) -> None:
    kernel = CUDA[name]
    case = case_of(name, kernel)
    together = host.run(case)
    assert not wrong(case, [view(b, t) for b, t in zip(together, kernel.results, strict=True)])
    own = [block for one in one_by_one(kernel, case) for block in host.run(one)]
    assert bits(together) == bits(own) == bits(host.run(case, backwards=True))
    assert all((block.view(np.uint8) == 0xFF).all() for block in host.run(case, skip=True))


@pytest.mark.nvrtc
def test_cuda_compiles_without_spills() -> None:
    for name, kernel in CUDA.items():
        _, report = nvrtc.compile_with_report(generate(kernel).source, "sm_90")
        assert not nvrtc.spills(report), name


def test_no_result_takes_the_place_of_an_operand() -> None:
    assert not any(kernel.launch_in_place for kernel in (*CPU.values(), *CUDA.values()))


def test_one_text_for_all_segments() -> None:
    few, many = (reduced(norm, "f32", "f32", [(100 + n,) for n in range(count)]) for count in (2, 200))
    assert few.id != many.id
    assert generate(many).source.count("\n") == generate(few).source.count("\n")
    assert generate(many).one_table


def without_operands() -> RowEachKernel:
    kernel = replace(reduced(norm, "f32", "f32", [(4,)]), operands=())
    kernel.verify()
    return kernel


def transposed() -> RowEachKernel:
    kernel = replace(reduced(norm, "f32", "f32", [(4, 6)]), operands=(Tensor("f32", (4, 6), (1, 4)),))
    kernel.verify()
    return kernel


def mixed() -> RowEachKernel:
    operands = (dense("f32", 4), Tensor("f32", (4,), (0,)))
    kernel = replace(reduced(norm, "f32", "f32", [(4,), (4,)]), operands=operands)
    kernel.verify()
    return kernel


REFUSED = {
    "no operands": (without_operands, "expected as many operands for each of 1 segments, got 0"),
    "strides": (
        transposed,
        "expected an operand of a multi_tensor_rowwise to lie without gaps, or to be one element, got strides [1, 4]",
    ),
    "one element in one segment": (
        mixed,
        "expected an operand of a multi_tensor_rowwise to lie without gaps in all segments, or to be one element in all",
    ),
    "an index": (
        lambda: reduced(lambda x: F.row_sum(x + x.builder.index(0).cast("f32")), "f32", "f32"),
        "the body of a multi_tensor_rowwise takes no table and asks for no index; use rowwise",
    ),
    "two levels": (
        lambda: reduced(lambda x: F.row_sum(x - F.row_max(x)), "f32", "f32"),
        "a multi_tensor_rowwise has one level of reductions; use rowwise",
    ),
    "an element": (
        lambda: reduced(lambda x: x, "f32", "f32", [(1,)]),
        "the results of a multi_tensor_rowwise are what segments are reduced to",
    ),
    "too many": (
        lambda: reduced(norm, "f32", "f32", [(1,)] * (MOST_ADDRESSES // 2 + 1)),
        f"one launch takes {MOST_ADDRESSES} tensors at most, got {MOST_ADDRESSES + 2}",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_launch_takes_is_refused(name: str) -> None:
    make, message = REFUSED[name]
    with pytest.raises(VerifyException, match=re.escape(message)):
        make()
