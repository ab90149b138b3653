"""Code of generated kernels on the CPU: the loader of objects, and launches of map, rowwise and colwise with code.

The objects are compiled from C++ here, so that nothing of the code generators is needed.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import children
import numpy as np
import pytest

from aicf_mlir import _C, KernelError, OpKind, PlanError, SelectionError

ID = "gen_map_0123456789ab"
SOURCE = """
#include <cstdint>
static const double coefficients[4] = {1.5, 2.5, 3.5, 4.5};
static int64_t calls = 0;
static double (*table[2])(double);
extern "C" void scaled(void* const* p, int64_t begin, int64_t end) {
  const float* x = static_cast<const float*>(p[0]);
  float* y = static_cast<float*>(p[1]);
  for (int64_t i = begin; i < end; ++i) y[i] = x[i] * static_cast<float>(coefficients[i & 3]);
}
static void row(const float* x, double* out, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += x[i];
  *out = sum;
  ++calls;
}
extern "C" void partial(void* const* p, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i)
    row(static_cast<const float*>(p[0]) + 8 * i, static_cast<double*>(p[2]) + i, 8);
}
extern "C" void finish(void* const* p, int64_t begin, int64_t end) {
  table[0] = reinterpret_cast<double (*)(double)>(static_cast<void**>(p[3])[0]);
  table[1] = reinterpret_cast<double (*)(double)>(static_cast<void**>(p[3])[1]);
  for (int64_t i = begin; i < end; ++i)
    static_cast<float*>(p[1])[i] = table[i & 1](static_cast<double*>(p[2])[i]);
}
"""


@cache
def compiled(source: str = SOURCE, *flags: str) -> bytes:
    """A relocatable object."""
    with tempfile.TemporaryDirectory() as folder:
        text, made = Path(folder) / "kernel.cpp", Path(folder) / "kernel.o"
        text.write_text(source)
        options = ["-std=c++17", "-O2", "-fno-exceptions", *(flags or ("-fpic",))]
        children.run(["c++", *options, "-c", "-o", made, text], check=True)
        return made.read_bytes()


def scaled(**changes: Any) -> _C.Code:
    """`y = x * coefficients`, of 32 elements."""
    given: dict[str, Any] = {"id": ID, "object": compiled(), "phases": [("scaled", 32, 4, 0, 0)]}
    return _C.Code.cpu(**given | changes)


X, Y = ("temp", 0, "f32", (4, 8)), ("temp", 256, "f32", (4, 8))


def launch(code: _C.Code | None, **changes: Any) -> dict[str, Any]:
    row = {
        "op": OpKind.Map,
        "kernel_id": ID,
        "inputs": [X],
        "outputs": [Y],
        "counts": ((1, 0), (1,)),
        "attrs": {"body": "…", "shape": [4, 8]},
        "workspace": None,
        "code": code,
    }
    return row | changes


def values(arena: _C.Arena, slot: tuple[str, int, str, tuple[int, ...]]) -> np.ndarray[Any, Any]:
    _, offset, _, shape = slot
    count = int(np.prod(shape))
    return np.frombuffer(memoryview(arena), np.float32, count, offset).reshape(shape)


def test_runs_from_a_plan() -> None:
    arena = _C.Arena("cpu", 1024)
    values(arena, X)[...] = np.arange(32).reshape(4, 8)
    executor = _C.Executor("cpu", {"temp": arena}, [launch(scaled())])
    executor.run()
    expected = np.arange(32, dtype=np.float32).reshape(4, 8) * np.float32([1.5, 2.5, 3.5, 4.5] * 2)
    np.testing.assert_array_equal(values(arena, Y), expected)
    assert executor.trace() == executor.trace(choices=True) == [ID]
    values(arena, Y)[...] = 0
    executor.capture()
    executor.replay(2)
    np.testing.assert_array_equal(values(arena, Y), expected)


def test_phases_follow_one_another_with_workspace_and_math() -> None:
    code = _C.Code.cpu(
        "gen_rowwise_0",
        compiled(),
        [("partial", 4, 1, 0, 0), ("finish", 4, 1, 0, 0)],
        workspace=256,
        called=["exp", "sqrt"],
    )
    assert (code.id, code.target, code.workspace) == ("gen_rowwise_0", "cpu", 256)
    row = launch(
        code,
        op=OpKind.Rowwise,
        kernel_id="gen_rowwise_0",
        outputs=[("temp", 256, "f32", (4,))],
        attrs={"body": "…", "shape": [4, 8], "reduced": 1},
        workspace=("temp", 512, 256),
    )
    arena = _C.Arena("cpu", 1024)
    values(arena, X)[...] = np.arange(32).reshape(4, 8) / 32
    _C.Executor("cpu", {"temp": arena}, [row]).run()
    sums = (np.arange(32).reshape(4, 8) / 32).sum(1)
    expected = [np.exp(sums[0]), np.sqrt(sums[1]), np.exp(sums[2]), np.sqrt(sums[3])]
    np.testing.assert_allclose(np.frombuffer(memoryview(arena), np.float32, 4, 256), expected, rtol=1e-6)
    with pytest.raises(PlanError, match=r"'gen_rowwise_0' needs a workspace of 256 bytes, the plan gives 0"):
        _C.Executor("cpu", {"temp": arena}, [row | {"workspace": None}])


def test_code_says_what_may_share_memory() -> None:
    arena = _C.Arena("cpu", 1024)
    values(arena, X)[...] = 2
    with pytest.raises(PlanError, match=r"output 0 is the memory of input 0, and map cannot run in place"):
        _C.Executor("cpu", {"temp": arena}, [launch(scaled(), outputs=[X])])
    _C.Executor("cpu", {"temp": arena}, [launch(scaled(in_place=[(0, 0)]), outputs=[X])]).run()
    np.testing.assert_array_equal(values(arena, X)[0], [3, 5, 7, 9] * 2)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda: launch(None),
            SelectionError,
            r"no code for gen_map_0123456789ab; a kernel of map is generated from its body",
        ),
        (
            lambda: launch(scaled(id="gen_map_other")),
            PlanError,
            r"the launch names kernel gen_map_0123456789ab, its code is that of gen_map_other",
        ),
        (
            lambda: launch(scaled(), op=OpKind.Copy, kernel_id="copy_cpu", counts=((1,), (1,)), attrs={}),
            PlanError,
            r"copy has prebuilt kernels; leave `code` away",
        ),
        (
            lambda: launch(scaled(), outputs=[("temp", 256, "f32", (8, 4))]),
            PlanError,
            r"map: y\[0\]: expected shape \[4, 8\], got f32\[8, 4\]",
        ),
    ],
)
def test_refuses_a_launch(make: Callable[[], dict[str, Any]], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        _C.Executor("cpu", {"temp": _C.Arena("cpu", 1024)}, [make()])


def test_a_direct_call_has_no_code() -> None:
    from aicf_mlir import op_call

    x = np.ones(4, np.float32)
    with pytest.raises(SelectionError, match=r"map has no prebuilt kernel: its kernels are generated"):
        op_call(OpKind.Map, {"x": x, "table": []}, {"y": x.copy()}, {"body": "…", "shape": [4]})


UNDEFINED = """
extern "C" double outside(double);
extern "C" void scaled(void* const*, long, long) { outside(1); }
"""
ABSOLUTE = """
static double numbers[100] = {1};
extern "C" void scaled(void* const* p, long begin, long) { *static_cast<double*>(p[0]) = numbers[begin]; }
"""
THREAD_LOCAL = """
static thread_local int counter = 3;
extern "C" void scaled(void* const*, long, long) { ++counter; }
"""


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"id": ""}, "code needs the id of its kernel"),
        ({"phases": []}, "expected one phase or more"),
        ({"phases": [("", 1, 1, 0, 0)]}, "a phase needs the name of its function"),
        ({"phases": [("scaled", -1, 1, 0, 0)]}, "expected a count of 0 or more.* got -1, 1, 0 and 0"),
        ({"phases": [("scaled", 1, 0, 0, 0)]}, "a grain of 1 or more"),
        ({"phases": [("scale", 1, 1, 0, 0)]}, "has no function 'scale'"),
        ({"called": ["exp", "frexp"]}, "there is no function 'frexp' here; there are acos, .*, product_bf16"),
        ({"object": b""}, "shorter than the header"),
        ({"object": bytes(200)}, "it is no ELF file"),
    ],
)
def test_refuses_code(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(KernelError, match=message):
        scaled(**changes)


@pytest.mark.parametrize(
    ("source", "flags", "message"),
    [
        (UNDEFINED, ["-fpic"], "does not define 'outside', which it uses"),
        (ABSOLUTE, ["-fno-pic", "-fno-pie"], "a relocation of 32 bits cannot reach its symbol"),
        (THREAD_LOCAL, ["-fno-pic", "-fno-pie"], "thread-local data"),
    ],
)
def test_refuses_an_object(source: str, flags: list[str], message: str) -> None:
    with pytest.raises(KernelError, match=message):
        scaled(object=compiled(source, *flags))


def test_a_linked_file_is_refused() -> None:
    with pytest.raises(KernelError, match=r"not relocatable, as compilers emit with -c"):
        scaled(object=Path(_C.__file__).read_bytes())


def test_another_machine_is_refused() -> None:
    image = bytearray(compiled())
    image[18:20] = (183).to_bytes(2, "little")  # e_machine of AArch64
    with pytest.raises(KernelError, match="it is for another machine; expected one of 64-bit x86-64"):
        scaled(object=bytes(image))


def damaged(image: bytes, rng: random.Random) -> bytes:
    """Cut off, or with some bits flipped, mostly where headers and tables lie."""
    if rng.random() < 0.2:
        return image[: rng.randrange(len(image))]
    changed = bytearray(image)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        start = rng.choice((0, 0, len(image) * 2 // 3))
        place = rng.randrange(start, rng.choice((64, len(image))) if start == 0 else len(image))
        changed[place] ^= 1 << rng.randrange(8)
    return bytes(changed)


def test_a_damaged_object_is_refused_or_harmless() -> None:
    """Nothing is run of what loads: a flipped bit of an instruction cannot be seen."""

    def load_damaged() -> str:
        rng = random.Random(7)
        refused = 0
        for _ in range(20_000):
            try:
                scaled(object=damaged(compiled(), rng))
            except KernelError:
                refused += 1
        return f"{refused > 2_000}"

    compiled()
    assert children.fork(load_damaged) == "True"
