"""Runs the CUDA C++ of generated kernels on the host, thread by thread: right indices and orders need no GPU to be seen."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from pathlib import Path

import children
import numpy as np
from generated_cases import Array, GeneratedCase, span

from aicf_mlir.codegen.cuda import generate
from aicf_mlir.codegen.cuda.access import tensors
from aicf_mlir.codegen.cuda.scalars import STORED
from aicf_mlir.codegen.kernel import Code, Kernel
from aicf_mlir.interpreters.numerics import NUMPY_TYPES

ASSEMBLY = {
    "cvt.f32.f16": "half_to_float",
    "cvt.rn.f16.f32": "float_to_half",
    "cvt.rn.f16.f64": "double_to_half",
    "cvt.rn.bf16.f32": "float_to_bfloat",
    "max.NaN.f32": "max_nan",
    "min.NaN.f32": "min_nan",
}
GUARD = 64
"""Bytes on both sides of each block of memory, which no kernel may change."""


def on_host(source: str) -> str:
    """With calls in place of the GPU's instructions."""

    def call(found: re.Match[str]) -> str:
        operands = re.findall(r'"[a-z]+"\(([^()]+)\)', found[3])
        return f"{found[2]} = {ASSEMBLY[found[1]]}({', '.join(operands)});"

    return re.sub(r'asm\("([a-zA-Z0-9.]+) [^"]*" : "=[a-z]"\(([^()]+)\) : ([^;]*)\);', call, source)


def _launcher(kernel: Kernel, code: Code) -> str:
    types = [STORED[tensor.element] + "*" for tensor in tensors(kernel)]
    types += ["void*", "const long long*"]
    arguments = ", ".join(f"static_cast<{type_}>(arguments[{n}])" for n, type_ in enumerate(types))
    launches = "".join(
        f"  if (run_grid([] {{ {phase.function}({arguments}); }}, {phase.count}, {phase.threads}, backwards)) return 1;\n"
        for phase in code.phases
    )
    return (
        f'extern "C" int launch_{kernel.id}(void* const* given, bool backwards) {{\n'
        f"  std::memcpy(arguments, given, {len(types)} * sizeof(void*));\n{launches}  return 0;\n}}\n"
    )


class HostKernels:
    """Kernels compiled for the host."""

    def __init__(self, kernels: Sequence[Kernel], folder: Path):
        self.codes = {kernel.id: generate(kernel) for kernel in kernels}
        header = Path(__file__).with_name("cuda_on_host.h").read_text()
        parts = [header]
        for kernel in {kernel.id: kernel for kernel in kernels}.values():
            source = on_host(self.codes[kernel.id].source) + _launcher(kernel, self.codes[kernel.id])
            parts.append(f"namespace in_{kernel.id} {{\n{source}}}\n")
        self.library = compiled("\n".join(parts), folder)

    def run(
        self,
        case: GeneratedCase,
        in_place: tuple[int, int] | None = None,
        skip: bool = False,
        backwards: bool = False,
    ) -> list[Array]:
        """The blocks of the results, poisoned before; with `in_place`, (result, operand), one over the other."""
        kernel, code = case.kernel, self.codes[case.kernel.id]
        memory: list[Array] = []
        for tensor, block in zip(kernel.operands, case.operands, strict=True):
            memory.append(placed(block.view(np.uint8), tensor.alignment))
        for number, tensor in enumerate(kernel.results):
            if in_place and in_place[0] == number:
                memory.append(memory[in_place[1]])
                continue
            poison = np.full(span(tensor) * NUMPY_TYPES[tensor.element].itemsize, 0xFF, np.uint8)
            memory.append(placed(poison, tensor.alignment))
        workspace = placed(np.full(code.workspace, 0xFF, np.uint8), 256)
        status = np.array([int(skip)], np.int64)
        addresses = [part.ctypes.data for part in (*memory, workspace, status)]
        pointers = (ctypes.c_void_p * len(addresses))(*addresses)
        launch = getattr(self.library, f"launch_{kernel.id}")
        if launch(pointers, ctypes.c_bool(backwards)):
            raise AssertionError(f"{case.name}: threads wait for others that never come")
        for part in (*memory, workspace):
            if exceeded(part):
                raise AssertionError(f"{case.name}: wrote outside of its memory")
        return [
            block.view(NUMPY_TYPES[tensor.element])
            for tensor, block in zip(kernel.results, memory[len(kernel.operands) :], strict=True)
        ]


def compiled(source: str, folder: Path) -> ctypes.CDLL:
    """A library for the host; an access that is out of bounds or not aligned ends the process."""
    text, library = folder / "kernels.cpp", folder / "kernels.so"
    text.write_text(source)
    flags = ["-std=c++17", "-O1", "-w", "-shared", "-fPIC", "-ffp-contract=off"]
    flags += ["-fsanitize=alignment,bounds", "-fsanitize-undefined-trap-on-error"]
    children.run(["g++", *flags, text, "-o", library], check=True)
    return ctypes.CDLL(str(library))


def exceeded(part: Array) -> bool:
    """Whether something was written before or behind a block that `placed` made."""
    whole = part.base
    assert isinstance(whole, np.ndarray)
    start = part.ctypes.data - whole.ctypes.data
    edges = np.concatenate(
        (whole[start - GUARD : start], whole[start + part.size : start + part.size + GUARD])
    )
    return bool((edges != 0xA5).any())


def placed(data: Array, alignment: int) -> Array:
    """A copy at an address that `alignment` divides and no larger power of two, between guards."""
    whole = np.full(data.size + 2 * GUARD + 2 * 256, 0xA5, np.uint8)
    start = -(-(whole.ctypes.data + GUARD) // 256) * 256 - whole.ctypes.data
    start += alignment % 256
    part = whole[start : start + data.size]
    part[:] = data
    return part
