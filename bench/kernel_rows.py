"""What a row of `kernels_gpu.py` is, and those of attention, orders, running results and scatters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from aicf_mlir import OpKind
from aicf_mlir.op_call import Operands

Tensor = torch.Tensor

DEVICE = "cuda"


@dataclass(frozen=True)
class Row:
    """One call and what it costs at least: floating-point operations, or bytes moved."""

    label: str
    kind: int
    inputs: Operands
    outputs: Operands
    attrs: dict[str, Any]
    flops: int = 0
    kernels: tuple[str, ...] = ("",)
    peer: Callable[[], object] | None = None


def make(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, device=DEVICE, dtype=dtype)


HEADS = (
    (32, 12, 12, 1024, 64),
    (8, 16, 4, 2048, 128),
    (4, 12, 12, 4096, 64),
    (64, 6, 6, 197, 64),
    (1, 8, 8, 128, 64),
)
"""Batch, heads of queries, heads of keys, rows, elements of a head."""


def attentions() -> Iterator[Row]:
    """Forward and gradients, beside torch's with its own choice of kernel."""
    for batch, heads, kv, rows, size in HEADS:
        for dtype, causal in ((torch.bfloat16, True), (torch.bfloat16, False), (torch.float32, True)):
            q, dout = (make(batch, heads, rows, size, dtype=dtype) for _ in range(2))
            k, v = (make(batch, kv, rows, size, dtype=dtype) for _ in range(2))
            kept = {name: torch.ones(batch, heads, rows, device=DEVICE) for name in ("largest", "total")}
            given, out = {"query": q, "key": k, "value": v}, torch.zeros_like(q)
            attrs = {"causal": causal, "scale": size**-0.5}
            flops = 4 * batch * heads * rows * rows * size // (2 if causal else 1)
            shape = (
                f"{batch}x{heads}({kv})x{rows}x{size} {str(dtype).removeprefix('torch.')}{' causal' * causal}"
            )

            def forward(q: Tensor = q, k: Tensor = k, v: Tensor = v, causal: bool = causal) -> Tensor:
                grouped = q.shape[1] != k.shape[1]
                return functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=grouped)

            yield Row(
                f"attention {shape}",
                OpKind.Attention,
                given,
                {"out": out, **kept},
                attrs,
                flops,
                peer=forward,
            )
            made = {f"d{name}": torch.zeros_like(x) for name, x in given.items()}
            yield Row(f"attention_grad {shape}", OpKind.AttentionGrad, {"dout": dout, **given, "out": out, **kept},
                      made, attrs, 5 * flops // 2)  # fmt: skip


MASKED = (
    ((16, 8, 4, 512, 64), (16, 1, 512, 512), torch.bool),
    ((16, 8, 8, 512, 64), (16, 1, 1, 512), torch.bool),
    ((16, 8, 8, 512, 64), (1, 8, 512, 512), torch.bfloat16),
    ((16, 8, 8, 512, 64), (1, 8, 512, 512), torch.float32),
    ((64, 12, 12, 197, 64), (1, 12, 197, 197), torch.bfloat16),
    ((4, 16, 16, 2048, 128), (4, 1, 2048, 2048), torch.bool),
    ((1024, 6, 6, 49, 32), (1, 6, 49, 49), torch.bfloat16),
    ((256, 6, 6, 100, 64), (256, 1, 1, 100), torch.bool),
    ((128, 6, 6, 128, 64), (1, 6, 128, 128), torch.bfloat16),
)
"""Heads as above, and the shape and type of a mask, in bf16."""


def masked_attentions() -> Iterator[Row]:
    """Forward and gradients with a mask, by each kernel that takes one."""
    for (batch, heads, kv, rows, size), shape, dtype in MASKED:
        q, dout = (make(batch, heads, rows, size, dtype=torch.bfloat16) for _ in range(2))
        k, v = (make(batch, kv, rows, size, dtype=torch.bfloat16) for _ in range(2))
        mask = make(*shape) > -1 if dtype == torch.bool else make(*shape, dtype=dtype)
        kept = {name: torch.ones(batch, heads, rows, device=DEVICE) for name in ("largest", "total")}
        given, out = {"query": q, "key": k, "value": v}, torch.zeros_like(q)
        flops = 4 * batch * heads * rows * rows * size
        label = f"{batch}x{heads}({kv})x{rows}x{size} mask {list(shape)} {str(dtype).removeprefix('torch.')}"

        def peer(q: Tensor = q, k: Tensor = k, v: Tensor = v, mask: Tensor = mask) -> Tensor:
            added = mask if mask.dtype == torch.bool else mask.to(q.dtype)
            grouped = q.shape[1] != k.shape[1]
            return functional.scaled_dot_product_attention(q, k, v, attn_mask=added, enable_gqa=grouped)

        kernels = tuple(f"attention_bf16_{name}" for name in ("tc", "hopper", "cudnn"))
        yield Row(f"attention {label}", OpKind.Attention, {**given, "mask": mask}, {"out": out, **kept},
                  {"scale": size**-0.5}, flops, kernels, peer)  # fmt: skip
        made = {f"d{name}": torch.zeros_like(x) for name, x in given.items()}
        yield Row(f"attention_grad {label}", OpKind.AttentionGrad,
                  {"dout": dout, **given, "out": out, **kept, "mask": mask}, made, {"scale": size**-0.5}, 5 * flops // 2,
                  tuple(kernel.replace("attention", "attention_grad") for kernel in kernels))  # fmt: skip


SHORT = (
    (4096, 2, 49, 49, 32, True),
    (4096, 2, 49, 49, 32, False),
    (1024, 6, 49, 49, 32, False),
    (64, 49, 64, 64, 96, False),
    (256, 49, 4, 16, 96, False),
    (128, 49, 16, 64, 96, False),
    (64, 8, 49, 49, 64, False),
    (32, 12, 64, 64, 64, False),
    (4096, 4, 10, 10, 8, False),
    (64, 16, 64, 64, 128, False),
)
"""Batch, heads, queries, keys, elements of a head; whether a mask is learned, of each head. In bf16."""


def short_attentions() -> Iterator[Row]:
    """Heads that are one tile, by each kernel that takes them."""
    for batch, heads, queries, keys, size, learned in SHORT:
        q, dout = (make(batch, heads, queries, size, dtype=torch.bfloat16) for _ in range(2))
        k, v = (make(batch, heads, keys, size, dtype=torch.bfloat16) for _ in range(2))
        mask = {"mask": make(1, heads, queries, keys, dtype=torch.bfloat16)} if learned else {}
        kept = {name: torch.ones(batch, heads, queries, device=DEVICE) for name in ("largest", "total")}
        given, out, attrs = {"query": q, "key": k, "value": v}, torch.zeros_like(q), {"scale": size**-0.5}
        flops = 4 * batch * heads * queries * keys * size
        label = f"one tile {batch}x{heads}x{queries}x{keys}x{size}{' with a mask' * learned}"
        names = [f"bf16_{name}" for name in ("tile", "tc", "hopper", "cudnn")]

        def peer(q: Tensor = q, k: Tensor = k, v: Tensor = v, mask: dict[str, Tensor] = mask) -> Tensor:
            return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask.get("mask"))

        yield Row(f"attention {label}", OpKind.Attention, {**given, **mask}, {"out": out, **kept}, attrs, flops,
                  tuple(f"attention_{name}" for name in names), peer)  # fmt: skip
        back = {"dout": dout, **given, "out": out, **kept, **mask}
        made = {f"d{name}": torch.zeros_like(x) for name, x in given.items()}
        yield Row(f"attention_grad {label}", OpKind.AttentionGrad, back, made, attrs, 5 * flops // 2,
                  tuple(f"attention_grad_{name}" for name in names))  # fmt: skip
        if learned:
            yield Row(f"attention_mask_grad {label}", OpKind.AttentionMaskGrad, back, {"dmask": torch.zeros_like(mask["mask"])},
                      attrs, flops, tuple(f"attention_mask_grad_{name}" for name in names[:2]))  # fmt: skip


