"""The CPU kernels that fit this processor, and the BLAS for their matrix products: chosen once, at import.

A portable build has the kernels for any x86-64 in the module itself and, in separate libraries, for newer processors. They
compute the same bits: the lanes of a sum are part of the source, and nothing is contracted. `AICF_CPU_LEVEL=x86-64` (or
`x86-64-v3`, …) chooses by hand, and `AICF_NUM_THREADS=4` sets the threads that share their loops (`environment.py`).
"""

from __future__ import annotations

import os
from pathlib import Path

import scipy_openblas32

from aicf_mlir import _C
from aicf_mlir.machine import environment, processor

PACKAGE = Path(__file__).parents[1]


def library_of(level: str) -> Path:
    """The path of the kernels for `level`, if this build has them."""
    return PACKAGE / f"libaicf_cpu_{level}.so"


def built() -> list[str]:
    """The CPU kernels of this build, the plainest first."""
    if _C.native:
        return ["native"]
    return [processor.BASELINE, *(level for level in processor.LEVELS if library_of(level).exists())]


def chosen() -> str:
    """The kernels to use: the newest that this processor runs, or those that the environment names."""
    available = built()
    if (wanted := environment.cpu_level(available)) is not None:
        return wanted
    runs = [level for level in available if level in processor.levels()]
    return runs[-1] if runs else available[0]


def blas_library() -> Path:
    """The shared library of scipy-openblas32, by path: no rpath is needed, editable installs work."""
    folder = Path(scipy_openblas32.get_lib_dir())
    libraries = sorted(folder.glob("libscipy_openblas*.so*"))
    if not libraries:
        raise ImportError(f"scipy-openblas32 has no library in {folder}; reinstall it with pip")
    return libraries[0]


def load_cpu_kernels() -> None:
    """Give the module its threads, its BLAS and, if there is one, the library that fits this processor."""
    if (threads := environment.threads()) is not None:
        _C.set_threads(threads)
    blas = os.fsencode(blas_library())  # any bytes may be in a path
    _C.load_blas(blas)
    library = library_of(chosen())
    if library.exists():
        _C.load_cpu_kernels(os.fsencode(library), blas)
