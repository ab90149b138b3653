"""Attention: lengths and sizes around the tiles of kernels, groups, masks that repeat, views of one projection.

The gradient's cases are those of attention, with its results as operands.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from aicf_mlir.interpreters.kernel import meaning
from aicf_mlir.interpreters.numerics import NUMPY_TYPES
from kernel_cases.case import Array, Case, Maker, Spec
from kernel_cases.places import Place, placed, repeated

Names = tuple[str, ...]

ROWS: Names = ("largest", "total")
"""What is kept of each row of scores."""

ROUNDED_WEIGHTS = 1.0
"""See `Case.inner_units`."""


@dataclass
class Heads:
    """One call of attention: [batch, heads, rows, elements], and where they lie."""

    make: Maker
    batch: int
    heads: tuple[int, int]
    """Of queries, of keys."""
    rows: tuple[int, int]
    sizes: tuple[int, int]
    """Of a query and a key, of a value."""
    mask: Array | None = None
    causal: bool = False
    places: dict[str, Place] = field(default_factory=dict[str, Place])
    """By operand and result, where they are not dense."""
    fixed: dict[str, Array] = field(default_factory=dict[str, Array])
    """Operands that are no random numbers."""
    factor: float | None = None
    """Of the scores; None: as usual."""
    dropped: tuple[float, int] | None = None
    """Of dropout: the probability and the site."""

    @property
    def scale(self) -> float:
        """What products are multiplied by."""
        return self.sizes[0] ** -0.5 if self.factor is None else self.factor

    def shape(self, name: str) -> tuple[int, ...]:
        """Of an operand or a result."""
        of_keys = name.removeprefix("d") in ("key", "value")
        size = self.sizes[name.removeprefix("d") in ("value", "out")]
        return (self.batch, self.heads[of_keys], self.rows[of_keys], size)

    def operand(self, name: str) -> Array:
        """Its values, the same where it repeats."""
        values = self.fixed[name] if name in self.fixed else self.make.normal(*self.shape(name))
        return self.places[name].once(values) if name in self.places else values

    @property
    def results(self) -> list[Spec]:
        """Of attention."""
        wide = "f64" if self.make.dtype == "f64" else "f32"
        return [self.make.out(*self.shape("out")), *[(wide, self.shape("out")[:3])] * 2]

    @property
    def has_mask_gradient(self) -> bool:
        """True if there is a mask that is added."""
        return self.mask is not None and self.mask.dtype != np.bool_

    def mask_gradient(self) -> Spec:
        """The type of the gradient of the mask."""
        assert self.mask is not None
        shape = (*self.mask.shape[:2], *self.rows)
        wide = "f64" if self.make.dtype == "f64" else "f32"
        narrow = self.mask.dtype == NUMPY_TYPES[self.make.dtype]
        return (self.make.dtype if narrow else wide), shape

    def case(self, label: str, grad: bool, mask_grad: bool = False) -> Case:
        """The call, or that of a gradient."""
        shapes = f"{self.batch}x{self.heads}x{self.rows}x{self.sizes}{' causal' * self.causal}"
        attrs: dict[str, Any] = {"causal": self.causal, "scale": self.scale}
        operands = {name: self.operand(name) for name in ("query", "key", "value")}
        results: Names = ("out", *ROWS)
        outputs = self.results
        units = ROUNDED_WEIGHTS
        options = {} if self.mask is None else {"mask": self.mask}
        if self.dropped is not None:
            options["random"] = np.array([(5 << 40) + self.make.random.integers(1 << 40), 7], np.int64)
            attrs |= {"p": self.dropped[0], "site": self.dropped[1]}
            units /= max(1.0 - self.dropped[0], 1 / 16)  # of the result, which the gradient reads rounded
        present = tuple(int(name in options) for name in ("mask", "random"))
        if grad:
            counts = ((1, 1, 1, *present), (1, 1, 1))
            given = [*operands.values(), *options.values()]
            attended = meaning("attention", given, attrs, self.results, counts=counts)
            kept = dict(zip(results, attended, strict=True))
            operands = {"dout": self.operand("dout"), **operands, **kept}
            results = ("dmask",) if mask_grad else ("dquery", "dkey", "dvalue")
            outputs = (
                [self.mask_gradient()]
                if mask_grad
                else [self.make.out(*self.shape(name)) for name in results]
            )
        operands |= options
        return Case(
            f"{label} {shapes}",
            list(operands.values()),
            outputs,
            attrs,
            ((*[1] * (len(operands) - len(options)), *present), (1,) * len(results)),
            tuple(self.places.get(name) for name in (*operands, *results)),
            scale=1.0,
            inner_units=units,
            inner_type=self.make.dtype if mask_grad else None,
        )


LENGTHS = ((1, 1), (1, 40), (3, 5), (16, 16), (17, 63), (64, 64), (65, 33), (100, 130), (129, 257))
SIZES = ((1, 1), (8, 8), (17, 5), (32, 32), (33, 40), (64, 64), (80, 72), (128, 128), (7, 129), (256, 256))


def calls(make: Maker) -> Iterator[tuple[str, Heads]]:
    for n, (rows, sizes) in enumerate(itertools.product(LENGTHS, SIZES)):
        if n % 3 == 0 or rows[0] == 65:
            yield "dense", Heads(make, 1 + n % 2, (2, 2), rows, sizes, causal=n % 2 == 0)
    for rows, causal in itertools.product(((33, 70), (70, 33), (150, 150)), (False, True)):
        yield "groups", Heads(make, 2, (6, 2), rows, (40, 24), causal=causal)
        yield "one head of keys", Heads(make, 1, (3, 1), rows, (16, 16), causal=causal)
    for rows in ((0, 5), (5, 0)):
        yield "nothing", Heads(make, 2, (2, 1), rows, (8, 4))
    yield "long", Heads(make, 1, (1, 1), (300, 700), (64, 64))
    yield from masked(make)
    yield from with_dropout(make)
    yield from laid_out(make)
    yield from special(make)
    yield from one_tile(make)


def masks(make: Maker, shape: tuple[int, ...]) -> Iterator[Array]:
    """Booleans and numbers, the second row hiding everything."""
    wide = NUMPY_TYPES["f64" if make.dtype == "f64" else "f32"]
    seen = make.random.random(shape) > 0.4
    seen[..., 1:2, :] = False
    yield seen
    yield np.where(seen, make.normal(*shape), -np.inf).astype(NUMPY_TYPES[make.dtype])
    yield make.random.standard_normal(shape).astype(wide)


def masked(make: Maker) -> Iterator[tuple[str, Heads]]:
    for keep in ((1, 1, 1, 1), (0, 0, 1, 1), (1, 0, 0, 1), (0, 1, 1, 1), (1, 1, 1, 0)):
        shape = tuple(size if kept else 1 for size, kept in zip((2, 4, 35, 67), keep, strict=True))
        for mask in masks(make, shape):
            causal = bool(keep[0])
            yield f"mask {mask.dtype}{shape}", Heads(make, 2, (4, 2), (35, 67), (32, 32), mask, causal)
    mask = next(masks(make, (2, 2, 20, 30)))
    place = {"mask": placed(mask.shape, (1, 0, 3, 2), gap=1)}
    yield "mask by columns", Heads(make, 2, (2, 2), (20, 30), (8, 8), mask, places=place)


def with_dropout(make: Maker) -> Iterator[tuple[str, Heads]]:
    """Lengths around the tiles that share draws, groups, a mask; nothing and nearly everything is dropped."""
    for n, (rows, sizes) in enumerate(
        itertools.product(
            ((1, 1), (5, 40), (16, 17), (64, 64), (65, 33), (100, 130), (300, 260)),
            ((8, 8), (40, 64), (128, 96), (256, 200)),
        )
    ):
        p, site = (0.1, 0.5, 0.9)[n % 3], (n, (1 << 32) - 1)[n % 5 == 0]
        yield f"dropout {p}", Heads(make, 2, (4, 2), rows, sizes, causal=n % 2 == 0, dropped=(p, site))
    for p in (0.0, 1.0 - 2.0**-16):
        yield f"dropout {p}", Heads(make, 1, (2, 2), (70, 50), (16, 16), dropped=(p, 3))
    mask = next(masks(make, (1, 2, 35, 67)))
    yield "dropout and a mask", Heads(make, 2, (2, 1), (35, 67), (32, 32), mask, dropped=(0.3, 1))


PARTS = ("query", "key", "value")


def laid_out(make: Maker) -> Iterator[tuple[str, Heads]]:
    """Heads of one projection [B, T, 3, H, D], results joined as [B, T, H, D]; with gaps; keys that repeat."""
    yield from views(make, ((64, 70), (5, 33), (32, 130)))


def views(make: Maker, sizes: Sequence[tuple[int, int]]) -> Iterator[tuple[str, Heads]]:
    """By size of a head and rows."""
    for size, rows in sizes:
        batch, heads = 2, 3
        strides = (rows * 3 * heads * size, size, 3 * heads * size, 1)
        views = {name: Place(strides, n * heads * size) for n, name in enumerate(PARTS)}
        shape = (batch, heads, rows, size)
        joined = placed(shape, (0, 2, 1, 3))
        grads = {f"d{name}": place for name, place in views.items()}
        places = {**views, **grads, "out": joined, "dout": joined}
        yield "one projection", Heads(make, batch, (3, 3), (rows, rows), (size, size), None, True, places)
        gaps = {
            name: placed(shape, gap=3, offset=1)
            for name in (*PARTS, "dquery", "dkey", "dvalue", "dout", "out")
        }
        yield "gaps", Heads(make, batch, (3, 3), (rows, rows), (size, size), places=gaps)
        columns = {name: placed(shape, (0, 1, 3, 2)) for name in (*PARTS, "dquery", "out")}
        yield "by columns", Heads(make, batch, (3, 3), (rows, rows), (size, size), places=columns)
        heads_repeat = {name: repeated(placed(shape), 1) for name in ("key", "value", "dout")}
        yield "repeated heads", Heads(make, batch, (3, 3), (rows, rows), (size, size), places=heads_repeat)
        rows_repeat = {name: repeated(placed(shape), 2) for name in ("query", "key", "value", "dout")}
        yield "repeated rows", Heads(make, batch, (3, 3), (rows, rows), (size, size), places=rows_repeat)


def one_tile(make: Maker) -> Iterator[tuple[str, Heads]]:
    """At most 64 queries and keys, with keys for each head: masks, dropout, layouts, many that share a mask."""
    lengths = ((4, 16), (17, 9), (49, 49), (64, 33))
    for n, (rows, size) in enumerate(itertools.product(lengths, (8, 33, 96))):
        batch, causal = 2 + n % 2, n % 5 == 0
        for mask in masks(make, (batch if n % 3 else 1, 1 if n % 4 == 1 else 3, *rows)):
            yield (
                f"mask {mask.dtype}{mask.shape}",
                Heads(make, batch, (3, 3), rows, (size, size), mask, causal),
            )
    yield "a mask of many", Heads(make, 700, (3, 3), (3, 5), (8, 8), make.normal(1, 1, 3, 5))
    for rows, size in itertools.product(((5, 16), (32, 17), (64, 64)), (8, 64, 96)):
        yield "dropout", Heads(make, 2, (3, 3), rows, (size, size), causal=size == 64, dropped=(0.3, 5))
    yield from views(make, ((32, 49), (96, 12)))


def special(make: Maker) -> Iterator[tuple[str, Heads]]:
    """What is not finite in a query, a key or a mask; scores far apart."""
    for name, value in itertools.product(("query", "key"), (np.nan, np.inf, -np.inf)):
        rows = {"query": 20, "key": 35}
        fixed = {
            each: make.cast(make.random.uniform(0.125, 2.0, (1, 2, count, 1))) for each, count in rows.items()
        }
        fixed[name][0, 0, 3] = value
        yield f"{value} in a {name}", Heads(make, 1, (2, 2), (20, 35), (1, 4), fixed=fixed)
    mask = np.zeros((1, 1, 20, 35), NUMPY_TYPES[make.dtype])
    mask[..., 2, 5], mask[..., 4, 7], mask[..., 6, :] = np.nan, np.inf, -np.inf
    yield "not finite masks", Heads(make, 1, (2, 2), (20, 35), (8, 8), mask)
    large = {name: make.cast(make.random.standard_normal((1, 2, 40, 8)) * 4) for name in ("query", "key")}
    yield "scores far apart", Heads(make, 1, (2, 2), (40, 40), (8, 8), fixed=large)


def attention(make: Maker) -> Iterator[Case]:
    for label, heads in calls(make):
        yield heads.case(label, grad=False)


def attention_grad(make: Maker) -> Iterator[Case]:
    for label, heads in calls(make):
        yield heads.case(label, grad=True)


def attention_mask_grad(make: Maker) -> Iterator[Case]:
    for label, heads in calls(make):
        if heads.has_mask_gradient:
            yield heads.case(label, grad=True, mask_grad=True)