GROUPED = (
    (48, 96, 64, 7, 2),
    (384, 768, 8, 3, 1),
    (48, 48, 128, 1, 2),
    (96, 96, 112, 3, 2),
    (144, 144, 56, 3, 1),
    (48, 48, 64, 7, 1),
)
"""Channels, each a group; outputs, rows and columns of an image, of a kernel, and the stride. 64 images in bf16."""


def grouped_convolutions() -> Iterator[Row]:
    """Forward and both gradients, by our kernel and by cuDNN's."""
    for channels, outputs, size, kernel, stride in GROUPED:
        low = kernel // 2
        out = (size + 2 * low - kernel) // stride + 1
        x, y = (make(64, n, n, c, dtype=torch.bfloat16) for n, c in ((size, channels), (out, outputs)))
        w = make(outputs, kernel, kernel, 1, dtype=torch.bfloat16)
        attrs = {
            "stride": [stride] * 2,
            "dilation": [1, 1],
            "low": [low] * 2,
            "groups": channels,
            "channels_last": True,
        }
        for op, given, made, sides in (
            ("convolution", (x, w), y, [out] * 2),
            ("convolution_input_grad", (y, w), x, [size] * 2),
            ("convolution_weight_grad", (x, y), w, [kernel] * 2),
        ):
            kind = getattr(OpKind, "".join(word.capitalize() for word in op.split("_")))
            label = f"{op} 64x{channels}x{size}x{size} groups of 1 and {outputs // channels}, {kernel}x{kernel}, stride {stride}"
            names = tuple(f"{op}_bf16_{name}" for name in ("groups", "cudnn"))
            yield Row(
                label, kind, list(given), [torch.empty_like(made)], {**attrs, "size": sides}, kernels=names
            )


