"""Ops that draw random numbers, each at a site of its own; see dialects/nn/randomness.py."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from xdsl.ir import SSAValue

from aicf_mlir.dialects import nn
from aicf_mlir.dialects.nn.pointwise import CLASSES
from aicf_mlir.frontend.call import Call, Value
from aicf_mlir.frontend.refused import Forbidden
from aicf_mlir.frontend.types import ELEMENT_TYPES
from aicf_mlir.ir.dtypes import element_name
from aicf_mlir.ir.tensor_op import element_type, shape_of

SELU_MINIMUM = -1.7580993408473766
"""The minimum of torch.nn.SELU: its alpha times its scale, negative."""


def drop(call: Call, x: SSAValue, p: float) -> SSAValue:
    """Dropout of `x`; itself for p = 0."""
    if p == 0:
        return x
    random, site = call.emit.draw()
    return call.emit.insert(nn.DropoutOp(x, random, p, site))


def draw(call: Call, law: str, shape: Sequence[int], dtype: torch.dtype) -> SSAValue:
    """A tensor of random numbers."""
    if not dtype.is_floating_point:
        raise Forbidden(f"random numbers of {call.named(dtype)}")
    random, site = call.emit.draw()
    element = element_name(ELEMENT_TYPES[dtype])
    return call.emit.insert(nn.RandomOp(random, law, element, tuple(shape), site))


def calculated(call: Call, name: str, *operands: SSAValue | float) -> SSAValue:
    """A pointwise op of tensors and numbers, in the type of the first."""
    first = operands[0]
    assert isinstance(first, SSAValue)
    dtype = next(each for each, type_ in ELEMENT_TYPES.items() if type_ == element_type(first))
    return call.emit.insert(CLASSES[name](*(call.of(each, dtype) for each in operands)))


def dropout(call: Call) -> Value:
    """Emit dropout; it is off in evaluation mode."""
    name = "self" if "self" in call.arguments else "input"
    return call[name] if call["train"] is False else drop(call, call.value(name), float(call["p"]))


def native_dropout(call: Call) -> Value:
    """Emit dropout whose second result, the mask, is not needed here."""
    return dropout(call), None


def channels(x: SSAValue) -> tuple[int, ...]:
    """Return a shape with one element for each channel of [N, C, …], for the dimensions that exist."""
    shape = shape_of(x)
    return (*shape[:2], *[1] * (len(shape) - 2))


def feature_dropout(call: Call) -> Value:
    """Drop whole channels."""
    if call["train"] is False or call["p"] == 0:
        return call["input"]
    x = call.value("input")
    ones = call.emit.constant(1.0, call.dtype, channels(x))
    return calculated(call, "mul", x, drop(call, ones, float(call["p"])))


def alpha_dropout(call: Call) -> Value:
    """Dropped elements become SELU's minimum, and mean and variance stay (Klambauer et al., arXiv:1706.02515)."""
    return call["input"] if call["train"] is False else alpha(call, shape_of(call.value("input")))


def feature_alpha_dropout(call: Call) -> Value:
    """Drop whole channels, with alpha dropout."""
    return call["input"] if call["train"] is False else alpha(call, channels(call.value("input")))


def alpha(call: Call, shape: Sequence[int]) -> Value:
    """Apply alpha dropout with a mask of this shape."""
    p, x = float(call["p"]), call.value("input")
    if p == 0:
        return x
    if p == 1:
        return calculated(call, "mul", x, 0.0)
    kept = below(call, draw(call, "uniform", shape, torch.float32), 1 - p, call.dtype)
    scale = 1 / math.sqrt((SELU_MINIMUM**2 * p + 1) * (1 - p))
    shift = calculated(call, "mul", calculated(call, "sub", kept, 1.0), -SELU_MINIMUM * scale)
    shift = calculated(call, "add", shift, -SELU_MINIMUM * scale * p)
    return calculated(call, "add", calculated(call, "mul", x, calculated(call, "mul", kept, scale)), shift)


