"""Run every CPU kernel over its cases and print a digest of the bits of each: for comparing builds and processors."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator

import numpy as np
from kernel_calls import run, supports
from kernel_cases import FLOATS, Array, cases

from aicf_mlir import _C
from aicf_mlir.machine import cpu_kernels


def digests() -> Iterator[tuple[str, str]]:
    """The name of each CPU kernel and the digest of all its results."""
    for variant in _C.kernel_variants():
        if variant["device"] != "cpu":
            continue
        kernel, op = variant["name"], variant["op"]
        taken = [case for dtype in FLOATS for case in cases(op, dtype) if supports(kernel, op, case, "cpu")]
        bits = sorted(plain(result) for case in taken for result in run(kernel, op, case, "cpu"))
        yield kernel, hashlib.sha256(b"".join(bits)).hexdigest()[:16]


def plain(values: Array) -> bytes:
    """The bits, with one NaN for all: its sign is that of whichever operand the compiler puts first."""
    with np.errstate(invalid="ignore"):
        missing = values != values
    return np.where(missing, np.zeros_like(values), values).tobytes() + missing.tobytes()


if __name__ == "__main__":
    sys.stderr.write(f"CPU kernels: {cpu_kernels.chosen()} of {', '.join(cpu_kernels.built())}\n")
    sys.stdout.writelines(f"{kernel} {digest}\n" for kernel, digest in digests())
