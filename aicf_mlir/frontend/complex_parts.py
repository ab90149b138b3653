"""The parts of complex numbers, and arithmetic on them: a part that is zero everywhere is None, and costs nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

Part = Any
"""A real tensor, a Python number, or None for zero."""

Parts = tuple[Part, Part]
"""The real and the imaginary part."""

_library: Any = torch.library.Library("aicf_complex", "DEF")
_library.define("magnitude(Tensor re, Tensor im) -> Tensor")
_library.impl("magnitude", torch.hypot, "CompositeExplicitAutograd")
_ops: Any = torch.ops.aicf_complex

MAGNITUDE: Any = _ops.magnitude.default
"""The absolute value of a complex number; its derivative at 0 is 0, unlike that of `torch.hypot`."""


@dataclass(frozen=True, eq=False)
class Pair:
    """A complex tensor as real ones of its shape."""

    re: Any
    im: Any
    """None if it is zero everywhere."""


def parts(value: Any, dtype: torch.dtype) -> Parts:
    """Return the parts of a complex or real tensor, or of a number, in a real dtype."""
    if isinstance(value, Pair):
        return value.re.to(dtype), None if value.im is None else value.im.to(dtype)
    if isinstance(value, torch.Tensor):
        return value.to(dtype), None
    number = complex(value)
    return (number.real if number.real or not number.imag else None), number.imag or None


def plus(x: Part, y: Part) -> Part:
    """The sum."""
    return y if x is None else x if y is None else x + y


def minus(x: Part, y: Part) -> Part:
    """The difference."""
    return x if y is None else -y if x is None else x - y


def times(x: Part, y: Part) -> Part:
    """The product."""
    return None if x is None or y is None else x * y


def product(a: Parts, b: Parts, by: Any = times) -> Parts:
    """The complex product, of products `by` of real parts."""
    return minus(by(a[0], b[0]), by(a[1], b[1])), plus(by(a[0], b[1]), by(a[1], b[0]))


def quotient(a: Parts, b: Parts) -> Parts:
    """The complex quotient, without overflow of the divisor's square: numerator and divisor are scaled alike."""
    if b[1] is None:
        return tuple(None if each is None else each / b[0] for each in a)  # pyright: ignore[reportReturnType]
    if not isinstance(b[1], torch.Tensor):
        inverse = 1 / complex(b[0] or 0.0, b[1])
        return product(a, (inverse.real, inverse.imag))
    re = torch.zeros_like(b[1]) if b[0] is None else b[0]
    largest = torch.maximum(re.abs(), b[1].abs()).detach()  # the quotient does not depend on it
    scale = torch.where((largest > 0) & (largest < math.inf), largest, 1.0)
    re, im = re / scale, b[1] / scale
    squared = scale * (re * re + im * im)
    above = product(a, (re, -im))
    return tuple(None if each is None else each / squared for each in above)  # pyright: ignore[reportReturnType]


def magnitude(z: Parts) -> torch.Tensor:
    """The absolute value."""
    re, im = z
    return re.abs() if im is None else im.abs() if re is None else MAGNITUDE(re, im)


def angle(z: Parts) -> torch.Tensor:
    """The angle; as in torch its derivative at 0 is 0."""
    re, im = z
    if im is None:
        return torch.where(re < 0, torch.full_like(re, math.pi), torch.zeros_like(re))
    re = torch.zeros_like(im) if re is None else re
    is_zero = (re == 0) & (im == 0)
    one, none = torch.ones_like(re), torch.zeros_like(re)
    of_others = torch.atan2(torch.where(is_zero, none, im), torch.where(is_zero, one, re))
    return torch.where(is_zero, torch.atan2(im.detach(), re.detach()), of_others)


def turned(size: torch.Tensor, by: torch.Tensor) -> Parts:
    """The complex number of an absolute value and an angle."""
    return size * torch.cos(by), size * torch.sin(by)


def exponential(z: Parts) -> Parts:
    """E to the power of z."""
    re, im = z
    if im is None:
        return torch.exp(re), None
    size = torch.ones_like(im) if re is None else torch.exp(re)
    return turned(size, im)


def logarithm(z: Parts) -> Parts:
    """The natural logarithm."""
    return torch.log(magnitude(z)), angle(z)


def exponential_minus_one(z: Parts) -> Parts:
    """exp(z) - 1, also near 0."""
    re, im = z
    if im is None:
        return torch.expm1(re), None
    return torch.expm1(re) * torch.cos(im) - 2 * torch.sin(im / 2) ** 2, torch.exp(re) * torch.sin(im)


def logarithm_of_one_plus(z: Parts) -> Parts:
    """log(1 + z), also near 0."""
    re, im = z
    squared = re * (2 + re) if im is None else re * (2 + re) + im * im
    return torch.log1p(squared) / 2, angle((1 + re, im))


def power(z: Parts, exponent: float) -> Parts:
    """Z to the power of a real number: products for small whole exponents."""
    if exponent == 0:
        return torch.ones_like(z[0]), None
    if exponent in range(1, 9):
        half = power(z, exponent // 2) if exponent > 1 else z
        squared = product(half, half) if exponent > 1 else z
        return product(squared, z) if exponent > 1 and exponent % 2 else squared
    if -exponent in range(1, 9):
        return quotient((1.0, None), power(z, -exponent))
    return turned(magnitude(z) ** exponent, angle(z) * exponent)


def tangent(z: Parts) -> Parts:
    """The hyperbolic tangent, without overflow."""
    re, im = z
    if im is None:
        return torch.tanh(re), None
    t, u = torch.tanh(re), torch.tan(im)
    below = 1 + (t * u) ** 2
    return t * (1 + u * u) / below, u * (1 - t * t) / below
