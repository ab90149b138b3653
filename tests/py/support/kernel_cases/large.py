"""Cases of large sizes, which take paths of CUDA kernels that small ones do not reach."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from kernel_cases.case import Case, Generator, Maker, Spec
from kernel_cases.check import FINE, STATUS
from kernel_cases.gemm import BY_COLUMNS, BY_ROWS, TRANSPOSES, heads_place, matrix_place, strided_product
from kernel_cases.heads import Heads
from kernel_cases.optim import narrow
from kernel_cases.places import placed


def _product(
    make: Maker,
    batch: tuple[int, ...],
    m: int,
    n: int,
    k: int,
    attrs: dict[str, Any],
    *,
    epilogue: bool = False,
    bias: bool = False,
    bias_grad: bool = False,
) -> Case:
    ta, tb = attrs.get("trans_a", False), attrs.get("trans_b", False)
    a, b = (
        make.integers(*batch, *((k, m) if ta else (m, k))),
        make.integers(*batch, *((n, k) if tb else (k, n))),
    )
    inputs = [a, b, make.integers(n)] if bias else [a, b]
    outputs = [make.out(*batch, m, n)]
    if bias_grad:
        outputs.append(make.out(m))
    counts = ((1, 1, int(bias), 0), (1, 0, int(bias_grad))) if epilogue else None
    return Case(f"{batch} {m}x{n}x{k} {attrs} {bias} {bias_grad}", inputs, outputs, attrs, counts, exact=True)


def allowances(make: Maker) -> list[dict[str, Any]]:
    """What a product may be allowed in: of f32, also to round its operands to TF32, which holds whole numbers."""
    return [{}, {"allow_tf32": True}] if make.dtype == "f32" else [{}]


def products(make: Maker) -> Iterator[Case]:
    """Tiles of 16, with a long k, of 64 and of 128, aligned and ragged, every transpose; more products than a grid is deep."""
    for (m, n, k), (ta, tb) in itertools.product(
        ((72, 48, 9000), (776, 712, 40), (775, 713, 41), (1537, 1416, 24)), TRANSPOSES
    ):
        for allowed in allowances(make):
            yield _product(make, (), m, n, k, {"trans_a": ta, "trans_b": tb, **allowed})
    yield _product(make, (70_000,), 2, 1, 3, {})
    yield _product(make, (300,), 33, 40, 8, {"trans_b": True})
    yield from _strided(make, epilogue=False)


def _strided(make: Maker, *, epilogue: bool) -> Iterator[Case]:
    """Operands with gaps at the larger tiles, where vectors fit and where they do not; attention over heads."""
    options: list[dict[str, Any]] = [{}]
    if epilogue:
        options = [
            {"bias": True, "pre": True, "act": "relu"},
            {"bias_grad": True},
            {"act_grad": "relu", "pre": True},
        ]
    for i, ((m, n, k), gap, (ta, tb)) in enumerate(
        itertools.product(((776, 712, 40), (775, 713, 41), (1536, 1408, 29)), (8, 3), TRANSPOSES)
    ):
        rows = matrix_place(BY_ROWS, {"gap": gap})
        places = {
            "a": matrix_place(BY_COLUMNS if i % 2 else BY_ROWS, {"gap": gap}),
            "b": matrix_place(BY_COLUMNS if i % 3 else BY_ROWS, {"gap": gap}),
            **dict.fromkeys(("out", "pre", "saved"), rows),
        }
        option = options[i % len(options)]
        yield strided_product(make, make.integers, (), (m, n, k), ta, tb, option, places, epilogue=epilogue)
    for time, size in ((128, 64), (130, 64), (67, 33)):
        heads = heads_place(2 * 12 * size)
        for product, tb, places in (
            ((time, time, size), True, {"a": heads, "b": heads}),
            ((time, size, time), False, {"b": heads, "out": heads}),
            ((time, size, time), False, {"b": heads_place(8, 0), "out": heads}),
        ):
            yield strided_product(
                make, make.integers, (3, 12), product, False, tb, {}, places, epilogue=epilogue
            )


def epilogues(make: Maker) -> Iterator[Case]:
    """Bias, relu and the bias gradient with a long k, and at the larger tiles."""
    for m, n, k in ((72, 48, 9000), (776, 712, 40), (775, 713, 41), (1536, 1408, 24), (2049, 515, 13)):
        for allowed in allowances(make):
            yield _product(make, (), m, n, k, {"act": "relu", **allowed}, epilogue=True, bias=True)
            yield _product(make, (), m, n, k, {"trans_a": True, **allowed}, epilogue=True, bias_grad=True)
    yield from _strided(make, epilogue=True)


def sums(make: Maker) -> Iterator[Case]:
    """Sums that take several blocks and a second kernel."""
    for shape, dims in (
        ((70_000, 3), (0,)),
        ((3, 70_000), (1,)),
        ((5_000, 40), (0, 1)),
        ((9, 4_000, 5), (1,)),
        ((400, 7, 300), (0, 2)),
        ((20, 300, 7, 30), (1, 3)),
        ((20, 300, 7, 30), (0, 2)),
    ):
        out = tuple(size for i, size in enumerate(shape) if i not in dims)
        yield Case(
            f"{shape} {dims}",
            [make.normal(*shape)],
            [make.out(*out)],
            {"dims": list(dims), "divisor": 1e3},
            scale=1.0,
        )


def squares(make: Maker) -> Iterator[Case]:
    """Losses that take several blocks."""
    for n in (40_000, 262_145):
        yield Case(f"{n}", [make.normal(n), make.normal(n)], [make.out()], {"reduction": "mean"})


def _classes(make: Maker) -> Iterator[tuple[str, Any, Any, dict[str, Any]]]:
    for rows, classes in ((700, 5), (5_000, 3), (3, 5_000), (40, 1_025), (2, 60_000)):
        target = make.random.integers(0, classes, rows)
        target[::3] = -100
        target[1] = classes - 1
        for smoothing in (0.0, 0.1):
            yield (
                f"{rows}x{classes} {smoothing}",
                make.normal(rows, classes),
                target,
                {"label_smoothing": smoothing},
            )


def entropies(make: Maker) -> Iterator[Case]:
    """Many rows, many classes."""
    for label, logits, target, attrs in _classes(make):
        yield Case(label, [logits, target], [make.out()], attrs)


def entropy_gradients(make: Maker) -> Iterator[Case]:
    """Many rows, many classes."""
    for label, logits, target, attrs in _classes(make):
        yield Case(label, [make.cast(8.0), logits, target], [make.out(*logits.shape)], attrs)


ROWS = ((70_000, 5), (40, 1_024), (40, 1_025), (3, 60_000), (2_200, 1_100), (7, 3, 40, 33))
"""More rows than warps of a grid, and than blocks; rows of a warp, of a block, and much longer."""


def softmaxes(make: Maker) -> Iterator[Case]:
    for shape in ROWS:
        yield Case(f"{shape}", [make.normal(*shape)], [make.out(*shape)])


def softmax_gradients(make: Maker) -> Iterator[Case]:
    for shape in ROWS:
        y = make.cast(np.abs(make.normal(*shape).astype(np.float64)) / shape[-1])
        yield Case(f"{shape}", [make.normal(*shape), y], [make.out(*shape)])


def long_attention(make: Maker) -> Iterator[tuple[str, Heads]]:
    """More blocks than multiprocessors, and every padding of a head with many steps."""
    for size in (32, 64, 128, 256):
        yield "long", Heads(make, 2, (4, 2), (777, 1025), (size, size), causal=True)
    yield "many heads", Heads(make, 64, (12, 12), (65, 65), (64, 64))
    for rows, size in ((49, 32), (16, 64), (30, 128)):
        yield (
            "many tiles",
            Heads(make, 301, (5, 5), (rows, rows), (size, size), make.normal(1, 5, rows, rows)),
        )


def attentions(make: Maker) -> Iterator[Case]:
    for label, heads in long_attention(make):
        yield heads.case(label, grad=False)


def attention_gradients(make: Maker) -> Iterator[Case]:
    for label, heads in long_attention(make):
        yield heads.case(label, grad=True)


def mask_gradients(make: Maker) -> Iterator[Case]:
    for label, heads in long_attention(make):
        if heads.has_mask_gradient:
            yield heads.case(label, grad=True, mask_grad=True)


def adams(make: Maker) -> Iterator[Case]:
    """More tensors than a small table holds, and more than one launch takes; tensors of several blocks."""
    for count in (17, 230):
        shapes = [(3_000,) if i % 50 == 7 else (i % 9 + 1,) for i in range(count)]
        p, g, m = ([make.normal(*shape) for shape in shapes] for _ in range(3))
        v = [make.cast(make.normal(*shape).astype(np.float64) ** 2) for shape in shapes]
        scalars: list[Any] = [np.array(s) for s in (1e-3, 0.9, 0.999, 1e-8, 0.1)]
        counts = ((count,) * 4 + (0,) + (1,) * 7, (count,) * 3 + (0, 0))
        scalars += [make.random.uniform(1.0, last, count) for last in (10.0, 900.0)]
        outputs = [make.out(*shape) for shape in shapes] * 3
        attrs = {"groups": [0] * count, "indices": list(reversed(range(count)))}
        yield Case(f"{count} tensors", [*p, *g, *m, *v, *scalars], outputs, attrs, counts, scale=1.0)
        if make.dtype == "f32":
            mixed = narrow(make, shapes, "f16, bf16 and f32")
            label = f"{count} gradients of several types"
            yield Case(label, [*p, *mixed, *m, *v, *scalars], outputs, attrs, counts, each=True)
            copied = [number for number in range(count) if number % 3]
            given, (*made, _) = counts
            copies: list[Spec] = [("bf16", shapes[number]) for number in copied]
            more = {**attrs, "copied": copied}
            label, counts = f"{count} tensors, {len(copied)} copies", (given, (*made, len(copied)))
            yield Case(label, [*p, *g, *m, *v, *scalars], [*outputs, *copies], more, counts, scale=1.0)


def indices(make: Maker) -> Iterator[Case]:
    """Many targets, wrong ones far apart."""
    target = make.random.integers(0, 9, 70_000)
    target[[40_000, 60_000]] = 9, -3
    for fine in (target[:40_000], target):
        yield Case(f"{fine.size}", [FINE, fine], [STATUS], {"classes": [9], "code": 1}, ((1, 1), (1,)))


def finites(make: Maker) -> Iterator[Case]:
    """More tensors than a table holds; tensors of many blocks."""
    for count, size, wrong in ((1_100, 5, 1_050), (3, 300_000, 1), (2, 12_345, None)):
        tensors = [make.normal(size + i % 3) for i in range(count)]
        if wrong is not None:
            tensors[wrong][size - 1], tensors[wrong][size // 2] = np.nan, -np.inf
        yield Case(f"{count} of {size}", [FINE, *tensors], [STATUS], {"code": 2}, ((1, count), (1,)))


def moves(make: Maker) -> Iterator[Case]:
    """Many tiles and many rows, between gaps; a result of more elements than a grid has threads; one long row."""
    heads = (3, 12, 129, 64)
    for shape, x, y in (
        ((1_048_581,), None, None),
        ((1537, 1416), placed((1537, 1416), (1, 0)), None),
        ((1537, 1416), placed((1537, 1416), (1, 0), gap=8), placed((1537, 1416), gap=3)),
        ((1536, 1416), placed((1536, 1416), gap=8), placed((1536, 1416), gap=16, offset=8)),
        (heads, placed(heads, (0, 2, 1, 3), gap=8), None),
        (heads, None, placed(heads, (0, 2, 1, 3), gap=8)),
        ((40, 70_000), placed((40, 70_000), (1, 0)), None),
    ):
        values = make.normal(*shape)
        yield Case(f"{shape} {x} {y}", [values], [make.out(*shape)], places=(x, y), exact=True)
        yield Case(f"cast {shape} {x} {y}", [values], [("i32", shape)], places=(x, y), exact=True)


def sorts(make: Maker) -> Iterator[Case]:
    """Rows of more warps and blocks than a chip has at once; so many keys that their tiles are large; some of a long row."""
    for rows, n, count in (
        (20_000, 40, 40),
        (1_100, 1_025, 1_025),
        (1, 300_001, 300_001),
        (33, 9_001, 9_001),
        (3, 100_003, 200),
    ):
        out = [("i64", (rows, count))]
        for label, x in (("normal", make.normal(rows, n)), ("ties", make.integers(rows, n, limit=3))):
            attrs = {"count": count, "descending": rows > 1, "first": 0}
            yield Case(f"{label} {rows}x{n}, {count}", [x], out, attrs, exact=True)


def row_sorts(make: Maker) -> Iterator[Case]:
    """The same of an index."""
    if make.dtype != "f32":
        return
    for rows, sources in ((1 << 20, 300_001), (70_000, 300_001)):
        index = make.random.integers(-2, rows + 2, sources)
        attrs = {"rows": rows, "source_rows": sources}
        out = [("i32", (sources,))] * 2
        yield Case(f"{rows}, {sources}", [index], out, attrs, ((1, 0), (1, 1)), exact=True)


def convolutions(result: str, make: Maker) -> Iterator[Case]:
    """Groups of one channel: more vectors of channels than a grid has threads."""
    shapes = {"x": (4, 112, 128, 64), "w": (64, 3, 3, 1), "y": (4, 112, 128, 64)}
    given = [make.integers(*shape, limit=2) for name, shape in shapes.items() if name != result]
    if result == "x":
        given.reverse()  # dy, then w
    numbers = {"stride": [1, 1], "dilation": [1, 1], "low": [1, 1], "size": list(shapes[result][1:-1])}
    attrs = {**numbers, "groups": 64, "channels_last": True}
    for allowed in allowances(make):
        yield Case(f"groups {allowed}", given, [make.out(*shapes[result])], {**attrs, **allowed}, exact=True)


LARGE: dict[str, Generator] = {
    "argsort": sorts,
    "sort_rows": row_sorts,
    "copy": moves,
    "gemm": products,
    "gemm_epilogue": epilogues,
    "reduce_sum": sums,
    "mse_loss": squares,
    "cross_entropy": entropies,
    "cross_entropy_grad": entropy_gradients,
    "softmax": softmaxes,
    "softmax_grad": softmax_gradients,
    "attention": attentions,
    "attention_grad": attention_gradients,
    "attention_mask_grad": mask_gradients,
    "adam_step": adams,
    "check_index": indices,
    "check_finite": finites,
    "convolution": partial(convolutions, "y"),
    "convolution_input_grad": partial(convolutions, "x"),
    "convolution_weight_grad": partial(convolutions, "w"),
}