def below(call: Call, uniform: SSAValue, limit: SSAValue | float, dtype: torch.dtype) -> SSAValue:
    """Return 1 for numbers below the limit, else 0."""
    return call.emit.cast(calculated(call, "lt", uniform, limit), dtype)


def uniform(call: Call) -> SSAValue:
    """Draw uniform numbers between 0 and 1, or two other numbers."""
    made = draw(call, "uniform", call.shape, call.dtype)
    low, high = (float(call.arguments.get(name, default)) for name, default in (("from", 0.0), ("to", 1.0)))
    return moved(call, made, low, high - low)


def normal(call: Call) -> SSAValue:
    """Draw normal numbers of a mean and a standard deviation, which may be tensors."""
    made = draw(call, "normal", call.shape, call.dtype)
    mean, deviation = (
        call.of(each, call.dtype) if isinstance(each, SSAValue) else float(each)
        for each in (call.arguments.get("mean", 0.0), call.arguments.get("std", 1.0))
    )
    if isinstance(deviation, SSAValue):
        call.emit.check_value(deviation, "deviation", "normal")
    return moved(call, made, mean, deviation)


def moved(call: Call, x: SSAValue, shift: SSAValue | float, scale: SSAValue | float) -> SSAValue:
    """Return x * scale + shift."""
    if scale != 1.0:
        x = calculated(call, "mul", x, scale)
    return x if shift == 0.0 else calculated(call, "add", x, shift)


def bernoulli(call: Call) -> SSAValue:
    """Draw 1 with a probability: that of each element of the tensor, or a number."""
    number = call.arguments.get("p")
    drawn = draw(call, "uniform", call.shape, torch.float32)
    limit = call.of(call["self"], torch.float32) if number is None else call.of(number, torch.float32)
    if number is None or isinstance(number, SSAValue):
        call.emit.check_value(call.value("self" if number is None else "p"), "probability", "bernoulli")
    return below(call, drawn, limit, call.expected.dtype)


def randint(call: Call) -> SSAValue:
    """Draw from `low` to below `high`: the remainder of a random word, for ranges of fewer than 2^32 numbers."""
    low, high = int(call.arguments.get("low", 0)), int(call["high"])
    if not 0 < high - low < 1 << 32:
        raise Forbidden(f"randint of {high - low} numbers; supported are up to 2^32 - 1")
    random, site = call.emit.draw()
    word = call.emit.insert(nn.RandomOp(random, "word", "i64", call.shape, site))
    made = calculated(call, "remainder", word, high - low)
    made = made if low == 0 else calculated(call, "add", made, low)
    return call.emit.cast(made, call.expected.dtype)


def randperm(call: Call) -> SSAValue:
    """Draw an order of the numbers below `n`: the places of sorted random words."""
    if 0 in call.shape:
        return call.emit.constant(0, call.expected.dtype, call.shape)
    random, site = call.emit.draw()
    word = call.emit.insert(nn.RandomOp(random, "word", "i64", call.shape, site))
    return call.emit.cast(
        nn.order(call.emit.insert, word, call.shape[0], descending=False), call.expected.dtype
    )


def exponential(call: Call) -> SSAValue:
    """Draw exponential numbers of the rate `lambd`."""
    return moved(call, draw(call, "exponential", call.shape, call.dtype), 0.0, 1.0 / float(call["lambd"]))


def random_relu(call: Call) -> Value:
    """Negative numbers times a slope: in training mode a random one for each, else the mean of the two limits."""
    x, low, high = call.value("self"), float(call["lower"]), float(call["upper"])
    if not call["training"]:
        return call.emit.insert(CLASSES["leaky_relu"](x, negative_slope=(low + high) / 2))
    slope = moved(call, draw(call, "uniform", shape_of(x), call.dtype), low, high - low)
    negative = calculated(call, "lt", x, 0.0)
    return call.emit.insert(CLASSES["where"](negative, calculated(call, "mul", x, slope), x))
