"""Scaled dot-product attention, written by products, masks and a softmax: so its gradient follows from theirs."""

from __future__ import annotations

import math

import torch
from xdsl.ir import SSAValue

from aicf_mlir.dialects import nn
from aicf_mlir.dialects.nn.pointwise import CLASSES
from aicf_mlir.dialects.nn.reductions import REDUCTIONS
from aicf_mlir.frontend.call import Call
from aicf_mlir.frontend.refused import Forbidden
from aicf_mlir.ir.expect import is_float
from aicf_mlir.ir.tensor_op import shape_of


def attention(call: Call) -> SSAValue:
    """softmax(query · keyᵀ * scale + mask) · value, with scores in float32 for half precision.

    Queries [.., H, L, E], keys [.., H or G, S, E], values [.., H or G, S, V]; with `enable_gqa` H / G heads of queries
    share one of keys. A row that is masked everywhere gives 0.
    """
    if call["dropout_p"] > 0:
        raise Forbidden(f"attention with dropout (dropout_p={call['dropout_p']}); use 0.0")
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
    scale = 1 / math.sqrt(size) if call["scale"] is None else float(call["scale"])
    query = call.emit.insert(CLASSES["mul"](query, call.emit.constant(scale, wide)))
    scores = call.emit.insert(nn.MatmulOp(query, key, trans_b=True))
    shape = (*heads, length, sources)
    weights = softmax(call, call.emit.reshape(scores, shape), wide)
    weights = call.emit.reshape(weights, shape_of(scores))
    result = call.emit.insert(nn.MatmulOp(weights, value))
    return call.emit.cast(call.emit.reshape(result, call.shape), call.expected.dtype)


def softmax(call: Call, scores: SSAValue, dtype: torch.dtype) -> SSAValue:
    """Of the scores under the mask; rows that are masked everywhere are 0."""
    if call["is_causal"]:
        scores = call.emit.insert(nn.BandOp(scores, None, 0, -math.inf))
    if call["attn_mask"] is None:
        return call.emit.insert(nn.SoftmaxOp(scores))
    mask, shape = call.value("attn_mask"), shape_of(scores)
    if is_float(mask):
        scores = call.emit.insert(CLASSES["add"](scores, call.emit.cast(mask, dtype)))
    else:
        mask = call.emit.cast(mask, torch.bool)
        masked = call.emit.constant(-math.inf, dtype)
        scores = call.emit.insert(CLASSES["where"](mask, scores, masked))
    return safe_softmax(call, call.emit.broadcast(scores, shape), dtype)


def safe_softmax_row(call: Call) -> SSAValue:
    """What torch's own decomposition of attention calls: along `dim`, which changes places with the last dimension."""
    perm = list(range(len(call.shape)))
    if perm:
        perm[call["dim"]], perm[-1] = perm[-1], perm[call["dim"]]
    dtype = call.dtype
    x = call.emit.transpose(call.of(call["self"], dtype), perm)
    return call.emit.transpose(safe_softmax(call, x, dtype), perm)


def safe_softmax(call: Call, scores: SSAValue, dtype: torch.dtype) -> SSAValue:
    """Over the last dimension; 0 where all scores of a row are minus infinity, and so is their gradient."""
    least, zero = call.emit.constant(-math.inf, dtype), call.emit.constant(0.0, dtype)
    largest = call.emit.insert(REDUCTIONS["amax"](scores, list(range(len(shape_of(scores))))[-1:], True))
    nothing = call.emit.insert(CLASSES["eq"](largest, least))
    weights = call.emit.insert(nn.SoftmaxOp(call.emit.insert(CLASSES["where"](nothing, zero, scores))))
    return call.emit.insert(CLASSES["where"](nothing, zero, weights))
