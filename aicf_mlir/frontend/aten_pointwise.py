"""The rows of `aten_table` for pointwise ops: operands and parameters by the names in torch's schemas."""

from __future__ import annotations

import math
from typing import Any

import torch
from xdsl.ir import SSAValue

from aicf_mlir.dialects.nn.pointwise import CLASSES
from aicf_mlir.dialects.nn.rows import ROWS
from aicf_mlir.frontend.call import AtenRule, Call, Value
from aicf_mlir.frontend.refused import Forbidden, Refused
from aicf_mlir.frontend.types import element_of, is_supported
from aicf_mlir.ir.tensor_op import shape_of

ARGUMENTS = (("self",), ("self", "other"), ("condition", "self", "other"))
"""torch's names for the operands of an op with one, two or three of them."""

DIVIDING = ("floor_divide", "trunc_divide", "fmod", "remainder")
"""Ops of two whole numbers that torch refuses if the second is 0."""

AS_TENSORS = ("eq", "ne", "lt", "le", "gt", "ge", "fmod", "remainder", "xlogy", "xlog1py")
"""Ops that take a number as an element of the other operand's type: torch rounds it on each device.

Other ops treat the number differently by device; if the type does not hold it they are computed in float32.
"""

SELU = {"alpha": 1.6732632423543772848170429916717, "scale": 1.0507009873554804934193349852946}


def pointwise(name: str, *arguments: str, **parameters: str | float) -> AtenRule:
    """The op `nn.<name>`: its operands are the arguments of these names, each a tensor or a number.

    A parameter is the argument of its own name unless `parameters` gives another one, or a number.
    """

    def row(call: Call) -> SSAValue:
        names = arguments or ARGUMENTS[len(ROWS[name].operands) - 1]
        given: dict[str, Any] = {}
        for parameter in ROWS[name].parameters:
            source = parameters.get(parameter, parameter)
            value = call.arguments.get(source) if isinstance(source, str) else source
            if isinstance(value, SSAValue):
                raise Refused(f"{name} with a {parameter} that may change from step to step")
            if value is not None:
                given[parameter] = value if isinstance(value, str) else exactly(call, value)
        return applied(call, name, [call[each] for each in names], **given)

    return row


def check_divisor(call: Call, name: str, given: Any, divisor: SSAValue) -> None:
    """Emit a check: a step that divides a whole number by 0 updates nothing; one that always would is refused."""
    if isinstance(given, (bool, int, float)):
        if not given:
            raise Forbidden(f"{name} of whole numbers by 0")
    elif math.prod(call.shape):
        call.emit.check_value(divisor, "divisor", name)


def applied(call: Call, name: str, operands: list[Any], widely: bool = False, **parameters: Any) -> SSAValue:
    """Emit `nn.<name>` of tensors and numbers, in the type in which torch computes it; `widely` before it rounds."""
    row = ROWS[name]
    own = [value for value, each in zip(operands, row.operands, strict=True) if each not in row.masks]
    dtype = call.promoted(*own) if row.result else call.expected.dtype
    if not is_supported(dtype):
        raise Refused(f"arithmetic on {call.named(dtype)}")
    if element_of(dtype) not in row.takes:
        if not row.result or "f32" not in row.takes:
            raise Refused(f"{name} of {call.named(dtype)}")
        dtype = torch.float32
    half = dtype.is_floating_point and dtype.itemsize == 2
    exact = (
        not half or name in AS_TENSORS or not (widely or any(not call.holds(value, dtype) for value in own))
    )
    wide = dtype if exact else torch.float32
    values = [
        call.of(value, torch.bool if each in row.masks else wide)
        for value, each in zip(operands, row.operands, strict=True)
    ]
    if name in DIVIDING and not dtype.is_floating_point:
        check_divisor(call, name, operands[1], values[1])
    made = call.emit.insert(CLASSES[name](*values, **parameters))
    return made if row.result else call.emit.cast(made, dtype)


def shifted(left: bool) -> AtenRule:
    """The rule for a shift of whole numbers by a number of bits: a product with a power of two, or a floored quotient.

    As in torch, by all bits or more, or by a negative number, it gives 0; to the right -1 for a negative number.
    """

    def row(call: Call) -> SSAValue:
        bits = {torch.int32: 32, torch.int64: 64}.get(call.expected.dtype)
        if bits is None or isinstance(call["other"], SSAValue):
            raise Refused("a shift of int32 or int64 by a known number of bits, and no other")
        by, x = int(call["other"]), call.of(call["self"], call.expected.dtype)
        if left and not 0 <= by < bits:
            return call.emit.constant(0, call.expected.dtype, call.shape)
        left_over = by if 0 <= by < bits else bits - 1
        while left_over:
            part = min(left_over, 30)  # the power is one of int32
            power = call.emit.constant(2**part, call.expected.dtype)
            x = call.emit.insert(CLASSES["mul" if left else "floor_divide"](x, power))
            left_over -= part
        return x

    return row


def scaled(name: str, swap: bool = False) -> AtenRule:
    """`self op alpha * other`, or with `swap` `other op alpha * self`; each a tensor or a number."""

    def row(call: Call) -> SSAValue:
        alpha, other = call.arguments.get("alpha", 1), call["self" if swap else "other"]
        if alpha != 1:
            wide = call.wide_dtype
            number = call.of(call.number("alpha", call.expected.dtype), wide)
            other = call.emit.insert(CLASSES["mul"](call.of(other, wide), number))
        return applied(call, name, [call["other" if swap else "self"], other], widely=alpha != 1)

    return row