VIEWED = ((16, 8, 512, 64), (32, 12, 1024, 64), (8, 16, 256, 64), (4, 32, 2048, 128))
"""Batch, heads, rows, elements of a head."""


def products_of_heads() -> Iterator[Row]:
    """Of hand-written attention: heads are views of a joint projection, two levels of a batch."""
    for batch, heads, rows, size in VIEWED:
        q, k = make(batch, rows, 3, heads, size, dtype=torch.bfloat16).transpose(1, 3)[:, :, :2].unbind(2)
        scores = make(batch, heads, rows, rows, dtype=torch.bfloat16)
        out = make(batch, rows, heads, size, dtype=torch.bfloat16).transpose(1, 2)
        flops = 2 * batch * heads * rows * rows * size
        names = ("gemm_bf16_tc", "gemm_bf16_cublaslt")
        shape = f"heads {batch}x{heads}x{rows}x{size}"
        yield Row(f"scores of {shape}", OpKind.Gemm, [q, k], [scores], {"trans_b": True}, flops, names)
        yield Row(f"values of {shape}", OpKind.Gemm, [scores, k], [out], {}, flops, names)


LINES = ((1, 1_000_000), (256, 8192), (4096, 1000), (100_000, 40), (32, 131_072))
"""Rows, and their elements."""


def orders() -> Iterator[Row]:
    """Whole orders, and the first of them."""
    for rows, length in LINES:
        for dtype in (torch.float32, torch.bfloat16):
            x, shape = make(rows, length, dtype=dtype), f"{rows}x{length} {str(dtype).removeprefix('torch.')}"
            for count in (length, 8):
                index = torch.zeros(rows, count, dtype=torch.int64, device=DEVICE)
                whole = count == length

                def peer(x: Tensor = x, count: int = count, whole: bool = whole) -> object:
                    return x.sort(stable=True) if whole else x.topk(count)

                yield Row(f"argsort {'' if whole else 'first 8 '}{shape}", OpKind.Argsort, [x], [index],
                          {"count": count, "descending": not whole}, peer=peer)  # fmt: skip


def running() -> Iterator[Row]:
    """Along rows and along columns."""
    for rows, length in LINES:
        x, y = make(rows, length), make(rows, length)
        for dim in (0, 1):
            yield Row(f"scan sum {rows}x{length} along {dim}", OpKind.Scan, {"x": x}, {"y": y}, {"dim": dim, "kind": "sum"},
                      peer=lambda x=x, y=y, dim=dim: torch.cumsum(x, dim, out=y))  # fmt: skip
        place = torch.zeros(rows, length, dtype=torch.int64, device=DEVICE)
        yield Row(f"scan argmax {rows}x{length} along 1", OpKind.Scan, {"x": x}, {"y": place}, {"dim": 1, "kind": "argmax"},
                  peer=lambda x=x: torch.cummax(x, 1))  # fmt: skip


