"""The CUDA C++ of each operation of a body. Accurate functions only, never the fast ones."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from aicf_mlir.ir.body import PHILOX, POWER_OF_INTEGER, Line, is_float

TYPES: Mapping[str, str] = {
    "f32": "float",
    "f64": "double",
    "i64": "long long",
    "i32": "int",
    "i1": "bool",
    "f16": "Half",
    "bf16": "Bfloat",
}
"""The types of values."""

STORED: Mapping[str, str] = {**TYPES, "i1": "unsigned char"}
"""The types of elements in memory."""

_C_NAMES = {"absf": "fabs", "roundeven": "rint", "powf": "pow"}
"""C's names of functions of `math` if they differ."""

_FLOAT_OPERATORS: Mapping[str, str] = {
    "arith.negf": "-{0}",
    "arith.addf": "{0} + {1}",
    "arith.subf": "{0} - {1}",
    "arith.mulf": "{0} * {1}",
    "arith.divf": "{0} / {1}",
    "arith.maximumf": "larger({0}, {1})",
    "arith.minimumf": "smaller({0}, {1})",
}

_INTEGER_OPERATORS: Mapping[str, str] = {
    "math.absi": "magnitude({0})",
    "arith.addi": "plus({0}, {1})",
    "arith.subi": "minus({0}, {1})",
    "arith.muli": "times({0}, {1})",
    "arith.divsi": "quotient({0}, {1})",
    "arith.remsi": "remainder({0}, {1})",
    "arith.floordivsi": "floor_quotient({0}, {1})",
    "arith.minsi": "smaller({0}, {1})",
    "arith.maxsi": "larger({0}, {1})",
    "arith.minui": "static_cast<{u}>({0}) < static_cast<{u}>({1}) ? {0} : {1}",
    "arith.maxui": "static_cast<{u}>({0}) > static_cast<{u}>({1}) ? {0} : {1}",
    "arith.andi": "{0} & {1}",
    "arith.ori": "{0} | {1}",
    "arith.xori": "{0} ^ {1}",
    "arith.shli": "shift_left({0}, {1})",
    "arith.shrsi": "shift_right({0}, {1})",
    "arith.shrui": "shift_right_logical({0}, {1})",
}

_BOOLEAN_OPERATORS: Mapping[str, str] = {
    "math.absi": "{0}",
    "arith.addi": "{0} != {1}",
    "arith.subi": "{0} != {1}",
    "arith.muli": "{0} && {1}",
    "arith.divsi": "{0} && {1}",
    "arith.remsi": "{0} && !{1} && false",
    "arith.floordivsi": "{0} && {1}",
    "arith.minsi": "{0} && {1}",
    "arith.maxsi": "{0} || {1}",
    "arith.minui": "{0} && {1}",
    "arith.maxui": "{0} || {1}",
    "arith.andi": "{0} && {1}",
    "arith.ori": "{0} || {1}",
    "arith.xori": "{0} != {1}",
    "arith.shli": "{0} && !{1}",
    "arith.shrsi": "{0}",
    "arith.shrui": "{0} && !{1}",
}
"""Numbers of one bit."""

_CMPF: Mapping[str, str] = {
    "false": "false",
    "oeq": "{0} == {1}",
    "ogt": "{0} > {1}",
    "oge": "{0} >= {1}",
    "olt": "{0} < {1}",
    "ole": "{0} <= {1}",
    "one": "{0} < {1} || {0} > {1}",
    "ord": "{0} == {0} && {1} == {1}",
    "ueq": "!({0} < {1} || {0} > {1})",
    "ugt": "!({0} <= {1})",
    "uge": "!({0} < {1})",
    "ult": "!({0} >= {1})",
    "ule": "!({0} > {1})",
    "une": "{0} != {1}",
    "uno": "{0} != {0} || {1} != {1}",
    "true": "true",
}
_ORDER = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


class Reduction(NamedTuple):
    """A reduction: the combination of partial results, and the result for no elements."""

    combine: str
    identity: Mapping[str, float | int]


_LEAST = {"f32": -math.inf, "f64": -math.inf, "i64": -(1 << 63), "i32": -(1 << 31), "i1": 0}
_MOST = {"f32": math.inf, "f64": math.inf, "i64": (1 << 63) - 1, "i32": (1 << 31) - 1, "i1": 1}

REDUCERS: Mapping[str, Reduction] = {
    "scalar.sum": Reduction("Sum", {"f32": 0.0, "f64": 0.0, "i64": 0, "i32": 0, "i1": 0}),
    "scalar.prod": Reduction("Product", {"f32": 1.0, "f64": 1.0, "i64": 1, "i32": 1, "i1": 1}),
    "scalar.max": Reduction("Largest", _LEAST),
    "scalar.min": Reduction("Smallest", _MOST),
}


