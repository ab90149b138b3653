"""Samples of reductions, softmax and normalisation, with their gradients."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from xdsl.ir import Operation

from aicf_mlir.dialects import nn
from aicf_mlir.dialects.nn.reductions import GRADIENTS, REDUCTIONS
from aicf_mlir.interpreters.numerics import Array
from samples.sample import Fill, Sample, classes, normal, positive, special, special_slowly, value

DIMS: tuple[tuple[tuple[int, ...], bool], ...] = (((2,), False), ((0,), True), ((1,), False), ((0, 2), False))


def many(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function over one dimension over several, one behind the other."""

    def over(x: Any, dims: tuple[int, ...], keepdim: bool) -> Any:
        for dim in sorted(dims, reverse=True):
            x = function(x, dim, keepdim)
        return x

    return over


def of_each(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of whole tensors, of each slice over several dimensions."""

    def over(x: Any, dims: tuple[int, ...], keepdim: bool) -> Any:
        dims = tuple(dim % max(x.ndim, 1) for dim in dims)
        kept = [dim for dim in range(x.ndim) if dim not in dims]
        shape = [1 if dim in dims else size for dim, size in enumerate(x.shape) if keepdim or dim in kept]
        slices = x.permute(*kept, *dims).reshape(math.prod(x.shape[dim] for dim in kept), -1)
        return torch.stack([function(each) for each in slices]).reshape(shape)

    return over


def norm(ord: float) -> Callable[..., Any]:
    """torch.linalg.vector_norm."""
    return lambda x, dims, keepdim: torch.linalg.vector_norm(x, ord, dims, keepdim)


TABLE: Mapping[str, tuple[Callable[..., Any], str]] = {
    "prod": (many(torch.prod), "f32"),
    "amax": (torch.amax, "f32"),
    "amin": (torch.amin, "f32"),
    "max": (of_each(torch.max), "f32"),
    "min": (of_each(torch.min), "f32"),
    "logsumexp": (torch.logsumexp, "f32"),
    "any": (many(torch.any), "i1"),
    "all": (many(torch.all), "i1"),
    "argmax": (many(torch.argmax), "f32"),
    "argmin": (many(torch.argmin), "f32"),
}
"""What torch computes over dimensions, and of which elements."""

ORDERS = (2.0, 1.0, 0.0, math.inf, -math.inf, 3.0, 0.5)


def of_table(
    name: str,
    sample: str,
    type_: str,
    reference: Callable[..., Any],
    dims: Any,
    keepdim: bool = False,
    **more: Any,
) -> Sample:
    """One reduction."""
    fills: dict[int, Fill] = more.pop("fills", {})
    smooth = name not in ("any", "all", "argmax", "argmin") and fills.get(0) is not special_slowly

    def build(x: Any) -> Operation:
        return REDUCTIONS[name](x, dims, keepdim, **more)

    def expected(x: Any) -> Any:
        return reference(x, dims, keepdim)

    return Sample(sample, (type_,), build, expected, fills, smooth)


def reductions() -> list[Sample]:
    """Subsets of dimensions with and without keeping them, special values, integers, numbers."""
    samples: list[Sample] = []
    for name, (reference, element) in TABLE.items():
        for dims, keepdim in DIMS:
            if len(dims) == 1 or not name.startswith("arg"):
                label = f"{dims}-{keepdim}"
                samples.append(of_table(name, label, f"2x3x5x{element}", reference, dims, keepdim))
        if element == "f32":
            fills = {0: special_slowly}
            samples.append(of_table(name, "special", "13x13xf32", reference, (1,), fills=fills))
            samples.append(
                of_table(name, "0-d", "f32", lambda x, *_, f=reference: f(x[None], (0,), False), ())
            )
    for name in ("prod", "amax", "amin", "argmax", "argmin"):
        fills = {0: classes(5)}
        samples.append(of_table(name, "i64", "4x6xi64", TABLE[name][0], (1,), fills=fills))
    for ord in ORDERS:
        for dims, keepdim in (((1,), False), ((0,), True)):
            samples.append(
                of_table("vector_norm", f"{ord}-{dims}", "4x6xf32", norm(ord), dims, keepdim, ord=ord)
            )
    samples.append(
        Sample("i64", ("3x5xi64",), lambda x: nn.SumOp(x, [1]), lambda x: x.sum(1), {0: classes(9)})
    )
    return [*samples, *gradients(), *with_index()]


def zeros(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Rows with no zero, one and two."""
    values = normal(rng, shape)
    values[1, 0] = values[2, :2] = 0.0
    return values


def gradients() -> list[Sample]:
    """Each beside torch's, at ties and zeros."""
    dims, shapes = (1,), ("3x1xf32", "3x4xf32", "3x1xf32")

    def of(
        name: str, label: str, reference: Callable[..., Any], fills: dict[int, Fill], **more: Any
    ) -> Sample:
        def build(g: Any, x: Any, y: Any) -> Operation:
            return GRADIENTS[f"{name}_grad"](g, x, y, dims, **more)

        def expected(g: Any, x: Any, y: Any) -> Any:
            leaf = x.clone().requires_grad_()
            return torch.autograd.grad(reference(leaf), leaf, g)[0]

        return Sample(label, shapes, build, expected, fills, smooth=False)

    ties: dict[int, Fill] = {1: lambda rng, shape: np.resize([2.0, 1.0, 2.0, 0.5], shape), 2: value(2.0)}
    low: dict[int, Fill] = {1: lambda rng, shape: np.resize([2.0, 1.0, 1.0, 1.5], shape), 2: value(1.0)}
    size = math.sqrt(4 + 1 + 4 + 0.25)
    samples = [
        of("amax", "ties", lambda x: x.amax(1, True), ties),
        of("amin", "ties", lambda x: x.amin(1, True), low),
        of("max", "ties", lambda x: of_each(torch.max)(x, (1,), True), ties),
        of("min", "ties", lambda x: of_each(torch.min)(x, (1,), True), low),
        of("prod", "zeros", lambda x: x.prod(1, True), {1: zeros, 2: product_of_zeros}),
        of("vector_norm", "2", lambda x: torch.linalg.vector_norm(x, 2, 1, True), {**ties, 2: value(size)}),
        of(
            "vector_norm", "inf", lambda x: torch.linalg.vector_norm(x, math.inf, 1, True), ties, ord=math.inf
        ),
        of(
            "vector_norm",
            "NaN",
            lambda x: torch.linalg.vector_norm(x, -math.inf, 1, True),
            {1: lambda rng, shape: np.resize([2.0, math.nan, -2.0, 0.5], shape), 2: value(math.nan)},
            ord=-math.inf,
        ),
        of(
            "vector_norm",
            "none",
            lambda x: torch.linalg.vector_norm(x, 2, 1, True),
            {1: value(0.0), 2: value(0.0)},
        ),
    ]
    logsumexp = Sample(
        "3x4",
        shapes,
        lambda g, x, y: GRADIENTS["logsumexp_grad"](g, x, y, dims),
        lambda g, x, y: g * torch.exp(x - y),
    )
    return [*samples, logsumexp]


def product_of_zeros(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """The products of `zeros`, drawn as it is drawn."""
    again = np.random.default_rng(0)
    normal(again, shape)
    return np.prod(zeros(again, (3, 4)), axis=1, keepdims=True)


def with_index() -> list[Sample]:
    """Values and indices, of NaN too, and the gradient at an index."""
    samples: list[Sample] = []
    for op, reference in ((nn.MaxWithIndexOp, torch.max), (nn.MinWithIndexOp, torch.min)):
        for dim, keepdim in ((1, False), (0, True)):

            def build(x: Any, op: Any = op, dim: int = dim, keepdim: bool = keepdim) -> Operation:
                return op(x, dim, keepdim)

            def expected(x: Any, f: Any = reference, dim: int = dim, keepdim: bool = keepdim) -> Any:
                return tuple(f(x, dim, keepdim))

            samples.append(Sample(f"{dim}-{keepdim}", ("4x6xf32",), build, expected))
        samples.append(Sample("special", ("13x13xf32",), build, expected, {0: special_slowly}, smooth=False))
        samples.append(Sample("i64", ("4x6xi64",), build, expected, {0: classes(5)}))

    def at(g: Any, index: Any) -> Operation:
        return nn.AtIndexOp(g, index, 1, 4)

    def scattered(g: Any, index: Any) -> Any:
        return torch.zeros(3, 4, dtype=g.dtype).scatter(1, index, g)

    return [*samples, Sample("of four", ("3x1xf32", "3x1xi64"), at, scattered, {1: classes(4)})]


def hidden_rows(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Minus infinity throughout each second row, and here and there."""
    values = np.where(rng.integers(0, 2, shape) == 1, rng.standard_normal(shape), -np.inf)
    values[::2] = -np.inf
    return values


def rows() -> list[Sample]:
    """The logarithm of softmax, and normalisation with and without weight and bias."""
    log_softmax: Callable[..., Any] = lambda x: torch.log_softmax(x, -1)  # noqa: E731
    samples = [
        Sample(shape, (f"{shape}xf32" if shape else "f32",), nn.LogSoftmaxOp, log_softmax, {}, bool(shape))
        for shape in ("7", "2x3x4", "")
    ]
    samples.append(Sample("special", ("13x3xf32",), nn.LogSoftmaxOp, log_softmax, {0: special}, False))
    safe: Callable[..., Any] = lambda x: torch.ops.aten._safe_softmax(x, -1)  # noqa: E731
    samples += [Sample(shape, (f"{shape}xf32",), nn.SafeSoftmaxOp, safe) for shape in ("7", "2x3x4", "5x300")]
    for name, fill in (("special", special), ("hidden", hidden_rows)):
        samples.append(Sample(name, ("13x3xf32",), nn.SafeSoftmaxOp, safe, {0: fill}, False))
    backward = Sample(
        "3x5",
        ("3x5xf32", "3x5xf32"),
        nn.LogSoftmaxGradOp,
        lambda g, y: torch.ops.aten._log_softmax_backward_data(g, y, -1, g.dtype),
    )
    return [*samples, backward, *layer_norms(), *rms_norms()]


def layer_norms() -> list[Sample]:
    """One and two dimensions."""
    samples: list[Sample] = []
    for shape, normalized, (weight, bias) in itertools.product(
        ("4x6", "2x3x5"), (1, 2), ((False, False), (True, False), (True, True))
    ):
        sizes = [int(size) for size in shape.split("x")][-normalized:]
        inner = "x".join(map(str, sizes))

        def build(x: Any, *given: Any, n: int = normalized) -> Operation:
            return nn.LayerNormOp(x, given[0] if given else None, given[1] if given[1:] else None, n, 1e-3)

        def expected(x: Any, *given: Any, sizes: Any = sizes) -> Any:
            dims = [-1 - d for d in range(len(sizes))]
            variance, mean = torch.var_mean(x, dims, correction=0, keepdim=True)
            rstd = (variance + 1e-3).rsqrt()
            scaled = (x - mean) * rstd
            for weight, bias in (given,) if given[1:] else [(each, 0.0) for each in given]:
                scaled = scaled * weight + bias
            return scaled, mean, rstd

        types = (f"{shape}xf32", *[f"{inner}xf32"] * (weight + bias))
        samples.append(Sample(f"{shape}-{normalized}-{weight}-{bias}", types, build, expected))
    for weight in (False, True):

        def gradient(g: Any, x: Any, mean: Any, rstd: Any, *given: Any) -> Operation:
            return nn.LayerNormGradOp(g, x, mean, rstd, given[0] if given else None, 1)

        def backward(g: Any, x: Any, mean: Any, rstd: Any, *given: Any) -> Any:
            h, scaled = g * given[0] if given else g, (x - mean) * rstd
            return rstd * (h - h.mean(-1, True) - scaled * (h * scaled).mean(-1, True))

        types = ("4x6xf32", "4x6xf32", *statistics(2), *["6xf32"] * weight)
        samples.append(Sample(f"{weight}", types, gradient, backward, {3: positive}))
    return samples


def statistics(count: int) -> tuple[str, ...]:
    """Types of a number for each of four rows; of f32 whatever the elements are, unless they are f64."""
    return ("4x1xcompute",) * count


def rms_norms() -> list[Sample]:
    """With and without weight."""
    samples: list[Sample] = []
    for weight in (False, True):

        def build(x: Any, *given: Any) -> Operation:
            return nn.RmsNormOp(x, given[0] if given else None, 1, 1e-3)

        def expected(x: Any, *given: Any) -> Any:
            rstd = torch.rsqrt(x.square().mean(-1, True) + 1e-3)
            return F.rms_norm(x, x.shape[-1:], given[0] if given else None, 1e-3), rstd

        def gradient(g: Any, x: Any, rstd: Any, *given: Any) -> Operation:
            return nn.RmsNormGradOp(g, x, rstd, given[0] if given else None, 1)

        def backward(g: Any, x: Any, rstd: Any, *given: Any) -> Any:
            h, scaled = g * given[0] if given else g, x * rstd
            return rstd * (h - scaled * (h * scaled).mean(-1, True))

        more = ["6xf32"] * weight
        samples.append(Sample(f"{weight}", ("4x6xf32", *more), build, expected))
        types = ("4x6xf32", "4x6xf32", *statistics(1), *more)
        samples.append(Sample(f"{weight}", types, gradient, backward, {2: positive}))
    return samples
