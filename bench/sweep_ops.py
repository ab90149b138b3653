"""The ops that `sweep_gpu.py` runs: what each computes in torch, of which tensors, in which sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

Shape = tuple[int, ...]
Size = Callable[[Shape, torch.dtype], list[Tensor]]
"""The operands of an op in one size, on the host."""

LINES: Sequence[Shape] = (
    (1,), (7,), (1000,), (33, 127), (1024, 1024), (4099, 257), (1, 1 << 20), (1 << 20, 1), (3, 5, 7, 1100), (1 << 24,),
    (2048, 2048, -1), (2048, 2048, -2),
)  # fmt: skip
"""Of pointwise ops. A last -1 is a transpose, -2 each second column of twice as many."""
ROWS: Sequence[Shape] = (
    (1, 7), (1, 1000), (1, 1_000_003), (64, 64), (1023, 17), (17, 1023), (100_000, 3), (3, 100_000), (8192, 1000),
    (255, 257), (2048, 8192), (2048, 2048, -1), (2048, 2048, -2),
)  # fmt: skip
PRODUCTS: Sequence[Shape] = (
    (1, 1, 1), (8, 8, 8), (64, 64, 64), (1, 4096, 4096), (65536, 256, 1), (65536, 128, 3), (1, 65536, 256),
    (65536, 63, 256), (16384, 319, 256), (256, 65536, 319),
    (1000, 1000, 1000), (2048, 2048, 2048), (65536, 3, 128), (4096, 13, 512),
)  # fmt: skip
"""m, k, n."""
BATCHES: Sequence[Shape] = (
    (1, 1, 1, 1), (2048, 27, 64, 27), (2048, 27, 27, 64), (96, 197, 64, 197), (96, 197, 197, 64), (10_000, 4, 4, 4),
    (3, 1000, 7, 1000),
    (64, 64, 64, 64), (512, 1, 128, 512), (512, 512, 128, 1), (8, 1024, 1024, 64), (33, 65, 31, 129),
)  # fmt: skip
"""Products, m, k, n."""
TABLES: Sequence[Shape] = (
    (1, 1, 1), (10, 8, 5), (1000, 64, 1000), (50_000, 64, 4096), (50_000, 512, 8192), (10, 64, 100_000), (1, 128, 100_000),
    (1_000_000, 1, 500_000), (1_000_000, 16, 100_000), (257, 63, 10_001), (100_000, 3, 100_000), (30_522, 768, 4096),
)  # fmt: skip
"""Rows of a table, its columns, and how many are taken."""
HEADS: Sequence[Shape] = (
    (1, 1, 1, 8), (2, 2, 16, 16), (64, 4, 64, 32), (8, 12, 128, 64), (4, 12, 512, 64), (2, 12, 1024, 64), (1, 8, 2048, 128),
    (16, 6, 197, 64), (1, 1, 4096, 64), (3, 5, 77, 40), (256, 8, 16, 64), (2, 16, 333, 128),
)  # fmt: skip
"""Batch, heads, rows and elements of a head."""
IMAGES: Sequence[Shape] = (
    (1, 1, 5, 5), (2, 3, 32, 32), (32, 4, 84, 84), (128, 64, 16, 16), (32, 64, 56, 56), (8, 256, 14, 14), (8, 512, 7, 7),
    (1, 3, 512, 512), (64, 1, 28, 28), (3, 17, 33, 65), (16, 32, 64, 64), (512, 8, 8, 8),
)  # fmt: skip

CONVOLUTIONS: Sequence[Shape] = (
    (64, 3, 224, 224, 64, 7, 2, 1), (64, 3, 224, 224, 384, 16, 16, 1), (512, 3, 32, 32, 64, 3, 1, 1),
    (256, 4, 84, 84, 32, 8, 4, 1), (128, 1, 28, 28, 32, 3, 1, 1), (64, 16, 64, 64, 96, 1, 1, 1),
    (32, 96, 56, 56, 24, 1, 1, 1), (32, 128, 56, 56, 128, 3, 1, 32), (64, 12, 32, 32, 24, 3, 2, 3),
    (8, 64, 256, 256, 2, 1, 1, 1), (8, 128, 128, 128, 3, 3, 1, 1), (16, 1, 1, 16000, 512, 10, 5, 1),
    (16, 512, 1, 3199, 512, 3, 2, 1), (1, 256, 7, 7, 256, 3, 1, 1), (4, 20, 63, 65, 40, 5, 1, 1),
)  # fmt: skip
"""Images, filters, the side of a kernel, stride and groups: first layers of networks, pointwise ones, heads, groups, audio."""


@dataclass(frozen=True)
class Op:
    """`call` of the operands that `make` gives for one of `sizes`; the first `smooth` of them get a gradient."""

    name: str
    call: Callable[..., Tensor]
    make: Size
    sizes: Sequence[Shape]
    smooth: int = 1
    flops: Callable[[Shape], float] = lambda size: 0.0
    drawn: bool = False
    """True if it draws random numbers: no results are compared."""
    tied: bool = False
    """True if it chooses one of equal elements: torch may choose another, so only the values are compared."""


def numbers(*shape: int, dtype: torch.dtype) -> Tensor:
    """Between 0.1 and 0.9, where nearly all functions are defined and smooth."""
    return (torch.rand(shape) * 0.8 + 0.1).to(dtype)


def seen(x: Tensor, size: Shape) -> Tensor:
    """The operand in this size: itself, or a view."""
    return x if size[-1] >= 0 else x.mT if size[-1] == -1 else x[..., ::2]


def operands(count: int) -> Size:
    def make(size: Shape, dtype: torch.dtype) -> list[Tensor]:
        shape = size if size[-1] >= 0 else (size[0], size[1] * -size[-1])
        return [numbers(*shape, dtype=dtype) for _ in range(count)]

    return make


def index(count: int, limit: int) -> Tensor:
    return torch.randint(limit, (count,))


UNARY = """
    abs neg exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan asin acos atan sinh cosh tanh asinh atanh
    erf erfc sigmoid square floor ceil round trunc sign
