"""f16 and bf16 as bits in the low half of an i32, and fused multiply-add: by integers, the same on every processor."""

from __future__ import annotations

from aicf_mlir.codegen.functions.polynomial import bits, from_bits, shifted_left
from aicf_mlir.ir.formula import Scalar, select


def _logical(x: Scalar, places: int) -> Scalar:
    return x.apply("arith.shrui", places)


def bf16_to_f32(x: Scalar) -> Scalar:
    """Convert from the bits of a bf16; exact."""
    return from_bits(shifted_left(x, 16))


def f32_to_bf16(x: Scalar) -> Scalar:
    """Round to the nearest bf16, ties to even; denormal numbers are kept."""
    raw = bits(x)
    rounded = _logical(raw + 0x7FFF + (_logical(raw, 16) & 1), 16)
    return select(x.is_nan(), _logical(raw, 16) | 0x40, rounded)


def f16_to_f32(x: Scalar) -> Scalar:
    """Convert from the bits of an f16; exact, without arithmetic on denormal numbers."""
    moved = shifted_left(x & 0x7FFF, 13)
    exponent = moved & 0x0F800000
    normal = moved + shifted_left(x.of(127 - 15), 23)
    special = normal + shifted_left(x.of(128 - 16), 23)
    smallest = x.of(113 << 23)
    tiny = bits(from_bits(moved + smallest) - from_bits(smallest))
    magnitude = select(exponent.equal(0), tiny, select(exponent.equal(0x0F800000), special, normal))
    return from_bits(magnitude | shifted_left(x & 0x8000, 16))


def f32_to_f16(x: Scalar) -> Scalar:
    """Round to the nearest f16, ties to even."""
    raw = bits(x)
    magnitude = raw & 0x7FFFFFFF
    overflow = select(magnitude > 0x7F800000, 0x7E00, magnitude.of(0x7C00))
    # Adding 0.5 leaves a denormal result, rounded, in the low bits.
    tiny = bits(from_bits(magnitude) + 0.5) - 0x3F000000
    normal = _logical(magnitude + (0xFFF - (112 << 23)) + (_logical(magnitude, 13) & 1), 13)
    result = select(
        magnitude.apply("arith.cmpi", 0x47800000, type_="i1", attr="sge"),
        overflow,
        select(magnitude < (113 << 23), tiny, normal),
    )
    return result | (_logical(raw, 16) & 0x8000)


def _to_odd(nearest: Scalar, error: Scalar) -> Scalar:
    """An f64 whose rounding to fewer bits is that of the exact `nearest + error`.

    An inexact result becomes the neighbour with an odd last bit (round to odd).
    """
    raw = bits(nearest)
    outwards = (error > 0.0) & (nearest > 0.0) | (error < 0.0) & (nearest < 0.0)
    inexact = error.apply("arith.cmpf", 0.0, type_="i1", attr="one")
    change = inexact & (raw & 1).equal(0)
    return select(change, from_bits(raw + select(outwards, raw.of(1), -1)), nearest)


def f64_to_f32_odd(x: Scalar) -> Scalar:
    """An f32 that rounds to the f16 or bf16 that x rounds to."""
    near = x.cast("f32")
    error = x - near.cast("f64")
    raw = bits(near)
    outwards = (error > 0.0) & (x > 0.0) | (error < 0.0) & (x < 0.0)
    inexact = error.apply("arith.cmpf", 0.0, type_="i1", attr="one") & near.apply("math.absf").differs(
        float("inf")
    )
    return select(inexact & (raw & 1).equal(0), from_bits(raw + select(outwards, raw.of(1), -1)), near)


def fma(x: Scalar, y: Scalar, z: Scalar) -> Scalar:
    """The sum x * y + z of f32, rounded once: the product is exact in f64, the sum is rounded to odd before it is narrowed."""
    product, addend = x.cast("f64") * y.cast("f64"), z.cast("f64")
    total = product + addend
    part = total - product
    error = (product - (total - part)) + (addend - part)
    return _to_odd(total, error).cast("f32")
