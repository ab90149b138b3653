"""Random bodies, layouts and kinds of kernels on the CPU against the interpreter."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from bodies import check, random_values, tensor

from aicf_mlir.codegen.llvm import generate, rows_and_columns, workspace
from aicf_mlir.ir import formula as f
from aicf_mlir.ir.body import COMPUTE
from aicf_mlir.ir.formula import Builder, Scalar
from aicf_mlir.ir.roundings import written
from aicf_mlir.kernels.kernel import Kernel, Tensor

SMOOTH = (
    lambda x, y: x + y,
    lambda x, y: x - y,
    lambda x, y: x * y * 0.5,
    lambda x, y: f.maximum(x, y),
    lambda x, y: f.minimum(x, y),
    lambda x, y: f.tanh(x) + y,
    lambda x, y: x / (y * y + 1.0),
    lambda x, y: f.exp(f.minimum(x, 2.0)) - y,
    lambda x, y: f.erf(x) * y,
    lambda x, y: f.sqrt(f.absolute(x) + 1.0) + y,
    lambda x, y: f.log(x * x + 1.0) - y,
    lambda x, y: f.sin(x) + f.cos(y),
)
"""What amplifies no rounding error much."""
SIZES = (1, 2, 3, 5, 16, 17, 40, 65, 130)


def layout(rng: random.Random, element: str, shape: tuple[int, ...], repeats: bool) -> Tensor:
    """Dimensions in any order in memory, with gaps, and of stride 0 where elements may repeat."""
    strides, step = [0] * len(shape), 1
    for dim in rng.sample(range(len(shape)), len(shape)):
        if repeats and rng.random() < 0.25:
            continue
        strides[dim] = step
        step *= shape[dim] + rng.choice((0, 0, 0, 3))
    return tensor(element, *shape, strides=strides)


def random_kernel(seed: int, column_sums: bool = False) -> Kernel:
    """A kernel of 1 to 4 dimensions, of all kinds; or a rowwise one with column sums."""
    rng = random.Random(seed)
    kind = "rowwise" if column_sums else rng.choice(("map", "rowwise", "rowwise", "colwise"))
    domain = tuple(rng.choice(SIZES) for _ in range(rng.randint(1 + column_sums, 4)))
    while np.prod(domain) > 60_000:
        domain = domain[1:]
    reduced = 0 if kind == "map" else rng.randint(1, len(domain) - column_sums)
    compute = rng.choice(("f32", "f32", "f64"))
    elements = [element for element, type_ in COMPUTE.items() if type_ == compute]
    operands = [layout(rng, rng.choice(elements), domain, repeats=True) for _ in range(rng.randint(1, 4))]
    builder = Builder([compute] * len(operands))
    values: list[Scalar] = [builder.scalar(number) for number in range(len(operands))]
    count = float(np.prod(domain[-reduced:] if kind == "rowwise" else domain[:reduced])) if reduced else 1.0
    terms = (lambda x: f.row_sum(x) / count, f.row_max, f.row_min)
    levels = rng.randint(1, 3) if kind == "rowwise" else int(kind == "colwise")
    for level in range(levels + 1):
        for _ in range(rng.randint(1, 4)):
            values.append(rng.choice(SMOOTH)(rng.choice(values), rng.choice(values)))
        if level < levels:
            before = list(values)
            values += [rng.choice(terms)(rng.choice(before)) for _ in range(rng.randint(1, 2))]
            if kind == "colwise":
                break
    body = builder.finish(value.value for value in values)
    made = Kernel(kind, "cpu", body, domain, reduced, tuple(operands), ())
    wide, stages = made.wide, body.stages
    outer = made.kept
    chosen: list[int] = []
    results: list[Tensor] = []
    for value in rng.sample(range(len(body.results)), min(3, len(body.results))):
        number = body.results[value]
        narrow = (
            kind != "map"
            and not wide[number]
            and ((kind == "colwise" and stages[number] > 0) or rng.random() < 0.7)
        )
        chosen.append(number)
        results.append(layout(rng, rng.choice(elements), outer if narrow else domain, repeats=False))
    kept = Builder(body.args)
    kept.lines = list(body.lines)
    if column_sums:
        near = [number for number in body.results if not stages[number]]
        count = float(np.prod(outer))
        sums = [f.column_sum(kept.scalar(rng.choice(near))) / count for _ in range(rng.randint(1, 2))]
        for total in (*sums, sums[0] * 0.5 + sums[-1]):
            chosen.append(total.value)
            results.append(layout(rng, rng.choice(elements), made.reduced_shape, repeats=False))
    made_of, given = [tensor.element for tensor in operands], [tensor.element for tensor in results]
    body = written(kept.finish(chosen), made_of, given)
    final = Kernel(kind, "cpu", body, domain, reduced, tuple(operands), tuple(results))
    final.verify()
    return final


@pytest.mark.parametrize("seed", range(60))
def test_random_kernels(seed: int) -> None:
    agrees(random_kernel(seed), seed)


@pytest.mark.parametrize("seed", range(30))
def test_random_column_sums(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Apart, and in one walk: the same sums."""
    kernel = random_kernel(seed, column_sums=True)
    sums = [number for number in range(len(kernel.results)) if kernel.is_column(number)]
    apart = agrees(kernel, seed)
    monkeypatch.setattr(rows_and_columns, "LEAST_BLOCKS", 1)
    together = agrees(kernel, seed)
    for number in sums:
        assert apart[number].tobytes() == together[number].tobytes()


def agrees(kernel: Kernel, seed: int) -> list[Any]:
    """Check a kernel on random operands; its results."""
    code = generate(kernel)
    assert code.workspace == workspace(kernel)
    values: list[Any] = [
        np.clip(random_values(t.element, t.shape, seed + n).astype(np.float64), -3, 3)
        for n, t in enumerate(kernel.operands)
    ]
    return check(kernel, values, scale=50, cuts=(1, 2, 5))
