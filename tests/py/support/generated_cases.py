"""Random generated kernels with fresh operands and what NumPy computes for them, and a few that models have."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np

from aicf_mlir.interpreters.body import evaluate
from aicf_mlir.interpreters.numerics import NUMPY_TYPES
from aicf_mlir.ir import formula as F
from aicf_mlir.ir.body import COMPUTE, is_float, is_table, table_type
from aicf_mlir.ir.element_types import NARROW
from aicf_mlir.ir.layouts import dense_strides
from aicf_mlir.ir.roundings import written
from aicf_mlir.kernels.kernel import Kernel, Tensor

Array = np.ndarray[Any, Any]
EPSILON = {"f16": 2.0**-10, "bf16": 2.0**-7, "f32": 2.0**-16, "f64": 2.0**-40}
"""How far a result may be off, relative to the larger of itself and what went into it; sums of many terms included."""


@dataclass(frozen=True)
class GeneratedCase:
    """A kernel, its operands as blocks of memory, and its results."""

    name: str
    kernel: Kernel
    operands: tuple[Array, ...]
    """In their element types, with exactly the elements from the first to the last one that the strides reach."""
    expected: tuple[Array, ...]
    """In float64 or integers, by the results' shapes."""


def dense(element: str, *shape: int) -> Tensor:
    """A tensor without gaps."""
    return Tensor(element, shape, dense_strides(shape))


def span(tensor: Tensor) -> int:
    """Elements of its block."""
    if 0 in tensor.shape:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.strides, strict=True))


def view(block: Array, tensor: Tensor) -> Array:
    """The tensor in a block of memory."""
    if 0 in tensor.shape:
        return np.empty(tensor.shape, block.dtype)
    strides = [stride * block.itemsize for stride in tensor.strides]
    return np.lib.stride_tricks.as_strided(block, tensor.shape, strides)


def fill(rng: np.random.Generator, tensor: Tensor) -> Array:
    """A block with random elements; floats between -2 and 2, integers from -3 to 6."""
    size, element = span(tensor), tensor.element
    if is_float(element):
        return rng.uniform(-2, 2, size).astype(NUMPY_TYPES[element])
    return (
        rng.integers(0, 2, size).astype(np.bool_)
        if element == "i1"
        else rng.integers(-3, 7, size).astype(NUMPY_TYPES[element])
    )


def wide(block: Array, tensor: Tensor) -> Array:
    """As the interpreter takes it; of size 1 where it repeats, so that what follows from it is seen to repeat too."""
    found = view(block, tensor)
    found = found[
        tuple(
            slice(0, 1) if stride == 0 and size else slice(None)
            for size, stride in zip(tensor.shape, tensor.strides, strict=True)
        )
    ]
    return found.astype(np.float64) if is_float(tensor.element) else found


def wide_table(block: Array, tensor: Tensor) -> Array:
    """A table as the interpreter takes it."""
    found = view(block, tensor)
    return found.astype(np.float64) if is_float(tensor.element) else found


def has_periodic(kernel: Kernel) -> bool:
    """Whether it has a function that CUDA reduces by an array in memory where its argument is large."""
    return any(line.op in ("math.sin", "math.cos", "math.tan") for line in kernel.body.lines)


def make(
    name: str, kernel: Kernel, rng: np.random.Generator, operands: Sequence[Array] | None = None
) -> GeneratedCase:
    """The case of a kernel on random operands, or on these."""
    kernel.verify()
    blocks = tuple(operands) if operands else tuple(fill(rng, tensor) for tensor in kernel.operands)
    values = [
        wide(block, tensor) if not is_table(type_) else wide_table(block, tensor)
        for block, tensor, type_ in zip(blocks, kernel.operands, kernel.body.args, strict=True)
    ]
    shapes = [tensor.shape for tensor in kernel.results]
    expected = evaluate(kernel.body, values, kernel.domain, list(kernel.reduced_dims), shapes)
    return GeneratedCase(name, kernel, blocks, tuple(np.array(array) for array in expected))


def difference(case: GeneratedCase, result: int, got: Array) -> str:
    """What is wrong with a result; empty where nothing is."""
    return far_off(got, case.expected[result], case.kernel.results[result].element)