"""
ACTIVATIONS = """
    relu gelu silu softplus elu selu celu leaky_relu hardtanh hardswish hardsigmoid mish softsign tanhshrink relu6 logsigmoid
    softshrink hardshrink
"""
BINARY = ["add", "sub", "mul", "div", "maximum", "minimum", "pow", "atan2", "fmod", "remainder", "copysign"]
REDUCED = ["sum", "mean", "amax", "amin", "prod", "logsumexp", "var", "std"]
ALONG: dict[str, Callable[[Tensor], Tensor]] = {
    "softmax": lambda x: x.softmax(-1), "log_softmax": lambda x: x.log_softmax(-1), "norm": lambda x: x.norm(dim=-1),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]), "rms_norm": lambda x: F.rms_norm(x, x.shape[-1:]),
    "normalize": lambda x: F.normalize(x, dim=-1), "softmax of columns": lambda x: x.softmax(0),
    "sum of columns": lambda x: x.sum(0), "max of columns": lambda x: x.amax(0), "sum of all": lambda x: x.sum(),
    "cumsum": lambda x: x.cumsum(-1), "cumsum of columns": lambda x: x.cumsum(0),
    "cumprod": lambda x: (x * 1e-6 + 1).cumprod(-1),
    "logcumsumexp": lambda x: x.logcumsumexp(-1), "cummax": lambda x: x.cummax(-1)[0], "sort": lambda x: x.sort(-1)[0],
    "topk": lambda x: x.topk(min(5, x.shape[-1]))[0], "kthvalue": lambda x: x.kthvalue(1 + x.shape[-1] // 2)[0],
    "median": lambda x: x.median(-1)[0], "sort of columns": lambda x: x.sort(0)[0],
    "transpose": lambda x: x.mT.clone(memory_format=torch.contiguous_format),
    "flip": lambda x: x.flip(-1), "roll": lambda x: x.roll(1, -1),
    "cat": lambda x: torch.cat((x, x), -1), "stack": lambda x: torch.stack((x, x)), "pad": lambda x: F.pad(x, (1, 2)),
    "repeat": lambda x: x.repeat(2, 1), "tril": lambda x: x.tril(), "slice": lambda x: x[:, 1::2].contiguous(),
    "expand": lambda x: x[:, None].expand(-1, 2, -1).contiguous(), "where": lambda x: torch.where(x > 0.5, x, 0.0),
    "clamp": lambda x: x.clamp(0.2, 0.8), "masked_fill": lambda x: x.masked_fill(x > 0.5, 0.0),
}  # fmt: skip
TIED = {"cummax", "sort", "sort of columns", "topk", "kthvalue", "median"}
LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    name: getattr(F, name)
    for name in (
        "mse_loss",
        "l1_loss",
        "smooth_l1_loss",
        "huber_loss",
        "binary_cross_entropy_with_logits",
        "kl_div",
    )
}


def product_of(size: Shape, dtype: torch.dtype, linear: bool = False) -> list[Tensor]:
    *batch, m, k, n = size
    b = numbers(n, k, dtype=dtype) if linear else numbers(*batch, k, n, dtype=dtype)
    return [numbers(*batch, m, k, dtype=dtype), b, *([numbers(n, dtype=dtype)] if linear else [])]


def products(size: Shape) -> float:
    total = 2.0
    for extent in size:
        total *= extent
    return total


def table_of(size: Shape, dtype: torch.dtype, given: bool = False) -> list[Tensor]:
    rows, columns, count = size
    more = [numbers(count, columns, dtype=dtype)] if given else []
    return [numbers(rows, columns, dtype=dtype), *more, index(count, rows)]


def heads_of(size: Shape, dtype: torch.dtype) -> list[Tensor]:
    return [numbers(*size, dtype=dtype) for _ in range(3)]


def logits_of(size: Shape, dtype: torch.dtype) -> list[Tensor]:
    return [numbers(*size[:2], dtype=dtype), index(size[0], size[1])]


def kernel_of(size: Shape, dtype: torch.dtype, per_group: bool = False) -> list[Tensor]:
    channels = size[1]
    return [numbers(*size, dtype=dtype), numbers(channels, 1 if per_group else channels, 3, 3, dtype=dtype)]


def layer(size: Shape) -> Op:
    """A convolution of `CONVOLUTIONS`, padded by half of its kernel; along images of one row the kernel has one row."""
    n, channels, height, width, filters, side, stride, groups = size
    wide, terms = height > 1, channels // groups * side ** (1 + (height > 1))
    kernel = (filters, channels // groups, side if wide else 1, side)

    def convolve(x: Tensor, w: Tensor) -> Tensor:
        return F.conv2d(x, w, None, (stride if wide else 1, stride), (side // 2 * wide, side // 2), 1, groups)

    return Op(
        f"convolution {channels} to {filters}, {side} wide, stride {stride}, groups {groups}",
        convolve,
        lambda of, dtype: [numbers(*of, dtype=dtype), numbers(*kernel, dtype=dtype)],
        [(n, channels, height, width)],
        2,
        lambda of: 2.0 * n * filters * -(-height // stride) * -(-width // stride) * terms,
    )


def attend(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal)


def ops() -> Iterator[Op]:
    """Each op once."""
    one, two = operands(1), operands(2)
    for name in UNARY.split():
        yield Op(name, getattr(torch, name), one, LINES)
    for name in ACTIVATIONS.split():
        yield Op(name, getattr(F, name), one, LINES)
    for name in BINARY:
        yield Op(name, getattr(torch, name), two, LINES, 2)
    yield Op("lerp", partial(torch.lerp, weight=0.3), two, LINES, 2)
    yield Op("addcmul", torch.addcmul, operands(3), LINES, 3)
    for name in REDUCED:
        yield Op(name, lambda x, name=name: getattr(torch, name)(x, -1), one, ROWS)
    for name, call in ALONG.items():
        yield Op(name, call, one, ROWS, tied=name in TIED)
    for name, loss in LOSSES.items():
        yield Op(name, loss, two, ROWS)
    plain = [size for size in ROWS if size[-1] >= 0]
    yield Op("cross_entropy", F.cross_entropy, logits_of, [*plain, (4096, 50257), (65536, 2)])
    yield Op("argmax", lambda x: x.argmax(-1), one, ROWS, 0, tied=True)
    yield Op("argsort", lambda x: x.argsort(-1), one, ROWS, 0, tied=True)
    yield Op("mm", torch.mm, product_of, PRODUCTS, 2, products)
    yield Op("linear", F.linear, partial(product_of, linear=True), PRODUCTS, 3, products)
    yield Op("bmm", torch.bmm, product_of, BATCHES, 2, products)
    yield Op("embedding", lambda t, i: F.embedding(i, t), table_of, TABLES)
    yield Op("index_select", lambda t, i: t.index_select(0, i), table_of, TABLES)
    yield Op("take_along_dim", lambda t, i: t.take_along_dim(i[:, None], 0), table_of, TABLES)
    yield Op("index_add", lambda t, x, i: t.index_add(0, i, x), partial(table_of, given=True), TABLES, 2)
    yield Op(
        "index_put",
        lambda t, x, i: t.index_put((i,), x, accumulate=True),
        partial(table_of, given=True),
        TABLES,
        2,
    )
    yield Op(
        "scatter_add",
        lambda t, x, i: t.scatter_add(0, i[:, None].expand_as(x), x),
        partial(table_of, given=True),
        TABLES,
        2,
    )
    for causal in (False, True):
        yield Op(f"attention{' causal' * causal}", partial(attend, causal=causal), heads_of, HEADS, 3,
                 lambda s: 4.0 * s[0] * s[1] * s[2] * s[2] * s[3])  # fmt: skip
    yield Op(
        "conv2d",
        partial(F.conv2d, padding=1),
        kernel_of,
        IMAGES,
        2,
        lambda s: 18.0 * s[0] * s[1] ** 2 * s[2] * s[3],
    )
    yield Op(
        "depthwise",
        lambda x, w: F.conv2d(x, w, padding=1, groups=x.shape[1]),
        partial(kernel_of, per_group=True),
        IMAGES,
        2,
    )
    yield from map(layer, CONVOLUTIONS)
    yield Op("max_pool2d", lambda x: F.max_pool2d(x, 2), one, IMAGES, tied=True)
    yield Op("avg_pool2d", lambda x: F.avg_pool2d(x, 2), one, IMAGES)
    yield Op("batch_norm", lambda x: F.batch_norm(x, None, None, training=True), one, IMAGES[1:])
    yield Op("group_norm", lambda x: F.group_norm(x, 1), one, IMAGES)
    yield Op("interpolate", lambda x: F.interpolate(x, scale_factor=2), one, IMAGES)
    yield Op("dropout", F.dropout, one, LINES, drawn=True)


def bytes_of(tensors: Sequence[Any]) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)
