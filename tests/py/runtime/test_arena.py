"""Arenas: memory at a fixed address, with every access checked."""

from __future__ import annotations

import gc
import resource
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from aicf_mlir import _C, KernelError


def test_an_arena_reads_and_writes() -> None:
    arena = _C.Arena("cpu", 16)
    assert arena.read(0, 16) == bytes(16)
    assert arena.ptr % 256 == 0
    assert (arena.device, arena.nbytes) == ("cpu", 16)
    arena.write(4, b"abcd")
    assert arena.read(3, 6) == b"\0abcd\0"
    arena.write(0, np.arange(4, dtype=np.int32))
    assert np.frombuffer(memoryview(arena), np.int32).tolist() == [0, 1, 2, 3]
    other = _C.Arena("cpu", 16)
    other.fill(0xFF)
    arena.copy_from(other)
    assert arena.read(0, 16) == b"\xff" * 16
    source = np.arange(2, dtype=np.int32)
    arena.copy_in(8, source.ctypes.data, 8)
    assert np.frombuffer(memoryview(arena), np.int32).tolist() == [-1, -1, 0, 1]


def test_a_view_keeps_its_arena_alive() -> None:
    gc.collect()
    before = _C.memory_stats("cpu")["live_bytes"]
    arena = _C.Arena("cpu", 1 << 20)
    numbers = np.frombuffer(memoryview(arena), np.float32)
    del arena
    gc.collect()
    assert _C.memory_stats("cpu")["live_bytes"] == before + (1 << 20)
    numbers += 1
    del numbers
    gc.collect()
    assert _C.memory_stats("cpu")["live_bytes"] == before


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda a: a.write(12, b"12345"),
            r"a write of 5 bytes at offset 12 is outside its arena of 16 bytes",
        ),
        (lambda a: a.write(-1, b"1"), r"a write of 1 bytes at offset -1 is outside"),
        (lambda a: a.read(0, 17), r"a read of 17 bytes at offset 0 is outside"),
        (lambda a: a.read(0, -1), r"a read of -1 bytes at offset 0 is outside"),
        (lambda a: a.fill(256), r"a byte is 0 to 255, got 256"),
        (
            lambda a: a.copy_from(_C.Arena("cpu", 8)),
            r"of 16 bytes cannot take the contents of one of 8 bytes",
        ),
        (lambda a: a.copy_in(0, 0, 8), r"a write of 8 bytes from a null address"),
        (lambda a: _C.Arena("cpu", -1), r"an arena has 0 or more bytes, got -1"),
        (lambda a: _C.Arena("cpu", 2**62), r"out of memory: the CPU cannot give 4611686018427387904 bytes"),
        (lambda a: _C.Arena("disk", 1), r"no device is called 'disk'; expected cpu, cuda or cuda:N"),
    ],
)
def test_refuses_wrong_arena_calls(call: Callable[[_C.Arena], object], message: str) -> None:
    with pytest.raises(KernelError, match=message):
        call(_C.Arena("cpu", 16))


def test_an_empty_arena_is_legal() -> None:
    arena = _C.Arena("cpu", 0)
    assert arena.read(0, 0) == b""
    arena.write(0, b"")
    assert memoryview(arena).nbytes == 0


@pytest.mark.parametrize("nbytes", [1, 255, 4096, 1 << 20, 64 << 20])
def test_memory_that_others_have_used_is_zeros_at_an_aligned_address(nbytes: int) -> None:
    for _ in range(3):
        arena = _C.Arena("cpu", nbytes)
        assert arena.ptr % 256 == 0
        assert not any(arena.read(0, nbytes)[:: max(nbytes // 4096, 1)])
        arena.fill(255)
        del arena


def test_large_memory_is_not_there_before_it_is_used() -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    before = resident()
    arena = _C.Arena("cpu", 256 << 20)
    assert resident() - before < 64 << 20
    arena.fill(1)
    assert resident() - before > 192 << 20
