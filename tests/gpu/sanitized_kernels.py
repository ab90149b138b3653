"""Launches every CUDA kernel on ragged cases, for compute-sanitizer: each operand is one allocation.

    compute-sanitizer --tool memcheck python tests/gpu/sanitized_kernels.py [--each N] [--only TEXT ...]

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

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "py"))

from kernel_cases import FLOATS, Array, Case, Generator, Maker, generated
from test_cuda_kernels import LARGE

from aicf_mlir import _C
from aicf_mlir.errors import SelectionError
from aicf_mlir.interpreters.numerics import NUMPY_TYPES
from aicf_mlir.ir.registry import select_kernel

NAMES = {dtype: name for name, dtype in NUMPY_TYPES.items()}


def operand(dtype: str, shape: tuple[int, ...], values: Array | None) -> _C.TensorDesc:
    """Memory of exactly the operand's size: with the values, or poison."""
    count = int(np.prod(shape, dtype=np.int64))
    arena = _C.Arena("cuda", count * NUMPY_TYPES[dtype].itemsize)
    if values is None:
        arena.fill(0xFF)
    elif count:
        arena.write(0, np.ascontiguousarray(values).tobytes())
    return _C.TensorDesc(arena.ptr, dtype, shape, device="cuda:0", owner=arena)


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
    arguments = parser.parse_args()
    target = f"sm_{_C.compute_capability(0)}"
    kernels = launches = 0
    for kernel in _C.kernel_variants():
        if kernel["device"] != "cuda" or not any(text in kernel["name"] for text in arguments.only):
            continue
        kernels += 1
        chosen = list(supported(kernel, target, partial(generated, kernel["op"])))[:: arguments.each]
        if kernel["op"] in LARGE:
            chosen += list(supported(kernel, target, LARGE[kernel["op"]]))[:: arguments.large_each]
        for case in chosen:
            inputs = [operand(NAMES[array.dtype], array.shape, array) for array in case.inputs]
            outputs = [operand(dtype, shape, None) for dtype, shape in case.outputs]
            _C.op_call(kernel["kind"], inputs, outputs, case.attrs, kernel["name"], counts=case.counts)
            _C.synchronize("cuda")  # the memory goes when the descriptions do
            launches += 1
    if not launches:
        raise SystemExit(f"no CUDA kernel is called like {arguments.only}")
    print(f"{launches} launches of {kernels} kernels")


if __name__ == "__main__":
    main()
