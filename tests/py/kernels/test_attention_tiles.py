"""Attention whose heads are one tile: what takes it, that it agrees with torch in f64 and has the same bits each time."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from aicf_mlir import _C, OpKind, SelectionError, op_call

DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16}
KEPT = ((1, 1, 1, 0, 0), (1, 1, 1))


def forward(dtype: str, heads: tuple[int, int], rows: tuple[int, int], size: int, name: str = "") -> str:
    """The kernel that a plan for sm_80 has."""
    query, key = (dtype, (8, heads[0], rows[0], size)), (dtype, (8, heads[1], rows[1], size))
    kept = [("f32", (8, heads[0], rows[0]))] * 2
    attrs = {"causal": False, "scale": 0.125}
    return _C.select_kernel("attention", [query, key, key], [query, *kept], attrs, "sm_80", name, KEPT)[0]


def backward(dtype: str, heads: tuple[int, int], rows: tuple[int, int], size: int, name: str = "") -> str:
    """The kernel of its gradient."""
    query, key = (dtype, (8, heads[0], rows[0], size)), (dtype, (8, heads[1], rows[1], size))
    kept = [("f32", (8, heads[0], rows[0]))] * 2
    attrs, counts = {"causal": False, "scale": 0.125}, ((*[1] * 7, 0, 0), (1, 1, 1))
    given = [query, query, key, key, query, *kept]
    return _C.select_kernel("attention_grad", given, [query, key, key], attrs, "sm_80", name, counts)[0]


@pytest.mark.parametrize("dtype", DTYPES)
def test_heads_of_at_most_64_queries_and_keys_are_one_tile(dtype: str) -> None:
    for rows in ((1, 64), (64, 1), (49, 49), (64, 64)):
        assert forward(dtype, (6, 2), rows, 128) == f"attention_{dtype}_tile"
        assert backward(dtype, (6, 6), rows, 128) == f"attention_grad_{dtype}_tile"
    for rows in ((65, 64), (64, 65)):
        assert forward(dtype, (6, 2), rows, 128) == f"attention_{dtype}_tc"
    assert backward(dtype, (6, 2), (64, 64), 128) == f"attention_grad_{dtype}_tc"


@pytest.mark.parametrize(
    ("heads", "rows", "size", "reason"),
    [
        ((2, 2), (65, 8), 32, "needs at most 64 queries and keys, got 65"),
        ((2, 2), (8, 8), 136, "needs heads of at most 128 elements, got 136"),
        ((6, 2), (8, 8), 32, "needs keys for each head, got 2 heads of keys for 6"),
    ],
)
def test_what_it_declines(heads: tuple[int, int], rows: tuple[int, int], size: int, reason: str) -> None:
    with pytest.raises(SelectionError, match=reason):
        backward("bf16", heads, rows, size, "attention_grad_bf16_tile")


Shape = tuple[int, int, tuple[int, int], tuple[int, int], tuple[int, int] | None, bool]
SHAPES: dict[str, Shape] = {
    "windows": (200, 3, (49, 49), (32, 32), (1, 3), False),
    "windows of one image": (120, 6, (49, 49), (32, 32), (120, 1), False),
    "a full tile": (9, 5, (64, 64), (128, 128), None, True),
    "four heads a block": (33, 7, (4, 16), (96, 96), (1, 1), False),
    "two heads a block": (13, 3, (26, 31), (16, 64), (1, 3), False),
    "odd rows": (5, 3, (33, 7), (20, 13), (5, 3), True),
    "one query": (700, 2, (1, 10), (8, 8), None, False),
}
"""By name: images, heads, queries and keys, elements of a query and of a value; images and heads of a mask; whether causal."""
ERRORS = {"bf16": 6e-3, "f16": 8e-4}


def call(
    op: OpKind, inputs: dict[str, torch.Tensor], outputs: dict[str, torch.Tensor], attrs: Any, kernel: str
) -> None:
    for tensor in outputs.values():
        tensor.fill_(math.nan)
    assert op_call(op, inputs, outputs, attrs, kernel) == kernel


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", SHAPES)
def test_results_and_gradients_agree_with_torch_in_f64_and_have_the_same_bits(name: str, dtype: str) -> None:
    batch, heads, (queries, keys), (size, value_size), masked, causal = SHAPES[name]
    torch.manual_seed(0)
    kind: Any = {"device": "cuda", "dtype": DTYPES[dtype]}
    query, dout = (torch.randn(batch, queries, heads, n, **kind).transpose(1, 2) for n in (size, value_size))
    key, value = (torch.randn(batch, keys, heads, n, **kind).transpose(1, 2) for n in (size, value_size))
    mask = None if masked is None else torch.randn(*masked, queries, keys, **kind)
    attrs, given = {"causal": causal, "scale": size**-0.5}, {"query": query, "key": key, "value": value}
    masks = {} if mask is None else {"mask": mask}
    out = {"out": torch.empty_like(dout)}
    out |= {each: torch.empty(batch, heads, queries, device="cuda") for each in ("largest", "total")}
    grads = {f"d{each}": torch.empty_like(tensor) for each, tensor in given.items()}
    dmask = None if mask is None else torch.empty_like(mask)

    results = [out["out"], *grads.values(), *([] if dmask is None else [dmask])]
    found: set[tuple[bytes, ...]] = set()
    for _ in range(20):
        call(OpKind.Attention, given | masks, out, attrs, f"attention_{dtype}_tile")
        inputs = {"dout": dout} | given | out | masks
        call(OpKind.AttentionGrad, inputs, grads, attrs, f"attention_grad_{dtype}_tile")
        if dmask is not None:
            call(
                OpKind.AttentionMaskGrad, inputs, {"dmask": dmask}, attrs, f"attention_mask_grad_{dtype}_tile"
            )
        found.add(tuple(t.contiguous().view(torch.uint8).cpu().numpy().tobytes() for t in results))
    assert len(found) == 1

    leaves = [
        t.double().detach().requires_grad_() for t in (query, key, value, *([] if mask is None else [mask]))
    ]
    scores = size**-0.5 * leaves[0] @ leaves[1].mT + (0 if mask is None else leaves[3])
    if causal:
        scores = scores.masked_fill(
            torch.ones(queries, keys, dtype=torch.bool, device="cuda").triu(1), -math.inf
        )
    expected = scores.softmax(-1) @ leaves[2]
    gradients = torch.autograd.grad(expected, leaves, dout.double())
    for mine, true in zip(results, (expected, *gradients), strict=True):
        assert (mine.double() - true).norm() < ERRORS[dtype] * true.norm()
