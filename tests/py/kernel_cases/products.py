"""gemm in every transposition, and gemm_epilogue with every option."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from aicf_mlir.ir.registry import Counts, schemas
from kernel_cases.case import DIMS, Array, Case, Maker
from kernel_cases.elementwise import ACTIVATIONS, special_gradients

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
    calls = itertools.product([*sizes, ((), *LARGE_PRODUCT)], TRANSPOSES)
    for (batch, m, n, k), (ta, tb) in calls:
        label, out, attrs = f"{batch} {m}x{n}x{k} {ta:d}{tb:d}", make.out(*batch, m, n), _transposed(ta, tb)
        yield Case(f"normal {label}", _operands(make.normal, batch, m, n, k, ta, tb), [out], attrs)
        yield Case(
            f"integers {label}", _operands(make.integers, batch, m, n, k, ta, tb), [out], attrs, exact=True
        )
    a, b = make.normal(17, 33), make.normal(33, 64)
    a[3, 4], a[5, 6], b[7, 8] = np.nan, np.inf, -np.inf
    yield Case("NaN and infinity", [a, b], [make.out(17, 64)])


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
    attrs = {name: value for name, value in option.items() if name in ("act", "act_grad")}
    return Case(
        label, inputs, outputs, attrs | _transposed(ta, tb), _counts(option), exact=exact, scale=math.sqrt(k)
    )


def _counts(option: dict[str, Any]) -> Counts:
    given = {"a": 1, "b": 1, "bias": int("bias" in option), "saved": int("act_grad" in option)}
    return schemas()["gemm_epilogue"].counts(given, [name for name in ("pre", "bias_grad") if name in option])


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
