"""exp, tanh and erf of f32: the polynomials of csrc/kernels/common/vector_math.h, operation by operation.

The prebuilt kernels and the generated ones give the same bits; change both together. Errors as stated there.
"""

from __future__ import annotations

from aicf_mlir.codegen.functions.polynomial import (
    bits,
    from_bits,
    horner,
    round_constant,
    shifted_left,
    shifted_right,
)
from aicf_mlir.ir.formula import Scalar, absolute, select

LN2_HIGH, LN2_LOW = float.fromhex("0x1.62e4p-1"), float.fromhex("0x1.7f7d1cp-20")


def _with_sign_of(magnitude: Scalar, x: Scalar) -> Scalar:
    return from_bits(bits(magnitude) | (bits(x) & -0x80000000))


def exp(x: Scalar) -> Scalar:
    """A power of 2 times a polynomial of the remainder."""
    x = select(x > 90.0, 90.0, x)
    x = select(x < -105.0, -105.0, x)
    shifted = x * 1.44269504088896341 + round_constant("f32")
    n = shifted - round_constant("f32")
    r = (x - n * LN2_HIGH) - n * LN2_LOW
    p = horner(
        r,
        *(1.381459878757596e-3, 8.368716575205326e-3, 4.166838899254799e-2),
        *(1.666652113199234e-1, 4.999999403953552e-1),
    )
    p = (p * r) * r + r
    p = p + 1.0
    power = bits(shifted) - 0x4B400000  # the bits of the constant above
    half = shifted_right(power, 1)
    return p * from_bits(shifted_left(half + 127, 23)) * from_bits(shifted_left(power - half + 127, 23))


def tanh(x: Scalar) -> Scalar:
    """A polynomial below 0.625, else by exp."""
    t, square = absolute(x), x * x
    p = horner(
        square,
        *(-5.717044696211815e-3, 2.065058797597885e-2, -5.374349653720856e-2),
        *(1.3331490755081177e-1, -3.333328366279602e-1),
    )
    small = x + x * (square * p)
    large = _with_sign_of(1.0 - 2.0 / (exp(t + t) + 1.0), x)
    return select(t < 0.625, small, large)


def erf(x: Scalar) -> Scalar:
    """A polynomial below 0.925, else 1 - exp of one."""
    t, square = absolute(x), x * x
    p = horner(
        square,
        *(-5.886776489205658e-4, 4.973117262125015e-3, -2.675333432853222e-2),
        *(1.1281466484069824e-1, -3.761246204376221e-1, 1.283791512250900e-1),
    )
    small = x + x * p
    q = horner(
        select(t > 4.0, 4.0, t),
        *(1.9718158000614494e-4, -3.055606270208955e-3, 2.227708138525486e-2, -1.0403735190629959e-1),
        *(-6.3705974817276e-1, -1.1277495622634888, -1.7749611288309097e-4),
    )
    large = _with_sign_of(1.0 - exp(q), x)
    return select(t < 0.925, small, large)
