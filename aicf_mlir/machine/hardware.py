"""The equipment of this machine: BLAS, CUDA driver and devices, detected without torch."""

from __future__ import annotations

import ctypes
import os
import platform
from pathlib import Path

from aicf_mlir import _C
from aicf_mlir.machine.cpu_kernels import blas_library
from aicf_mlir.machine.processor import levels
from aicf_mlir.machine.processor import name as processor_name

DRIVER_VERSION = Path("/proc/driver/nvidia/version")
CAPABILITY_MAJOR, CAPABILITY_MINOR = 75, 76
"""CUdevice_attribute."""


def model() -> str:
    """The processor's name, and its level of x86-64 or its architecture."""
    level = [platform.machine(), *levels()][-1]
    return f"{processor_name()}, {level}"


def processor() -> str:
    """The same, and its cores as Linux counts them."""
    return f"{model()}, {os.cpu_count()} logical cores"


def blas() -> str:
    """The library of the CPU's matrix products, and the threads that share them."""
    return f"{blas_kernels()}, {_C.threads()} threads"


def blas_kernels() -> str:
    """The same library: name, version, the processor that it has chosen its code for."""
    library = ctypes.CDLL(str(blas_library()))
    config, core = library.scipy_openblas_get_config, library.scipy_openblas_get_corename
    config.restype = core.restype = ctypes.c_char_p
    words = config().decode().split()
    return f"{' '.join(words[:2])} for {core().decode()}"


def driver() -> str:
    """The NVIDIA driver and the newest CUDA that it runs."""
    cuda = _cuda()
    if cuda is None:
        return "none"
    number = ctypes.c_int()
    cuda.cuDriverGetVersion(ctypes.byref(number))
    runs = f"CUDA {number.value // 1000}.{number.value % 1000 // 10}"
    if not DRIVER_VERSION.exists():
        return runs
    words = DRIVER_VERSION.read_text().partition("\n")[0].split()
    return f"{next((word for word in words if word[:1].isdigit()), 'unknown')}, {runs}"


def missing_cuda() -> str | None:
    """The reason why nothing can run on a GPU here, as one clause; None if something can."""
    if not _C.with_cuda:
        return "this build of AICF has no CUDA"
    if _C.device_count("cuda") > 0:
        return None
    if _cuda() is None:
        return "this machine has no NVIDIA driver"
    return "the NVIDIA driver of this machine shows no GPU that AICF can use"


def cuda_devices() -> list[str]:
    """`cuda:0 NVIDIA H200 (sm_90, 139 GiB)`, one a device that the driver shows."""
    cuda, count = _cuda(), ctypes.c_int()
    if cuda is None or cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)):
        return []
    return [_describe(cuda, index) for index in range(count.value)]


def _cuda() -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None


def _describe(cuda: ctypes.CDLL, index: int) -> str:
    device, size, name = ctypes.c_int(), ctypes.c_size_t(), ctypes.create_string_buffer(256)
    major, minor = ctypes.c_int(), ctypes.c_int()
    cuda.cuDeviceGet(ctypes.byref(device), index)
    cuda.cuDeviceGetName(name, len(name), device)
    cuda.cuDeviceTotalMem_v2(ctypes.byref(size), device)
    cuda.cuDeviceGetAttribute(ctypes.byref(major), CAPABILITY_MAJOR, device)
    cuda.cuDeviceGetAttribute(ctypes.byref(minor), CAPABILITY_MINOR, device)
    memory = f"{size.value / 2**30:.0f} GiB"
    return f"cuda:{index} {name.value.decode()} (sm_{major.value}{minor.value}, {memory})"
