"""Fourier transforms of a fixed length as products by constant matrices of cosines and sines.

A long one is taken apart, as Cooley and Tukey do it: the transform of length a · b is one of length a, a product by
constants, and one of length b. All derivatives follow from the products.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from aicf_mlir.frontend import complex_parts as c
from aicf_mlir.frontend.complex_parts import Pair, Parts
from aicf_mlir.frontend.refused import Forbidden

aten: Any = torch.ops.aten

DIRECT = 256
"""The longest transform that is one product."""

MOST = 2048
"""The longest that is one product because its length is prime."""

_library: Any = torch.library.Library("aicf_fourier", "DEF")
_library.define(
    "roots(SymInt rows, SymInt columns, SymInt length, bool sine, float scale, bool doubled, ScalarType dtype,"
    " Device device) -> Tensor"
)


def _roots(
    rows: int,
    columns: int,
    length: int,
    sine: bool,
    scale: float,
    doubled: bool,
    dtype: torch.dtype,
    device: torch.device,
) -> torch.Tensor:
    """Return scale · cos(2π r c / length), or of the sine, rounded once from f64; `doubled`: twice, in the rows that a
    half spectrum leaves out.
    """
    row, column = (torch.arange(n, dtype=torch.int64, device="cpu") for n in (rows, columns))
    angle = (row[:, None] * column % length).double() * (2 * math.pi / length)
    values = torch.sin(angle) if sine else torch.cos(angle)
    values = torch.where(values.abs() < 1e-15, 0.0, values) * scale
    if doubled:
        values[1 : (length + 1) // 2] *= 2
    return values.to(dtype)


def _like_roots(rows: int, columns: int, *args: Any) -> torch.Tensor:
    dtype, device = args[-2:]
    return torch.empty(rows, columns, dtype=dtype, device=device)


_library.impl("roots", _roots, "CompositeExplicitAutograd")
_registry: Any = torch.library
_registry.register_fake("aicf_fourier::roots", _like_roots, lib=_library)

ROOTS: Any = torch.ops.aicf_fourier.roots.default  # pyright: ignore[reportAttributeAccessIssue]


def roots(
    like: torch.Tensor,
    rows: int,
    columns: int,
    length: int,
    sign: int,
    scale: float = 1.0,
    doubled: bool = False,
) -> Parts:
    """Return the matrices of cosines and of `sign` times the sines, in the dtype of a real tensor."""
    cosine, sine = (
        ROOTS(rows, columns, length, is_sine, size, doubled, like.dtype, like.device)
        for is_sine, size in ((False, scale), (True, sign * scale))
    )
    return cosine, sine


def factor(length: int) -> int:
    """Return the largest factor up to the root of `length`; 1 for a length that stays whole. Raises Forbidden if it is too
    long for one product.
    """
    if length <= DIRECT:
        return 1
    found = next(a for a in range(math.isqrt(length), 0, -1) if length % a == 0)
    if found == 1 and length > MOST:
        raise Forbidden(
            f"a Fourier transform whose length has the prime factor {length}; at most {MOST} are supported: pad to a length with"
            " small factors, as by n="
        )
    return found


def _product(x: Any, matrix: torch.Tensor) -> Any:
    return None if x is None else torch.matmul(x, matrix)


def _mapped(function: Callable[[Any], Any], x: Parts) -> Parts:
    return tuple(None if each is None else function(each) for each in x)  # pyright: ignore[reportReturnType]


def _swapped(x: Parts) -> Parts:
    return _mapped(lambda each: each.transpose(-1, -2), x)


def turned(x: Parts, rows: int, columns: int, length: int, sign: int) -> Parts:
    """Each element times the root of unity to the power of its row times its column."""
    return c.product(x, roots(x[0], rows, columns, length, sign))


def transformed(x: Parts, sign: int, kept: int, scale: float = 1.0) -> Parts:
    """Return the first `kept` numbers of the transform along the last dimension, times `scale`."""
    length = x[0].shape[-1]
    if (a := factor(length)) == 1:
        return c.product(x, roots(x[0], length, kept, length, sign, scale), _product)
    b = length // a
    columns = _swapped(_mapped(lambda each: each.unflatten(-1, (a, b)), x))
    inner = turned(transformed(columns, sign, a), b, a, length, sign)
    outer = transformed(_swapped(inner), sign, min(b, -(-kept // a)), scale)
    return _mapped(lambda each: each.transpose(-1, -2).flatten(-2)[..., :kept], outer)


def real_inverse(x: Parts, length: int, scale: float) -> Parts:
    """Return the real numbers of `length` with this half spectrum in the last dimension."""
    count = length // 2 + 1
    if (a := factor(length)) == 1:
        return c.product(x, roots(x[0], count, length, length, 1, scale, doubled=True), _product)[0], None
    b = length // a
    doubled, _ = roots(x[0], count, 1, length, 1, doubled=True)
    missing = (0, -(-count // a) * a - count) if factor(b) == 1 else (0, length - count)
    weighed = c.product(x, (doubled.flatten(), None))
    padded = _mapped(lambda each: torch.nn.functional.pad(each, missing), weighed)
    rows = _swapped(_mapped(lambda each: each.unflatten(-1, (-1, a)), padded))
    inner = (
        c.product(rows, roots(x[0], rows[0].shape[-1], b, b, 1), _product)
        if factor(b) == 1
        else transformed(rows, 1, b)
    )
    outer = transformed(_swapped(turned(inner, a, b, length, 1)), 1, a, scale)
    return outer[0].transpose(-1, -2).flatten(-2), None


def _along(x: Parts, dim: int, function: Callable[[Parts], Parts]) -> Parts:
    """Return the result of a function of the last dimension, along `dim`."""
    found = function(_mapped(lambda each: each.movedim(dim, -1), x))
    return _mapped(lambda each: each.movedim(-1, dim), found)


def _scale(normalization: int, length: int) -> float:
    """Torch's numbering: none, by the root of the length, by the length."""
    return (1.0, length**-0.5, 1.0 / length)[normalization]


