"""Generated row, column and map kernels beside torch eager and torch.compile, each in a CUDA graph, in one run.

    python bench/generated_gpu.py [--only TEXT ...] [--no-compile]

Buffers are taken in turns and are larger than the L2 cache together. Prints microseconds (median of windows), TB/s of
the bytes that must move, and the share of what an elementwise kernel of torch reaches on 512 MB; the error is the
largest difference from torch in float64, relative to the larger of 1 and the value. Needs NVRTC and a GPU; nothing of
the C++ module is used.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "py" / "support"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "gpu"))

from cuda_driver import LOCAL_BYTES, REGISTERS, Driver
from generated_models import model_kernel

from aicf_mlir.codegen.cuda import generate
from aicf_mlir.codegen.nvrtc import compile_cuda
from aicf_mlir.kernels.kernel import Code, Kernel

Tensor = torch.Tensor
Set = list[Tensor]
"""Operands and results of one call."""

LAUNCHES, WINDOWS = 20, 9
TURNS = 256 << 20
"""Bytes of all buffers together, at least."""
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


@dataclass(frozen=True)
class Job:
    """One piece of work: its kernels, its buffers, what torch writes for it."""

    name: str
    kernels: tuple[Kernel, ...]
    operands: Callable[[], Set]
    """Of all kernels, one after the other, with their results."""
    slices: tuple[tuple[int, ...], ...]
    """Of each kernel, which of them are its operands and results."""
    inputs: int
    """How many come first and are read; the rest is written."""
    torch: Callable[..., Sequence[Tensor]]


def jobs(element: str, rows: int, columns: int, target: str) -> Iterator[Job]:
    dtype = DTYPES[element]

    def make(*shape: int, kind: torch.dtype = dtype) -> Tensor:
        return torch.randn(*shape, device="cuda").to(kind)

    def full(count: int) -> Set:
        return [make(rows, columns) for _ in range(count)]

    def kernel(name: str) -> Kernel:
        return model_kernel(name, element, rows, columns, target)

    shape, f32 = [columns], torch.float32
    label = f"{element} {rows}x{columns}"

    def norm(x: Tensor, r: Tensor, g: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        s = x + r
        y, mean, rstd = torch.native_layer_norm(s, shape, g, b, 1e-5)
        return s, y, mean.view(rows), rstd.view(rows)

    yield Job(
        f"residual + layer norm {label}",
        (kernel("layer_norm"),),
        lambda: [
            *full(2),
            make(columns),
            make(columns),
            *full(2),
            make(rows, kind=f32),
            make(rows, kind=f32),
        ],
        (tuple(range(8)),),
        4,
        norm,
    )

    def gradients(
        dy: Tensor, s: Tensor, ds: Tensor, g: Tensor, mean: Tensor, rstd: Tensor
    ) -> tuple[Tensor, ...]:
        found = torch.ops.aten.native_layer_norm_backward(
            dy, s, shape, mean[:, None], rstd[:, None], g, g, [True, True, True]
        )
        return found[0] + ds, found[1], found[2]

    def statistics_of_rows() -> Set:
        return [make(rows, kind=f32) * 0.1, make(rows, kind=f32).abs() * 0.1 + 0.9]

    yield Job(
        f"its gradients {label}",
        (kernel("layer_norm_gradients"),),
        lambda: [*full(3), make(columns), *statistics_of_rows(), *full(1), make(columns), make(columns)],
        (tuple(range(9)),),
        6,
        gradients,
    )
    yield Job(
        f"softmax {label}",
        (kernel("softmax"),),
        lambda: full(2),
        ((0, 1),),
        1,
        lambda x: [torch.softmax(x, 1)],
    )
    yield Job(
        f"gelu(x + bias) {label}",
        (kernel("gelu"),),
        lambda: [*full(1), make(columns), *full(1)],
        ((0, 1, 2),),
        2,
        lambda x, b: [functional.gelu(x + b)],
    )


def built(job: Job) -> list[tuple[Code, bytes]]:
    """The kernels of a job by their own schedules, compiled."""
    codes = [generate(kernel) for kernel in job.kernels]
    return [
        (code, compile_cuda(code.source, kernel.target))
        for code, kernel in zip(codes, job.kernels, strict=True)
    ]


class Generated:
    """Kernels with the operands of a job, launched on torch's current stream."""

    def __init__(
        self, driver: Driver, codes: Sequence[tuple[Code, bytes]], slices: Sequence[tuple[int, ...]]
    ):
        """`slices` say, for each code, which of the tensors of a call are its operands and results."""
        self.driver, self.parts, self.slices = driver, [], slices
        self.registers: list[int] = []
        self.local_bytes = 0
        for code, image in codes:
            functions = driver.kernels(image, [phase.function for phase in code.phases])
            self.registers += [driver.attribute(function, REGISTERS) for function in functions]
            local = [driver.attribute(function, LOCAL_BYTES) for function in functions]
            self.local_bytes = max(self.local_bytes, *local)
            workspace = torch.empty(max(code.workspace, 1), dtype=torch.uint8, device="cuda")
            self.parts.append((code, functions, workspace))

    def __call__(self, tensors: Set) -> None:
        self.driver.stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        for (code, functions, workspace), which in zip(self.parts, self.slices, strict=True):
            addresses = [*(tensors[n].data_ptr() for n in which), workspace.data_ptr(), 0]
            for phase, function in zip(code.phases, functions, strict=True):
                self.driver.launch(function, phase.count, phase.threads, phase.shared, addresses)


