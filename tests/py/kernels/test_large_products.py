"""Products that are our own on the CPU: edges of strips, groups and bands, operands where they lie, and threads.

Operands end where memory that must not be touched begins: a read behind one ends the process.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest

from aicf_mlir import _C, OpKind, op_call

Array = npt.NDArray[np.float32]
PAGE = mmap.PAGESIZE
NOTHING_ALLOWED = 0
SIZES = [
    (1, 1, 1),  # small ones, which pack b at most
    (5, 3, 7),
    (8, 16, 8),
    (13, 47, 29),
    (1, 100, 33),
    (3, 200, 40),
    (7, 1, 100),
    (64, 64, 65),
    (2, 130, 40),
    (32, 32, 1000),  # one group, several parts of k
    (43, 96, 513),
    (126, 130, 70),  # whole strips of rows; columns behind the last group
    (256, 512, 512),
    (257, 65, 64),
    (60, 4096 + 40, 33),  # more groups than a band has
    (1008 + 35, 64, 40),  # more rows than a band has
    (64, 96, 1024),  # rows or columns a multiple of 4 KB apart
    (1024, 40, 36),
]


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = _C.threads()
    yield
    _C.set_threads(before)


def guarded(shape: tuple[int, ...]) -> Array:
    """Zeros that end where a page begins that must not be touched."""
    size = int(np.prod(shape)) * 4
    pages = -(-size // PAGE)
    memory = mmap.mmap(-1, (pages + 1) * PAGE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(start + pages * PAGE), PAGE, NOTHING_ALLOWED) == 0
    return np.frombuffer(memory, np.float32, size // 4, pages * PAGE - size).reshape(shape)


def random(shape: tuple[int, ...], seed: int) -> Array:
    found = guarded(shape)
    found[...] = np.random.default_rng(seed).standard_normal(shape)
    return found


@pytest.mark.parametrize("trans_b", [False, True])
@pytest.mark.parametrize("trans_a", [False, True])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_edges(size: tuple[int, int, int], trans_a: bool, trans_b: bool) -> None:
    m, n, k = size
    a = random((2, k, m) if trans_a else (2, m, k), 0)
    b = random((2, n, k) if trans_b else (2, k, n), 1)
    left = a.swapaxes(1, 2) if trans_a else a
    right = b.swapaxes(1, 2) if trans_b else b
    exact = left.astype(np.float64) @ right.astype(np.float64)
    bound = 1e-6 * (np.abs(left) @ np.abs(right))
    first = None
    for threads in (1, 2, 7):
        _C.set_threads(threads)
        result = guarded((2, m, n))
        result[...] = np.nan
        op_call(OpKind.Gemm, [a, b], [result], {"trans_a": trans_a, "trans_b": trans_b})
        assert (np.abs(result - exact) <= bound).all()
        first = result if first is None else first
        assert result.tobytes() == first.tobytes()
