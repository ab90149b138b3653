"""Object code run in this process through llvmlite's MCJIT, with operands from NumPy."""

from __future__ import annotations

import ctypes
import ctypes.util
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import llvmlite.binding as llvm
import ml_dtypes
import numpy as np

from aicf_mlir.codegen.functions import LIBM
from aicf_mlir.codegen.llvm import generate
from aicf_mlir.codegen.native import compile_objects
from aicf_mlir.kernels.kernel import Kernel, Tensor

NUMPY: dict[str, Any] = {
    "f32": np.float32,
    "f64": np.float64,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "i64": np.int64,
    "i32": np.int32,
    "i1": np.bool_,
}
Array = np.ndarray[Any, Any]

_libm = ctypes.CDLL(ctypes.util.find_library("m"))
TABLE = (ctypes.c_void_p * len(LIBM))(
    *(ctypes.cast(getattr(_libm, name), ctypes.c_void_p).value for name, _ in LIBM)
)


class Loaded:
    """A kernel's code, ready to run on arrays."""

    def __init__(self, kernel: Kernel, cpu: str | None = None) -> None:
        self.kernel, self.code = kernel, generate(kernel)
        self.object = compile_objects([self.code.source], cpu)[0]
        target = llvm.Target.from_triple(llvm.get_process_triple())
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), target.create_target_machine())
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(self.object))
        self._engine.finalize_object()
        kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
        self._functions = [
            kind(self._engine.get_function_address(phase.function)) for phase in self.code.phases
        ]

    def bound(self, arrays: Sequence[Array], cuts: int = 1) -> Callable[[], None]:
        """Runs every phase in `cuts` ranges, the last range first, on operands and results as they lie in memory."""
        space = np.full(self.code.workspace + 256, 0x7F, np.uint8)
        addresses = [array.ctypes.data for array in arrays]
        addresses += [space.ctypes.data + -space.ctypes.data % 256, ctypes.addressof(TABLE)]
        operands = (ctypes.c_void_p * len(addresses))(*addresses)
        calls: list[tuple[Any, int, int]] = []
        for phase, function in zip(self.code.phases, self._functions, strict=True):
            bounds = [phase.count * cut // cuts for cut in range(cuts + 1)]
            calls += [(function, *pair) for pair in reversed(list(itertools.pairwise(bounds)))]

        def run() -> None:
            assert space.size
            for function, begin, end in calls:
                function(ctypes.addressof(operands), begin, end)

        return run

    def __call__(self, arrays: Sequence[Array], cuts: int = 1) -> None:
        """Run once."""
        self.bound(arrays, cuts)()


class Placed(NamedTuple):
    """A tensor in memory."""

    array: Array
    memory: Array
    """Bytes, more than the array needs."""

    def untouched(self) -> bool:
        """Whether what lies between and behind the elements is still poison."""
        beside = np.ones(self.memory.size // self.array.itemsize, bool)
        strides = [stride // self.array.itemsize for stride in self.array.strides]
        np.lib.stride_tricks.as_strided(beside, self.array.shape, strides)[...] = False
        return bool((self.memory.reshape(-1, self.array.itemsize)[beside] == POISON).all())


POISON = 0x5A


def placed(tensor: Tensor, values: Array | None = None) -> Placed:
    """A tensor with its layout, holding `values`, else poison."""
    type_ = np.dtype(NUMPY[tensor.element])
    memory = np.full((tensor.layout.end + 16) * type_.itemsize, POISON, np.uint8)
    strides = [stride * type_.itemsize for stride in tensor.strides]
    array = np.lib.stride_tricks.as_strided(memory.view(type_), tensor.shape, strides)
    if values is not None:
        array[...] = values
    return Placed(array, memory)


def run(kernel: Kernel, operands: Sequence[Array], cuts: int = 1) -> list[Array]:
    """The results of a kernel, from memory that was poisoned before, and nothing beside them written."""
    results = [placed(tensor) for tensor in kernel.results]
    Loaded(kernel)([*operands, *(result.array for result in results)], cuts)
    assert all(result.untouched() for result in results), "written beside the elements"
    return [result.array for result in results]


def bits(arrays: Sequence[Array]) -> list[bytes]:
    """The bytes of each, without what lies between its elements."""
    return [np.ascontiguousarray(array).tobytes() for array in arrays]