def microseconds(
    work: Callable[[Set], object], sets: list[Set], windows: int = WINDOWS, replays: int = 10
) -> float:
    """Time of one call."""
    return in_turns([work], sets, windows, replays)[0]


def in_turns(
    contenders: Sequence[Callable[[Set], object]],
    sets: list[Set],
    windows: int = WINDOWS,
    replays: int = 10,
) -> list[float]:
    """Time of one call of each, of LAUNCHES in one graph that take the sets in turns; a window of each follows the other's.

    In front of each window the L2 cache is filled with other data: lines that are to stay, in the buffers that are
    measured, would otherwise stay there for a contender whose own accesses all give way.
    What a call gives is kept until its set is taken again: otherwise a framework writes every result to the memory that
    the one before has left, which is in the L2 cache.
    """
    graphs = [captured(work, sets) for work in contenders]
    other = torch.ones(TURNS, dtype=torch.uint8, device="cuda")
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    samples: list[list[float]] = [[] for _ in graphs]
    for window in range(windows + 2):
        for (graph, _), found in zip(graphs, samples, strict=True):
            other.bitwise_not_()
            start.record()
            for _ in range(replays):
                graph.replay()
            end.record()
            end.synchronize()
            if window > 1:
                found.append(start.elapsed_time(end) * 1000 / LAUNCHES / replays)
    return [statistics.median(found) for found in samples]


def captured(work: Callable[[Set], object], sets: list[Set]) -> tuple[torch.cuda.CUDAGraph, list[object]]:
    """A graph of LAUNCHES calls, and what they gave last."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            work(sets[0])
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    given: list[object] = [None] * len(sets)
    with torch.cuda.graph(graph):
        for number in range(LAUNCHES):
            given[number % len(sets)] = work(sets[number % len(sets)])
    return graph, given


def applied(function: Callable[..., object], inputs: int) -> Callable[[Set], object]:
    """With the tensors of a set that are read."""
    return lambda tensors: function(*tensors[:inputs])


def copy_rate() -> float:
    """Bytes a second of an elementwise kernel of torch."""
    x = torch.randn(1 << 26, device="cuda")
    y = torch.empty_like(x)
    return 2 * x.nbytes / microseconds(lambda _: torch.neg(x, out=y), [[]]) * 1e6


def error(generated: Generated, job: Job) -> float:
    """The largest difference of a result from torch in float64."""
    tensors = job.operands()
    for tensor in tensors[job.inputs :]:
        tensor.fill_(float("nan"))
    generated(tensors)
    torch.cuda.synchronize()
    wanted = job.torch(*(tensor.double() for tensor in tensors[: job.inputs]))
    worst = 0.0
    for got, want in zip(tensors[job.inputs :], wanted, strict=False):
        off = (got.double() - want).abs() / want.abs().clamp(min=1)
        worst = max(worst, float(off.max()) if not bool(off.isnan().any()) else float("nan"))
    return worst


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="*", default=[""], metavar="TEXT")
    parser.add_argument("--no-compile", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.zeros(1, device="cuda")
    driver = Driver()
    rate = copy_rate()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, elementwise {rate / 1e12:.2f} TB/s")
    print(f"{'':42} {'generated':>9} {'eager':>9} {'compile':>9}   TB/s  share  error    registers")
    for rows, columns in ((32768, 768), (4096, 1024)):
        for element in DTYPES:
            for job in jobs(element, rows, columns, driver.target()):
                if not any(text in job.name for text in options.only):
                    continue
                generated = Generated(driver, built(job), job.slices)
                first = job.operands()
                moved = sum(tensor.nbytes for tensor in first)
                sets = [first, *(job.operands() for _ in range(TURNS // moved))]
                contenders = [generated, applied(job.torch, job.inputs)]
                if not options.no_compile:
                    torch.compiler.reset()
                    contenders.append(applied(torch.compile(job.torch, dynamic=False), job.inputs))
                ours, eager, compiled = [*in_turns(contenders, sets), float("nan")][:3]
                speed = moved / ours * 1e6
                print(
                    f"{job.name:42} {ours:9.2f} {eager:9.2f} {compiled:9.2f} {speed / 1e12:6.2f} {speed / rate:6.0%}"
                    f"  {error(generated, job):.1e}  {generated.registers}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
