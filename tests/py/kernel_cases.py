"""Inputs for every kernel op: ragged shapes, normals, special values, and integers (sums exact in any order).

`cases(op, dtype)` is the table that the kernel tests of every device read. A row of `GENERATORS` serves each
op kind; a kind without a row fails the tests.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from aicf_mlir.interpreters.numerics import NUMPY_TYPES

Array = npt.NDArray[Any]
Spec = tuple[str, tuple[int, ...]]

FLOATS = ("f32", "f64", "f16", "bf16")
DIMS = (1, 2, 3, 15, 16, 17, 31, 33, 64, 65, 127, 129)
SPECIALS = (
    0.0,
    -0.0,
    1e-40,
    1e-8,
    0.5,
    1.0,
    -1.0,
    3.0,
    -3.0,
    10.0,
    -10.0,
    88.0,
    -88.0,
    104.0,
    -104.0,
    1e3,
    -1e3,
)
NON_FINITE = (math.inf, -math.inf, math.nan)


@dataclass(frozen=True)
class Case:
    """One call, and how its results are judged.

    `exact`: equal to the rounded reference. `each`: every element by itself, not their root mean square.
    `scale`: the least scale of the values, where results may cancel to nothing.
    """

    label: str
    inputs: Sequence[Array]
    outputs: Sequence[Spec]
    attrs: dict[str, Any] = field(default_factory=dict[str, Any])
    exact: bool = False
    each: bool = False
    scale: float = 0.0


class Maker:
    """Arrays of one element type, the same in every run."""

    def __init__(self, dtype: str):
        self.dtype = dtype
        self.random = np.random.default_rng(7)

    def cast(self, values: Any) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(values, dtype=np.float64).astype(NUMPY_TYPES[self.dtype])

    def normal(self, *shape: int) -> Array:
        return self.cast(self.random.standard_normal(shape))

    def integers(self, *shape: int, limit: int = 1) -> Array:
        """Small enough for sums of a few hundred products to be exact in every float type."""
        return self.cast(self.random.integers(-limit, limit + 1, shape))

    def special(self) -> Array:
        return self.cast([*SPECIALS, *NON_FINITE])

    def out(self, *shape: int) -> Spec:
        return self.dtype, shape


Generator = Callable[[Maker], Iterator[Case]]


# ---- elementwise ----

SHAPES = [
    *((n,) for n in DIMS),
    (),
    (0,),
    (3, 0, 2),
    (17, 64),
    (5, 3, 2),
    (2, 1, 3, 1, 2, 1, 2, 2),
    (128, 512),
]
BROADCASTS = [
    ((4, 8), (8,)), ((4, 8), ()), ((), (4, 8)), ((4, 1), (1, 8)), ((3, 1, 5), (4, 1)), ((2, 3, 4), (3, 1)),
    ((1,), (1, 1, 1)),
    ((33, 64), (33, 1)), ((2, 1, 2, 1, 2), (1, 3, 1, 3, 1)), ((0, 4), (1, 4)), ((0, 1), (4,)),
    ((65, 127), (1, 127)),
    ((1, 2, 1, 2, 1, 2, 1, 2), (2, 1, 2, 1, 2, 1, 2, 1)), ((7, 1, 64), (7, 9, 64)),
]  # fmt: skip


def unary(make: Maker) -> Iterator[Case]:
    for shape in SHAPES:
        yield Case(f"normal {shape}", [make.normal(*shape)], [make.out(*shape)])
    special = make.special()
    yield Case("special values", [special], [make.out(*special.shape)], each=True)
    padded = np.concatenate([special, special, special, special])  # a length that vectorised kernels take
    yield Case("special values, vectorised", [padded], [make.out(*padded.shape)], each=True)


def _grid(left: Array, right: Array) -> list[Array]:
    """Every value of the one with every value of the other."""
    return [np.ascontiguousarray(values.ravel()) for values in np.meshgrid(left, right)]


def pairs(make: Maker, shapes: Sequence[tuple[int, ...]]) -> Iterator[Case]:
    for shape in shapes:
        yield Case(f"normal {shape}", [make.normal(*shape), make.normal(*shape)], [make.out(*shape)])
        yield Case(f"integers {shape}", [make.integers(*shape), make.integers(*shape)], [make.out(*shape)])


def binary(make: Maker) -> Iterator[Case]:
    yield from pairs(make, SHAPES)
    for left, right in BROADCASTS:
        shape = np.broadcast_shapes(left, right)
        yield Case(f"normal {left} {right}", [make.normal(*left), make.normal(*right)], [make.out(*shape)])
        yield Case(
            f"integers {left} {right}",
            [make.integers(*left), make.integers(*right)],
            [make.out(*shape)],
            exact=True,
        )
    special = make.special()
    values = _grid(special, special)
    yield Case("special values", values, [make.out(*values[0].shape)], each=True)
    column, n = special.reshape(-1, 1), special.size
    yield Case("special values, broadcast", [column, special], [make.out(n, n)], each=True)


def special_gradients(make: Maker) -> Iterator[list[Array]]:
    """(dy, saved): dy is at most 1, the scale of allowed errors, or infinite where no slope underflows."""
    yield _grid(make.cast([0.0, -0.0, 1e-40, 0.5, 1.0, -1.0, math.nan]), make.special())
    yield _grid(make.cast(NON_FINITE), make.cast([0.0, 1.0, -1.0, 3.0, -3.0, *NON_FINITE]))


def backward(make: Maker) -> Iterator[Case]:
    yield from pairs(make, SHAPES)
    for i, values in enumerate(special_gradients(make)):
        yield Case(f"special values {i}", values, [make.out(*values[0].shape)], each=True)


def bias_add(make: Maker) -> Iterator[Case]:
    for shape in [s for s in SHAPES if s] + [(m, n) for m, n in zip(DIMS, reversed(DIMS), strict=True)]:
        yield Case(f"normal {shape}", [make.normal(*shape), make.normal(shape[-1])], [make.out(*shape)])
        yield Case(
            f"integers {shape}",
            [make.integers(*shape), make.integers(shape[-1])],
            [make.out(*shape)],
            exact=True,
        )
    special = make.special()
    n = special.size
    rows = np.ascontiguousarray(np.broadcast_to(special.reshape(-1, 1), (n, n)))
    yield Case("special values", [rows, special], [make.out(n, n)], each=True)


# ---- gemm ----

PRODUCTS = [
    *((d, d, d) for d in DIMS), (1, 129, 17), (129, 1, 64), (2, 3, 0), (0, 3, 2), (3, 0, 2), (17, 65, 1),
    (31, 64, 257), (64, 8, 8),
    (33, 127, 15), (128, 64, 1000), (3, 16, 129), (65, 2, 127), (16, 264, 40),
]  # fmt: skip
LARGE_PRODUCT = (513, 520, 96)  # enough tiles for the kernels that refuse small results
BATCHED = [((2,), 3, 5, 4), ((2, 3), 16, 17, 33), ((0,), 2, 2, 2), ((1, 2, 1), 64, 1, 9)]
TRANSPOSES = list(itertools.product((False, True), repeat=2))


def _operands(
    fill: Callable[..., Array], batch: tuple[int, ...], m: int, n: int, k: int, trans_a: bool, trans_b: bool
) -> list[Array]:
    return [fill(*batch, *((k, m) if trans_a else (m, k))), fill(*batch, *((n, k) if trans_b else (k, n)))]


def _transposed(trans_a: bool, trans_b: bool) -> dict[str, Any]:
    return {**({"trans_a": True} if trans_a else {}), **({"trans_b": True} if trans_b else {})}


def gemm(make: Maker) -> Iterator[Case]:
    sizes = [((), *product) for product in PRODUCTS] + BATCHED
    calls = [*itertools.product(sizes, TRANSPOSES), (((), *LARGE_PRODUCT), (False, True))]
    for (batch, m, n, k), (ta, tb) in calls:
        label, out, attrs = f"{batch} {m}x{n}x{k} {ta:d}{tb:d}", make.out(*batch, m, n), _transposed(ta, tb)
        yield Case(f"normal {label}", _operands(make.normal, batch, m, n, k, ta, tb), [out], attrs)
        yield Case(
            f"integers {label}", _operands(make.integers, batch, m, n, k, ta, tb), [out], attrs, exact=True
        )
    a, b = make.normal(17, 33), make.normal(33, 64)
    a[3, 4], a[5, 6], b[7, 8] = np.nan, np.inf, -np.inf
    yield Case("NaN and infinity", [a, b], [make.out(17, 64)])


ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid")


def gemm_epilogue(make: Maker) -> Iterator[Case]:
    options: list[dict[str, Any]] = [
        {}, {"bias": True}, {"bias": True, "pre": True}, {"pre": True, "act": "gelu"}, {"bias_grad": True},
        *({"bias": True, "act": act} for act in ACTIVATIONS),
        {"bias": True, "act": "silu", "pre": True, "bias_grad": True},
        *({"act_grad": act} for act in ACTIVATIONS), {"act_grad": "relu", "pre": True, "bias_grad": True},
    ]  # fmt: skip
    transposes = itertools.cycle(TRANSPOSES)
    # Every option at three sizes, and at every size a third of the options.
    chosen = [
        (product, options if i in (4, 11, 21) else options[i % 3 :: 3]) for i, product in enumerate(PRODUCTS)
    ]
    for product, option in ((product, option) for product, some in chosen for option in some):
        ta, tb = next(transposes)
        yield _epilogue(make, (), product, ta, tb, option, integers=False)
        if option.get("act", "relu") == "relu" and option.get("act_grad", "relu") == "relu":
            yield _epilogue(make, (), product, ta, tb, option, integers=True)
    for option in (options[1], options[6], {"act_grad": "relu", "pre": True}):
        yield _epilogue(make, (2, 3), (5, 17, 9), False, True, option, integers=False)
        yield _epilogue(make, (), LARGE_PRODUCT, False, True, option, integers=True)
    yield from _special_epilogues(make)


def _epilogue(
    make: Maker,
    batch: tuple[int, ...],
    product: tuple[int, int, int],
    ta: bool,
    tb: bool,
    option: dict[str, Any],
    *,
    integers: bool,
) -> Case:
    m, n, k = product
    fill = make.integers if integers else make.normal
    inputs, outputs = _operands(fill, batch, m, n, k, ta, tb), [make.out(*batch, m, n)]
    if option.get("bias"):
        inputs.append(fill(n))
    if "act_grad" in option:
        inputs.append(fill(*batch, m, n))
    if option.get("pre"):
        outputs.append(make.out(*batch, m, n))
    if option.get("bias_grad"):
        outputs.append(make.out(m))
    label = f"{'integers' if integers else 'normal'} {batch} {m}x{n}x{k} {ta:d}{tb:d} {option}"
    exact = integers and {option.get("act", "none"), option.get("act_grad", "none")} <= {"none", "relu"}
    return Case(label, inputs, outputs, option | _transposed(ta, tb), exact=exact, scale=math.sqrt(k))


def _special_epilogues(make: Maker) -> Iterator[Case]:
    """Special values reach the epilogue through the bias, and through what the forward op saved."""
    special = make.special()
    n = special.size
    for act in ACTIVATIONS:
        a, b = make.cast(np.zeros((5, 3))), make.cast(np.zeros((3, n)))
        attrs = {"bias": True, "act": act, "pre": True}
        yield Case(
            f"special values {act}", [a, b, special], [make.out(5, n), make.out(5, n)], attrs, each=True
        )
        for i, (dy, saved) in enumerate(special_gradients(make)):
            m = dy.size
            operands = [dy.reshape(m, 1), make.cast([[1.0]]), saved.reshape(m, 1)]
            yield Case(
                f"special values {act} gradient {i}", operands, [make.out(m, 1)], {"act_grad": act}, each=True
            )


# ---- reductions and losses ----

REDUCTIONS: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    *(((n,), (0,)) for n in DIMS), *(((n, m), (0,)) for n, m in zip(DIMS, reversed(DIMS), strict=True)),
    *(((n, m), (1,)) for n, m in zip(DIMS, reversed(DIMS), strict=True)), ((1025, 33), (0,)),
    ((33, 1025), (1,)), ((100_003,), (0,)),
    ((2, 3, 4, 5), (0, 2)), ((2, 3, 4, 5), (1, 3)), ((2, 3, 4, 5), (1, 2)), ((2, 3, 4, 5), (0, 1, 2, 3)),
    ((2, 3, 4, 5), ()),
    ((), ()), ((0,), (0,)), ((0, 3), (0,)), ((3, 0), (0,)), ((1, 5, 1, 7), (0, 1)),
    ((2, 2, 2, 2, 2, 2, 2, 2), (0, 2, 4, 6)),
    ((2, 2, 2, 2, 2, 2, 2, 2), (1, 3, 5, 7)), ((3, 129, 2), (1,)), ((64, 256), (0,)), ((300, 300), (0, 1)),
    ((5, 1), (1,)),
]  # fmt: skip


def reduce_sum(make: Maker) -> Iterator[Case]:
    for shape, dims in REDUCTIONS:
        kept = tuple(1 if i in dims else size for i, size in enumerate(shape))
        removed = tuple(size for i, size in enumerate(shape) if i not in dims)
        terms = math.prod(shape[i] for i in dims)
        for y, scale in ((removed, 1.0), (kept, 1.0 / max(terms, 1))):
            attrs: dict[str, Any] = {"dims": list(dims), "scale": scale}
            size = scale * math.sqrt(terms)
            yield Case(
                f"normal {shape} {dims} {scale}", [make.normal(*shape)], [make.out(*y)], attrs, scale=size
            )
        attrs = {"dims": list(dims)}
        yield Case(
            f"integers {shape} {dims}",
            [make.integers(*shape)],
            [make.out(*removed)],
            attrs,
            exact=terms < 10_000,
        )
        positive = np.abs(make.normal(*shape))  # rounding errors of one sign
        attrs = {"dims": list(dims), "scale": 1.0 / max(terms, 1)}
        yield Case(f"positive {shape} {dims}", [positive], [make.out(*removed)], attrs)
    x = make.normal(40, 40)
    x[3, 4], x[5, 6], x[7, 8], x[7, 9] = np.nan, np.inf, np.inf, -np.inf
    for dim in (0, 1):
        yield Case(f"NaN and infinity {dim}", [x], [make.out(40)], {"dims": [dim]}, scale=math.sqrt(40))


MSE_SHAPES = [*((n,) for n in DIMS), (), (64, 8), (33, 65), (7, 3, 11), (300, 301)]
REDUCTION_NAMES = ("mean", "sum")


def mse_loss(make: Maker) -> Iterator[Case]:
    for shape, reduction in itertools.product([*MSE_SHAPES, (0,)], REDUCTION_NAMES):
        attrs = {"reduction": reduction}
        damp = 1.0 if reduction == "mean" else 1e-2  # keeps the sum inside of f16
        y, t = (make.cast(make.normal(*shape).astype(np.float64) * damp) for _ in range(2))
        yield Case(f"normal {shape} {reduction}", [y, t], [make.out()], attrs)
        if math.prod(shape) < 256:
            values = [make.integers(*shape), make.integers(*shape)]
            yield Case(
                f"integers {shape} {reduction}",
                values,
                [make.out()],
                attrs,
                exact=reduction == "sum" and math.prod(shape) < 64,
            )
    for value in NON_FINITE:
        y = make.normal(9)
        y[4] = value
        yield Case(f"with {value}", [y, make.normal(9)], [make.out()])


def mse_grad(make: Maker) -> Iterator[Case]:
    for shape, reduction in itertools.product(MSE_SHAPES, REDUCTION_NAMES):
        dloss = make.cast(1.0 if reduction == "mean" else -0.75)
        values = [dloss, make.normal(*shape), make.normal(*shape)]
        yield Case(f"normal {shape} {reduction}", values, [make.out(*shape)], {"reduction": reduction})
    yield Case(
        "no elements", [make.cast(1.0), make.normal(0), make.normal(0)], [make.out(0)], {"reduction": "sum"}
    )
    special = make.special()
    values = [make.cast(1.0), *_grid(special, special)]
    yield Case("special values", values, [make.out(special.size**2)], {"reduction": "sum"}, each=True)


def _classification(make: Maker) -> Iterator[tuple[str, Array, Array, dict[str, Any]]]:
    random = make.random
    sizes = [(1, 1), (1, 10), (64, 10), (3, 2), (17, 33), (65, 129), (2, 1000), (0, 5), (31, 1)]
    for (rows, classes), reduction, smoothing in itertools.product(sizes, REDUCTION_NAMES, (0.0, 0.1, 1.0)):
        target = random.integers(0, classes, rows)
        attrs = {"reduction": reduction, "label_smoothing": smoothing}
        yield f"{rows}x{classes} {reduction} {smoothing}", make.normal(rows, classes), target, attrs
    for smoothing in (0.0, 0.2):
        attrs = {"label_smoothing": smoothing}
        target = np.array([0, -100, 2, -100, 1])
        yield f"ignored {smoothing}", make.normal(5, 3), target, attrs
        yield f"ignored 1 {smoothing}", make.normal(5, 3), target.clip(0), attrs | {"ignore_index": 1}
        yield f"i32 {smoothing}", make.normal(5, 3), target.astype(np.int32), attrs
        yield f"all ignored {smoothing}", make.normal(2, 3), np.array([-100, -100]), attrs
        yield (
            f"outside {smoothing}",
            make.normal(4, 3),
            np.array([0, 3, -1, 2**40]),
            attrs | {"reduction": "sum"},
        )
        yield (
            f"large logits {smoothing}",
            make.cast([[900.0, -900.0, 0.0], [1e4, 1e4, 1e4]]),
            np.array([0, 1]),
            attrs,
        )
        logits = make.normal(5, 3)
        logits[0, 1], logits[1, 2], logits[2, 0], logits[3] = np.nan, np.inf, -np.inf, -np.inf
        yield f"not finite {smoothing}", logits, np.array([0, 1, 1, 0, 1]), attrs
        for row in range(5):
            yield f"not finite {smoothing} row {row}", logits[row : row + 1].copy(), np.array([1]), attrs


def cross_entropy(make: Maker) -> Iterator[Case]:
    for label, logits, target, attrs in _classification(make):
        yield Case(label, [logits, target], [make.out()], attrs, scale=1.0)


def cross_entropy_grad(make: Maker) -> Iterator[Case]:
    for label, logits, target, attrs in _classification(make):
        for dloss in (1.0, -0.5):
            outputs = [make.out(*logits.shape)]
            yield Case(
                f"{label} {dloss}", [make.cast(dloss), logits, target], outputs, attrs, each="finite" in label
            )


# ---- data movement ----


def copy(make: Maker) -> Iterator[Case]:
    for shape, to in itertools.product(SHAPES, NUMPY_TYPES.keys() - {"i8"}):
        yield Case(
            f"{shape} to {to}",
            [make.cast(make.normal(*shape).astype(np.float64) * 10)],
            [(to, shape)],
            exact=True,
        )
    every_half = np.arange(1 << 16, dtype=np.uint16)
    if make.dtype in ("f16", "bf16"):
        values = every_half.view(NUMPY_TYPES[make.dtype])
    else:  # halfway between neighbours in f16 and bf16, and one step off, where one rounding differs from two
        halves = every_half.view(np.float16).astype(np.float64)
        halves = halves[np.isfinite(halves)]
        midpoints = (halves[:-1] + halves[1:]) / 2
        values = make.cast(
            np.concatenate([midpoints, midpoints * (1 + 2.0**-40), midpoints * (1 - 2.0**-40)])
        )
        values = values[np.isfinite(values)]
    for to in FLOATS:
        yield Case(f"roundings to {to}", [values], [(to, values.shape)], exact=True)
    yield Case("special values to i1", [make.special()], [("i1", make.special().shape)], exact=True)
    for dtype, to in itertools.product(("i64", "i32", "i1"), NUMPY_TYPES.keys() - {"i8"}):
        integers = make.random.integers(-300, 300, (17, 3)).astype(NUMPY_TYPES[dtype])
        yield Case(f"{dtype} to {to}", [integers], [(to, (17, 3))], exact=True)


PERMUTATIONS: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    *(((n, m), (1, 0)) for n, m in zip(DIMS, reversed(DIMS), strict=True)), ((2, 3, 4), (0, 2, 1)),
    ((2, 3, 4), (2, 0, 1)),
    ((2, 3, 4), (2, 1, 0)), ((2, 3, 4), (0, 1, 2)), ((), ()), ((5,), (0,)), ((0, 3), (1, 0)),
    ((3, 1, 5, 1), (2, 3, 1, 0)),
    ((2, 3, 4, 5), (0, 2, 1, 3)), ((2, 1, 2, 1, 2, 3, 2, 2), (7, 6, 5, 4, 3, 2, 1, 0)),
    ((33, 65, 3), (1, 0, 2)), ((70, 90), (1, 0)),
]  # fmt: skip


def _bits(make: Maker, dtype: str, shape: tuple[int, ...]) -> Array:
    if dtype in FLOATS:
        return make.normal(*shape)
    return make.random.integers(-99, 99, shape).astype(NUMPY_TYPES[dtype])


def transpose(make: Maker) -> Iterator[Case]:
    for (shape, perm), dtype in itertools.product(PERMUTATIONS, (make.dtype, "i64", "i32", "i1")):
        x = _bits(make, dtype, shape)
        outputs = [(dtype, tuple(shape[d] for d in perm))]
        yield Case(f"{dtype} {shape} {perm}", [x], outputs, {"perm": list(perm)}, exact=True)


def broadcast(make: Maker) -> Iterator[Case]:
    targets = [(shape, np.broadcast_shapes(*pair)) for pair in BROADCASTS for shape in pair]
    for (shape, target), dtype in itertools.product(
        [*targets, ((), (3, 0))], (make.dtype, "i64", "i32", "i1")
    ):
        yield Case(f"{dtype} {shape} {target}", [_bits(make, dtype, shape)], [(dtype, target)], exact=True)


# ---- optimizer steps ----

TENSORS = [(1,), (), (17, 33), (0, 3), (64, 65), (8,), (3,)]
GROUPS = [0, 1, 0, 0, 1, 2, 0]
SPIKES = [0.0, -0.0, 1e-12, -1e-6, 1e-3, 1.0, -30.0, 200.0]


def advance(make: Maker) -> Iterator[Case]:
    del make
    for steps, count in itertools.product(([0.0], [1.0, 1.0, 1.0], [999.0] * 257, [16777216.0]), (1, 5)):
        step = np.array(steps, np.float32)
        outputs: list[Spec] = [("f32", step.shape)] + [("f64", ())] * (2 if count == 5 else 0)
        for pins in ((math.nan, math.nan), (0.5, math.nan), (math.nan, 7.0)) if count == 5 else ((),):
            scalars = [np.array(x) for x in (0.9, 0.999, *pins)] if count == 5 else []
            yield Case(f"{len(steps)} from {steps[0]} {pins}", [step, *scalars], outputs, each=True)


def _gradients(make: Maker, label: str) -> list[Array]:
    if label == "normal":
        return [make.normal(*shape) for shape in TENSORS]
    return [make.cast(make.random.choice(SPIKES, shape)) for shape in TENSORS]


def sgd_step(make: Maker) -> Iterator[Case]:
    flags = itertools.product((False, True), repeat=3)
    for (momentum, nesterov, maximize), grads, first in itertools.product(
        flags, ("normal", "spikes"), (False, True)
    ):
        if (nesterov or first) and not momentum:
            continue
        inputs = [make.normal(*shape) for shape in TENSORS] + _gradients(make, grads)
        if momentum:  # the buffer of a first step is poison: it must not be read into the result
            inputs += [
                make.cast(np.full(shape, np.nan)) if first else make.normal(*shape) for shape in TENSORS
            ]
        for lr, decay, mu, dampening in ((0.1, 0.0, 0.9, 0.0), (0.01, 0.1, 0.5, 0.3), (0.0, 0.0, 0.0, 1.0)):
            inputs += [np.array(lr), np.array(decay)]
            if momentum:
                inputs += [np.array(mu), np.array(dampening), np.full(3, 1.0 if first else 5.0, np.float32)]
        attrs = {"groups": GROUPS, "momentum": momentum, "nesterov": nesterov, "maximize": maximize}
        outputs = [make.out(*shape) for shape in TENSORS] * (2 if momentum else 1)
        yield Case(f"{grads} {attrs} first={first}", inputs, outputs, attrs, scale=1.0)


def adam_step(make: Maker) -> Iterator[Case]:
    flags = itertools.product((False, True), repeat=3)
    for (amsgrad, decoupled, maximize), grads in itertools.product(
        flags, ("normal", "spikes", "first", "not finite")
    ):
        p, g = (
            [make.normal(*shape) for shape in TENSORS],
            _gradients(make, "spikes" if grads == "spikes" else "normal"),
        )
        m = [make.cast(0.1 * make.normal(*shape).astype(np.float64)) for shape in TENSORS]
        v, vmax = (
            [make.cast(0.01 * make.normal(*s).astype(np.float64) ** 2) for s in TENSORS] for _ in range(2)
        )
        if grads == "first":
            m, v, vmax = ([make.cast(np.zeros(shape)) for shape in TENSORS] for _ in range(3))
        if grads == "not finite":
            for state in (p, g, m, v, vmax):
                place = make.random.integers(0, 33)
                state[2][place % 17, place] = np.nan
                state[4][place % 64, place] = np.inf
        inputs = [*p, *g, *m, *v, *(vmax if amsgrad else [])]
        for scalars in (
            (1e-3, 0.9, 0.999, 1e-8, 0.0, 10.0, 1000.0),
            (0.1, 0.5, 0.9, 1e-3, 0.1, 2.0, 1.5),
            (0.0, 0.0, 0.5, 1e-6, 0.5, 1.0, 2.0),
        ):
            inputs += [np.array(value) for value in scalars]
        attrs = {"groups": GROUPS, "amsgrad": amsgrad, "decoupled": decoupled, "maximize": maximize}
        outputs = [make.out(*shape) for shape in TENSORS] * (4 if amsgrad else 3)
        yield Case(f"{grads} {attrs}", inputs, outputs, attrs, each=grads != "normal")


GENERATORS: dict[str, Generator] = {
    **dict.fromkeys(("neg", *ACTIVATIONS), unary),
    **dict.fromkeys(("add", "sub", "mul", "div"), binary),
    **dict.fromkeys((f"{name}_bwd" for name in ACTIVATIONS), backward),
    "bias_add": bias_add,
    "gemm": gemm,
    "gemm_epilogue": gemm_epilogue,
    "reduce_sum": reduce_sum,
    "mse_loss": mse_loss,
    "mse_grad": mse_grad,
    "cross_entropy": cross_entropy,
    "cross_entropy_grad": cross_entropy_grad,
    "copy": copy,
    "transpose": transpose,
    "broadcast": broadcast,
    "advance": advance,
    "sgd_step": sgd_step,
    "adam_step": adam_step,
}
"""By op name without the dialect; a missing one is a missing test."""


def cases(op: str, dtype: str) -> Iterator[Case]:
    """Every case of the op for operands of `dtype`."""
    return GENERATORS[op](Maker(dtype))
