"""Launches over many tensors, and what each of their segments computes alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from generated_cases import GeneratedCase, dense, make

from aicf_mlir.ir import formula as F
from aicf_mlir.ir.body import COMPUTE
from aicf_mlir.ir.roundings import written
from aicf_mlir.kernels.kernel import Tensor
from aicf_mlir.kernels.segments import EachKernel, RowEachKernel, SegmentedKernel

RAGGED = ((3, 5), (), (1,), (64,), (0, 4), (130, 17), (2048,), (4099,), (1, 1), (63,), (2, 3, 4), (0,))
"""Shapes of segments: of no elements, of one, of less than a vector, of several blocks."""


def one_element(element: str, shape: Sequence[int], alignment: int = 8) -> Tensor:
    """One element that every point reads, such as a hyperparameter."""
    return Tensor(element, tuple(shape), (0,) * len(shape), alignment)


def each(
    formula: Callable[..., Any],
    operands: str,
    results: str,
    shapes: Sequence[Sequence[int]] = RAGGED,
    target: str = "sm_90",
    alignment: int = 256,
) -> EachKernel:
    """A verified kernel. Element types are separated by blanks; one with a `.` is that of one element."""

    def tensor(word: str, shape: Sequence[int]) -> Tensor:
        if word.endswith("."):
            return one_element(word[:-1], shape)
        return Tensor(word, tuple(shape), dense(word, *shape).strides, alignment)

    words = [word.rstrip(".") for word in operands.split()]
    body = written(F.trace([COMPUTE[word] for word in words], formula), words, results.split())
    given, made = (
        tuple(tensor(word, s) for s in shapes for word in words.split()) for words in (operands, results)
    )
    kernel = EachKernel("multi_tensor_map", target, body, (len(shapes),), 0, given, made)
    kernel.verify()
    return kernel


def rms(p: F.Scalar, g: F.Scalar, v: F.Scalar, lr: F.Scalar) -> list[F.Scalar]:
    """Two results in the places of two operands, and a scalar of another type."""
    v = 0.9 * v + 0.1 * (g * g)
    return [p - lr.cast("f32") * g / (F.sqrt(v) + 1e-3), v]


def transcendental(x: F.Scalar, y: F.Scalar) -> list[F.Scalar]:
    return [F.tanh(x) * F.exp(F.minimum(y, 1.5)), F.erf(x)]


def kernels(target: str = "sm_90") -> Iterator[tuple[str, EachKernel]]:
    """By name."""
    yield (
        "updates",
        each(lambda p, g, v, lr: rms(p, g, F.absolute(v), lr), "f32 f32 f32 f64.", "f32 f32", target=target),
    )
    for element in ("f32", "f64", "f16", "bf16"):
        yield (
            f"functions of {element}",
            each(transcendental, f"{element} {element}", f"{element} {element}", target=target),
        )
    yield "mixed types", each(lambda x, y: [x * y.cast("f32"), x < 0.5], "bf16 i64", "f32 i1", target=target)
    yield "little alignment", each(lambda x, y: x + y, "f32 f32", "f32", target=target, alignment=4)
    yield "one segment", each(lambda x: x * x, "f32", "f32", [(1000,)], target=target)
    yield "nothing at all", each(lambda x: x * x, "f32", "f32", [(0,), (4, 0)], target=target)
    yield "single points", each(lambda x, s: x * s, "f32 f32.", "f32", [(), (1,), (1, 1)], target=target)


LONG = (*RAGGED, (8192,), (8193,), (3, 7001), (50_000,))
"""With segments of several parts, and of one that is just full."""


def reduced(
    formula: Callable[..., Any],
    operands: str,
    results: str,
    shapes: Sequence[Sequence[int]] = LONG,
    target: str = "sm_90",
    alignment: int = 256,
) -> RowEachKernel:
    """As `each`, of a formula that reduces."""
    drawn = each(lambda *given: list(given), operands, operands, shapes, target, alignment)
    words = [word.rstrip(".") for word in operands.split()]
    body = written(F.trace([COMPUTE[word] for word in words], formula), words, results.split())
    made = tuple(Tensor(word, (), (), alignment) for _ in shapes for word in results.split())
    kernel = RowEachKernel("multi_tensor_rowwise", target, body, (len(shapes),), 0, drawn.operands, made)
    kernel.verify()
    return kernel


def norm(x: F.Scalar) -> F.Scalar:
    return F.sqrt(F.row_sum(x * x))


def row_kernels(target: str = "sm_90") -> Iterator[tuple[str, RowEachKernel]]:
    """By name."""
    for element in ("f32", "f64", "f16", "bf16"):
        yield (
            f"norms of {element}",
            reduced(norm, element, "f64" if element == "f64" else "f32", target=target),
        )

    def several(x: F.Scalar, y: F.Scalar, scale: F.Scalar) -> list[F.Scalar]:
        z = x * scale + y.cast("f32")
        return [F.row_max(z), F.row_sum(F.tanh(z)) * scale, F.row_min(y)]

    some = [shape for shape in LONG if 0 not in shape]  # NumPy has no one element of nothing
    yield "several", reduced(several, "bf16 i64 f32.", "f32 bf16 i64", some, target=target)
    yield "little alignment", reduced(norm, "f32", "f32", target=target, alignment=4)
    yield "any", reduced(lambda x: F.row_max(x > 1.9), "f32", "i1", target=target)
    yield "one segment", reduced(norm, "f32", "f32", [(10_000,)], target=target)
    yield "nothing at all", reduced(norm, "f32", "f32", [(0,), (4, 0)], target=target)
    yield (
        "single points",
        reduced(lambda x, s: F.row_sum(x * s), "f32 f32.", "f32", [(), (1,), (1, 1)], target=target),
    )


def one_by_one(kernel: RowEachKernel, case: GeneratedCase) -> list[GeneratedCase]:
    """A launch of the same kind for each segment, on the same operands."""
    found: list[GeneratedCase] = []
    for number in range(kernel.segments):
        operands, results = kernel.of_segment(number)
        own = replace(kernel, domain=(1,), operands=operands, results=results)
        blocks = case.operands[number * kernel.read : (number + 1) * kernel.read]
        expected = case.expected[number * kernel.written : (number + 1) * kernel.written]
        found.append(GeneratedCase(f"{case.name} segment {number}", own, blocks, expected))
    return found


def case_of(name: str, kernel: SegmentedKernel, seed: int = 0) -> GeneratedCase:
    """The kernel on random operands; what is expected is what its segments give."""
    rng = np.random.default_rng(seed)
    parts = [make(name, part, rng) for part in kernel.parts]
    operands = tuple(block for part in parts for block in part.operands)
    return GeneratedCase(name, kernel, operands, tuple(array for part in parts for array in part.expected))


def alone(kernel: EachKernel, case: GeneratedCase) -> list[GeneratedCase]:
    """A case for each segment by itself, on the same operands."""
    read, written = len(kernel.parts[0].operands), len(kernel.parts[0].results)
    return [
        GeneratedCase(
            f"{case.name} segment {n}",
            part,
            case.operands[n * read : (n + 1) * read],
            case.expected[n * written : (n + 1) * written],
        )
        for n, part in enumerate(kernel.parts)
    ]
