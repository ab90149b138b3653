"""gemm in every transposition, and gemm_epilogue with every option."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from aicf_mlir.ir.element_types import NARROW, OVERFLOWING
from aicf_mlir.ir.registry import Counts, schemas
from kernel_cases.case import DIMS, FLOATS, Array, Case, Generator, Maker
from kernel_cases.eltwise import ACTIVATIONS, special_gradients
from kernel_cases.places import Place, placed, repeated

PRODUCTS = [
    *((d, d, d) for d in DIMS), (1, 129, 17), (129, 1, 64), (2, 3, 0), (0, 3, 2), (3, 0, 2), (17, 65, 1),
    (31, 64, 257), (64, 8, 8),
    (33, 127, 15), (128, 64, 1000), (3, 16, 129), (65, 2, 127), (16, 264, 40),
    (1030, 33, 40), (33, 4131, 16),  # more than the CPU packs at once
]  # fmt: skip
LARGE_PRODUCT = (513, 520, 96)  # enough tiles for the kernels that refuse small results
TALL_TILES = (1407, 767, 100)  # a round of tiles of 128x64, which f32 has; ragged on both sides
LONG_PRODUCTS = [(24, 40, 4100), (9, 17, 2050), (130, 64, 2304)]  # k is divided on tensor cores
BATCHED = [((2,), 3, 5, 4), ((3,), 40, 700, 40), ((2, 3), 16, 17, 33), ((0,), 2, 2, 2), ((1, 2, 1), 64, 1, 9)]
TRANSPOSES = list(itertools.product((False, True), repeat=2))

OTHER_SIDE = {dtype: 0.05 if dtype in NARROW else 0.0 for dtype in FLOATS}
"""See `Case.inner_units`: of those that round a sum before its activation a few sums lie as near to the next number."""


def _operands(
    fill: Callable[..., Array], batch: tuple[int, ...], m: int, n: int, k: int, trans_a: bool, trans_b: bool
) -> list[Array]:
    return [fill(*batch, *((k, m) if trans_a else (m, k))), fill(*batch, *((n, k) if trans_b else (k, n)))]


def _transposed(trans_a: bool, trans_b: bool) -> dict[str, Any]:
    return {**({"trans_a": True} if trans_a else {}), **({"trans_b": True} if trans_b else {})}


def gemm(make: Maker) -> Iterator[Case]:
    sizes = [((), *product) for product in PRODUCTS] + BATCHED
    calls = itertools.product(
        [*sizes, *(((), *product) for product in (LARGE_PRODUCT, *LONG_PRODUCTS))], TRANSPOSES
    )
    for (batch, m, n, k), (ta, tb) in calls:
        label, out, attrs = f"{batch} {m}x{n}x{k} {ta:d}{tb:d}", make.out(*batch, m, n), _transposed(ta, tb)
        yield Case(f"normal {label}", _operands(make.normal, batch, m, n, k, ta, tb), [out], attrs)
        yield Case(
            f"integers {label}", _operands(make.integers, batch, m, n, k, ta, tb), [out], attrs, exact=True
        )
    for ta, tb in TRANSPOSES if make.dtype == "f32" else ():
        m, n, k = TALL_TILES
        operands, attrs = _operands(make.integers, (), m, n, k, ta, tb), _transposed(ta, tb)
        yield Case(f"tall tiles {ta:d}{tb:d}", operands, [make.out(m, n)], attrs, exact=True)
    a, b = make.normal(17, 33), make.normal(33, 64)
    a[3, 4], a[5, 6], b[7, 8] = np.nan, np.inf, -np.inf
    yield Case("NaN and infinity", [a, b], [make.out(17, 64)])
    for i, (batch, product, ta, tb, places) in enumerate(_strided_products()):
        fill = make.normal if i % 4 == 0 else make.integers
        yield strided_product(make, fill, batch, product, ta, tb, {}, places, epilogue=False)
    if make.dtype == "f32":
        yield from _in_tf32(make, epilogue=False)


def gemm_epilogue(make: Maker) -> Iterator[Case]:
    options: list[dict[str, Any]] = [  # operands and results beside a, b and out, and attributes
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
    for option, (ta, tb) in itertools.product((options[2], options[6], options[-1]), TRANSPOSES):
        yield _epilogue(make, (), LARGE_PRODUCT, ta, tb, option, integers=True)
    for option, (ta, tb) in zip((options[2], options[6], options[4], options[-1]), TRANSPOSES, strict=True):
        if make.dtype == "f32":
            yield _epilogue(make, (), TALL_TILES, ta, tb, option, integers=True)
    for product, option in itertools.product(LONG_PRODUCTS, (options[2], options[4], options[-1])):
        ta, tb = next(transposes)
        yield _epilogue(make, (), product, ta, tb, option, integers=True)
    yield from _special_epilogues(make)
    if make.dtype in OVERFLOWING:
        yield from _overflowing_epilogues(make)
    some = itertools.cycle(option for option in options if "bias_grad" not in option)
    for i, (batch, product, ta, tb, places) in enumerate(_strided_products()):
        fill = make.normal if i % 4 == 0 else make.integers
        option = next(some) if batch else options[i % len(options)]
        yield strided_product(make, fill, batch, product, ta, tb, option, places, epilogue=True)
    if make.dtype == "f32":
        yield from _in_tf32(make, epilogue=True)


def _in_tf32(make: Maker, *, epilogue: bool) -> Iterator[Case]:
    """Products that may round their operands, a sample of all others; small whole numbers are exact in TF32."""
    options: list[dict[str, Any]] = [{}]
    if epilogue:
        options = [
            {"bias": True, "pre": True, "act": "relu"},
            {"bias_grad": True},
            {"act_grad": "relu"},
            {"bias": True},
        ]
    for number, (batch, product, ta, tb, places) in enumerate(_strided_products()):
        fill = make.normal if number % 2 == 0 else make.integers
        option = {**options[number % len(options)], "allow_tf32": True}
        if batch:
            option.pop("bias_grad", None)
        yield strided_product(make, fill, batch, product, ta, tb, option, places, epilogue=epilogue)


GAPS: list[dict[str, int]] = [{}, {"gap": 8}, {"gap": 16, "offset": 8}, {"gap": 3}, {"gap": 8, "offset": 1}]
"""Where W elements can move at once, and where one by one."""
BY_ROWS, BY_COLUMNS = (0, 1), (1, 0)
HEADS = (0, 2, 1, 3)
"""[batch, head, time, size] as a view of [batch, time, head, size]."""
Placing = Callable[[tuple[int, ...]], Place]
StridedProduct = tuple[
    tuple[int, ...], tuple[int, int, int], bool, bool, dict[str, Placing]
]  # batch, m n k, trans_a, trans_b, places by operand


def matrix_place(order: tuple[int, int], gaps: dict[str, int]) -> Placing:
    """The last two dimensions in the order of memory, those of the batch around them."""

    def place(shape: tuple[int, ...]) -> Place:
        batch = len(shape) - 2
        return placed(shape, (*range(batch), *(batch + d for d in order)), **gaps)

    return place


def heads_place(gap: int, *shared: int) -> Placing:
    """The heads of a block, one matrix for all along the `shared` dimensions."""
    return lambda shape: repeated(placed(shape, HEADS, gap=gap), *shared)


def _strided_products() -> Iterator[StridedProduct]:
    layouts = itertools.cycle(itertools.product(GAPS, (BY_COLUMNS, BY_ROWS)))
    results = itertools.cycle(GAPS)
    sizes = [*PRODUCTS[:8:3], *PRODUCTS[12:], (64, 64, 64)]
    for product, (ta, tb) in itertools.product([*sizes, LARGE_PRODUCT], TRANSPOSES):
        (gap_a, order_a), (gap_b, order_b), _ = next(layouts), next(layouts), next(layouts)
        yield (), product, ta, tb, {
            "a": matrix_place(order_a, gap_a), "b": matrix_place(order_b, gap_b), "out": matrix_place(BY_ROWS, next(results)),
            "pre": matrix_place(BY_ROWS, next(results)), "saved": matrix_place(BY_ROWS, next(results)),
        }  # fmt: skip
    for (m, n, k), (ta, tb), gap in itertools.product(((33, 40, 16), (17, 5, 9)), TRANSPOSES, (0, 8, 3)):
        heads, each, once = heads_place(gap), heads_place(gap, 0), heads_place(gap, 0, 1)
        results_of_heads = {"out": heads, "pre": matrix_place(BY_ROWS, {"gap": gap})}
        yield (2, 3), (m, n, k), ta, tb, {"a": heads, "b": heads, "saved": heads, **results_of_heads}
        yield (2, 3), (m, n, k), ta, tb, {"a": heads, "b": once, "out": heads}
        yield (
            (2, 3),
            (m, n, k),
            ta,
            tb,
            {"a": each, "b": matrix_place(BY_COLUMNS, {"gap": gap}), "saved": heads},
        )
        yield (2, 1, 3), (m, n, k), ta, tb, {"b": matrix_place(BY_COLUMNS, {"gap": gap})}
        yield (2, 2, 3), (m, n, k), ta, tb, {"b": matrix_place(BY_COLUMNS, {})}  # one level


def strided_product(
    make: Maker,
    fill: Callable[..., Array],
    batch: tuple[int, ...],
    product: tuple[int, int, int],
    ta: bool,
    tb: bool,
    option: dict[str, Any],
    places: dict[str, Placing],
    *,
    epilogue: bool,
) -> Case:
    """A product of operands that lie anywhere."""
    m, n, k = product
    shapes = {
        "a": (*batch, *((k, m) if ta else (m, k))),
        "b": (*batch, *((n, k) if tb else (k, n))),
        **({"bias": (n,)} if option.get("bias") else {}),
        **({"saved": (*batch, m, n)} if "act_grad" in option else {}),
    }
    results = {
        "out": (*batch, m, n),
        **({"pre": (*batch, m, n)} if option.get("pre") else {}),
        **({"bias_grad": (m,)} if option.get("bias_grad") else {}),
    }
    located = [places[name](shape) if name in places else None for name, shape in (shapes | results).items()]
    inputs = [
        fill(*shape) if place is None else place.once(fill(*shape))
        for shape, place in zip(shapes.values(), located, strict=False)
    ]
    plain = is_plain(option)
    attrs = {name: value for name, value in option.items() if name in ("act", "act_grad", "allow_tf32")}
    return Case(
        f"{batch} {m}x{n}x{k} {ta:d}{tb:d} {option} {located}",
        inputs,
        [make.out(*shape) for shape in results.values()],
        attrs | _transposed(ta, tb),
        _counts(option) if epilogue else None,
        places=tuple(located),
        exact=plain and fill == make.integers,
        scale=math.sqrt(k),
        inner_units=0.0 if plain else OTHER_SIDE[make.dtype],
    )


def is_plain(option: dict[str, Any]) -> bool:
    """Whether what lies behind the product is a number of it, or zero: its rounding is the last one."""
    return {option.get("act", "none"), option.get("act_grad", "none")} <= {"none", "relu"}


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
    exact = integers and is_plain(option)
    attrs = {name: value for name, value in option.items() if name in ("act", "act_grad")}
    return Case(
        label,
        inputs,
        outputs,
        attrs | _transposed(ta, tb),
        _counts(option),
        exact=exact,
        scale=math.sqrt(k),
        inner_units=0.0 if is_plain(option) else OTHER_SIDE[make.dtype],
    )


def _counts(option: dict[str, Any]) -> Counts:
    given = {"a": 1, "b": 1, "bias": int("bias" in option), "saved": int("act_grad" in option)}
    return schemas()["gemm_epilogue"].counts(
        given, {name: 1 for name in ("pre", "bias_grad") if name in option}
    )


def _special_epilogues(make: Maker) -> Iterator[Case]:
    """Special values reach the epilogue through the bias, and through what the forward op saved."""
    special = make.special()
    n = special.size
    for act in ACTIVATIONS:
        a, b = make.cast(np.zeros((5, 3))), make.cast(np.zeros((3, n)))
        counts = _counts({"bias": True, "pre": True})
        outputs = [make.out(5, n), make.out(5, n)]
        yield Case(f"special values {act}", [a, b, special], outputs, {"act": act}, counts, each=True)
        for i, (dy, saved) in enumerate(special_gradients(make)):
            m = dy.size
            operands = [dy.reshape(m, 1), make.cast([[1.0]]), saved.reshape(m, 1)]
            option = {"act_grad": act}
            label = f"special values {act} gradient {i}"
            yield Case(label, operands, [make.out(m, 1)], option, _counts(option), each=True)
    m, n, k = 32, 64, 16  # a library takes it
    bias, option = make.cast(np.resize(special, n)), {"bias": True, "act": "relu"}
    operands = [make.cast(np.zeros((m, k))), make.cast(np.zeros((k, n))), bias]
    yield Case(
        "special values of a bias", operands, [make.out(m, n)], {"act": "relu"}, _counts(option), each=True
    )


def _overflowing_epilogues(make: Maker) -> Iterator[Case]:
    """Sums beyond the range of f16, whose activation or gradient lies within: infinite before it is computed."""
    sums = np.array([65504, 65519, 65520, 70000, -65519, -65520, -70000, 1, 2.0**-26])
    n = sums.size
    a, b = make.cast([[256.0, 1.0]] * 5), make.cast([np.trunc(sums / 256), np.fmod(sums, 256)])
    for act in ACTIVATIONS:
        for option in ({"act": act}, {"act": act, "pre": True}):
            outputs = [make.out(5, n)] * len(option)
            yield Case(f"overflow {option}", [a, b], outputs, {"act": act}, _counts(option), each=True)
        saved = make.cast(np.outer([-2.0, -0.25, 0.0, 0.5, 0.9375], np.ones(n)))
        option = {"act_grad": act}
        yield Case(f"overflow {option}", [a, b, saved], [make.out(5, n)], option, _counts(option), each=True)


CASES: dict[str, Generator] = {"gemm": gemm, "gemm_epilogue": gemm_epilogue}
