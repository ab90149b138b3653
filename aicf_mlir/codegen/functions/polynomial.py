"""Common parts of the formulas: polynomials, bits, constants of a type."""

from __future__ import annotations

from collections.abc import Sequence

from aicf_mlir.ir.formula import Scalar, absolute, copysign

MANTISSA = {"f32": 23, "f64": 52}
"""Bits of the fraction."""
INTEGER = {"f32": "i32", "f64": "i64"}
"""The integer type of the same size."""


def horner(x: Scalar, *coefficients: float) -> Scalar:
    """The polynomial of x; the coefficient of the highest power comes first."""
    result = x.of(coefficients[0])
    for coefficient in coefficients[1:]:
        result = result * x + coefficient
    return result


def fused(x: Scalar, y: Scalar | float, z: Scalar | float) -> Scalar:
    """The sum x * y + z, rounded once."""
    return x.apply("math.fma", y, z)


def fused_horner(x: Scalar, *coefficients: float) -> Scalar:
    """The polynomial of x by fused multiply-adds; the coefficient of the highest power comes first."""
    result = x.of(coefficients[0])
    for coefficient in coefficients[1:]:
        result = fused(result, x, coefficient)
    return result


def bits(x: Scalar) -> Scalar:
    """The bits of a float."""
    return x.apply("arith.bitcast", type_=INTEGER[x.type])


def from_bits(x: Scalar) -> Scalar:
    """The float with these bits."""
    return x.apply("arith.bitcast", type_="f32" if x.type == "i32" else "f64")


def shifted_left(x: Scalar, places: int) -> Scalar:
    """The integer moved towards the high bits."""
    return x.apply("arith.shli", places)


def shifted_right(x: Scalar, places: int) -> Scalar:
    """The integer moved towards the low bits; its sign moves in."""
    return x.apply("arith.shrsi", places)


def round_constant(type_: str) -> float:
    """Added to a small float it leaves the nearest integer in the low bits: 1.5 * 2^23 in f32."""
    return 1.5 * 2.0 ** MANTISSA[type_]


def nearest(x: Scalar) -> Scalar:
    """The nearest integer, ties to even, for |x| < 2^22 (f32) or 2^51 (f64)."""
    return (x + round_constant(x.type)) - round_constant(x.type)


def odd(x: Scalar, value: Scalar) -> Scalar:
    """`value`, computed from |x|, with the sign of x."""
    return copysign(absolute(value), x)


def all_of(conditions: Sequence[Scalar]) -> Scalar:
    """True if all i1 hold."""
    result = conditions[0]
    for condition in conditions[1:]:
        result = result & condition
    return result
