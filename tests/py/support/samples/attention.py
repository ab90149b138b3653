"""Samples of attention and its gradient: groups of heads, masks of every kind, rows that see nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from philox import kept_in_tiles
from xdsl.ir import Operation

from aicf_mlir.dialects import nn
from aicf_mlir.interpreters.numerics import Array
from samples.sample import Fill, Sample, value_by_index

SCALE = 0.7
RANDOM = "2xi64"
ROUNDED_WEIGHTS = 1.0
"""Units in the last place of f16 and bf16: tensor cores take weights in the type of the values."""


def blind_row(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Whether a query sees a key: the second query sees none, the others the first key at least."""
    seen = rng.integers(0, 2, shape)
    seen[..., 0] = 1
    seen[..., 1:2, :] = 0
    return seen


def infinities(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """To be added: -infinity for what `blind_row` hides."""
    return np.where(blind_row(rng, shape) == 1, rng.standard_normal(shape), -np.inf)


HEADS = ("1x2x3x4xf32", "1x2x5x4xf32", "1x2x5x3xf32")
MASKED = ("2x1x3x2xf32", "2x1x4x2xf32", "2x1x4x2xf32")

CASES: Mapping[str, tuple[tuple[str, ...], bool, Mapping[int, Fill], bool]] = {
    "plain": (HEADS, False, {}, True),
    "causal": (("2x1x4x3xf32", "2x1x4x3xf32", "2x1x4x2xf32"), True, {}, True),
    "causal, fewer keys": (("1x1x5x2xf32", "1x1x3x2xf32", "1x1x3x2xf32"), True, {}, True),
    "grouped": (("1x4x3x2xf32", "1x2x3x2xf32", "1x2x3x2xf32"), True, {}, True),
    "one key": (("2x2x3x2xf32", "2x1x1x2xf32", "2x1x1x2xf32"), False, {}, True),
    "of booleans": ((*MASKED, "1x1x3x4xi1"), False, {3: blind_row}, True),
    "key padding": ((*MASKED, "2x1x1x4xi1"), True, {}, True),
    "added": ((*HEADS, "1x2x1x5xf32"), False, {}, True),
    "added, wide": ((*HEADS, "1x1x3x5xcompute"), True, {}, True),
    "infinities": ((*MASKED, "2x1x3x4xf32"), False, {3: infinities}, False),
}
"""By name: operands, causal, how masks are filled, whether central differences are defined."""


def scores_of(query: Any, key: Any, mask: Any, causal: bool) -> Any:
    """The scores, in torch."""
    key = key.repeat_interleave(query.shape[1] // key.shape[1], 1)
    scores = SCALE * query @ key.mT
    if mask is not None:
        scores = scores + (torch.where(mask, 0.0, -torch.inf) if mask.dtype == torch.bool else mask)
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), -torch.inf)
    return scores


