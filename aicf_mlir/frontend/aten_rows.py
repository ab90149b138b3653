"""The rows of `aten_table`: each function emits the nn ops of some ATen ops, in the order of that table."""

from __future__ import annotations

import math

import torch
from xdsl.ir import SSAValue

from aicf_mlir.dialects import nn
from aicf_mlir.dialects.nn.pointwise import CLASSES
from aicf_mlir.frontend.call import AtenRule, Call, Value
from aicf_mlir.frontend.refused import Forbidden, Refused
from aicf_mlir.frontend.types import ELEMENT_TYPES
from aicf_mlir.ir.tensor_op import element_type, shape_of


def linear(call: Call) -> SSAValue:
    """The product x[B.., K] · w[N, K]ᵀ + bias[N]."""
    x, w = call.value("input"), call.value("weight")
    bias = None if call["bias"] is None else call.value("bias")
    if len(shape_of(w)) != 2 or (bias is not None and shape_of(bias) != shape_of(w)[:1]):
        raise Refused("a weight that is not [N, K], or a bias that is not [N]")
    return call.emit.insert(nn.LinearOp(x, w, bias))


def bilinear(call: Call) -> SSAValue:
    """x1[B.., I] · w[O, I, J] · x2[B.., J] + bias[O]: one product for all outputs, then the sum over J."""
    x, w, y = (call.operand(name, call.wide_dtype) for name in ("input1", "weight", "input2"))
    outputs, first, second = shape_of(w)
    batch = math.prod(call.shape[:-1])
    columns = call.emit.reshape(call.emit.transpose(w, (1, 0, 2)), (first, outputs * second))
    rows = call.emit.insert(nn.MatmulOp(call.emit.reshape(x, (batch, first)), columns))
    rows = call.emit.reshape(rows, (batch, outputs, second))
    weighed = call.emit.insert(nn.MulOp(rows, call.emit.reshape(y, (batch, 1, second))))
    result = call.emit.reshape(call.emit.insert(nn.SumOp(weighed, [-1])), call.shape)
    if call["bias"] is not None:
        result = call.emit.insert(nn.AddOp(result, call.operand("bias", call.wide_dtype)))
    return call.emit.cast(result, call.dtype)


def matmul(call: Call) -> SSAValue:
    """A product of vectors, matrices or batches of matrices by torch.matmul's rules."""
    a, b = call.value("self"), call.value("mat2" if "mat2" in call.arguments else "other")
    return call.emit.reshape(product(call, a, b), call.shape)


def product(call: Call, a: SSAValue, b: SSAValue) -> SSAValue:
    """Return the product; a vector is a row on the left or a column on the right, and that dimension stays."""
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


def matmul_plus(left: str, right: str) -> AtenRule:
    """`beta * self + alpha * (left · right)`."""

    def row(call: Call) -> SSAValue:
        if call["beta"] == 0:
            raise Forbidden("beta=0, which keeps a tensor and ignores it; leave it out: left @ right")
        plain = call["alpha"] == 1 and call["beta"] == 1
        wide = call.dtype if plain else call.wide_dtype  # rounded once, after the sum
        factors = [call.value(left), call.value(right)]
        if wide is not call.dtype and all(
            element_type(each) == ELEMENT_TYPES[call.dtype] for each in factors
        ):
            factors = [call.emit.cast(each, wide) for each in factors]
        terms = [call.emit.reshape(product(call, *factors), call.shape), call.operand("self", wide)]
        for i, name in enumerate(("alpha", "beta")):
            if call[name] != 1:
                scale = call.of(call.number(name, wide), wide)
                terms[i] = call.emit.insert(nn.MulOp(terms[i], scale))
        return call.emit.cast(call.emit.insert(nn.AddOp(*terms)), call.dtype)

    return row


def reshaped(call: Call) -> SSAValue:
    """Emit any op that keeps the elements in row-major order: the result's shape defines it."""
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
    """Emit `t()`: a matrix transposed; anything smaller unchanged."""
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


def cast(call: Call) -> SSAValue:
    """Another type, on the same device."""
    if (device := call.arguments.get("device")) is not None and torch.device(device) != call.device:
        raise Refused(f"a move from {call.device} to {device}; a step runs on one device")
    if call["dtype"] is None:
        return call.value("self")
    if call.expected.dtype is torch.uint8:
        return as_bytes(call)
    return call.operand("self", call.expected.dtype)


def as_bytes(call: Call) -> SSAValue:
    """The last eight bits of whole numbers, in int32 as all bytes of a step."""
    whole = call.operand("self", torch.int32)
    return call.emit.insert(CLASSES["bitwise_and"](whole, call.emit.constant(255, torch.int32)))


def identity(call: Call) -> Value:
    """The tensor itself: values are immutable."""
    return call.arguments["self" if "self" in call.arguments else "input"]


def detach(call: Call) -> Value:
    """Return the tensor itself if no gradient would flow anyway."""
    return call.emit.insert(nn.DetachOp(call.value("self"))) if call.carries_gradient else identity(call)


def full_like(value: float | None = None, key: str = "fill_value") -> AtenRule:
    """Return the rule for one number in each element: `value`, or the argument `key`, which an optimizer's step may compute."""

    def row(call: Call) -> Value:
        number = call.number(key, call.expected.dtype) if value is None else value
        if isinstance(number, SSAValue):
            return call.emit.broadcast(call.of(number, call.expected.dtype), tuple(call.expected.shape))
        return torch.tensor(number, dtype=call.expected.dtype, device="cpu").expand(
            tuple(call.expected.shape)
        )

    return row


def asserted(call: Call) -> Value:
    """Emit a condition that must hold, else the step trains nothing."""
    holds = call.of(call["self"], torch.bool)
    call.emit.check_value(holds, "condition", str(call.arguments.get("assert_msg", "")))
    return None


def nothing(call: Call) -> Value:
    """A check that tracing has already made."""
    return None