def divided(call: Call) -> SSAValue:
    """A true quotient, or rounded."""
    names = {None: "div", "floor": "floor_divide", "trunc": "trunc_divide"}
    return applied(call, names[call.arguments.get("rounding_mode")], [call["self"], call["other"]])


def whole(name: str) -> AtenRule:
    """Return the rule for a function that rounds: integers are already whole."""
    of_floats = pointwise(name)

    def row(call: Call) -> Value:
        if not call.expected.dtype.is_floating_point:
            return call.value("self")
        if call.arguments.get("decimals"):
            raise Refused(f"{call['decimals']} decimals")
        return of_floats(call)

    return row


def power(call: Call) -> SSAValue:
    """Raise to a power: by a tensor, or by a number as products for small exponents."""
    exponent = call["exponent"]
    if isinstance(exponent, SSAValue):
        return applied(call, "pow", [call["self"], exponent], widely=True)
    if exponent in (1, 2, 3, 4) and call.expected.dtype.is_floating_point:
        wide = call.expected.dtype if exponent <= 2 else call.wide_dtype
        x = call.of(call["self"], wide)
        result = x if exponent == 1 else call.emit.insert(CLASSES["mul"](x, x))
        if exponent > 2:
            result = call.emit.insert(CLASSES["mul"](result, x if exponent == 3 else result))
        return call.emit.cast(result, call.expected.dtype)
    if not call.expected.dtype.is_floating_point and exponent > 64:
        raise Refused(f"an exponent of {exponent} for integers")
    return applied(call, "pow_scalar", [call["self"]], exponent=float(exponent))


def square(call: Call) -> SSAValue:
    """The square: x · x."""
    return applied(call, "mul", [call["self"], call["self"]])


def bounded(call: Call) -> SSAValue:
    """Limit between two numbers; each may be absent, or known to the step only."""
    given = {name: call.arguments.get(name) for name in ("min", "max")}
    if any(isinstance(each, SSAValue) for each in given.values()):
        return clamped(call)
    bounds = {name: value for name, value in given.items() if value is not None}
    if not (dtype := call.expected.dtype).is_floating_point and dtype is not torch.bool:
        ends = torch.iinfo(dtype)
        bounds = {
            name: value
            for name, value in bounds.items()
            if (value > ends.min if name == "min" else value < ends.max)
        }
        if not bounds:
            return call.value("self")
    return applied(
        call, "clamp", [call["self"]], **{name: exactly(call, value) for name, value in bounds.items()}
    )


def exactly(call: Call, value: float) -> float:
    """Return a number as a float. Raises Forbidden for one that no float holds, in arithmetic on whole numbers."""
    if not call.expected.dtype.is_floating_point and isinstance(value, int) and int(float(value)) != value:
        raise Forbidden(
            f"the number {value} in arithmetic on {call.named(call.expected.dtype)}: more than 2^53"
        )
    return float(value)


def clamped(call: Call) -> SSAValue:
    """Limit between two tensors or numbers; each may be absent."""
    x, low, high = call["self"], call.arguments.get("min"), call.arguments.get("max")
    if low is not None and high is not None:
        return applied(call, "clamp_between", [x, low, high])
    return applied(call, "clamp_max" if low is None else "clamp_min", [x, high if low is None else low])


def logical(name: str) -> AtenRule:
    """Return the rule for a logical op; every number but 0 is true."""

    def row(call: Call) -> SSAValue:
        names = ("self", "other") if "other" in call.arguments else ("self",)
        return call.emit.insert(CLASSES[name](*(call.of(call[each], torch.bool) for each in names)))

    return row


def masked_fill(call: Call) -> SSAValue:
    """Put `value` under the mask."""
    return applied(call, "where", [call["mask"], call["value"], call["self"]])


def parametric_relu(call: Call) -> SSAValue:
    """Emit PReLU with a weight for each channel, which is the second dimension."""
    x, weight = call.value("self"), call.value("weight")
    rank, channels = len(shape_of(x)), math.prod(shape_of(weight))
    if len(shape_of(weight)) <= 1 and rank > 1:
        weight = call.emit.reshape(weight, (1, channels, *[1] * (rank - 2)))
    elif not rank:
        weight = call.emit.reshape(weight, ())
    return applied(call, "prelu", [x, weight])


def log_sigmoid_forward(call: Call) -> Value:
    """Emit log_sigmoid; its second result is not needed here."""
    x = call.of(call["self"], call.expected[0].dtype)
    return call.emit.insert(CLASSES["log_sigmoid"](x)), None


def with_product(name: str) -> AtenRule:
    """Return the rule for self + value * tensor1 · tensor2, or with a quotient instead of the product; rounded once."""

    def row(call: Call) -> SSAValue:
        wide = call.wide_dtype
        x, first, second = (call.of(call[each], wide) for each in ("self", "tensor1", "tensor2"))
        if (value := call.arguments.get("value", 1)) != 1:
            first = call.emit.insert(CLASSES["mul"](first, call.of(value, wide)))
        part = call.emit.insert(CLASSES[name](first, second))
        return call.emit.cast(call.emit.insert(CLASSES["add"](x, part)), call.expected.dtype)

    return row
