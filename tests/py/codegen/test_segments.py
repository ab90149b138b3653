"""Launches over many tensors: each segment has the bits that it has alone, on the CPU, on CUDA, in the interpreter."""

from __future__ import annotations

import re

import numpy as np
import pytest
from cuda_on_host import HostKernels
from generated_cases import dense, difference, view
from native_code import Loaded, bits, placed, run
from segment_cases import RAGGED, alone, case_of, each, kernels, one_element
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.codegen.cuda import generate
from aicf_mlir.ir import formula as F
from aicf_mlir.kernels.kernel import Tensor
from aicf_mlir.kernels.segments import MOST_ADDRESSES, EachKernel

CPU = dict(kernels("cpu"))
CUDA = dict(kernels())


@pytest.mark.parametrize("name", CPU)
def test_on_the_cpu_a_segment_has_the_bits_that_it_has_alone(name: str) -> None:
    kernel = CPU[name]
    case = case_of(name, kernel)
    operands = [placed(t, view(b, t)).array for t, b in zip(kernel.operands, case.operands, strict=True)]
    together = bits(run(kernel, operands))
    read, written = len(kernel.parts[0].operands), len(kernel.parts[0].results)
    for number, part in enumerate(kernel.parts):
        results = [placed(tensor) for tensor in part.results]
        Loaded(part)([*operands[number * read : (number + 1) * read], *(result.array for result in results)])
        own = bits([result.array for result in results])
        assert own == together[number * written : (number + 1) * written], number
    for cuts in (2, 5):  # of threads
        assert bits(run(kernel, operands, cuts)) == together


@pytest.fixture(name="host", scope="module")
def host_kernels(tmp_path_factory: pytest.TempPathFactory) -> HostKernels:
    together = list(CUDA.values())
    parts = [part for kernel in together for part in kernel.parts]
    return HostKernels([*together, *parts], tmp_path_factory.mktemp("host"))


@pytest.mark.parametrize("name", CUDA)
def test_cuda_on_the_host_gives_a_segment_the_bits_that_it_has_alone(name: str, host: HostKernels) -> None:
    kernel = CUDA[name]
    case = case_of(name, kernel)
    together = host.run(case)
    own = [block for one in alone(kernel, case) for block in host.run(one)]
    assert [block.tobytes() for block in together] == [block.tobytes() for block in own]
    assert [block.tobytes() for block in host.run(case, backwards=True)] == [b.tobytes() for b in own]
    assert all((block.view(np.uint8) == 0xFF).all() for block in host.run(case, skip=True))
    for number, (block, tensor) in enumerate(zip(together, kernel.results, strict=True)):
        assert not difference(case, number, view(block, tensor)), number


def test_in_place_on_both_devices(host: HostKernels) -> None:
    """Each result of a segment may take the place of an operand of that segment, and of no other."""
    kernel = CUDA["updates"]
    pairs = {
        (2 * n + result, 4 * n + operand)
        for n in range(len(RAGGED))
        for result in (0, 1)
        for operand in (0, 1, 2)
    }
    assert kernel.in_place == kernel.launch_in_place == pairs
    case = case_of("updates", kernel)
    apart = host.run(case)
    for result, operand in sorted(pairs):
        assert [b.tobytes() for b in host.run(case, in_place=(result, operand))] == [
            b.tobytes() for b in apart
        ]
    cpu = CPU["updates"]
    operands = [placed(t, view(b, t)).array for t, b in zip(cpu.operands, case.operands, strict=True)]
    want = bits(run(cpu, operands))
    places = [operands[4 * n + k] for n in range(len(RAGGED)) for k in (0, 2)]
    Loaded(cpu)([*operands, *places])
    assert bits(places) == want


def test_one_text_for_all_segments() -> None:
    """The code grows by a few numbers a segment, and neither do its id or text depend on anything else."""
    few, many = (
        each(lambda x: F.tanh(x), "f32", "f32", [(100 + n,) for n in range(count)]) for count in (2, 200)
    )
    assert generate(few) == generate(each(lambda x: F.tanh(x), "f32", "f32", [(100,), (101,)]))
    assert few.id != many.id
    assert generate(many).source.count("\n") == generate(few).source.count("\n")
    assert generate(many).one_table


REFUSED = {
    "strides": (
        lambda: swapped(each(lambda x: x, "f32", "f32", [(4, 6), (4, 6)]), Tensor("f32", (4, 6), (1, 4))),
        "expected an operand of a multi_tensor_map to lie without gaps in all segments, or to be one element in all",
    ),
    "one element in one segment": (
        lambda: swapped(each(lambda x: x, "f32", "f32", [(4,), (4,)]), one_element("f32", (4,))),
        "or to be one element in all, got strides [0] and [1]",
    ),
    "an index": (
        lambda: each(lambda x: x + x.builder.index(0).cast("f32"), "f32", "f32"),
        "the body of a multi_tensor_map takes no table and asks for no index",
    ),
    "another shape": (
        lambda: swapped(each(lambda x: x, "f32", "f32", [(4,), (4,)]), dense("f32", 5)),
        "operand 0: expected the shape of the domain [4], got [5]",
    ),
    "too many": (
        lambda: each(lambda x: x, "f32", "f32", [(1,)] * (MOST_ADDRESSES // 2 + 1)),
        f"one launch takes {MOST_ADDRESSES} tensors at most, got {MOST_ADDRESSES + 2}",
    ),
}


def swapped(kernel: EachKernel, operand: Tensor) -> EachKernel:
    """With another first operand."""
    made = EachKernel(
        "multi_tensor_map",
        kernel.target,
        kernel.body,
        kernel.domain,
        0,
        (operand, *kernel.operands[1:]),
        kernel.results,
    )
    made.verify()
    return made


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_launch_takes_is_refused(name: str) -> None:
    make, message = REFUSED[name]
    with pytest.raises(VerifyException, match=re.escape(message)):
        make()
