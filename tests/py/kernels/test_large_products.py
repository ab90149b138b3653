"""Products that are our own on the CPU: edges of strips, groups and bands, operands where they lie, and threads.

Operands end where memory that must not be touched begins: a read behind one ends the process.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from aicf_mlir import _C, OpKind, op_call

Array = npt.NDArray[Any]
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


def guarded(shape: tuple[int, ...], dtype: Any = np.float32) -> Array:
    """Zeros that end where a page begins that must not be touched."""
    count = int(np.prod(shape))
    size = count * np.dtype(dtype).itemsize
    pages = -(-size // PAGE)
    memory = mmap.mmap(-1, (pages + 1) * PAGE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(start + pages * PAGE), PAGE, NOTHING_ALLOWED) == 0
    return np.frombuffer(memory, dtype, count, pages * PAGE - size).reshape(shape)


def random(shape: tuple[int, ...], seed: int, dtype: Any = np.float32) -> Array:
    found = guarded(shape, dtype)
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


NARROW = (*SIZES, (130, 70, 300), (257, 33, 640), (40, 30, 2000))
"""Tiles of strips, and what is packed for all threads."""


@pytest.mark.parametrize("trans_b", [False, True])
@pytest.mark.parametrize("trans_a", [False, True])
@pytest.mark.parametrize("size", NARROW, ids=str)
@pytest.mark.parametrize("batch", [1, 5])
def test_edges_of_16_bit_floats(size: tuple[int, int, int], trans_a: bool, trans_b: bool, batch: int) -> None:
    """Integers, which are exact in f32: the result is rounded once."""
    (m, n, k), dtype = size, np.float16 if trans_a == trans_b else ml_dtypes.bfloat16
    a = random((batch, k, m) if trans_a else (batch, m, k), 0, dtype)
    b = random((batch, n, k) if trans_b else (batch, k, n), 1, dtype)
    for each in (a, b):
        each[...] = np.rint(each.astype(np.float32) * 2).astype(dtype)
    left = (a.swapaxes(1, 2) if trans_a else a).astype(np.float64)
    right = (b.swapaxes(1, 2) if trans_b else b).astype(np.float64)
    exact = (left @ right).astype(np.float32).astype(dtype)
    for threads in (1, 2, 7):
        _C.set_threads(threads)
        result = guarded((batch, m, n), dtype)
        result[...] = np.nan
        op_call(OpKind.Gemm, [a, b], [result], {"trans_a": trans_a, "trans_b": trans_b}, "gemm_cpu_plain")
        assert result.tobytes() == exact.tobytes()


@pytest.mark.parametrize("trans_a", [False, True])
def test_a_wide_result_of_16_bit_floats_is_summed_in_parts(trans_a: bool) -> None:
    """More rows than 32 MB of sums hold."""
    m, n, k = 300, 40_000, 128
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-2, 3, shape).astype(np.float32) for shape in ((m, k), (k, n)))
    bias = rng.integers(-9, 9, n).astype(np.float32)
    exact = np.maximum(a @ b + bias, 0).astype(ml_dtypes.bfloat16)
    given = [x.astype(ml_dtypes.bfloat16) for x in (a.T.copy() if trans_a else a, b, bias)]
    out = np.full((m, n), np.nan, ml_dtypes.bfloat16)
    inputs = dict(zip(("a", "b", "bias"), given, strict=True))
    op_call(
        OpKind.GemmEpilogue,
        inputs,
        {"out": out},
        {"trans_a": trans_a, "act": "relu"},
        "gemm_epilogue_cpu_plain",
    )
    assert out.tobytes() == exact.tobytes()
