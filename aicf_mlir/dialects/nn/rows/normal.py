"""The distribution function of the standard normal in f32, and erfc, which it is part of.

1 - Φ(z) is exp(-z² / 2) times Mills' ratio, which falls slowly: t times a polynomial of degree 8 in t = 1 / (1 + 0.27 z), a
minimax fit for z up to 14.4 with a relative error of 2.4e-8. So no branch is taken, the tail keeps its digits, and gelu shares
the exponential with its gradient. (The form is 26.2.17 of Abramowitz and Stegun, Handbook of Mathematical Functions.)
csrc/kernels/eltwise/ops.h has it too: change both together.
"""

from __future__ import annotations

import math

from aicf_mlir.ir.formula import Scalar, absolute, exp, fma, minimum, select

STEP = 0.27
RATIO = (
    *(
        0.028953036823812103,
        -0.12644529478361619,
        0.16969915177049336,
        -0.06910709490952277,
        0.10775076240913872,
    ),
    *(0.07208307677569992, 0.10180159018186001, 0.10754420996589761, 0.10772057362744453),
)
"""The coefficients, of the highest power first."""


def mills_ratio(size: Scalar, step: float) -> Scalar:
    """(1 - Φ(z)) / exp(-z² / 2), for a `size` of z · 0.27 / `step`, 0 or more."""
    t = 1.0 / fma(size, step, 1.0)
    found = t.of(RATIO[0])
    for coefficient in RATIO[1:]:
        found = fma(found, t, coefficient)
    return found * t


def normal_power(x: Scalar) -> Scalar:
    """exp(-x² / 2)."""
    return exp(-0.5 * (x * x))


def normal_cdf(x: Scalar) -> Scalar:
    """Φ(x), within 5e-7 of itself where x is not below -4."""
    tail = normal_power(x) * mills_ratio(absolute(x), STEP)
    return select(x < 0.0, tail, 1.0 - tail)


def erfc(x: Scalar) -> Scalar:
    """1 - erf(x) with all digits where that is nearly 0: what rounding took from x² is a factor of its own."""
    size = minimum(absolute(x), 11.0)
    square = size * size
    power = exp(-square) * (1.0 - fma(size, size, -square))
    tail = power * (2.0 * mills_ratio(size, STEP * math.sqrt(2.0)))
    return select(x < 0.0, 2.0 - tail, tail)
