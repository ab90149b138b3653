"""Which prebuilt kernels compute-sanitizer's racecheck runs: all of them, but those left out here with a reason."""

from __future__ import annotations

from collections.abc import Mapping

from aicf_mlir import _C
from kernel_cases import family_of

LEFT_OUT: Mapping[str, str] = {
    "collective": "no memory is shared, and several processes take part: tests/gpu/data_parallel.py runs it",
    "eltwise": "every element has a thread of its own, and no memory is shared; memcheck runs it",
}
"""By family, why none of its kernels runs."""

LIBRARIES: Mapping[str, str] = {
    "cublaslt": "racecheck reports hazards in its kernels that wait at barriers which it does not follow",
    "cudnn": "its kernels are not ours to check, and wait at barriers which racecheck does not follow",
}
"""By library, why no kernel of it runs."""


def left_out(variant: _C.KernelVariant) -> str:
    """Why racecheck does not run a kernel; "" where it does."""
    if variant["library"]:
        return LIBRARIES[variant["library"]]
    return LEFT_OUT.get(family_of(variant["op"]), "")
