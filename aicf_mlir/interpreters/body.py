"""The results of a body, in NumPy: every line on whole arrays, one element for each point of the domain.

Floats are float64, infinite if out of the range of the line's type. Integers and booleans are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from aicf_mlir.interpreters.arithmetic import ROUNDED, Arithmetic
from aicf_mlir.interpreters.numerics import NUMPY_TYPES, Array, erf, overflowing, pairwise_sum
from aicf_mlir.ir.body import COLUMN_SUM, PHILOX, Body, Line, is_float

Function = Callable[..., Array]

_cube_root: Function = np.cbrt
_select: Function = np.where


def _integer(numbers: Function, booleans: Function) -> Function:
    """One function of integers, another of booleans, which are numbers of one bit."""

    def apply(x: Array, y: Array) -> Array:
        return booleans(x, y) if x.dtype == np.bool_ else numbers(x, y)

    return apply


def _rsqrt(x: Array) -> Array:
    return 1.0 / np.sqrt(x)


def _round(x: Array) -> Array:
    """Round to the nearest whole number, halves away from zero."""
    whole = np.trunc(x)
    return np.where(np.abs(x - whole) >= 0.5, whole + np.copysign(1.0, x), whole)


def _divide(x: Array, y: Array) -> Array:
    """The quotient of integers towards zero; 0 where the divisor is 0."""
    safe = np.where(y == 0, 1, y)
    quotient: Array = x // safe
    quotient = quotient + ((quotient < 0) & (quotient * safe != x))
    return np.where(y == 0, np.zeros_like(quotient), quotient).astype(x.dtype)


def _remainder(x: Array, y: Array) -> Array:
    """The remainder with the sign of x; 0 if the divisor is 0."""
    return np.where(y == 0, np.zeros_like(x), x - _divide(x, y) * y).astype(x.dtype)


def _floor_divide(x: Array, y: Array) -> Array:
    quotient: Array = x // np.where(y == 0, 1, y)
    return np.where(y == 0, 0, quotient).astype(x.dtype)


def _logical(function: Function) -> Function:
    """The function on the bits as an unsigned number."""

    def apply(x: Array, y: Array) -> Array:
        unsigned = np.dtype(f"u{x.dtype.itemsize}")
        return function(x.astype(unsigned), y.astype(unsigned)).astype(x.dtype)

    return apply


def _fma(x: Array, y: Array, z: Array) -> Array:
    """The sum x * y + z with the digits that the product alone would lose: the rest of a sum that cancels is exact."""
    product = x * y
    (x_high, x_low), (y_high, y_low) = _halves(x), _halves(y)
    lost = ((x_high * y_high - product) + x_high * y_low + x_low * y_high) + x_low * y_low
    total = product + z
    rounded = total - product
    lost = lost + ((product - (total - rounded)) + (z - rounded))
    return np.where(np.isfinite(lost), total + lost, total)


def _halves(x: Array) -> tuple[Array, Array]:
    """Two numbers of 26 bits each with the sum x (Veltkamp's splitting)."""
    scaled = x * float((1 << 27) + 1)
    high = scaled - (scaled - x)
    return high, x - high


def philox(word: int, seed: Array, step: Array, site: Array, element: Array) -> Array:
    """One of the four words of Philox4x32-10 (Salmon et al., Parallel random numbers: as easy as 1, 2, 3, SC 2011)."""
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    seed, step, site, element = (x.astype(np.uint64) for x in (seed, step, site, element))
    a, b, c, d = element & low, element >> half, site & low, step & low
    left, right = seed & low, seed >> half
    for _ in range(10):
        first, second = a * np.uint64(0xD2511F53), c * np.uint64(0xCD9E8D57)
        a, b, c, d = (second >> half) ^ b ^ left, second & low, (first >> half) ^ d ^ right, first & low
        left, right = (left + np.uint64(0x9E3779B9)) & low, (right + np.uint64(0xBB67AE85)) & low
    return (a, b, c, d)[word].astype(np.int64)


FUNCTIONS: Mapping[str, Function] = {
    "arith.negf": np.negative,
    "arith.addf": np.add,
    "arith.subf": np.subtract,
    "arith.mulf": np.multiply,
    "arith.divf": np.divide,
    "arith.maximumf": np.maximum,
    "arith.minimumf": np.minimum,
    "arith.maxnumf": np.fmax,
    "arith.minnumf": np.fmin,
    "math.absf": np.abs,
    "math.acos": np.arccos,
    "math.acosh": np.arccosh,
    "math.asin": np.arcsin,
    "math.asinh": np.arcsinh,
    "math.atan": np.arctan,
    "math.atan2": np.arctan2,
    "math.atanh": np.arctanh,
    "math.cbrt": _cube_root,
    "math.ceil": np.ceil,
    "math.copysign": np.copysign,
    "math.cos": np.cos,
    "math.cosh": np.cosh,
    "math.erf": erf,
    "math.exp": np.exp,
    "math.exp2": np.exp2,
    "math.expm1": np.expm1,
    "math.floor": np.floor,
    "math.fma": _fma,
    "math.log": np.log,
    "math.log10": np.log10,
    "math.log1p": np.log1p,
    "math.log2": np.log2,
    "math.powf": np.power,
    "math.fpowi": np.float_power,
    "math.round": _round,
    "math.roundeven": np.rint,
    "math.rsqrt": _rsqrt,
    "math.sin": np.sin,
    "math.sinh": np.sinh,
    "math.sqrt": np.sqrt,
    "math.tan": np.tan,
    "math.tanh": np.tanh,
    "math.trunc": np.trunc,
    "math.absi": np.abs,
    "arith.addi": _integer(np.add, np.bitwise_xor),
    "arith.subi": _integer(np.subtract, np.bitwise_xor),
    "arith.muli": _integer(np.multiply, np.bitwise_and),
    "arith.divsi": _divide,
    "arith.remsi": _remainder,
    "arith.floordivsi": _floor_divide,
    "arith.minsi": np.minimum,
    "arith.maxsi": np.maximum,
    "arith.minui": _logical(np.minimum),
    "arith.maxui": _logical(np.maximum),
    "arith.andi": np.bitwise_and,
    "arith.ori": np.bitwise_or,
    "arith.xori": np.bitwise_xor,
    "arith.shli": np.left_shift,
    "arith.shrsi": np.right_shift,
    "arith.shrui": _logical(np.right_shift),
    "arith.select": _select,
}
"""One row for each operation that is a function of its operands alone."""

_ORDERED: Mapping[str, Function] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


def _compare_floats(predicate: str, x: Array, y: Array) -> Array:
    unordered = np.isnan(x) | np.isnan(y)
    match predicate:
        case "false" | "true":
            return np.full(np.broadcast_shapes(x.shape, y.shape), predicate == "true")
        case "ord" | "uno":
            return unordered if predicate == "uno" else ~unordered
        case _:
            held = _ORDERED[predicate[1:]](x, y)
            return held | unordered if predicate[0] == "u" else held & ~unordered


def _compare_integers(predicate: str, x: Array, y: Array) -> Array:
    if predicate[0] == "u":
        unsigned = np.dtype(f"u{x.dtype.itemsize}")
        x, y = x.astype(unsigned), y.astype(unsigned)
    return _ORDERED[predicate if predicate in ("eq", "ne") else predicate[1:]](x, y)


def _identity(op: str, type_: str) -> Any:
    """The result of a reduction of no elements."""
    if op in ("scalar.sum", "scalar.prod"):
        return op == "scalar.prod"
    least = op == "scalar.max"
    if is_float(type_):
        return -np.inf if least else np.inf
    if type_ == "i1":
        return not least
    limits = np.iinfo(NUMPY_TYPES[type_])
    return limits.min if least else limits.max


REDUCE: Mapping[str, Any] = {
    "scalar.sum": np.add,
    "scalar.prod": np.multiply,
    "scalar.max": np.maximum,
    "scalar.min": np.minimum,
}


class Evaluation:
    """One body on arrays of one domain."""

    def __init__(self, body: Body, domain: Sequence[int], reduced: Sequence[int], arithmetic: Arithmetic):
        self.body, self.domain, self.reduced, self.arithmetic = (
            body,
            tuple(domain),
            tuple(reduced),
            arithmetic,
        )

    def run(self, operands: Sequence[Array]) -> list[Array]:
        """The results, each broadcastable to the domain."""
        values: list[Array] = list(operands)
        for line in self.body.lines:
            value = self._line(line, [values[arg] for arg in line.args])
            values.append(overflowing(value, line.type) if line.type == "f32" else value)
        return [values[result] for result in self.body.results]

    def _line(self, line: Line, args: list[Array]) -> Array:
        op, attr = line.op, line.attr
        if op in FUNCTIONS:
            return FUNCTIONS[op](*args)
        if op in REDUCE:
            return self._reduce(line, args[0], self.reduced)
        if op == COLUMN_SUM:
            kept = tuple(dim for dim in range(len(self.domain)) if dim not in self.reduced)
            return self._reduce(line._replace(op="scalar.sum"), args[0], kept)
        match op:
            case "arith.constant":
                return np.asarray(attr, np.float64 if is_float(line.type) else NUMPY_TYPES[line.type])
            case "arith.cmpf":
                return _compare_floats(str(attr), *args)
            case "arith.cmpi":
                return _compare_integers(str(attr), *args)
            case "scalar.index":
                assert isinstance(attr, int)
                shape = [size if dim == attr else 1 for dim, size in enumerate(self.domain)]
                return np.arange(self.domain[attr], dtype=np.int64).reshape(shape)
            case "scalar.load":
                return self._load(args[0], args[1:])
            case name if name == PHILOX:
                assert isinstance(attr, int)
                return philox(attr, *args)
            case "arith.bitcast":
                narrow = args[0].astype(NUMPY_TYPES[self.body.type(line.args[0])])
                cast = np.atleast_1d(narrow).view(NUMPY_TYPES[line.type]).reshape(narrow.shape)
                return cast.astype(np.float64) if is_float(line.type) else cast
            case _:
                return self._cast(line, args[0])

    def _cast(self, line: Line, x: Array) -> Array:
        match line.op:
            case "arith.truncf":
                return self.arithmetic.round(x, line.type).astype(np.float64)
            case "arith.extf":
                return x
            case "arith.sitofp" | "arith.uitofp":
                wide = x.astype(np.float64)
                return (
                    wide if line.type == "f64" else self.arithmetic.round(wide, line.type).astype(np.float64)
                )
            case "arith.fptosi":
                limits = np.iinfo(NUMPY_TYPES[line.type])
                whole = np.trunc(np.nan_to_num(x, nan=0.0, posinf=np.inf, neginf=-np.inf))
                inside = np.where((whole > float(limits.min)) & (whole < float(limits.max)), whole, 0.0)
                cast = inside.astype(NUMPY_TYPES[line.type])
                cast = np.where(whole >= float(limits.max), limits.max, cast)
                return np.where(whole <= float(limits.min), limits.min, cast).astype(NUMPY_TYPES[line.type])
            case _:
                return x.astype(NUMPY_TYPES[line.type])

    def _reduce(self, line: Line, x: Array, dims: tuple[int, ...]) -> Array:
        whole = np.broadcast_to(x, self.domain)
        initial = _identity(line.op, line.type)
        dtype = np.float64 if is_float(line.type) else NUMPY_TYPES[line.type]
        if line.type == "i1" and line.op in ("scalar.sum", "scalar.prod"):
            combine: Any = np.bitwise_xor if line.op == "scalar.sum" else np.bitwise_and
            return combine.reduce(whole, axis=dims, keepdims=True, dtype=np.bool_)
        if line.op == "scalar.sum" and is_float(line.type):
            total = pairwise_sum(whole, dims, keepdims=True)
            return self.arithmetic.inner(total, NUMPY_TYPES[line.type])  # a kernel keeps it in its type
        return REDUCE[line.op].reduce(whole, axis=dims, keepdims=True, initial=initial, dtype=dtype)

    @staticmethod
    def _load(table: Array, indices: Sequence[Array]) -> Array:
        if not prod(table.shape):
            shape = np.broadcast_shapes(*(index.shape for index in indices))
            return np.zeros(shape, table.dtype)
        if not indices:
            return table
        inside = [np.clip(index, 0, size - 1) for index, size in zip(indices, table.shape, strict=True)]
        return table[tuple(np.broadcast_arrays(*inside))]


def evaluate(
    body: Body,
    operands: Sequence[Array],
    domain: Sequence[int],
    reduced: Sequence[int],
    shapes: Sequence[Sequence[int]],
    arithmetic: Arithmetic = ROUNDED,
) -> list[Array]:
    """The results of `body` in the given `shapes`, before they are rounded.

    `operands` have the shape of `domain`, floats as float64; tables any shape. `reduced` are the dimensions that its reductions
    run over. A result of a smaller shape is without them; one after a column sum has only them.
    """
    with np.errstate(all="ignore"):
        values = Evaluation(body, domain, reduced, arithmetic).run(operands)
    kept = [dim for dim in range(len(domain)) if dim not in reduced]
    results: list[Array] = []
    for number, value, shape in zip(body.results, values, shapes, strict=True):
        gone = kept if body.behind_columns[number] else reduced
        full = np.broadcast_to(value, domain) if tuple(shape) == tuple(domain) else None
        if full is None:
            ones = [1 if dim in gone else size for dim, size in enumerate(domain)]
            full = np.broadcast_to(_first(value, gone, len(domain)), ones).reshape(shape)
        results.append(full)
    return results


def _first(value: Array, reduced: Sequence[int], rank: int) -> Array:
    """A value that is the same along the reduced dimensions, which have size 1."""
    first = rank - value.ndim
    cut = [slice(1) if dim in reduced and n > 1 else slice(None) for dim, n in enumerate(value.shape, first)]
    return value[tuple(cut)]