def far_off(got: Array, want: Array, element: str) -> str:
    """How elements differ from those in float64 or integers by more than rounding; empty where they do not."""
    if not is_float(element):
        return "" if np.array_equal(got, want) else f"{int((got != want).sum())} elements differ"
    got64 = got.astype(np.float64)
    limit = float(ml_dtypes.finfo(NUMPY_TYPES[element]).max)
    with np.errstate(all="ignore"):
        want = np.where(np.abs(want) > limit, np.copysign(np.inf, want), want)
        close = np.abs(got64 - want) <= EPSILON[element] * np.maximum(np.abs(want), 1)
    right = close | (got64 == want) | (np.isnan(got64) & np.isnan(want))
    if right.all():
        return ""
    at = np.unravel_index(int(np.argmin(right)), right.shape) if right.shape else ()
    return f"{int((~right).sum())} of {right.size} elements, at {[int(i) for i in at]} {got64[at]!r} for {want[at]!r}"


# Bodies whose results do not amplify rounding: comparisons and casts to integers take operands as they are.


def _floats(rng: np.random.Generator, x: F.Scalar, y: F.Scalar) -> F.Scalar:
    rows: list[Callable[[], F.Scalar]] = [
        lambda: x + y,
        lambda: x - y,
        lambda: x * y * 0.5,
        lambda: x / (F.absolute(y) + 1.0),
        lambda: F.tanh(x),
        lambda: F.erf(x) * y,
        lambda: F.exp(F.minimum(x, 1.5)),
        lambda: F.sqrt(F.absolute(x) + 0.25),
        lambda: F.rsqrt(x * x + 1.0),
        lambda: F.maximum(x, y),
        lambda: F.log1p(F.absolute(x)),
        lambda: F.sin(x) + F.cos(y),
        lambda: F.copysign(x, -(F.absolute(y) + 1.0)),  # no sign of a zero that was computed
        lambda: -F.absolute(x),
    ]
    return rows[int(rng.integers(len(rows)))]()


def random_kernel(rng: np.random.Generator, kind: str, target: str = "sm_90") -> Kernel:
    """Random domain, layouts, element types and body."""
    rank = int(rng.integers(1 if kind == "map" else 2, 5))
    sizes = [1, 2, 3, 5, 8, 16, 33, 64, 130]
    domain = [int(rng.choice(sizes)) for _ in range(rank)]
    while np.prod(domain) > 20_000:
        domain[int(rng.integers(rank))] = 1
    reduced = 0 if kind == "map" else int(rng.integers(1, rank)) if rank > 1 else 1
    if kind != "map" and rng.random() < 0.1:
        reduced = rank
    floats = ["f32", "f32", "bf16", "f16"] if rng.random() < 0.8 else ["f64"]
    compute = "f64" if floats == ["f64"] else "f32"
    operands = [_layout(rng, str(rng.choice(floats)), domain) for _ in range(int(rng.integers(1, 5)))]
    extra = [_layout(rng, e, domain) for e in ("i64", "i32", "i1") if rng.random() < 0.25]
    table = _table(rng, str(rng.choice(floats))) if rng.random() < 0.3 else None
    operands += [*extra, *([table] if table else [])]
    types = [COMPUTE[t.element] for t in operands]
    if table:
        types[-1] = table_type(table.element, len(table.shape))
    builder = F.Builder(types)
    values = [builder.scalar(n) for n in range(len(types))]
    pool = [v for v in values if v.type == compute]
    pool += [v.cast("i64").cast(compute) * 0.25 for v in values if v.type in ("i64", "i32", "i1")]
    if rng.random() < 0.4:
        dim = int(rng.integers(rank))
        pool.append(builder.index(dim).cast(compute) * (1.0 / max(domain[dim], 1)))
    if table:
        indices = [builder.index(int(rng.integers(rank))) - 1 for _ in table.shape]
        pool.append(values[-1].load(*indices).cast(compute))

    def pick() -> F.Scalar:
        return pool[int(rng.integers(len(pool)))]

    for _ in range(int(rng.integers(1, 7))):
        pool += [_floats(rng, pick(), pick())]
    first, second = values[0], values[min(1, len(values) - 1)]
    if second.type == first.type and rng.random() < 0.5:
        pool.append(F.select(first < second, pick(), 0.5))
    if kind == "colwise":
        return _finish(
            rng, kind, target, builder, domain, reduced, operands, _columns(rng, pool, compute), compute
        )
    sums: list[F.Scalar] = []
    if kind == "rowwise" and reduced < rank and rng.random() < 0.4:
        scale = 1.0 / max(int(np.prod(domain[: rank - reduced])), 1)
        sums = [F.column_sum(pick()) * scale for _ in range(int(rng.integers(1, 3)))]
        sums += [sums[0] + F.tanh(sums[-1])]
    depth = 0 if kind == "map" else int(rng.integers(1, 4))
    for _ in range(depth):
        total = 1.0 / max(int(np.prod(domain[len(domain) - reduced :])), 1)
        found = (
            F.row_sum(pick()) * total
            if rng.random() < 0.6
            else F.row_max(pick())
            if rng.random() < 0.5
            else F.row_min(pick())
        )
        pool += [found, pick() - found, _floats(rng, pick(), found)]
    outputs = [pool[-1 - n] for n in range(min(len(pool), int(rng.integers(1, 4))))]
    if rng.random() < 0.3:
        outputs.append(first < 0.25 if first.is_float else first.equal(1))
    outputs += sums
    return _finish(rng, kind, target, builder, domain, reduced, operands, outputs, compute)