def attended(
    query: Any, key: Any, value: Any, mask: Any, causal: bool, left: Any = 1.0
) -> tuple[Any, Any, Any]:
    """What torch's safe softmax gives, the largest score of each row and the sum of exp(score - largest)."""
    scores = scores_of(query, key, mask, causal)
    value = value.repeat_interleave(query.shape[1] // value.shape[1], 1)
    largest = scores.amax(-1)
    nothing = torch.isneginf(largest)
    largest = torch.where(nothing, 0.0, largest)
    total = torch.where(nothing, 1.0, (scores - largest[..., None]).exp().sum(-1))
    out = (torch.ops.aten._safe_softmax(scores, -1) * left) @ value
    return out, torch.where(total.isnan(), torch.nan, largest), total


def attention() -> list[Sample]:
    """Each case forward and backward; what the gradient has of the result is that of the same operands."""
    samples: list[Sample] = []
    for name, (operands, causal, fills, smooth) in CASES.items():

        def build(query: Any, key: Any, value: Any, mask: Any = None, causal: bool = causal) -> Operation:
            return nn.AttentionOp(query, key, value, mask, scale=SCALE, causal=causal)

        def forward(query: Any, key: Any, value: Any, mask: Any = None, causal: bool = causal) -> Any:
            return attended(query, key, value, mask, causal)

        def gradient(*given: Any, causal: bool = causal) -> Operation:
            return nn.AttentionGradOp(*given, scale=SCALE, causal=causal)

        def follow(arrays: list[Array], causal: bool = causal) -> Mapping[int, Array]:
            given = [torch.from_numpy(arrays[i].astype(np.float64)) for i in (1, 2, 3)]
            masks = [
                torch.from_numpy(each if each.dtype == bool else each.astype(float)) for each in arrays[7:]
            ]
            kept = attended(given[0], given[1], given[2], masks[0] if masks else None, causal)
            return {index: each.numpy() for index, each in enumerate(kept, 4)}

        def backward(dout: Any, *given: Any, causal: bool = causal) -> Any:
            heads, mask = (
                [each.detach().requires_grad_() for each in given[:3]],
                given[6] if given[6:] else None,
            )
            out = attended(heads[0], heads[1], heads[2], mask, causal)[0]
            return torch.autograd.grad(out, heads, dout)

        query, _, value = operands[:3]
        out = "x".join([*query.split("x")[:3], *value.split("x")[3:]])
        row = "x".join([*query.split("x")[:3], "compute"])
        backward_fills = {index + 4: fill for index, fill in fills.items()}
        samples.append(
            Sample(name, operands, build, forward, fills, smooth=smooth, inner_units=ROUNDED_WEIGHTS)
        )
        types = (out, *operands[:3], out, row, row, *operands[3:])
        samples.append(
            Sample(
                name,
                types,
                gradient,
                backward,
                backward_fills,
                follow=follow,
                smooth=smooth,
                inner_units=ROUNDED_WEIGHTS,
            )
        )
        if operands[3:] and not operands[3].endswith("i1"):

            def of_mask(*given: Any, causal: bool = causal) -> Operation:
                return nn.AttentionMaskGradOp(*given, scale=SCALE, causal=causal)

            def mask_backward(dout: Any, *given: Any, causal: bool = causal) -> Any:
                query, key, value = given[:3]
                return mask_gradient(dout, query, key, value, given[6], causal)

            made = Sample(name, types, of_mask, mask_backward, backward_fills, follow=follow, smooth=smooth)
            samples.append(replace(made, inner_units=ROUNDED_WEIGHTS, rounds_as_operands=True))
    return samples


def mask_gradient(
    dout: Any, query: Any, key: Any, value: Any, mask: Any, causal: bool, left: Any = 1.0
) -> Any:
    """That of a mask for all queries and keys, with the images and heads that the mask has."""
    whole = mask.detach().expand(*mask.shape[:2], query.shape[2], key.shape[2]).clone().requires_grad_()
    out = attended(query.detach(), key.detach(), value.detach(), whole, causal, left)[0]
    return torch.autograd.grad(out, whole, dout)


DROPPED, SEED, STEP, SITE = 0.3, -7, 3, 2


def left_of(query: Any, key: Any) -> Any:
    """What dropout multiplies the weights by."""
    shape = (*query.shape[:3], key.shape[2])
    return torch.from_numpy(kept_in_tiles(SEED, STEP, SITE, shape, DROPPED)) / (1 - DROPPED)


def with_dropout() -> list[Sample]:
    """The same with weights that are dropped; fewer cases."""
    samples: list[Sample] = []
    cases: Mapping[str, tuple[tuple[str, ...], bool]] = {
        "plain": (("1x2x20x4xf32", "1x2x35x4xf32", "1x2x35x3xf32"), False),
        "grouped": (("2x4x17x2xf32", "2x2x17x2xf32", "2x2x17x2xf32"), True),
        "of booleans": ((*MASKED, "1x1x3x4xi1"), False),
        "added": ((*HEADS, "1x2x1x5xf32"), True),
    }
    for name, (operands, causal) in cases.items():
        scale = {"scale": SCALE, "causal": causal, "p": DROPPED, "site": SITE}
        given = len(operands)

        def build(*values: Any, scale: dict[str, Any] = scale) -> Operation:
            *heads, random = values
            mask = heads[3] if heads[3:] else None
            return nn.AttentionDropoutOp(heads[0], heads[1], heads[2], mask, random, **scale)

        def forward(*values: Any, causal: bool = causal, given: int = given) -> Any:
            query, key, value = values[:3]
            mask = values[3] if given > 3 else None
            return attended(query, key, value, mask, causal, left_of(query, key))

        def gradient(*values: Any, scale: dict[str, Any] = scale) -> Operation:
            *first, random = values
            dout, query, key, value, out, largest, total = first[:7]
            mask = first[7] if first[7:] else None
            return nn.AttentionDropoutGradOp(
                dout, query, key, value, out, largest, total, mask, random, **scale
            )

        def follow(
            arrays: list[Array], causal: bool = causal, masked: bool = given > 3
        ) -> Mapping[int, Array]:
            query, key, value = (torch.from_numpy(arrays[i].astype(np.float64)) for i in (1, 2, 3))
            mask = (
                torch.from_numpy(arrays[7] if arrays[7].dtype == bool else arrays[7].astype(float))
                if masked
                else None
            )
            kept = attended(query, key, value, mask, causal, left_of(query, key))
            return {index: each.numpy() for index, each in enumerate(kept, 4)}

        def backward(dout: Any, *values: Any, causal: bool = causal, masked: bool = given > 3) -> Any:
            heads = [each.detach().requires_grad_() for each in values[:3]]
            left = left_of(heads[0], heads[1])
            out = attended(heads[0], heads[1], heads[2], values[6] if masked else None, causal, left)[0]
            return torch.autograd.grad(out, heads, dout)

        query, _, value = operands[:3]
        out = "x".join([*query.split("x")[:3], *value.split("x")[3:]])
        row = "x".join([*query.split("x")[:3], "compute"])
        is_seen = operands[-1].endswith("i1")
        seen = {3: blind_row} if is_seen else {}
        fills = {**seen, given: value_by_index(SEED, STEP)}
        samples.append(
            Sample(
                name, (*operands, RANDOM), build, forward, fills, inner_units=ROUNDED_WEIGHTS / (1 - DROPPED)
            )
        )
        types = (out, *operands[:3], out, row, row, *operands[3:], RANDOM)
        fills = {index + 4: fill for index, fill in fills.items()}
        samples.append(
            Sample(
                name,
                types,
                gradient,
                backward,
                fills,
                follow=follow,
                inner_units=ROUNDED_WEIGHTS / (1 - DROPPED),
            )
        )
        if given > 3 and not is_seen:

            def of_mask(*values: Any, scale: dict[str, Any] = scale) -> Operation:
                dout, query, key, value, out, largest, total, mask, random = values
                return nn.AttentionDropoutMaskGradOp(
                    dout, query, key, value, out, largest, total, mask, random, **scale
                )

            def mask_backward(dout: Any, *values: Any, causal: bool = causal) -> Any:
                query, key, value = values[:3]
                return mask_gradient(dout, query, key, value, values[6], causal, left_of(query, key))

            made = Sample(name, types, of_mask, mask_backward, fills, follow=follow)
            units = ROUNDED_WEIGHTS / (1 - DROPPED)
            samples.append(replace(made, inner_units=units, rounds_as_operands=True))
    return samples
