"""The rows of `aten_table`: each function emits the nn ops of some ATen ops, in the order of that table."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from xdsl.ir import SSAValue

from aicf_mlir.dialects import nn
from aicf_mlir.frontend.aten_updates import integers
from aicf_mlir.frontend.call import Call, Row, Value
from aicf_mlir.frontend.refused import Forbidden, Refused
from aicf_mlir.ir.tensor_op import shape_of

REDUCTIONS = {0: "none", 1: "mean", 2: "sum"}
"""torch's numbering of loss reductions."""


def binary(op: type[nn.PointwiseOp], swap: bool = False) -> Row:
    """`self op alpha * other`, or with `swap` `other op alpha * self`; each a tensor or a number."""

    def row(call: Call) -> SSAValue:
        if not call.expected.dtype.is_floating_point:
            return integers(call, op, swap)
        alpha = call.arguments.get("alpha", 1)
        exact = alpha == 1 and call.is_exact("self") and call.is_exact("other")
        dtype = call.dtype if exact else call.wide_dtype
        lhs, rhs = ("other", "self") if swap else ("self", "other")
        left, right = call.operand(lhs, dtype), call.operand(rhs, dtype)
        if alpha != 1:
            scale = call.emit.constant(call.number("alpha", call.dtype), dtype)
            right = call.emit.insert(nn.MulOp(right, scale))
        return call.emit.cast(call.emit.insert(op(left, right)), call.dtype)

    return row


def unary(op: type[nn.UnaryOp]) -> Row:
    """An op of one operand."""
    return lambda call: call.emit.insert(op(call.operand("self", call.dtype)))


def gelu(call: Call) -> SSAValue:
    """The erf form, or torch's tanh approximation."""
    return call.emit.insert(nn.GeluOp(call.operand("self", call.dtype), approximate=call["approximate"]))


def softmax(call: Call) -> SSAValue:
    """In the type of the result, along `dim`: it changes places with the last dimension, and back."""
    perm = list(range(len(call.shape)))
    if perm:
        perm[call["dim"]], perm[-1] = perm[-1], perm[call["dim"]]
    x = call.emit.transpose(call.operand("self", call.dtype), perm)
    return call.emit.transpose(call.emit.insert(nn.SoftmaxOp(x)), perm)


def power(call: Call) -> SSAValue:
    """Powers that are products: x², x³, x⁴."""
    exponent = call["exponent"]
    if exponent not in (1, 2, 3, 4):
        raise Refused(f"an exponent {exponent}; supported are 1, 2, 3 and 4")
    x = call.operand("self", call.dtype if exponent <= 2 else call.wide_dtype)
    result = x if exponent == 1 else call.emit.insert(nn.MulOp(x, x))
    if exponent > 2:
        result = call.emit.insert(nn.MulOp(result, x if exponent == 3 else result))
    return call.emit.cast(result, call.dtype)


def square(call: Call) -> SSAValue:
    """The square: x · x."""
    x = call.operand("self", call.dtype)
    return call.emit.insert(nn.MulOp(x, x))


def reciprocal(call: Call) -> SSAValue:
    """1 / x."""
    one = call.emit.constant(1, call.dtype)
    return call.emit.insert(nn.DivOp(one, call.operand("self", call.dtype)))


def linear(call: Call) -> SSAValue:
    """The product x[B.., K] · w[N, K]ᵀ + bias[N]."""
    x, w = call.value("input"), call.value("weight")
    bias = None if call["bias"] is None else call.value("bias")
    if len(shape_of(w)) != 2 or (bias is not None and shape_of(bias) != shape_of(w)[:1]):
        raise Refused("a weight that is not [N, K], or a bias that is not [N]")
    return call.emit.insert(nn.LinearOp(x, w, bias))


def matmul(call: Call) -> SSAValue:
    """A product of vectors, matrices or batches of matrices by torch.matmul's rules."""
    a, b = call.value("self"), call.value("mat2" if "mat2" in call.arguments else "other")
    return call.emit.reshape(product(call, a, b), call.shape)


def product(call: Call, a: SSAValue, b: SSAValue) -> SSAValue:
    """The product; vectors count as a row on the left, a column on the right, and those dimensions stay."""
    a = call.emit.reshape(a, (1, *shape_of(a))) if len(shape_of(a)) == 1 else a
    b = call.emit.reshape(b, (*shape_of(b), 1)) if len(shape_of(b)) == 1 else b
    *batch_a, m, k = shape_of(a)
    *batch_b, _, n = shape_of(b)
    if not batch_b:
        rows = call.emit.reshape(a, (math.prod(batch_a) * m, k))
        return call.emit.reshape(call.emit.insert(nn.MatmulOp(rows, b)), (*batch_a, m, n))
    batch = nn.broadcast_shapes(batch_a, batch_b)
    a = call.emit.broadcast(a, (*batch, m, k))
    b = call.emit.broadcast(b, (*batch, k, n))
    return call.emit.insert(nn.MatmulOp(a, b))