def _columns(rng: np.random.Generator, pool: list[F.Scalar], compute: str) -> list[F.Scalar]:
    """Results of a colwise kernel: before and behind one level of reductions."""
    chosen = [pool[int(rng.integers(len(pool)))] for _ in range(3)]
    outputs = [F.row_sum(F.tanh(chosen[0])) * 0.125, F.row_max(chosen[1]), F.row_min(chosen[2])][
        : int(rng.integers(1, 4))
    ]
    outputs[0] = outputs[0] + outputs[-1]
    if rng.random() < 0.5:
        outputs.append(chosen[2])
    return outputs


def _finish(
    rng: np.random.Generator,
    kind: str,
    target: str,
    builder: F.Builder,
    domain: list[int],
    reduced: int,
    operands: list[Tensor],
    outputs: list[F.Scalar],
    compute: str,
) -> Kernel:
    body = builder.finish(output.value for output in outputs)
    shape = tuple(domain)
    draft = Kernel(kind, target, body, shape, reduced, tuple(operands), ())
    results: list[Tensor] = []
    for value in body.results:
        type_ = body.type(value)
        element = str(rng.choice(["f32", "bf16", "f16"])) if type_ == "f32" else type_
        whole = kind == "map" or draft.wide[value] or (not body.stages[value] and rng.random() < 0.3)
        kept = draft.reduced_shape if body.behind_columns[value] else draft.kept
        whole = whole and not body.behind_columns[value]
        results.append(_layout(rng, element, list(shape if whole else kept), result=True))
    body = written(body, [tensor.element for tensor in operands], [tensor.element for tensor in results])
    made = Kernel(kind, target, body, shape, reduced, tuple(operands), tuple(results))
    return _with_late_sum(rng, made) if kind == "rowwise" and reduced < len(shape) else made


def _with_late_sum(rng: np.random.Generator, made: Kernel) -> Kernel:
    """Some kernels, with the sum of the columns of a result that follows a reduction as one more."""
    body, elements = made.body, [tensor.element for tensor in made.results]
    found = [
        number
        for number, value in enumerate(body.results)
        if made.is_whole(number) and body.stages[value] and is_float(elements[number])
    ]
    if not found or rng.random() < 0.6:
        return made
    builder = F.Builder(body.args, made.elements)
    values = builder.inline(body, range(len(body.args)))
    number = int(rng.choice(found))
    term = builder.scalar(values[number])
    term = term.rounded(elements[number]) if elements[number] in NARROW else term
    total = F.column_sum(term) * (1.0 / max(int(np.prod(made.kept)), 1))
    element = str(rng.choice(["f32", "bf16", "f16"])) if term.type == "f32" else term.type
    results = [*made.results, _layout(rng, element, list(made.reduced_shape), result=True)]
    again = written(builder.finish([*values, total.value]), made.elements, [*elements, element])
    return replace(made, body=again, results=tuple(results))