SCATTERED = ((10_000, 64, 2048), (10_000, 64, 4096), (50_257, 64, 8192), (50_257, 768, 32_768), (10, 64, 100_000),
             (1, 128, 65_536), (1_492_992, 1, 718_848), (4096, 4096, 64),
             (100_000, 64, 1_000_000))  # fmt: skip
"""Rows of the result, its columns, sources."""


def scatters() -> Iterator[Row]:
    """Sums, and the last source of each row; orders of indices."""
    for rows, _, sources in SCATTERED:
        index = torch.randint(rows, (sources,), device=DEVICE)
        made = {name: torch.zeros(sources, dtype=torch.int32, device=DEVICE) for name in ("keys", "places")}
        yield Row(f"sort_rows {sources} of {rows}", OpKind.SortRows, {"index": index, "at": index}, made,
                  {"rows": rows, "source_rows": rows}, peer=lambda i=index: i.sort(stable=True))  # fmt: skip
    for rows, columns, sources in SCATTERED:
        for dtype in (torch.float32, torch.bfloat16):
            x, y = torch.zeros(rows, columns, device=DEVICE, dtype=dtype), make(rows, columns, dtype=dtype)
            src, index = make(sources, columns, dtype=dtype), torch.randint(rows, (sources,), device=DEVICE)
            shape = f"{sources} to {rows}x{columns} {str(dtype).removeprefix('torch.')}"
            given = {"x": [x], "index": [index], "src": [src]}
            yield Row(f"scatter_add {shape}", OpKind.ScatterAdd, given, {"x": [y]}, {},
                      peer=lambda x=x, i=index, s=src: x.index_add(0, i, s))  # fmt: skip
            if sources > 4096:
                keys, order = index.sort(stable=True)
                named = {**given, "index": [keys.int()], "at": [order.int()]}
                yield Row(f"scatter_add sorted {shape}", OpKind.ScatterAdd, named, {"x": [y]}, {},
                          peer=lambda x=x, i=keys, s=src: x.index_add(0, i, s))  # fmt: skip
            for kind, peer in (("last", "index_copy"), ("max", None)):
                call = None if peer is None else lambda x=x, i=index, s=src: x.index_copy(0, i, s)
                yield Row(
                    f"scatter_rows {kind} {shape}",
                    OpKind.ScatterRows,
                    [x, index, src],
                    [y],
                    {"kind": kind},
                    peer=call,
                )


PICTURES = ((256, 3, 224, 224, 4), (256, 4, 84, 84, 4), (64, 256, 56, 56, 2), (2048, 1024, 7, 7, 1))
"""Images, channels, height and width; the side of blocks that become channels."""


def layouts() -> Iterator[Row]:
    """From the order of torch's images to that of its channels_last, and back."""
    for *shape, side in PICTURES:
        for dtype in (torch.float32, torch.bfloat16):
            plain, last = (
                make(*shape, dtype=dtype),
                make(*shape, dtype=dtype).permute(0, 2, 3, 1).contiguous(),
            )
            images, channels, height, width = shape
            blocks = plain.view(images, channels, height // side, side, width // side, side)
            deep = blocks.permute(0, 2, 4, 3, 5, 1)
            label = f"{'x'.join(map(str, shape))} {str(dtype).removeprefix('torch.')}"
            for x, y, to in (
                (plain.permute(0, 2, 3, 1), last, "NHWC"),
                (last.permute(0, 3, 1, 2), plain, "NCHW"),
                (deep, torch.empty_like(deep, memory_format=torch.contiguous_format), f"blocks of {side}"),
            ):
                yield Row(
                    f"copy {label} to {to}", OpKind.Copy, [x], [y], {}, peer=lambda x=x, y=y: y.copy_(x)
                )


def index_rows() -> Iterator[Row]:
    """All of this file."""
    yield from layouts()
    yield from attentions()
    yield from masked_attentions()
    yield from short_attentions()
    yield from grouped_convolutions()
    yield from products_of_heads()
    yield from orders()
    yield from running()
    yield from scatters()
