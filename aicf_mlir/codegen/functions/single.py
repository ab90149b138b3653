"""exp, tanh and erf of f32: exp and tanh are those of csrc/kernels/common/vector_math.h, operation by operation.

The prebuilt kernels and the generated ones give the same bits; change both together. Errors as stated there; erf is within 2
units in the last place, and its absolute error at most 1.2e-7.
"""

from __future__ import annotations

from aicf_mlir.codegen.functions.polynomial import (
    bits,
    from_bits,
    fused,
    fused_horner,
    round_constant,
    shifted_left,
    shifted_right,
)
from aicf_mlir.ir.formula import Scalar, absolute, select

LN2_HIGH, LN2_LOW = float.fromhex("0x1.62e4p-1"), float.fromhex("0x1.7f7d1cp-20")


def _with_sign_of(magnitude: Scalar, x: Scalar) -> Scalar:
    return from_bits(bits(magnitude) | (bits(x) & -0x80000000))


def _shifted_power(x: Scalar) -> Scalar:
    return fused(x, 1.44269504088896341, round_constant("f32"))


def _exp_of_rest(x: Scalar, shifted: Scalar) -> Scalar:
    n = shifted - round_constant("f32")
    r = fused(n, -LN2_LOW, fused(n, -LN2_HIGH, x))
    p = fused_horner(
        r,
        *(1.381459878757596e-3, 8.368716575205326e-3, 4.166838899254799e-2),
        *(1.666652113199234e-1, 4.999999403953552e-1),
    )
    return fused(p * r, r, r) + 1.0


def exp(x: Scalar) -> Scalar:
    """A power of 2 times a polynomial of the remainder."""
    x = select(x > 90.0, 90.0, x)
    x = select(x < -105.0, -105.0, x)
    shifted = _shifted_power(x)
    p = _exp_of_rest(x, shifted)
    power = bits(shifted) - 0x4B400000  # the bits of the constant that was added
    half = shifted_right(power, 1)
    return p * from_bits(shifted_left(half + 127, 23)) * from_bits(shifted_left(power - half + 127, 23))


def _normal_exp(x: Scalar) -> Scalar:
    """The same for |x| <= 87; for others, NaN too, any number."""
    shifted = _shifted_power(x)
    return from_bits(bits(_exp_of_rest(x, shifted)) + shifted_left(bits(shifted), 23))


def tanh(x: Scalar) -> Scalar:
    """A polynomial below 0.625, else by exp."""
    t, square = absolute(x), x * x
    p = fused_horner(
        square,
        *(-5.717044696211815e-3, 2.065058797597885e-2, -5.374349653720856e-2),
        *(1.3331490755081177e-1, -3.333328366279602e-1),
    )
    small = fused(x, square * p, x)
    u = select(t > 10.0, 10.0, t)
    large = _with_sign_of(1.0 - 2.0 / (_normal_exp(u + u) + 1.0), x)
    return select(t >= 0.625, large, small)


def erf(x: Scalar) -> Scalar:
    """A polynomial below 0.925, else 1 - exp of one."""
    t, square = absolute(x), x * x
    p = fused_horner(
        square,
        *(-5.886776489205658e-4, 4.973117262125015e-3, -2.675333432853222e-2),
        *(1.1281466484069824e-1, -3.761246204376221e-1, 1.283791512250900e-1),
    )
    small = fused(x, p, x)
    q = fused_horner(
        select(t > 4.0, 4.0, t),
        *(1.9718158000614494e-4, -3.055606270208955e-3, 2.227708138525486e-2, -1.0403735190629959e-1),
        *(-6.3705974817276e-1, -1.1277495622634888, -1.7749611288309097e-4),
    )
    large = _with_sign_of(1.0 - _normal_exp(q), x)
    return select(t >= 0.925, large, small)