def _layout(rng: np.random.Generator, element: str, shape: list[int], result: bool = False) -> Tensor:
    """Dense, with a gap behind each row, transposed, repeating, or of little alignment."""
    strides = list(dense_strides(shape))
    alignment = 256
    match int(rng.integers(7)):
        case 0 if len(shape) > 1:
            order = rng.permutation(len(shape))
            step = 1
            for dim in order:
                strides[dim], step = step, step * shape[dim]
        case 1 if len(shape) > 1:
            padded = [*shape[:-1], shape[-1] + int(rng.choice([1, 8]))]
            strides = list(dense_strides(padded))
        case 2 if not result:
            strides = [0 if rng.random() < 0.5 else s for s in strides]
        case 3:
            alignment = NUMPY_TYPES[element].itemsize
        case _:
            pass
    return Tensor(element, tuple(shape), tuple(strides), alignment)


def _table(rng: np.random.Generator, element: str) -> Tensor:
    shape = [int(rng.integers(1, 9)) for _ in range(int(rng.integers(1, 3)))]
    return _layout(rng, element, shape)


def random_cases(seed: int, count: int, target: str = "sm_90") -> Iterator[GeneratedCase]:
    """`count` cases of each kind."""
    for number in range(count):
        for offset, kind in enumerate(("map", "rowwise", "colwise")):
            rng = np.random.default_rng((seed, number, offset))
            yield make(f"{kind} {seed}.{number}", random_kernel(rng, kind, target), rng)


# What models have.


def special_cases(target: str = "sm_90") -> Iterator[GeneratedCase]:
    """NaN, infinities and zeros through maxima, rounding, casts and integer arithmetic."""
    rng = np.random.default_rng(5)
    odd = np.array(
        [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, 3.4e38, -1.5, 65520.0, 2.5, 1e10, -1e19, 0.1], np.float32
    )
    x = np.tile(odd, 13)[: 13 * 12].reshape(12, 13).copy()
    y = rng.permuted(x, axis=1)
    full = dense("f32", 12, 13)
    yield make(
        "specials of a map",
        Kernel(
            "map",
            target,
            F.trace(
                ["f32", "f32"],
                lambda a, b: [
                    F.maximum(a, b), F.minimum(a, b), a.rounded("f16"), a.rounded("bf16"), a.cast("i32"), a.cast("i64"),
                    a < b, a.differs(b), a.is_nan(), a * 1.0,
                ],
            ),
            (12, 13),
            0,
            (full, full),
            (*[full] * 4, dense("i32", 12, 13), dense("i64", 12, 13), *[dense("i1", 12, 13)] * 3, full),
        ),
        rng,
        [x.reshape(-1), y.reshape(-1)],
    )  # fmt: skip
    for element in NARROW:
        stored = Kernel(
            "map", target, F.trace(["f32"], lambda a: a), (12, 13), 0, (full,), (dense(element, 12, 13),)
        )
        yield make(f"specials stored as {element}", stored, rng, [x.reshape(-1)])
    body = F.trace(["f32"], lambda a: [F.row_max(a), F.row_min(a), F.row_sum(a), a.equal(F.row_max(a))])
    given, kept = Tensor("f32", (13, 12), (1, 13)), dense("f32", 13)
    rows = Kernel("rowwise", target, body, (13, 12), 1, (given,), (kept, kept, kept, dense("i1", 13, 12)))
    yield make("specials of rows", rows, rng, [x.reshape(-1)])
    many = dense("i64", 50)
    one, two = rng.integers(-(2**62), 2**62, 50), rng.integers(-4, 5, 50)
    yield make(
        "integers",
        Kernel(
            "map",
            target,
            F.trace(
                ["i64", "i64"],
                lambda a, b: [a + b * a, a / b, a.apply("arith.remsi", b), a.apply("arith.floordivsi", b), a ^ b, F.absolute(a),
                              a.cast("i32"), F.maximum(a, b).cast("f32"), a.apply("arith.shrsi", 3)],
            ),
            (50,),
            0,
            (many, many),
            (*[many] * 6, dense("i32", 50), dense("f32", 50), many),
        ),
        rng,
        [one, two],
    )  # fmt: skip
