"""Rows of losses: each is computed per element or per row, then averaged or summed if torch does so."""

from __future__ import annotations

import math

import torch
from xdsl.ir import SSAValue

from aicf_mlir.dialects import nn
from aicf_mlir.dialects.nn.pointwise import CLASSES
from aicf_mlir.dialects.nn.reductions import REDUCTIONS as REDUCED
from aicf_mlir.frontend.aten_indexing import gathered
from aicf_mlir.frontend.call import AtenRule, Call, Value
from aicf_mlir.frontend.refused import Refused
from aicf_mlir.ir.tensor_op import shape_of

REDUCTIONS = {0: "none", 1: "mean", 2: "sum"}
"""torch's numbering of loss reductions."""


def mse_loss(call: Call) -> SSAValue:
    """Mean or sum of squared differences, or the squares themselves."""
    mode = REDUCTIONS[call["reduction"]]
    if mode == "none":
        y, t = call.operand("self", call.wide_dtype), call.operand("target", call.wide_dtype)
        difference = call.emit.insert(nn.SubOp(y, t))
        return call.emit.cast(call.emit.insert(nn.MulOp(difference, difference)), call.dtype)
    y, t = call.operand("self", call.dtype), call.operand("target", call.dtype)
    shape = nn.broadcast_shapes(shape_of(y), shape_of(t))
    y, t = call.emit.broadcast(y, shape), call.emit.broadcast(t, shape)
    return call.emit.insert(nn.MseLossOp(y, t, mode))


def cross_entropy(call: Call) -> SSAValue:
    """Logits [N, C, d..] or [C] against class indices [N, d..] or []; mean or sum."""
    logits, target = call.value("self"), call.value("target")
    if call["weight"] is not None:
        raise Refused("class weights")
    mode = REDUCTIONS[call["reduction"]]
    if mode == "none":
        raise Refused('reduction="none"; use "mean" or "sum"')
    shape = shape_of(logits)
    if len(shape_of(target)) != len(shape) - 1:
        raise Refused("probabilities as target; give class indices (int64), for example through example=")
    if len(shape) > 2:
        logits = call.emit.transpose(logits, (0, *range(2, len(shape)), 1))
    classes = shape[min(1, len(shape) - 1)]
    rows = math.prod(shape) // classes
    logits = call.emit.reshape(logits, (rows, classes))
    target = call.emit.reshape(target, (rows,))
    ignored, smoothing = call["ignore_index"], call["label_smoothing"]
    loss = call.emit.insert(nn.CrossEntropyOp(logits, target, mode, ignored, smoothing))
    call.emit.check_index(target, classes, ignored)
    return loss


def nll_loss(call: Call) -> Value:
    """Minus the element of each target, times the weight of its class; and the sum of these weights.

    A target uses its own weight only; in torch's decomposition the weights of all classes reach the gradient, times 0.
    """
    dtype = call.result_dtype
    wide = call.wide(dtype)
    x, target = call.value("self"), call.value("target")
    dim, shape = min(1, len(shape_of(x)) - 1), shape_of(target)
    none, places = call.of(0.0, wide), [*shape_of(x)]
    places[dim] = 1
    counts = _apply(call, "ne", target, call.of(call["ignore_index"], torch.int64))
    inside = _apply(call, "where", counts, target, call.of(0, torch.int64))
    found = gathered(call, x, call.emit.reshape(inside, places), dim)
    found = call.emit.cast(call.emit.reshape(found, shape), wide)
    weight = call.of(1.0, wide)
    if call["weight"] is not None:
        flat = call.emit.reshape(inside, (math.prod(shape),))
        weight = gathered(call, call.operand("weight", wide), flat, 0)
        weight = call.emit.reshape(weight, shape)
    weight = call.emit.broadcast(_apply(call, "where", counts, weight, none), shape)
    loss = _apply(call, "where", counts, _apply(call, "neg", _apply(call, "mul", found, weight)), none)
    weights = call.emit.insert(nn.SumOp(weight))
    if call["reduction"]:
        loss = call.emit.insert(nn.SumOp(loss))
    if REDUCTIONS[call["reduction"]] == "mean":
        loss = _apply(call, "div", loss, weights)
    return call.emit.cast(loss, dtype), call.emit.cast(weights, dtype)


def binary_cross_entropy(call: Call) -> SSAValue:
    """The loss weighted element by element, then averaged or summed."""
    x, target = (call.of(call[each], call.expected.dtype) for each in ("self", "target"))
    for each in (x, target):
        call.emit.check_value(each, "probability", "binary_cross_entropy")
    loss = call.emit.insert(CLASSES["binary_cross_entropy"](x, target))
    if call["weight"] is not None:
        weight = call.of(call["weight"], call.expected.dtype)
        loss = call.emit.insert(CLASSES["mul"](loss, weight))
    return call.reduced(loss, call["reduction"])


