"""Programmatic dependent launch: every kernel waits first, and a graph with such edges computes what one without does."""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import segment_cases
import torch
from branched import Transformer, class_loss
from generated_cases import random_cases, special_cases
from generated_models import model_cases
from generated_shapes import shape_cases
from models import mlp, mse, regression
from product_cases import tile_cases

import aicf_mlir
from aicf_mlir import _C, CompiledTrainStep, OpKind
from aicf_mlir.codegen import nvrtc
from aicf_mlir.codegen.cuda import generate
from aicf_mlir.codegen.cuda.dependency import WAIT, all_wait, are_many, waiting
from aicf_mlir.codegen.cuda.pieces import PIECES
from aicf_mlir.ir.formula import trace
from aicf_mlir.kernels.kernel import Code, Kernel, Tensor
from aicf_mlir.machine.environment import BRANCHES, PROGRAMMATIC_EDGES

SOURCES = Path(__file__).parents[3] / "csrc"
PREBUILT = re.compile(r"__global__ void (?:__launch_bounds__\([^{;]*?\)\s+)?(\w+)\([^{;]*\{\s*([^;]*;)")


def prebuilt() -> Iterator[tuple[str, str]]:
    """The text of each file with kernels, without comments, and its name."""
    for path in sorted(SOURCES.rglob("*.cu*")):
        text = re.sub(r"//.*", "", path.read_text())
        if "__global__" in text:
            yield path.relative_to(SOURCES).as_posix(), text


def test_every_prebuilt_kernel_waits_before_anything_else() -> None:
    count = 0
    for name, text in prebuilt():
        found = PREBUILT.findall(text)
        assert len(found) == text.count("__global__"), f"{name}: kernels that this test cannot read"
        late = [kernel for kernel, first in found if first.removeprefix("cuda::") != WAIT]
        assert not late, f"{name}: begin these kernels with {WAIT}: {', '.join(late)}"
        count += len(found)
    assert count >= 34


def test_one_place_makes_launches_programmatic() -> None:
    files = [path for path in SOURCES.rglob("*") if path.is_file()]
    texts = {path.relative_to(SOURCES).as_posix(): path.read_text() for path in files}
    attribute = {name for name, text in texts.items() if "ProgrammaticStreamSerialization" in text}
    assert attribute == {"device/cuda_dependent.cu"}
    callers = {name for name, text in texts.items() if re.search(r"TRY\((cuda::)?allow_programmatic", text)}
    assert callers == {"kernels/common/launch.cuh", "runtime/code_cuda.cu"}


@cache
def generated() -> list[tuple[str, Code]]:
    return list(_generated())


def _generated() -> Iterator[tuple[str, Code]]:
    for case in (*random_cases(0, 20), *model_cases(), *special_cases(), *shape_cases()):
        yield case.name, generate(case.kernel)
    for name, kernel in (*segment_cases.kernels(), *segment_cases.row_kernels()):
        yield name, generate(kernel)
    for case in tile_cases():
        yield case.name, case.code


def test_every_generated_kernel_waits_before_anything_else() -> None:
    """One whose blocks meet has a launch for itself: it starts when all earlier ones have ended, and does not wait."""
    for name, code in generated():
        waits, together = waiting(code.source), code.together
        assert set(waits.values()) == {together is None}, f"{name}\n{code.source}"
        phases = [*code.phases, *([] if together is None else [together])]
        assert {phase.function for phase in phases} == set(waits), name


def test_no_kernel_says_that_what_it_reads_stays_as_it_is() -> None:
    """A compiler may read what is const and `__restrict__` before the wait: nobody writes it while the kernel is there."""
    for name, text in (*prebuilt(), *((name, code.source) for name, code in generated())):
        assert not re.search(r"\b__restrict(__)?\b|__ldg\b|ld\.global\.nc", text), name