def matmul_plus(left: str, right: str) -> Row:
    """`beta * self + alpha * (left · right)`."""

    def row(call: Call) -> SSAValue:
        result = call.emit.reshape(product(call, call.value(left), call.value(right)), call.shape)
        addend = call.operand("self", call.dtype)
        if call["alpha"] != 1:
            scale = call.emit.constant(call.number("alpha", call.wide_dtype), call.dtype)
            result = call.emit.insert(nn.MulOp(result, scale))
        if call["beta"] == 0:
            raise Forbidden("beta=0, which keeps a tensor and ignores it; leave it out: left @ right")
        if call["beta"] != 1:
            scale = call.emit.constant(call.number("beta", call.wide_dtype), call.dtype)
            addend = call.emit.insert(nn.MulOp(addend, scale))
        return call.emit.insert(nn.AddOp(result, addend))

    return row


def reshaped(call: Call) -> SSAValue:
    """Any op that keeps the elements in row-major order: the result's shape says it all."""
    return call.emit.reshape(call.value("self"), call.shape)


def transpose(call: Call) -> SSAValue:
    """Two dimensions exchanged."""
    x = call.value("self")
    perm = list(range(len(shape_of(x))))
    if perm:
        i, j = call.arguments.get("dim0", -2), call.arguments.get("dim1", -1)
        perm[i], perm[j] = perm[j], perm[i]
    return call.emit.transpose(x, perm)


def matrix_transpose(call: Call) -> SSAValue:
    """`t()`: a matrix transposed; anything smaller as it is."""
    x = call.value("self")
    return call.emit.transpose(x, (1, 0)) if len(shape_of(x)) == 2 else x


def permute(call: Call) -> SSAValue:
    """Dimension i of the result is dimension dims[i]."""
    x = call.value("self")
    return call.emit.transpose(x, [dim % len(shape_of(x)) for dim in call["dims"]])


def broadcast(call: Call) -> SSAValue:
    """Repeated to the result's shape."""
    return call.emit.broadcast(call.value("self"), call.shape)


def broadcast_tensors(call: Call) -> Value:
    """Each repeated to their common shape."""
    shapes = [tuple(tensor.shape) for tensor in call.expected]
    pairs = zip(call.values("tensors"), shapes, strict=True)
    return tuple(call.emit.broadcast(value, shape) for value, shape in pairs)


def reduction(op: type[nn.ReductionOp]) -> Row:
    """Over `dim`, or over everything where there is none."""

    def row(call: Call) -> SSAValue:
        x = call.operand("self", call.dtype)
        rank = len(shape_of(x))
        dims: Sequence[int] = call.arguments.get("dim") or range(rank)
        keepdim = bool(call.arguments.get("keepdim", False))
        return call.emit.insert(op(x, sorted({dim % rank for dim in dims}) if rank else [], keepdim))

    return row


def var_mean(*results: str) -> Row:
    """Variance, mean or both over `dim`, or over everything where there is none."""

    def row(call: Call) -> Value:
        correction = call.arguments.get("correction", int(call.arguments.get("unbiased", True)))
        x = call.operand("self", call.result_dtype)
        rank = len(shape_of(x))
        dims = sorted({dim % rank for dim in call.arguments.get("dim") or range(rank)}) if rank else []
        keepdim = bool(call.arguments.get("keepdim", False))
        made = nn.VarMeanOp(x, dims, 1 if correction is None else correction, keepdim)
        call.emit.insert_all(made)
        made.variance.name_hint, made.mean.name_hint = "variance", "mean"
        found = {"variance": made.variance, "mean": made.mean}
        return found[results[0]] if len(results) == 1 else tuple(found[name] for name in results)

    return row


def cast(call: Call) -> SSAValue:
    """Another float type, on the same device."""
    if (device := call.arguments.get("device")) is not None and torch.device(device) != call.device:
        raise Refused(f"a move from {call.device} to {device}; a step runs on one device")
    return call.value("self") if call["dtype"] is None else call.operand("self", call.dtype)


def identity(call: Call) -> Value:
    """The tensor itself: values are immutable."""
    return call.arguments["self" if "self" in call.arguments else "input"]


def detach(call: Call) -> Value:
    """The tensor itself where no gradient would flow anyway."""
    return call.emit.insert(nn.DetachOp(call.value("self"))) if call.carries_gradient else identity(call)


def dropout(call: Call) -> Value:
    """Off in evaluation mode and for p = 0."""
    if call["p"] > 0 and call["train"] is not False:
        raise Forbidden(f"random dropout (p={call['p']} in training mode); call model.eval() or use p=0")
    return identity(call)


def native_dropout(call: Call) -> Value:
    """Dropout whose second result, the mask, is of no use here."""
    return dropout(call), None


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


def full_like(value: float | None = None, key: str = "fill_value") -> Row:
    """A tensor known while tracing: `value`, or the argument `key`, everywhere."""

    def row(call: Call) -> Value:
        number = call.number(key, call.expected.dtype) if value is None else value
        return torch.tensor(number, dtype=call.expected.dtype).expand(tuple(call.expected.shape))

    return row


def nothing(call: Call) -> Value:
    """A check that tracing has already made."""
    return None