def of_difference(name: str, bound: str) -> AtenRule:
    """Return the rule for a function of self - target that changes its form at a bound; without one, the absolute value."""

    def row(call: Call) -> SSAValue:
        dtype = call.dtype
        difference = call.emit.insert(nn.SubOp(call.operand("self", dtype), call.operand("target", dtype)))
        limit = float(call[bound])
        op = CLASSES[name](difference, **{bound: limit}) if limit else CLASSES["abs"](difference)
        return call.reduced(call.emit.insert(op), call["reduction"])

    return row


def multi_margin(call: Call) -> SSAValue:
    """The sum of max(0, margin - x[target] + x[j])^p over all classes j but the target, over their number.

    Scores [N, C], [C] or [], targets [N] or []. A class exactly at the margin has no gradient, although torch's own
    decomposition gives it one.
    """
    scores, classes = _rows(call)
    target = call.emit.reshape(call.value("target"), (shape_of(scores)[0], 1))
    own = call.emit.broadcast(gathered(call, scores, target, 1), shape_of(scores))
    z = _shortfall(call, scores, own, call["margin"])
    z = short = _positive(call, z, _apply(call, "ne", target, _numbers(call, classes)))
    z = _apply(call, "mul", z, z) if call["p"] == 2 else z
    if call["weight"] is not None:
        weight = call.emit.reshape(call.operand("weight", call.wide_dtype), (1, classes))
        weights = call.emit.broadcast(weight, shape_of(scores))
        none = call.of(0.0, call.wide_dtype)
        counts = _apply(call, "gt", short, none)
        weights = call.emit.broadcast(gathered(call, weights, target, 1), shape_of(scores))
        z = _apply(call, "mul", z, _apply(call, "where", counts, weights, none))
    return _over_classes(call, call.emit.insert(nn.SumOp(z, [1])), classes)


def multilabel_margin(call: Call) -> SSAValue:
    """Return the sum of max(0, 1 - x[i] + x[j]) over all targets i and all other classes j, divided by the number of
    classes.

    Scores and targets are [N, C], [C] or []; the targets of a row end at the first that is -1. torch's own
    decomposition continues after that, as if class 0 were meant.
    """
    scores, classes = _rows(call)
    rows = shape_of(scores)[0]
    given = call.emit.reshape(call.value("target"), (rows, classes))
    call.emit.check_index(given, classes, -1)
    places = _numbers(call, classes)
    many = call.of(classes, torch.int64)
    ends = _apply(call, "where", _apply(call, "eq", given, call.of(-1, torch.int64)), places, many)
    is_listed = _apply(call, "lt", places, call.emit.insert(REDUCED["amin"](ends, [1], True)))
    listed = _apply(call, "where", is_listed, given, call.of(0, torch.int64))
    columns = call.emit.reshape(is_listed, (rows, classes, 1))
    hit = _apply(call, "eq", call.emit.reshape(listed, (rows, classes, 1)), places)
    is_target = call.emit.insert(REDUCED["any"](_both(call, hit, columns), [1], True))
    own = call.emit.reshape(call.emit.insert(nn.GatherOp(scores, listed, 1)), (rows, classes, 1))
    z = _shortfall(call, call.emit.reshape(scores, (rows, 1, classes)), own, 1.0)
    z = _positive(call, z, _both(call, columns, _apply(call, "bitwise_not", is_target)))
    return _over_classes(call, call.emit.insert(nn.SumOp(z, [1, 2])), classes)


def _rows(call: Call) -> tuple[SSAValue, int]:
    """Return the scores as a matrix, in the type of the sums, and the number of its columns; a 0-d tensor is one class."""
    scores = call.operand("self", call.wide_dtype)
    *rows, classes = shape_of(scores) or (1,)
    return call.emit.reshape(scores, (math.prod(rows), classes)), classes


def _numbers(call: Call, classes: int) -> SSAValue:
    return call.materialize(torch.arange(classes, device="cpu"))


def _apply(call: Call, name: str, *operands: SSAValue) -> SSAValue:
    return call.emit.insert(CLASSES[name](*operands))


def _both(call: Call, x: SSAValue, y: SSAValue) -> SSAValue:
    return _apply(call, "bitwise_and", x, y)


def _positive(call: Call, z: SSAValue, counts: SSAValue) -> SSAValue:
    """Return the value if it is above 0 and counts, else 0."""
    return _apply(call, "hinge", _apply(call, "where", counts, z, call.of(0.0, call.wide_dtype)))


def _shortfall(call: Call, scores: SSAValue, own: SSAValue, margin: float) -> SSAValue:
    """Return the amount by which a score is less than `margin` below that of a target."""
    return _apply(call, "add", _apply(call, "sub", call.of(margin, call.wide_dtype), own), scores)


def _over_classes(call: Call, sums: SSAValue, classes: int) -> SSAValue:
    """Return the loss of all rows from their sums."""
    each = _apply(call, "div", sums, call.of(classes, call.wide_dtype))
    loss = call.reduced(each, call["reduction"])
    return call.emit.cast(call.emit.reshape(loss, call.shape), call.dtype)
