"""Time of single CUDA kernels: each launched many times in one graph, as a captured step launches them.

    python bench/kernels_gpu.py [--only gemm reduce_sum ...]

Prints microseconds a launch (median of windows) and what that is in TFLOP/s for products, in TB/s for the
rest. Where torch has one call for the same work, its time in a graph of its own stands beside it.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterator, Sequence

import torch
from kernel_rows import Row, index_rows, make
from torch.nn import functional
from torch.utils._pytree import tree_leaves

from aicf_mlir import _C, OpKind, SelectionError, op_call

LAUNCHES = 20  # in one graph
WINDOWS = 9

Tensor = torch.Tensor


def product(
    m: int,
    n: int,
    k: int,
    dtype: torch.dtype,
    trans_a: bool = False,
    trans_b: bool = False,
    tf32: bool = False,
) -> Row:
    a, b = (
        make(*((k, m) if trans_a else (m, k)), dtype=dtype),
        make(*((n, k) if trans_b else (k, n)), dtype=dtype),
    )
    left, right = a.mT if trans_a else a, b.mT if trans_b else b
    out = torch.empty(m, n, device="cuda", dtype=dtype)
    tiled = ("gemm_f32_tiled_32x32", "gemm_f32_tiled_64x64", "gemm_f32_tiled_128x64", "gemm_f32_cublaslt")
    names = ("",) if dtype != torch.float32 else ("gemm_tf32_tc", "gemm_tf32_cublaslt") if tf32 else tiled

    def peer() -> object:
        torch.backends.cuda.matmul.allow_tf32 = tf32
        return torch.mm(left, right, out=out)

    return Row(
        f"gemm {m}x{n}x{k} {'tf32' if tf32 else str(dtype).removeprefix('torch.')} {'NT'[trans_a]}{'NT'[trans_b]}",
        OpKind.Gemm, [a, b], [out], {"trans_a": trans_a, "trans_b": trans_b, "allow_tf32": tf32}, 2 * m * n * k, names,
        peer,
    )  # fmt: skip


def parts(m: int, n: int, k: int, count: int = 32) -> Row:
    """The products of the parts of a long sum, as `passes/fuse/tall_products.py` divides it."""
    a, b, out = make(count, k // count, m), make(count, k // count, n), make(count, m, n)
    names = ("gemm_f32_tiled_64x32", "gemm_f32_tiled_64x64", "gemm_f32_tiled_128x64", "gemm_f32_cublaslt")
    return Row(
        f"gemm {count} parts of {m}x{n}x{k} f32", OpKind.Gemm, [a, b], [out], {"trans_a": True}, 2 * m * n * k, names,
        lambda: torch.bmm(a.mT, b, out=out),
    )  # fmt: skip


def products() -> Iterator[Row]:
    f32, bf16 = torch.float32, torch.bfloat16
    for trans_a, trans_b in ((False, True), (False, False)):
        yield product(64, 256, 256, f32, trans_a, trans_b)
    yield product(256, 256, 64, f32, trans_a=True)
    for trans_a, trans_b in ((False, True), (False, False), (True, False)):
        yield product(1024, 1024, 1024, f32, trans_a, trans_b)
        yield product(1024, 1024, 1024, f32, trans_a, trans_b, tf32=True)
    yield product(64, 10, 64, f32, trans_b=True)
    for m, n, k in (
        (65536, 256, 63),
        (65536, 256, 64),
        (16384, 256, 319),
        (16384, 256, 320),
        (65536, 8, 256),
        (65536, 16, 256),
    ):
        yield product(m, n, k, bf16, trans_b=True)
        yield product(n, k, m, bf16, trans_a=True)
    for m, n, k in ((64, 64, 100_000), (128, 128, 65_536), (40, 64, 100_000), (256, 256, 65_536)):
        yield product(m, n, k, f32, trans_a=True)
        yield parts(m, n, k)
    yield product(256, 512, 512, f32, trans_b=True)
    yield product(64, 256, 256, bf16, trans_b=True)
    yield product(1024, 1024, 1024, bf16, trans_b=True)
    yield product(8192, 4096, 4096, bf16, trans_b=True)
    x, w, bias, out = make(64, 256), make(256, 256), make(256), make(64, 256)
    yield Row("linear relu 64x256x256", OpKind.GemmEpilogue, {"a": x, "b": w, "bias": bias}, {"out": out},
              {"trans_b": True, "act": "relu"}, 2 * 64 * 256 * 256,
              peer=lambda: functional.linear(x, w, bias).relu_())  # fmt: skip
    dy, dw, db = make(64, 256), make(256, 256), make(256)
    yield Row("dW and db 256x256x64", OpKind.GemmEpilogue, {"a": dy, "b": x},
              {"out": dw, "bias_grad": db}, {"trans_a": True}, 2 * 64 * 256 * 256)  # fmt: skip


def others() -> Iterator[Row]:
    for rows, columns in ((64, 256), (1024, 1024), (8192, 4096)):
        x, y, z = (make(rows, columns) for _ in range(3))
        loss, row = make(1)[0], make(columns)
        shape = f"{rows}x{columns}"
        yield Row(
            f"add {shape}",
            OpKind.EltwiseAdd,
            [x, y],
            [z],
            {},
            peer=lambda x=x, y=y, z=z: torch.add(x, y, out=z),
        )
        yield Row(f"reduce_sum {shape} columns", OpKind.ReduceSum, [x], [row], {"dims": [0]},
                  peer=lambda x=x, row=row: torch.sum(x, 0, out=row))  # fmt: skip
        yield Row(f"reduce_sum {shape} all", OpKind.ReduceSum, [x], [loss], {"dims": [0, 1]})
        yield Row(f"softmax {shape}", OpKind.Softmax, [x], [z], {},
                  peer=lambda x=x, z=z: torch.softmax(x, 1, out=z))  # fmt: skip
        yield Row(f"mse_loss {shape}", OpKind.MseLoss, [x, y], [loss], {})
        yield Row(f"mse_grad {shape}", OpKind.MseGrad, [loss, x, y], [z], {})
        turned = make(columns, rows)
        yield Row(f"copy of {shape} transposed", OpKind.Copy, [x.T], [turned], {},
                  peer=lambda x=x, turned=turned: turned.copy_(x.T))  # fmt: skip
        p, g, m, v = make(rows, columns), make(rows, columns), make(rows, columns), make(rows, columns).abs()
        scalars = [
            torch.tensor(s, device="cuda", dtype=torch.float64)
            for s in (1e-3, 0.9, 0.999, 1e-8, 0.0, [10.0], [9e2])
        ]
        names = ("lr", "beta1", "beta2", "eps", "weight_decay", "bc1_inv", "bc2_inv")
        operands = {"p": p, "g": g, "m": m, "v": v, **dict(zip(names, scalars, strict=True))}
        for label, gradient in (("", g), (" bf16 gradient", g.bfloat16())):
            yield Row(f"adam_step {shape}{label}", OpKind.AdamStep, operands | {"g": gradient},
                      {"p": p, "m": m, "v": v}, {"groups": [0], "indices": [0]})  # fmt: skip
    step = torch.ones(4, device="cuda")
    scalars = [
        torch.tensor(s, device="cuda", dtype=torch.float64) for s in (0.9, 0.999, float("nan"), float("nan"))
    ]
    results = [torch.empty(4, device="cuda", dtype=torch.float64) for _ in range(2)]
    pins = dict(zip(("beta1", "beta2", "bc1_pin", "bc2_pin"), scalars, strict=True))
    inverses = dict(zip(("bc1_inv", "bc2_inv"), results, strict=True))
    yield Row("advance", OpKind.Advance, {"step": step, **pins}, {"step": step, **inverses}, {})
    for rows, classes in ((64, 10), (1024, 1000), (8192, 50304)):
        logits, target = make(rows, classes), torch.randint(classes, (rows,), device="cuda")
        loss, grad = make(1)[0], make(rows, classes)
        shape = f"{rows}x{classes}"
        yield Row(f"cross_entropy {shape}", OpKind.CrossEntropy, [logits, target], [loss], {},
                  peer=lambda x=logits, t=target: functional.cross_entropy(x, t))  # fmt: skip
        yield Row(f"cross_entropy_grad {shape}", OpKind.CrossEntropyGrad, [loss, logits, target], [grad], {})


def microseconds(launch: Callable[[], object]) -> float:
    """Time of one of the LAUNCHES in the graph."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    samples: list[float] = []
    repeats = 1
    for window in range(WINDOWS + 1):
        start.record()
        for _ in range(repeats):
            launch()
        end.record()
        end.synchronize()
        elapsed = start.elapsed_time(end) * 1e3 / repeats
        if window:
            samples.append(elapsed / LAUNCHES)
        else:  # the first window warms up and sizes the others to 5 ms
            repeats = max(1, min(200, int(5e3 / max(elapsed, 1.0))))
    return statistics.median(samples)