def ptx(source: str) -> str:
    """What NVRTC makes of a text for compute capability 9.0, before it is assembled."""
    library, program = nvrtc.nvrtc(), ctypes.c_void_p()
    assert not library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"f.cu", 0, None, None)
    options = (ctypes.c_char_p * 2)(b"-arch=compute_90", b"-std=c++17")
    assert not library.nvrtcCompileProgram(program, 2, options)
    size = ctypes.c_size_t()
    assert not library.nvrtcGetPTXSize(program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    assert not library.nvrtcGetPTX(program, text)
    library.nvrtcDestroyProgram(ctypes.byref(program))
    return text.value.decode()


@pytest.mark.nvrtc
def test_the_compiler_moves_no_access_before_the_wait() -> None:
    """Of every fourth text."""
    for name, code in itertools.islice(generated(), 0, None, 4):
        _, *entries = ptx(code.source).split(".visible .entry ")
        assert len(entries) == len(code.phases), name
        for entry in entries:
            before, wait, behind = entry.partition("griddepcontrol.wait;")
            assert wait and behind.split()[0] == "griddepcontrol.launch_dependents;", name
            assert not re.search(r"\b(ld\.(?!param)|st\.|cp\.|atom|red\.|bar|bra|ret)", before), (
                f"{name}\n{entry}"
            )


def test_generated_kernels_of_many_blocks_go_without() -> None:
    """By full edges: the wait would cost each of their blocks; what it begins with is nowhere in their text."""
    found = set[bool]()
    for count in (64, 1 << 24):
        axis = (count,)
        body = trace(["f32"], lambda x: x * 2.0)
        tensor = Tensor("f32", axis, (1,), 256)
        code = generate(Kernel("map", "sm_90", body, axis, 0, (tensor,), (tensor,)))
        many = are_many(max(phase.count for phase in code.phases), "sm_90")
        assert all_wait(code.source) != many
        assert (WAIT in code.source) != many
        found.add(many)
    assert found == {False, True}


@pytest.mark.parametrize(
    "source",
    [
        "",
        "void f() { dependency_wait(); }",
        "__global__ void f(\n    int* a) {\n  a[0] = 1;\n  dependency_wait();\n}",
        "__global__ void f(\n    int* a) {\n  if (a) dependency_wait();\n}",
        "__global__ void f(\n    int* a) {\n  dependency_wait();\n}\n__global__ void g(\n    int* a) {\n}",
        "__global__ void f(\n    int* a) {\n  dependency_wait();\n}\n__global__ void g(int* a) { a[0] = 1; }",
    ],
)
def test_a_text_of_which_one_kernel_does_not_wait(source: str) -> None:
    assert not all_wait(source)


def test_generated_kernels_wait_as_prebuilt_ones_do() -> None:
    def body(text: str) -> str:
        return " ".join(text.partition("dependency_wait() {")[2].partition("#endif")[0].split())

    header = (SOURCES / "device/cuda_dependent.cuh").read_text()
    assert body(header) == body(PIECES["dependency_wait"])
    assert "griddepcontrol.wait;\\ngriddepcontrol.launch_dependents;" in body(header)


def test_code_says_whether_its_kernels_wait() -> None:
    """Those that a caller brings along are launched behind all that is in front, unless it says more."""
    phases = [("f", 1, 1, 32, 0)]
    assert not _C.Code.cuda("gen", 90, b"image", phases).waits
    assert _C.Code.cuda("gen", 90, b"image", phases, waits=True).waits


def chain(device: str, length: int, count: int) -> tuple[_C.Executor, _C.Arena]:
    """A counter, `length` sums behind it that overwrite each other's operands, and the total of the last ones.

    Every launch reads what the one in front of it writes, and most write what it reads or has read.
    """
    size = -(-4 * count // 256) * 256
    slot = [("temp", size * n, "f32", (count,)) for n in range(5)]
    one, counter, even, odd, total = slot
    target = _C.target_of(f"{device}:0" if device == "cuda" else device)
    operands = [one[2:], one[2:]]
    kernel, _ = _C.select_kernel(OpKind.EltwiseAdd, operands, operands[:1], {}, target)

    def add(x: Any, y: Any, z: Any) -> dict[str, Any]:
        launch = {"op": OpKind.EltwiseAdd, "kernel_id": kernel, "inputs": [x, y], "outputs": [z]}
        return launch | {"counts": None, "attrs": {}, "workspace": None}

    rows = [add(counter, one, counter), add(counter, one, even)]
    rows += [add((even, odd)[n % 2], one, (odd, even)[n % 2]) for n in range(length)]
    rows += [add(total, (even, odd)[length % 2], total)]
    arena = _C.Arena(device, 5 * size)
    arena.fill(0xFF)
    executor = _C.Executor(device, {"temp": arena}, rows)  # type: ignore[arg-type]
    executor.run()  # brings the kernel to the device
    for place, value in ((one, 1), (counter, 0), (total, 0)):
        arena.write(place[1], np.full(count, value, np.float32).tobytes())
    return executor, arena


LENGTH = 12
REPLAYS = 2000


@pytest.mark.parametrize("count", [4, 1000, 100_000])
def test_thousands_of_replays_of_a_chain_lose_nothing(count: int, device: str) -> None:
    """A value that is read too early is one step old, and stays in the total. It is an integer that f32 holds."""
    replays = REPLAYS if device == "cuda" else 20
    executor, arena = chain(device, LENGTH, count)
    executor.capture()
    size = arena.nbytes // 5
    for _ in range(4):
        arena.write(2 * size, b"\xff" * (2 * size))  # of no use to a step
        executor.replay(replays // 4)
    steps = np.arange(1, replays + 1, dtype=np.int64)
    expected = int((steps + 1 + LENGTH).sum())
    assert expected < 1 << 24
    total = np.frombuffer(arena.read(4 * size, 4 * count), np.float32)
    assert np.array_equal(total, np.full(count, expected, np.float32))
    edges = executor.stats()["programmatic_edges"]
    assert edges == (LENGTH + 2 if device == "cuda" and _sm() >= 90 else 0)
    executor.reset()
    assert executor.stats()["programmatic_edges"] == 0


def _sm() -> int:
    major, minor = torch.cuda.get_device_capability()
    return 10 * major + minor


@pytest.mark.gpu
def test_the_environment_forbids_programmatic_edges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PROGRAMMATIC_EDGES, "0")
    executor, _ = chain("cuda", LENGTH, 4)
    executor.capture()
    assert executor.stats()["programmatic_edges"] == 0
    monkeypatch.delenv(PROGRAMMATIC_EDGES)
    executor.reset()
    executor.capture()
    assert (executor.stats()["programmatic_edges"] > 0) == (_sm() >= 90)


def small(**options: Any) -> tuple[CompiledTrainStep, torch.nn.Module, Mapping[str, torch.Tensor]]:
    model = mlp(64, 64, 64, 64).cuda()
    return _compiled(model, mse, regression(32, 64, 64), **options)


def dropping() -> tuple[CompiledTrainStep, torch.nn.Module, Mapping[str, torch.Tensor]]:
    torch.manual_seed(0)
    layers = [torch.nn.Linear(64, 48), torch.nn.LayerNorm(48), torch.nn.GELU(), torch.nn.Dropout(0.4)]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(48, 64)).cuda()
    return _compiled(model, mse, regression(32, 64, 64), clip_grad_norm=0.5, check_finite=True)


def attending() -> tuple[CompiledTrainStep, torch.nn.Module, Mapping[str, torch.Tensor]]:
    torch.manual_seed(0)
    batch = {key: torch.arange(64).reshape(4, 16) % 11 for key in ("x", "t")}
    return _compiled(Transformer(64).cuda(), class_loss, batch)


def _compiled(
    model: torch.nn.Module,
    loss: Callable[..., torch.Tensor],
    batch: Mapping[str, torch.Tensor],
    **options: Any,
) -> tuple[CompiledTrainStep, torch.nn.Module, Mapping[str, torch.Tensor]]:
    there = {name: value.cuda() for name, value in batch.items()}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    step = aicf_mlir.compile_train_step(model, optimizer, loss_fn=loss, example=there, **options)
    return step, model, there


MODELS: dict[str, Callable[[], tuple[CompiledTrainStep, torch.nn.Module, Mapping[str, torch.Tensor]]]] = {
    "mlp": small,
    "bf16": lambda: small(precision="bf16"),
    "average": lambda: small(ema=0.9),
    "dropout and clipping": dropping,
    "attention": attending,
}


@pytest.mark.gpu
@pytest.mark.parametrize("branches", ["0", "1"])
@pytest.mark.parametrize("name", MODELS)
def test_a_step_trains_bit_for_bit_as_without(
    name: str, branches: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eager steps, replays with full edges and replays with programmatic ones."""
    monkeypatch.setenv(BRANCHES, branches)

    def trained(programmatic: str, steps: int, replays: int) -> str:
        monkeypatch.setenv(PROGRAMMATIC_EDGES, programmatic)
        step, model, batch = MODELS[name]()
        step.train_step(batch)
        for _ in range(steps):
            step.train_step(batch)
        if replays:
            step.capture(batch)
            edges = step.stats()["programmatic_edges"]
            assert (edges > 0) == (programmatic == "1" and _sm() >= 90)
            step.replay(replays)
        step.synchronize()
        digest = hashlib.sha256()
        for value in model.state_dict().values():
            digest.update(value.detach().cpu().numpy().tobytes())
        step.close()
        return digest.hexdigest()

    expected = trained("1", 300, 0)
    assert trained("0", 0, 300) == expected
    assert {trained("1", 0, 300) for _ in range(2)} == {expected}


@pytest.mark.gpu
@pytest.mark.parametrize("name", MODELS)
def test_a_certificate_holds(name: str) -> None:
    step, _, batch = MODELS[name]()
    step.train_step(batch)
    certificate = step.capture(batch, verify="bitwise", steps=5)
    assert certificate.equal, str(certificate)


@pytest.mark.gpu
def test_branches_meet_by_full_edges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Launches behind another branch have no programmatic edge: there are fewer of them than on one branch."""
    counts: dict[str, int] = {}
    for branches in ("0", "1"):
        monkeypatch.setenv(BRANCHES, branches)
        step, _, batch = attending()
        step.train_step(batch)
        step.capture(batch)
        counts[branches] = step.stats()["programmatic_edges"]
        step.close()
    assert counts["1"] < counts["0"] or _sm() < 90