def literal(value: float | int, type_: str) -> str:
    """A constant; exact, floats in hexadecimal."""
    if type_ == "i1":
        return "true" if value else "false"
    if type_ == "i32":
        return f"{int(value)}" if value > -(1 << 31) else "(-2147483647 - 1)"
    if type_ == "i64":
        return f"{int(value)}ll" if value > -(1 << 63) else "(-9223372036854775807ll - 1)"
    if type_ == "f64":
        bits = struct.unpack("<q", struct.pack("<d", value))[0]
        return float(value).hex() if math.isfinite(value) else f"__longlong_as_double({bits}ll)"
    try:
        single: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:  # rounds to infinity
        single = math.copysign(math.inf, value)
    if math.isfinite(single):
        return single.hex() + "f"
    return f"__uint_as_float(0x{struct.unpack('<I', struct.pack('<f', single))[0]:08x}u)"


def expression(line: Line, types: Sequence[str], args: Sequence[str]) -> str:
    """A line of a body on operands of these types, each the name of a value or a literal; no reduction, index, load."""
    op, type_ = line.op, line.type
    names = [f"({arg})" if arg.startswith("-") else arg for arg in args]
    if op == "arith.select":
        return f"{names[0]} ? {names[1]} : {names[2]}"
    if op == "arith.cmpf":
        return _CMPF[str(line.attr)].format(*names)
    if op == "arith.cmpi":
        return _compare_integers(str(line.attr), types[0], names)
    name = op.partition(".")[2]
    if op == PHILOX:
        return f"philox({', '.join(names)}).{'xyzw'[int(line.attr or 0)]}"
    if op == POWER_OF_INTEGER:
        return f"integer_power({', '.join(names)})"
    if (types and types[0] != type_) or name == "bitcast":
        return _cast(name, types[0], type_, names[0])
    if is_float(type_):
        if op in _FLOAT_OPERATORS:
            return _FLOAT_OPERATORS[op].format(*names)
        base = {"maxnumf": "fmax", "minnumf": "fmin"}.get(name) or _C_NAMES.get(name, name)
        return f"{base}{'f' if type_ == 'f32' else ''}({', '.join(names)})"
    if type_ == "i1":
        return _BOOLEAN_OPERATORS[op].format(*names)
    return _INTEGER_OPERATORS[op].format(*names, u=_unsigned(type_))


def _unsigned(type_: str) -> str:
    return "unsigned" if type_ == "i32" else "unsigned long long"


def _compare_integers(predicate: str, type_: str, names: Sequence[str]) -> str:
    """The comparison, signed or not; a number of one bit is 0 or -1 if it is signed."""
    left, right = names
    if predicate in ("eq", "ne"):
        return f"{left} {_ORDER[predicate]} {right}"
    sign, order = predicate[0], _ORDER[predicate[1:]]
    if type_ == "i1":
        pair = (left, right) if sign == "u" else (right, left)
        return f"static_cast<int>({pair[0]}) {order} static_cast<int>({pair[1]})"
    if sign == "u":
        left, right = (f"static_cast<{_unsigned(type_)}>({name})" for name in names)
    return f"{left} {order} {right}"


def _cast(name: str, source: str, target: str, x: str) -> str:
    """`x` of type `source` as a `target`."""
    c_type = TYPES[target]
    if name == "bitcast":
        functions = {
            ("f32", "i32"): "__float_as_int({0})",
            ("i32", "f32"): "__int_as_float({0})",
            ("f64", "i64"): "__double_as_longlong({0})",
            ("i64", "f64"): "__longlong_as_double({0})",
        }
        return functions.get((source, target), f"{c_type}{{{{{{0}}.bits}}}}").format(x)
    if name == "fptosi":
        wide = x if source in ("f32", "f64") else f"widen({x})"
        return f"{'to_int' if target == 'i32' else 'to_long'}({wide})"
    if name == "extf":
        wide = f"widen({x})" if source in ("f16", "bf16") else x
        return wide if target == "f32" else f"static_cast<double>({wide})"
    if target == "i1":
        return f"({x} & 1) != 0"
    if name == "uitofp" and source != "i1":
        x = f"static_cast<{_unsigned(source)}>({x})"
    if name == "extui" and source == "i32":
        x = f"static_cast<unsigned>({x})"
    if source == "i1":
        minus_one = name in ("sitofp", "extsi")
        x = f"({'-' if minus_one else ''}static_cast<int>({x}))"
    if target == "f16":
        return f"to_half({x})" if source in ("f32", "f64") else f"to_half(static_cast<double>({x}))"
    if target == "bf16":
        return f"to_bfloat({x})" if source == "f32" else f"to_bfloat(static_cast<float>({x}))"
    return f"static_cast<{c_type}>({x})"


def stored(element: str, x: str) -> str:
    """A value as an element of a tensor, rounded to nearest even."""
    match element:
        case "f16":
            return f"to_half({x})"
        case "bf16":
            return f"to_bfloat({x})"
        case "i1":
            return f"static_cast<unsigned char>({x})"
        case _:
            return x
