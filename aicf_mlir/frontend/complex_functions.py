"""Functions of one complex number, on its real and imaginary parts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from aicf_mlir.frontend import complex_parts as c
from aicf_mlir.frontend.complex_parts import Parts


def each_part(op: Any, x: Parts, y: Parts) -> Parts:
    return op(x[0], y[0]), op(x[1], y[1])


def sign(z: Parts) -> Parts:
    """Z / |z|; 0 at 0, with a derivative of 0 there."""
    size = c.magnitude(z)
    is_zero = size == 0
    safe = torch.where(is_zero, torch.ones_like(size), size)
    return tuple(
        None if each is None else torch.where(is_zero, torch.zeros_like(each), each / safe) for each in z
    )  # pyright: ignore[reportReturnType]


def _conjugate(z: Parts) -> Parts:
    return z[0], None if z[1] is None else -z[1]


def _by(factor: complex) -> Callable[[Parts], Parts]:
    return lambda z: c.product(z, ((factor.real or None), factor.imag or None))


def _hyperbolic(z: Parts) -> tuple[Any, Any, Any, Any]:
    """The parts of sinh and of cosh."""
    re, im = z
    if im is None:
        return torch.sinh(re), None, torch.cosh(re), None
    return (
        torch.sinh(re) * torch.cos(im),
        torch.cosh(re) * torch.sin(im),
        torch.cosh(re) * torch.cos(im),
        torch.sinh(re) * torch.sin(im),
    )


def _half_angle(exponent: float) -> Callable[[Parts], Parts]:
    return lambda z: c.turned(c.magnitude(z) ** exponent, c.angle(z) * exponent)


def _turned_by_i(function: Callable[[Parts], Parts]) -> Callable[[Parts], Parts]:
    """-i f(iz), the function of a circle for one of a hyperbola."""
    return lambda z: _by(-1j)(function(_by(1j)(_full(z))))


def _full(z: Parts) -> Parts:
    return z[0], torch.zeros_like(z[0]) if z[1] is None else z[1]


FUNCTIONS: dict[str, Callable[[Parts], Parts]] = {
    "exp": c.exponential,
    "exp2": lambda z: c.exponential(_by(math.log(2))(z)),
    "expm1": c.exponential_minus_one,
    "log1p": c.logarithm_of_one_plus,
    "log": c.logarithm,
    "log2": lambda z: _by(1 / math.log(2))(c.logarithm(z)),
    "log10": lambda z: _by(1 / math.log(10))(c.logarithm(z)),
    "sqrt": _half_angle(0.5),
    "rsqrt": _half_angle(-0.5),
    "reciprocal": lambda z: c.quotient((1.0, None), z),
    "square": lambda z: c.product(z, z),
    "sgn": sign,
    "sinh": lambda z: _hyperbolic(z)[:2],
    "cosh": lambda z: _hyperbolic(z)[2:],
    "tanh": c.tangent,
    "sin": _turned_by_i(lambda z: _hyperbolic(z)[:2]),
    "cos": lambda z: _hyperbolic(_by(1j)(_full(z)))[2:],
    "tan": _turned_by_i(c.tangent),
    "sigmoid": lambda z: each_part(c.plus, _by(0.5)(c.tangent(_by(0.5)(z))), (0.5, None)),
    "_conj": _conjugate,
    "_conj_physical": _conjugate,
    "conj_physical": _conjugate,
}
"""Functions of one complex tensor."""