def _all(x: Parts, dims: Sequence[int], normalization: int, sign: int) -> Parts:
    for dim in reversed(dims):
        length = x[0].shape[dim]
        scale = _scale(normalization, length)
        x = _along(x, dim, partial(transformed, sign=sign, kept=length, scale=scale))
    return x


def complex_to_complex(
    like: torch.Tensor, x: Pair, dims: Sequence[int], normalization: int, forward: bool
) -> Parts:
    """The transform of complex numbers, forward or back."""
    return _all((x.re, x.im), dims, normalization, -1 if forward else 1)


def real_to_complex(
    like: torch.Tensor, x: torch.Tensor, dims: Sequence[int], normalization: int, onesided: bool
) -> Parts:
    """The transform of real numbers; with `onesided` the half of the last dimension that tells the other."""
    length = x.shape[dims[-1]]
    kept = length // 2 + 1 if onesided else length
    scale = _scale(normalization, length)
    found = _along((x, None), dims[-1], lambda each: transformed(each, -1, kept, scale))
    return _all(found, dims[:-1], normalization, -1)


def complex_to_real(
    like: torch.Tensor, x: Pair, dims: Sequence[int], normalization: int, length: int
) -> torch.Tensor:
    """The transform back to real numbers, of half a spectrum."""
    half = (
        x.re.narrow(dims[-1], 0, length // 2 + 1),
        None if x.im is None else x.im.narrow(dims[-1], 0, length // 2 + 1),
    )
    found = _all(half, dims[:-1], normalization, 1)
    scale = _scale(normalization, length)
    return _along(found, dims[-1], lambda each: real_inverse(each, length, scale))[0]


TRANSFORMS: dict[Any, Any] = {
    aten._fft_c2c.default: complex_to_complex,
    aten._fft_r2c.default: real_to_complex,
    aten._fft_c2r.default: complex_to_real,
}
"""The rules for the three ops that all of torch.fft consists of."""