def ours(row: Row, kernel: str) -> tuple[str, float]:
    """The kernel that ran and its time."""
    name = op_call(row.kind, row.inputs, row.outputs, row.attrs, kernel)
    _C.graph_begin("cuda")
    for _ in range(LAUNCHES):
        op_call(row.kind, row.inputs, row.outputs, row.attrs, kernel)
    graph = _C.graph_end("cuda")
    stream = torch.cuda.current_stream().cuda_stream
    return name, microseconds(lambda: _C.graph_launch(graph, 1, stream))


def torchs(call: Callable[[], object]) -> float:
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(LAUNCHES):
            call()
    return microseconds(graph.replay)


def rows_of(only: Sequence[str]) -> Iterator[Row]:
    """The rows whose label contains one of these texts, each made when the one before it is done."""
    for rows in (products(), others(), index_rows()):
        yield from (row for row in rows if any(text in row.label for text in only))


def main() -> None:
    """Print one line a kernel."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", nargs="*", default=[""], help="rows whose label contains one of these texts"
    )
    only: list[str] = parser.parse_args().only
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; microseconds a launch")
    for row in rows_of(only):
        tensors: list[torch.Tensor] = tree_leaves([row.inputs, row.outputs])
        size = sum(t.numel() * t.element_size() for t in tensors)
        peer = f"{torchs(row.peer):9.2f}" if row.peer else "        –"
        for kernel in row.kernels:
            try:
                name, time = ours(row, kernel)
            except SelectionError:
                continue
            rate = f"{row.flops / time / 1e6:7.1f} TFLOP/s" if row.flops else f"{size / time / 1e6:7.2f} TB/s"
            print(f"{row.label:40} {name:34} {time:9.2f}   torch {peer}   {rate}", flush=True)


if __name__ == "__main__":
    main()
