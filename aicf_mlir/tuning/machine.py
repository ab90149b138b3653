"""The properties of this machine that decide the bits of its kernels: processor or GPU, libraries, the build."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from aicf_mlir import _C
from aicf_mlir.codegen import nvrtc
from aicf_mlir.machine import cpu_kernels, hardware


@cache
def machine_of(device: str) -> dict[str, str]:
    """The machine of "cpu", or of a CUDA device such as "cuda:0"."""
    if device == "cpu":
        name, libraries = hardware.model(), hardware.blas_kernels()
    else:
        index = int(device.partition(":")[2] or 0)
        name, libraries = hardware.cuda_devices()[index].partition(" ")[2], ", ".join(_libraries())
    return {
        "target": _C.target_of(device),
        "device": name,
        "libraries": libraries,
        "build": build_digest() if device != "cpu" else f"{build_digest()}, {cpu_kernels.chosen()}",
    }


def _libraries() -> list[str]:
    """The libraries for products, and the compilers of generated kernels."""
    own = [f"{title} {version}" for _, title, version in _C.libraries() if version]
    return [*own, nvrtc.toolchain()] if nvrtc.available() else own


@cache
def build_digest() -> str:
    """The digest of the compiled part of this package, and of the CPU kernels that it has loaded."""
    digest = hashlib.sha256(Path(str(_C.__file__)).read_bytes())
    library = cpu_kernels.library_of(cpu_kernels.chosen())
    if library.exists():
        digest.update(library.read_bytes())
    return digest.hexdigest()[:16]
