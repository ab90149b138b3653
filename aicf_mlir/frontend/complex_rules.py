"""The ATen ops of complex tensors as ops of their real and imaginary parts: one row an op.

A rule takes the result that torch describes, then the op's own arguments, each complex tensor as a `Pair`. It returns
real tensors, or parts for a complex result. Ops that consist of others do not arrive here: torch takes them apart.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from aicf_mlir.frontend import complex_parts as c
from aicf_mlir.frontend.complex_functions import FUNCTIONS, each_part
from aicf_mlir.frontend.complex_parts import Pair, Parts, parts
from aicf_mlir.frontend.cut import CUT
from aicf_mlir.frontend.fourier import TRANSFORMS
from aicf_mlir.frontend.refused import Refused

aten: Any = torch.ops.aten

Rule = Callable[..., Any]

FILLED = ("value", "fill_value")
"""The names of arguments that are numbers of the result."""


def alike(op: Any, by: Any = None) -> Rule:
    """The rule for an op that does the same to both parts: a view, a sum, a choice by indices. `by` is run in its place."""
    names = [argument.name for argument in op._schema.arguments]

    def rule(like: Any, *args: Any, **kwargs: Any) -> Any:
        dtype = _tensors(like)[0].dtype.to_real()
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        given |= {key: Pair(*parts(given[key], dtype)) for key in FILLED if _is_number(given.get(key))}
        is_real = all(each.im is None for each in tree_leaves(given) if isinstance(each, Pair))
        found = [
            (by or op)(*(_part(given, which, dtype)).values()) if by else op(**_part(given, which, dtype))
            for which in (range(1) if is_real else range(2))
        ]
        re, im = found[0], None if is_real else found[1]
        if isinstance(like, torch.Tensor):
            return re, im
        return [(each, None if im is None else im[i]) for i, each in enumerate(re)]

    return rule


def _tensors(results: Any) -> list[torch.Tensor]:
    return [results] if isinstance(results, torch.Tensor) else list(results)


def _is_number(value: Any) -> bool:
    return isinstance(value, (bool, int, float, complex))


def _part(tree: Any, which: int, dtype: torch.dtype) -> Any:
    """Return arguments with one part of each; numbers and real tensors, other than indices and masks, have both, too."""

    def part(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            value = Pair(value.to(dtype), None)
        if isinstance(value, Pair):
            found = (value.re, value.im)[which]
            if found is not None:
                return found
            other = value.re if value.im is None else value.im
            return torch.zeros_like(other) if isinstance(other, torch.Tensor) else 0.0
        return value.to_real() if isinstance(value, torch.dtype) and value.is_complex else value

    return tree_map(part, tree)


def arithmetic(function: Callable[..., Parts]) -> Rule:
    """The rule for a function of the parts of tensors and numbers."""

    def rule(like: torch.Tensor, *args: Any, **_: Any) -> Parts:
        return function(*(parts(each, like.dtype.to_real()) for each in args))

    return rule


def measured(function: Callable[[Parts], torch.Tensor]) -> Rule:
    """The rule for a function whose result is real."""

    def rule(like: torch.Tensor, z: Pair) -> torch.Tensor:
        return function(parts(z, z.re.dtype))

    return rule


def scaled(sign: int, swap: bool = False) -> Rule:
    """The rule for a sum or difference with a factor for the second term."""

    def rule(like: torch.Tensor, x: Any, y: Any, alpha: Any = 1) -> Parts:
        dtype = like.dtype.to_real()
        first, second = parts(y if swap else x, dtype), parts(x if swap else y, dtype)
        if alpha != 1:
            second = c.product(second, parts(alpha, dtype))
        return each_part(c.plus if sign > 0 else c.minus, first, second)

    return rule


def divided(like: torch.Tensor, x: Any, y: Any, rounding_mode: Any = None) -> Parts:
    """A quotient."""
    dtype = like.dtype.to_real()
    return c.quotient(parts(x, dtype), parts(y, dtype))


def with_product(by: Callable[[Parts, Parts], Parts]) -> Rule:
    """The rule for self + value * tensor1 · tensor2, or with their quotient."""

    def rule(like: torch.Tensor, x: Any, a: Any, b: Any, value: Any = 1) -> Parts:
        z, first, second, factor = (parts(each, like.dtype.to_real()) for each in (x, a, b, value))
        found = by(first, second)
        return each_part(c.plus, z, found if value == 1 else c.product(found, factor))

    return rule


def raised(like: torch.Tensor, z: Any, exponent: Any) -> Parts:
    """A power: of numbers or tensors."""
    dtype = like.dtype.to_real()
    base = parts(z, dtype)
    if _is_number(exponent) and not complex(exponent).imag:
        return c.power(base, complex(exponent).real)
    if _is_number(z):
        return c.exponential(c.product(parts(exponent, dtype), parts(cmath.log(z), dtype)))
    return c.exponential(c.product(parts(exponent, dtype), c.logarithm(base)))


def matmul(like: torch.Tensor, a: Any, b: Any) -> Parts:
    """A matrix product: four real ones."""
    dtype = like.dtype.to_real()
    return c.product(parts(a, dtype), parts(b, dtype), _matmul)


def _matmul(x: Any, y: Any) -> Any:
    if x is None or y is None:
        return None
    return torch.matmul(x, y) if y.dim() > 1 else torch.mm(x, y.unsqueeze(-1)).squeeze(-1)


def inner(conjugate: bool) -> Rule:
    """The rule for a product of vectors."""

    def rule(like: torch.Tensor, a: Any, b: Any) -> Parts:
        dtype = like.dtype.to_real()
        first = parts(a, dtype)
        first = (first[0], c.minus(None, first[1]) if first[1] is not None else None) if conjugate else first
        re, im = c.product(first, parts(b, dtype))
        return re.sum(), None if im is None else im.sum()

    return rule


def matmul_plus(like: torch.Tensor, x: Any, a: Any, b: Any, beta: Any = 1, alpha: Any = 1) -> Parts:
    """`beta * self + alpha * (a · b)`."""
    dtype = like.dtype.to_real()
    terms = [parts(x, dtype), matmul(like, a, b)]
    for i, factor in enumerate((beta, alpha)):
        terms[i] = terms[i] if factor == 1 else c.product(terms[i], parts(factor, dtype))
    return each_part(c.plus, *terms)


def converted(like: torch.Tensor, x: Any, **kwargs: Any) -> Any:
    """Another type: of a real one the imaginary part is dropped, as torch does it."""
    re, im = (x.re, x.im) if isinstance(x, Pair) else (x, None)
    dtype = like.dtype.to_real() if like.is_complex() else like.dtype
    return (re.to(dtype), None if im is None else im.to(dtype)) if like.is_complex() else re.to(dtype)


def made(op: Any, number: int | None = None) -> Rule:
    """The rule for a new tensor of one number: of the argument `number`, or the same for any."""

    def rule(like: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        dtype = like.dtype.to_real() if like.is_complex() else like.dtype
        given = [each.re if isinstance(each, Pair) else each for each in args]
        values: Parts = (None, None) if number is None else parts(args[number], dtype)

        def of(value: Any) -> torch.Tensor:
            filled = given if number is None else [*given[:number], value or 0.0, *given[number + 1 :]]
            return op(*filled, **{**kwargs, "dtype": dtype})

        return (
            (of(values[0]), None if values[1] is None else of(values[1]))
            if like.is_complex()
            else of(values[0])
        )

    return rule


def spread(op: Any) -> Rule:
    """The rule for a variance, or for a deviation: that of complex numbers is the sum of those of the parts."""
    together = c.plus if op is aten.var.correction else c.MAGNITUDE

    def rule(like: torch.Tensor, z: Pair, *args: Any, **kwargs: Any) -> torch.Tensor:
        found = op(z.re, *args, **kwargs)
        return found if z.im is None else together(found, op(z.im, *args, **kwargs))

    return rule


def norm(
    like: torch.Tensor, z: Pair, order: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Any:
    """A norm of the absolute values."""
    size = c.magnitude((z.re, z.im)).to(like.dtype)
    return aten.linalg_vector_norm.default(size, order, dim, keepdim)


def drawn(op: Any, scale: float) -> Rule:
    """The rule for random numbers: both parts, each times `scale`."""

    def rule(like: torch.Tensor, *args: Any, **kwargs: Any) -> Parts:
        given = [each.re if isinstance(each, Pair) else each for each in args]
        if not like.is_complex():
            return op(*given, **kwargs)
        first, second = (op(*given, **{**kwargs, "dtype": like.dtype.to_real()}) for _ in range(2))
        return first * scale, second * scale

    return rule


def joined(op: Any) -> Rule:
    """The rule for tensors put together, each of any type."""
    of_pairs = alike(op)

    def rule(like: torch.Tensor, tensors: Any, dim: int = 0) -> Any:
        dtype = like.dtype.to_real()
        return of_pairs(like, [Pair(*parts(each, dtype)) for each in tensors], dim)

    return rule


def chosen(like: torch.Tensor, condition: torch.Tensor, x: Any, y: Any) -> Parts:
    """One of two tensors or numbers."""
    dtype = like.dtype.to_real()
    (a, b), (u, v) = parts(x, dtype), parts(y, dtype)

    def of(one: Any, other: Any) -> Any:
        if one is None and other is None:
            return None
        x, y = (
            each
            if isinstance(each, torch.Tensor)
            else torch.full((), each or 0.0, dtype=dtype, device=like.device)
            for each in (one, other)
        )
        return torch.where(condition, x, y)

    return of(a, u), of(b, v)


def equal(like: torch.Tensor, x: Any, y: Any) -> Any:
    """Whether both parts are the same."""
    dtype = next(each.re.dtype for each in (x, y) if isinstance(each, Pair))
    (a, b), (u, v) = parts(x, dtype), parts(y, dtype)
    same = (0.0 if a is None else a) == (0.0 if u is None else u)
    return (
        same if b is None and v is None else same & ((0.0 if b is None else b) == (0.0 if v is None else v))
    )


def different(like: torch.Tensor, x: Any, y: Any) -> torch.Tensor:
    """Whether a part is another."""
    return ~equal(like, x, y)


def of_parts(like: torch.Tensor, re: torch.Tensor, im: torch.Tensor) -> Parts:
    """The number of two parts."""
    return re, im


def polar(like: torch.Tensor, size: torch.Tensor, by: torch.Tensor) -> Parts:
    """The number of an absolute value and an angle."""
    return c.turned(size, by)


def both(op: Any, together: Any) -> Rule:
    """The rule for a test of numbers that is made of each part."""

    def rule(like: torch.Tensor, z: Pair) -> torch.Tensor:
        return op(z.re) if z.im is None else together(op(z.re), op(z.im))

    return rule


def as_real(like: torch.Tensor, z: Pair) -> torch.Tensor:
    """The parts as a last dimension of two."""
    return torch.stack([z.re, torch.zeros_like(z.re) if z.im is None else z.im], -1)


def of_real(like: torch.Tensor, x: torch.Tensor) -> Parts:
    """The numbers whose parts are a last dimension of two."""
    return x.select(-1, 0), x.select(-1, 1)


ALIKE = (
    *("clone", "alias", "detach", "lift_fresh", "lift_fresh_copy", "resolve_conj", "resolve_neg"),
    *("_neg_view", "expand", "permute", "transpose.int", "t", "unsqueeze", "squeeze", "squeeze.dim"),
    *("squeeze.dims", "select.int", "slice.Tensor", "diagonal", "unfold", "unbind.int", "split.Tensor"),
    *("split_with_sizes", "flip", "roll", "repeat", "tril", "triu", "constant_pad_nd", "select_copy.int"),
    *("slice_copy.Tensor", "reflection_pad1d", "reflection_pad2d", "replication_pad1d"),
    *("replication_pad2d", "index.Tensor", "index_select", "gather", "take", "embedding", "index_put"),
    *("index_copy", "index_fill.int_Scalar", "scatter.src", "scatter.value", "scatter_add"),
    *("slice_scatter", "select_scatter", "diagonal_scatter", "masked_fill.Scalar", "copy", "fill.Scalar"),
    *("sum", "sum.dim_IntList", "mean", "mean.dim", "cumsum", "neg"),
)
"""Ops that do the same to both parts."""


def _op(name: str) -> Any:
    base, _, overload = name.partition(".")
    return getattr(getattr(aten, base), overload or "default")


RULES: dict[Any, Rule] = {
    **{_op(name): alike(_op(name)) for name in ALIKE},
    **{_op(name): arithmetic(function) for name, function in FUNCTIONS.items()},
    **{_op(name): matmul for name in ("mm", "bmm", "mv", "matmul")},
    **{_op(name): matmul_plus for name in ("addmm", "baddbmm", "addmv")},
    **{_op(name): joined(_op(name)) for name in ("cat", "stack")},
    **{
        _op(name): made(_op(name))
        for name in ("zeros", "zeros_like", "new_zeros", "ones", "ones_like", "new_ones")
    },
    **{_op(name): made(_op(name), 1) for name in ("full", "full_like")},
    aten.new_full.default: made(aten.new_full.default, 2),
    aten.scalar_tensor.default: made(aten.scalar_tensor.default, 0),
    **{_op(name): drawn(_op(name), math.sqrt(0.5)) for name in ("randn", "randn_like")},
    **{_op(name): drawn(_op(name), 1.0) for name in ("rand", "rand_like")},
    aten.view.default: alike(aten.view.default, torch.reshape),
    aten._unsafe_view.default: alike(aten._unsafe_view.default, torch.reshape),
    aten.add.Tensor: scaled(1),
    aten.add.Scalar: scaled(1),
    aten.sub.Tensor: scaled(-1),
    aten.sub.Scalar: scaled(-1),
    aten.rsub.Tensor: scaled(-1, swap=True),
    aten.rsub.Scalar: scaled(-1, swap=True),
    aten.mul.Tensor: arithmetic(c.product),
    aten.mul.Scalar: arithmetic(c.product),
    aten.div.Tensor: divided,
    aten.div.Scalar: divided,
    aten.addcmul.default: with_product(c.product),
    aten.addcdiv.default: with_product(c.quotient),
    aten.pow.Tensor_Scalar: raised,
    aten.pow.Tensor_Tensor: raised,
    aten.pow.Scalar: raised,
    aten.dot.default: inner(conjugate=False),
    aten.vdot.default: inner(conjugate=True),
    aten.where.self: chosen,
    aten.eq.Tensor: equal,
    aten.eq.Scalar: equal,
    aten.ne.Tensor: different,
    aten.ne.Scalar: different,
    aten.isnan.default: both(torch.isnan, torch.logical_or),
    aten.isinf.default: both(torch.isinf, torch.logical_or),
    aten.isfinite.default: both(torch.isfinite, torch.logical_and),
    aten.abs.default: measured(c.magnitude),
    aten.angle.default: measured(c.angle),
    aten.linalg_vector_norm.default: norm,
    aten.var.correction: spread(aten.var.correction),
    aten.std.correction: spread(aten.std.correction),
    aten._to_copy.default: converted,
    aten.complex.default: of_parts,
    aten.polar.default: polar,
    aten.view_as_real.default: as_real,
    aten.view_as_complex.default: of_real,
    CUT: alike(CUT),
    **TRANSFORMS,
}
"""The rules by the op."""


def rule_for(op: Any) -> Rule:
    """Return the rule for an op of complex tensors. Raises Refused if there is none."""
    if (found := RULES.get(op)) is None:
        raise Refused(f"{op} of complex numbers")
    return found
