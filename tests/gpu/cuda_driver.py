"""The few calls of CUDA's driver that run a cubin, by ctypes: no torch, no build of this project."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
_P, _U, _S, _I = ctypes.c_void_p, ctypes.c_uint, ctypes.c_size_t, ctypes.c_int

LOCAL_BYTES, REGISTERS, DYNAMIC_SHARED = 3, 4, 8
"""Of CUfunction_attribute."""


class Driver:
    """The first device, its primary context, a stream."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", _U(0))
        self.device = _I()
        self.call("cuDeviceGet", ctypes.byref(self.device), _I(0))
        context = _P()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self.device)
        self.call("cuCtxSetCurrent", context)
        self.stream = _P()
        self.call("cuStreamCreate", ctypes.byref(self.stream), _U(1))

    def call(self, name: str, *arguments: object) -> None:
        """Raise RuntimeError, with the driver's words, unless the call succeeds."""
        status = getattr(self.library, name)(*arguments)
        if status:
            text = ctypes.c_char_p()
            self.library.cuGetErrorString(_I(status), ctypes.byref(text))
            raise RuntimeError(f"{name}: {(text.value or b'?').decode()} ({status})")

    def target(self) -> str:
        """Such as "sm_90"."""
        found: list[int] = []
        for attribute in (75, 76):
            value = _I()
            self.call("cuDeviceGetAttribute", ctypes.byref(value), _I(attribute), self.device)
            found.append(value.value)
        return f"sm_{found[0]}{found[1]}"

    def allocate(self, size: int) -> int:
        """Bytes of the device, which stay."""
        pointer = _P()
        self.call("cuMemAlloc_v2", ctypes.byref(pointer), _S(max(size, 1)))
        return pointer.value or 0

    def upload(self, address: int, data: Bytes) -> None:
        """Host to device, in the order of the stream."""
        self.call("cuMemcpyHtoDAsync_v2", _P(address), _P(data.ctypes.data), _S(data.size), self.stream)

    def download(self, address: int, size: int) -> Bytes:
        """Device to host, behind what runs on the stream."""
        self.call("cuStreamSynchronize", self.stream)
        data = np.empty(size, np.uint8)
        self.call("cuMemcpyDtoH_v2", _P(data.ctypes.data), _P(address), _S(size))
        return data

    def kernels(self, image: bytes, functions: Sequence[str]) -> list[ctypes.c_void_p]:
        """The functions of a cubin."""
        library = _P()
        self.call("cuLibraryLoadData", ctypes.byref(library), image, None, None, _U(0), None, None, _U(0))
        found: list[ctypes.c_void_p] = []
        for function in functions:
            kernel = _P()
            self.call("cuLibraryGetKernel", ctypes.byref(kernel), library, function.encode())
            found.append(kernel)
        return found

    def attribute(self, kernel: ctypes.c_void_p, which: int) -> int:
        """What a function needs."""
        value = _I()
        self.call("cuKernelGetAttribute", ctypes.byref(value), _I(which), kernel, self.device)
        return value.value

    def allow_shared(self, kernel: ctypes.c_void_p, size: int) -> None:
        """Let a function be launched with so many bytes of dynamic shared memory."""
        self.call("cuKernelSetAttribute", _I(DYNAMIC_SHARED), _I(size), kernel, self.device)

    def launch(
        self,
        kernel: ctypes.c_void_p,
        blocks: int,
        threads: int,
        shared: int,
        addresses: Sequence[int],
        together: bool = False,
    ) -> None:
        """One grid on the stream; nothing where there are no blocks. With `together` they may wait for each other."""
        if not blocks:
            return
        values = [_P(address) for address in addresses]
        pointers = (_P * len(values))(*(ctypes.addressof(value) for value in values))
        grid = map(_U, (blocks, 1, 1, threads, 1, 1, shared))
        if together:
            self.call("cuLaunchCooperativeKernel", kernel, *grid, self.stream, pointers)
        else:
            self.call("cuLaunchKernel", kernel, *grid, self.stream, pointers, None)

    def capture(self, work: Callable[[], None]) -> ctypes.c_void_p:
        """A graph of what `work` enqueues."""
        self.call("cuStreamBeginCapture_v2", self.stream, _I(1))
        graph, executable = _P(), _P()
        try:
            work()
        finally:
            self.call("cuStreamEndCapture", self.stream, ctypes.byref(graph))
        self.call("cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, ctypes.c_ulonglong(0))
        return executable

    def replay(self, graph: ctypes.c_void_p) -> None:
        """Once, on the stream."""
        self.call("cuGraphLaunch", graph, self.stream)
