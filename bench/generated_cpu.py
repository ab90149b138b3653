"""Generated CPU kernels against torch eager on one thread: milliseconds, best and median of interleaved runs.

    python bench/generated_cpu.py [--repeat 25]

Kernels are called without the runtime, over all of their items at once.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "py" / "support"))

from bodies import kernel_of, tensor
from native_code import Loaded

from aicf_mlir.ir import formula as f
from aicf_mlir.kernels.kernel import Kernel

Case = tuple[Kernel, list[torch.Tensor], Callable[..., Any]]


def chain() -> Case:
    """Seven operations with exp and tanh on 1M elements."""

    def formula(x: Any, y: Any) -> Any:
        return f.tanh(f.exp(x * 0.5) + y) * x - y * 0.25

    def eager(x: torch.Tensor, y: torch.Tensor) -> Any:
        return torch.tanh(torch.exp(x * 0.5) + y) * x - y * 0.25

    one = tensor("f32", 1 << 20)
    return kernel_of("map", formula, [one, one], [one]), [torch.randn(1 << 20) for _ in range(2)], eager


def norm() -> Case:
    """Residual, layer norm and GELU on 4096 rows of 1024."""
    rows, size = 4096, 1024

    def formula(x: Any, r: Any, g: Any, b: Any) -> Any:
        h = x + r
        mean = f.row_sum(h) * (1.0 / size)
        d = h - mean
        rstd = f.rsqrt(f.row_sum(d * d) * (1.0 / size) + 1e-5)
        z = d * rstd * g + b
        return h, 0.5 * z * (1.0 + f.erf(z * f.SQRT_HALF)), mean, rstd

    def eager(x: torch.Tensor, r: torch.Tensor, g: torch.Tensor, b: torch.Tensor) -> Any:
        h = x + r
        return h, torch.nn.functional.gelu(torch.native_layer_norm(h, [size], g, b, 1e-5)[0])

    whole, row = tensor("f32", rows, size), tensor("f32", rows, size, strides=(0, 1))
    results = [whole, whole, tensor("f32", rows), tensor("f32", rows)]
    kernel = kernel_of("rowwise", formula, [whole, whole, row, row], results, reduced=1)
    return (
        kernel,
        [torch.randn(rows, size), torch.randn(rows, size), torch.randn(size), torch.randn(size)],
        eager,
    )


def softmax() -> Case:
    """4096 rows of 1000."""

    def formula(x: Any) -> Any:
        e = f.exp(x - f.row_max(x))
        return e / f.row_sum(e)

    one = tensor("f32", 4096, 1000)
    return (
        kernel_of("rowwise", formula, [one], [one], reduced=1),
        [torch.randn(4096, 1000)],
        lambda x: torch.softmax(x, 1),
    )


def columns() -> Case:
    """Sums of the columns of 4096 x 1024."""
    kernel = kernel_of("colwise", f.row_sum, [tensor("f32", 4096, 1024)], [tensor("f32", 1024)], reduced=1)
    return kernel, [torch.randn(4096, 1024)], lambda x: x.sum(0)


def norm_gradient() -> Case:
    """The gradients of a layer norm's weight and bias, 4096 x 1024."""
    rows, size = 4096, 1024

    def formula(x: Any, dy: Any, mean: Any, rstd: Any) -> Any:
        return f.row_sum(dy * (x - mean) * rstd), f.row_sum(dy)

    def eager(x: torch.Tensor, dy: torch.Tensor, mean: torch.Tensor, rstd: torch.Tensor) -> Any:
        mask = [False, True, True]
        weight = torch.ones(size)
        return torch.ops.aten.native_layer_norm_backward(dy, x, [size], mean, rstd, weight, weight, mask)

    whole, column = tensor("f32", rows, size), tensor("f32", rows, size, strides=(1, 0))
    results = [tensor("f32", size)] * 2
    kernel = kernel_of("colwise", formula, [whole, whole, column, column], results, reduced=1)
    return (
        kernel,
        [torch.randn(rows, size), torch.randn(rows, size), torch.randn(rows, 1), torch.rand(rows, 1)],
        eager,
    )


def adamw() -> Case:
    """The update of AdamW on 4M parameters, in place; torch's fused one."""
    size = 1 << 22

    def formula(p: Any, g: Any, m: Any, v: Any, rate: Any) -> Any:
        m = m * 0.9 + g * 0.1
        v = v * 0.999 + g * g * 0.001
        p = p - rate * 0.01 * p
        return p - rate * m / (f.sqrt(v) + 1e-8), m, v

    tensors = [torch.randn(size), torch.randn(size), torch.zeros(size), torch.zeros(size), torch.tensor(1e-3)]
    parameter = torch.nn.Parameter(tensors[0].clone())
    parameter.grad = tensors[1]
    update = torch.optim.AdamW([parameter], lr=1e-3, fused=True)
    one = tensor("f32", size)
    kernel = kernel_of("map", formula, [one] * 4 + [tensor("f32", size, strides=(0,))], [one] * 3)
    return kernel, tensors, lambda *_: update.step()


def transposed() -> Case:
    """A copy of 2048 x 2048, transposed."""
    turned = tensor("f32", 2048, 2048, strides=(1, 2048))
    kernel = kernel_of("map", lambda x: x * 1.0, [turned], [tensor("f32", 2048, 2048)])
    return kernel, [torch.randn(2048, 2048)], lambda x: x.t().contiguous()


def gelu() -> Case:
    """Of 1M elements."""
    one = tensor("f32", 1 << 20)
    kernel = kernel_of("map", lambda x: 0.5 * x * (1.0 + f.erf(x * f.SQRT_HALF)), [one], [one])
    return kernel, [torch.randn(1 << 20)], torch.nn.functional.gelu


CASES = (chain, norm, softmax, columns, norm_gradient, adamw, transposed, gelu)


def main() -> None:
    """A row for each case."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeat", type=int, default=25)
    repeat = parser.parse_args().repeat
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(f"{'case':14} {'compile':>8} {'ours':>8} {'median':>8} {'torch':>8} {'median':>8}   ms")
    for case in CASES:
        kernel, operands, eager = case()
        start = perf_counter()
        loaded = Loaded(kernel)
        compiled = perf_counter() - start
        results = [torch.empty(result.shape) for result in kernel.results]
        if case is adamw:
            results = [operands[0], operands[2], operands[3]]
        run = loaded.bound([tensor.numpy() for tensor in (*operands, *results)])
        calls: dict[str, Callable[[], Any]] = {"ours": run, "torch": partial(eager, *operands)}
        times: dict[str, list[float]] = {"ours": [], "torch": []}
        for _ in range(repeat):
            for name, call in calls.items():
                start = perf_counter()
                call()
                times[name].append(1e3 * (perf_counter() - start))
        cells = [1e3 * compiled]
        for name in ("ours", "torch"):
            cells += [min(times[name]), statistics.median(times[name])]
        print(f"{case.__name__:14}" + "".join(f" {cell:8.2f}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
