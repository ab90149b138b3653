"""Scaled dot-product attention: one op, or products, masks and a softmax if that op does not apply."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from xdsl.ir import SSAValue

from aicf_mlir.dialects import nn
from aicf_mlir.dialects.nn.pointwise import CLASSES
from aicf_mlir.frontend.aten_random import drop
from aicf_mlir.frontend.call import Call
from aicf_mlir.frontend.known_masks import simplified
from aicf_mlir.frontend.types import ELEMENT_TYPES
from aicf_mlir.ir.expect import is_float
from aicf_mlir.ir.tensor_op import element_type, shape_of

LARGEST = 256
"""The most elements of a query or a value that the kernels of every device take."""


def attention(call: Call) -> SSAValue:
    """softmax(query · keyᵀ * scale + mask) · value, with scores in float32 for half precision.

    The operands are queries [.., H, L, E], keys [.., H or G, S, E], values [.., H or G, S, V]; with `enable_gqa` H / G
    heads of queries share one of keys. A row that is masked everywhere gives 0.
    """
    return whole(call) if serves(call) else composed(call)


def serves(call: Call) -> bool:
    """True if nn.attention is used: kernels support the size, and heads are shared as they share them.

    The device does not matter here: a CPU's preferred form is chosen after the trace (`passes/keep_scores.py`).
    """
    query, key, value = (shape_of(call.value(name)) for name in ("query", "key", "value"))
    grouped = query[:-3] == key[:-3] and key[:-2] == value[:-2]
    return (
        call["dropout_p"] <= nn.AttentionDropoutOp.MOST
        and query[-1] > 0
        and max(query[-1], value[-1]) <= LARGEST
        and (grouped or not call["enable_gqa"])
    )


def scale_of(call: Call) -> float:
    """Return the factor of the scores."""
    size = shape_of(call.value("query"))[-1]
    return 1 / math.sqrt(size) if call["scale"] is None else float(call["scale"])


def whole(call: Call) -> SSAValue:
    """Emit nn.attention: leading dimensions before the heads become one."""
    emit = call.emit
    operands = [call.of(call[name], call.dtype) for name in ("query", "key", "value")]
    if not call["enable_gqa"]:
        batch = nn.broadcast_shapes(*(shape_of(each)[:-2] for each in operands))
        operands = [emit.broadcast(each, (*batch, *shape_of(each)[-2:])) for each in operands]
    query, key, value = (emit.reshape(each, in_heads(shape_of(each))) for each in operands)
    mask, causal = None, call["is_causal"]
    if call["attn_mask"] is not None:
        queries, keys = shape_of(query)[2], shape_of(key)[2]
        left, causal = simplified(call["attn_mask"], emit, call.materialize, queries, keys)
        if left is not None:
            mask = mask_of(call, left, (*shape_of(operands[0])[:-1], keys))
    scale, p = scale_of(call), float(call["dropout_p"])
    if p == 0:
        op = nn.AttentionOp(query, key, value, mask, scale=scale, causal=causal)
    else:
        drawn, site = emit.draw()
        op = nn.AttentionDropoutOp(query, key, value, mask, drawn, scale=scale, causal=causal, p=p, site=site)
    out, largest, total = emit.insert_all(op)
    out.name_hint = emit.fresh("attention")
    largest.name_hint, total.name_hint = f"{out.name_hint}.largest", f"{out.name_hint}.total"
    return emit.reshape(out, call.shape)


def in_heads(shape: Sequence[int]) -> tuple[int, ...]:
    """Return [.., H, rows, columns] as [batch, H, rows, columns]."""
    *batch, rows, columns = shape
    return (math.prod(batch[:-1]), batch[-1] if batch else 1, rows, columns)


def mask_of(call: Call, mask: SSAValue, scores: Sequence[int]) -> SSAValue:
    """The mask with four dimensions, each that of `scores` [.., H, L, S] in heads, or 1 where it repeats."""
    emit = call.emit
    if not is_float(mask):
        mask = emit.cast(mask, torch.bool)
    elif element_type(mask) != ELEMENT_TYPES[call.dtype]:
        mask = emit.cast(mask, call.wide_dtype)
    shape = (1,) * (len(scores) - len(shape_of(mask))) + shape_of(mask)
    leading, wanted = shape[:-3], tuple(scores[:-3])
    if leading != wanted and any(size != 1 for size in leading):
        shape = (*wanted, *shape[-3:])
        mask = emit.broadcast(mask, shape)
    return emit.reshape(mask, in_heads(shape))


def composed(call: Call) -> SSAValue:
    """Emit products, masks and a softmax; the gradient follows from theirs."""
    wide = call.wide_dtype
    query, key, value = (call.of(call[name], wide) for name in ("query", "key", "value"))
    *heads, length, size = shape_of(query)
    groups = shape_of(key)[:-2]
    if call["enable_gqa"] and tuple(heads) != groups:
        query = call.emit.reshape(query, (*groups, heads[-1] // groups[-1] * length, size))
    else:
        batch = nn.broadcast_shapes(heads, groups, shape_of(value)[:-2])
        query, key, value = (
            call.emit.broadcast(each, (*batch, *shape_of(each)[-2:])) for each in (query, key, value)
        )
        heads = list(batch)
    sources = shape_of(key)[-2]
    query = call.emit.insert(CLASSES["mul"](query, call.emit.constant(scale_of(call), wide)))
    scores = call.emit.insert(nn.MatmulOp(query, key, trans_b=True))
    shape = (*heads, length, sources)
    weights = softmax(call, call.emit.reshape(scores, shape), wide)
    weights = drop(call, weights, float(call["dropout_p"]))
    weights = call.emit.reshape(weights, shape_of(scores))
    result = call.emit.insert(nn.MatmulOp(weights, value))
    return call.emit.cast(call.emit.reshape(result, call.shape), call.expected.dtype)


def softmax(call: Call, scores: SSAValue, dtype: torch.dtype) -> SSAValue:
    """Return the softmax of the scores under the mask; rows that are masked everywhere are 0."""
    if call["is_causal"]:
        scores = call.emit.insert(nn.BandOp(scores, None, 0, -math.inf))
    if call["attn_mask"] is None:
        return call.emit.insert(nn.SoftmaxOp(scores))
    mask, shape = call.value("attn_mask"), shape_of(scores)
    if not is_float(mask):
        shown, hidden = call.emit.constant(0.0, dtype), call.emit.constant(-math.inf, dtype)
        mask = call.emit.insert(CLASSES["where"](call.emit.cast(mask, torch.bool), shown, hidden))
    scores = call.emit.insert(CLASSES["add"](scores, call.emit.cast(mask, dtype)))
    return call.emit.insert(nn.SafeSoftmaxOp(call.emit.broadcast(scores, shape)))


def safe_softmax_row(call: Call) -> SSAValue:
    """Emit the softmax that torch's own decomposition of attention calls: along `dim`, which is swapped with the last
    dimension.
    """
    perm = list(range(len(call.shape)))
    if perm:
        perm[call["dim"]], perm[-1] = perm[-1], perm[call["dim"]]
    x = call.emit.transpose(call.of(call["self"], call.dtype), perm)
    return call.emit.transpose(call.emit.insert(nn.SafeSoftmaxOp(x)), perm)
