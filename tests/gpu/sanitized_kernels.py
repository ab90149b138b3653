"""Launches every CUDA kernel on ragged cases, for compute-sanitizer: each operand is one allocation.

    compute-sanitizer --tool memcheck python tests/gpu/sanitized_kernels.py [--each N] [--part I N] [--races] [--only TEXT ...]

A caching allocator would hide a write past the end of a tensor; here the sanitizer knows every end to the
byte. What the kernels compute is judged by the kernel tests; this only runs them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "py" / "support"))

from kernel_cases import FLOATS, Array, Case, Generator, Maker, generated
from kernel_cases.large import LARGE
from kernel_cases.places import Place, placed
from kernel_cases.races import left_out

from aicf_mlir import _C
from aicf_mlir.errors import SelectionError
from aicf_mlir.interpreters.numerics import NUMPY_TYPES
from aicf_mlir.ir.registry import select_kernel


def operand(dtype: str, shape: tuple[int, ...], place: Place | None, values: Array | None) -> _C.TensorDesc:
    """Memory of exactly the operand's span: with the values, and poison elsewhere."""
    place = place or placed(shape)
    size = NUMPY_TYPES[dtype].itemsize
    memory = np.full(place.elements(shape) * size, 0xFF, np.uint8)
    arena = _C.Arena("cuda", memory.size)
    if values is not None:
        place.view(memory.view(NUMPY_TYPES[dtype]), shape)[...] = values
    if memory.size:
        arena.write(0, memory.tobytes())
    first = arena.ptr + place.offset * size
    return _C.TensorDesc(first, dtype, shape, place.strides, device="cuda:0", owner=arena)


def supported(kernel: _C.KernelVariant, target: str, generator: Generator) -> Iterator[Case]:
    """The cases that the kernel takes, over all element types."""
    for case in (case for dtype in FLOATS for case in generator(Maker(dtype))):
        try:
            select_kernel(case.use(kernel["op"]), target, kernel["name"])
        except SelectionError:
            continue
        yield case


def main() -> None:
    """Run the chosen kernels and print how many launches there were."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--each", type=int, default=1, help="run every N-th case of a kernel (1)")
    parser.add_argument("--large-each", type=int, default=5, help="the same for the large cases (5)")
    parser.add_argument(
        "--only", nargs="*", default=[""], help="kernels whose name contains one of these texts"
    )
    parser.add_argument("--without", nargs="*", default=[], help="and none of these")
    parser.add_argument(
        "--races",
        action="store_true",
        help="without what races.py leaves out, with its reason, for racecheck",
    )
    parser.add_argument(
        "--part", type=int, nargs=2, default=(0, 1), metavar=("I", "N"), help="kernel I of each N, from 0"
    )
    arguments = parser.parse_args()
    target = _C.target_of("cuda:0")
    kernels = launches = 0
    first, parts = arguments.part
    variants = [kernel for kernel in _C.kernel_variants() if kernel["device"] == "cuda"]
    for kernel in variants[first::parts]:
        name = kernel["name"]
        if not any(text in name for text in arguments.only):
            continue
        if any(text in name for text in arguments.without):
            continue
        if arguments.races and left_out(kernel):
            continue
        kernels += 1
        chosen = list(supported(kernel, target, partial(generated, kernel["op"])))[:: arguments.each]
        if kernel["op"] in LARGE:
            chosen += list(supported(kernel, target, LARGE[kernel["op"]]))[:: arguments.large_each]
        for case in chosen:
            values = [*case.inputs, *[None] * len(case.outputs)]
            operands = [
                operand(*spec, place, array)
                for spec, place, array in zip(case.specs, case.all_places, values, strict=True)
            ]
            count = len(case.inputs)
            _C.op_call(
                kernel["kind"],
                operands[:count],
                operands[count:],
                case.attrs,
                kernel["name"],
                counts=case.counts,
            )
            _C.synchronize("cuda")  # the memory goes when the descriptions do
            launches += 1
    if not launches:
        raise SystemExit(f"no CUDA kernel is called like {arguments.only}")
    print(f"{launches} launches of {kernels} kernels")


if __name__ == "__main__":
    main()
