"""The logarithm of the gamma function and its derivative with tensors, for which no kernel is generated.

Source: Abramowitz and Stegun, "Handbook of Mathematical Functions", 6.1.41 and 6.3.18, the asymptotic series from 10 on; below by
the recurrences 6.1.15 and 6.3.5, and left of 0 by the reflections 6.1.17 and 6.3.7. All is computed in float64.
"""

from __future__ import annotations

import math

import torch

Tensor = torch.Tensor

SERIES = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)
"""Of 1/z, 1/z^3, …, in the logarithm."""
SLOPES = tuple((2 * n + 1) * term for n, term in enumerate(SERIES))
"""Of 1/z^2, 1/z^4, …, in the derivative, subtracted."""
FAR = 10
"""From here on the series has the digits of float64."""


def lgamma(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Compute `torch.lgamma`: of the gamma function's magnitude; infinity at 0, at negative integers, and of infinities."""
    x, left, right = _halves(input, out, "lgamma")
    near, z, _, factors = _shifted(right)
    found = (z - 0.5) * z.log() - z + 0.5 * math.log(2 * math.pi) + _series(SERIES, z) / z
    found = found - torch.where(near, math.prod(factors[1:], start=factors[0]).log(), 0.0)
    zero = x == 0
    reflected = math.log(math.pi) - _sine(torch.where(left & ~zero, x, 0.5)).abs().log() - found
    found = torch.where(left, reflected, found)
    found = torch.where(zero, -torch.where(zero, x, 1.0).log(), found)
    return torch.where(x.isinf(), math.inf, found).to(_type(input))


def mvlgamma(input: Tensor, p: int) -> Tensor:
    """Compute `torch.mvlgamma`, the logarithm of the multivariate gamma function of dimension p."""
    if p < 1 or input.is_complex():
        raise ValueError(f"mvlgamma of real numbers with p from 1 on, got p = {p}")
    if torch.any(input <= 0.5 * (p - 1)):
        raise ValueError(f"All elements must be greater than (p-1)/2 = {0.5 * (p - 1)}")
    x = input.to(torch.float64)
    found = sum((lgamma(x - 0.5 * n) for n in range(p)), torch.zeros_like(x))
    return (found + 0.25 * p * (p - 1) * math.log(math.pi)).to(_type(input))


def digamma(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Compute `torch.digamma`: minus infinity at 0 and infinity at -0, NaN at negative integers."""
    x, left, right = _halves(input, out, "digamma")
    near, z, ends, factors = _shifted(right)
    found = z.log() - 0.5 / z - _series(SLOPES, z) / (z * z)
    found = found - torch.where(near, ends * sum(1.0 / factor for factor in factors), 0.0)
    whole = x == x.round()
    angle = torch.where(left & ~whole, x - x.round(), 0.25) * math.pi
    found = torch.where(left, found - math.pi * angle.cos() / angle.sin(), found)
    found = torch.where(left & whole, math.nan, found)
    found = torch.where(x == 0, torch.copysign(torch.full_like(x, math.inf), -x), found)
    return torch.where(x == math.inf, math.inf, found).to(_type(input))


def _type(input: Tensor) -> torch.dtype:
    return input.dtype if input.is_floating_point() else torch.get_default_dtype()


def _halves(input: Tensor, out: Tensor | None, name: str) -> tuple[Tensor, Tensor, Tensor]:
    """Return x in float64, where it is reflected, and the argument to the right: finite and at least 0.5 or NaN."""
    if out is not None or input.is_complex():
        raise ValueError(f"{name} with out= or of complex numbers")
    x = input.to(torch.float64)
    left = x < 0.5
    right = torch.where(left, 1.0 - x, x)
    return x, left, torch.where(right.isinf(), 1.0, right)


def _shifted(x: Tensor) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:
    """Return where x is near, and from where the series is taken; of x(x + 1)…(x + 9) two factors at a time, x + n and x + 9 - n:
    their sum, which is the same for all, and their products.
    """
    near = x < FAR
    base = torch.where(near, x, 1.0)
    outer = base * (base + (FAR - 1))
    factors = [outer + n * (FAR - 1 - n) if n else outer for n in range(FAR // 2)]
    return near, torch.where(near, x + FAR, x), 2.0 * base + (FAR - 1), factors


def _series(terms: tuple[float, ...], z: Tensor) -> Tensor:
    """Return the terms, each times one more power of z^-2."""
    square = 1.0 / (z * z)
    found = torch.full_like(z, terms[-1])
    for term in terms[-2::-1]:
        found = found * square + term
    return found


def _sine(x: Tensor) -> Tensor:
    """Return sin(pi x), whose sign is that of a shifted x."""
    return ((x - x.round()) * math.pi).sin()
