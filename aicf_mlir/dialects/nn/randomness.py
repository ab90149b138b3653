"""Random numbers as functions of a key, the step, the place in the model and the place of an element.

So eager steps, replays, a backward pass that computes them again, and both devices all see the same numbers.

The generator is Philox4x32-10 (Salmon et al., Parallel random numbers: as easy as 1, 2, 3, SC 2011). `random` is the vector
[seed, steps taken]. The key is the seed; the counter is [element, element >> 32, site, step], each of 32 bits. The
element counts in row-major order, for dropout several as one, and each random op of a step has its own `site`.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import Any

from xdsl.builder import Builder
from xdsl.dialects.builtin import (
    BoolAttr,
    DenseArrayBase,
    FloatAttr,
    IntegerAttr,
    StringAttr,
    TensorType,
    f64,
    i64,
)
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, traits_def
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.dialects.nn.common import ValueOp
from aicf_mlir.dialects.nn.random_laws import exponential, fraction64, normal
from aicf_mlir.ir.body import PHILOX, Body
from aicf_mlir.ir.dtypes import ELEMENT_TYPES, element_name
from aicf_mlir.ir.expect import Value, expect_float, expect_one_of, expect_type
from aicf_mlir.ir.formula import Scalar, select, trace
from aicf_mlir.ir.generated import Argument, GeneratedInterface
from aicf_mlir.ir.interfaces import DifferentiableInterface, NotDifferentiable
from aicf_mlir.ir.properties import bool_attr, float_attr, ints_attr, is_true
from aicf_mlir.ir.tensor_op import AnyTensor, element_type, shape_of, tensor_type

__all__ = ["DropoutOp", "NextRandomOp", "RandomOp"]

RANDOM: AnyTensor = TensorType(i64, [2])
"""The type of [seed, steps taken]."""

WORD = (1 << 32) - 1

Words = tuple[Scalar, Scalar, Scalar, Scalar]


def words_at(seed: Scalar, step: Scalar, site: int, element: Scalar) -> Words:
    """The words of a number of an element."""
    a, b, c, d = (seed.apply(PHILOX, step, site, element, attr=word) for word in range(4))
    return a, b, c, d


def linear(seed: Scalar, shape: Sequence[int]) -> Scalar:
    """The current element of a tensor of this shape, in row-major order."""
    return numbered(seed, [seed.builder.index(dim) for dim in range(len(shape))], shape)


def numbered(seed: Scalar, places: Sequence[Scalar], shape: Sequence[int]) -> Scalar:
    """The number of a place in a tensor of this shape, in row-major order."""
    number = seed.of(0)
    for dim, (at, size) in enumerate(zip(places, shape, strict=True)):
        number = at if dim == 0 else number * size + at
    return number


def words(seed: Scalar, step: Scalar, site: int, shape: Sequence[int]) -> Words:
    """The words of the current element of a tensor of this shape."""
    return words_at(seed, step, site, linear(seed, shape))


def one_of(drawn: Words, second: Scalar, odd: Scalar) -> Scalar:
    """A word: of the last two with `second`, of each two the last with `odd`."""
    a, b, c, d = drawn
    return select(second, select(odd, d, c), select(odd, b, a))


def shared_word(seed: Scalar, step: Scalar, site: int, shape: Sequence[int]) -> Scalar:
    """The word of the current element: four neighbours share a draw, whose counter has a quarter of their number."""
    element = linear(seed, shape)
    drawn = words_at(seed, step, site, element.apply("arith.shrui", 2))
    return one_of(drawn, (element & 2).differs(0), (element & 1).differs(0))


TILE = 16
"""Rows and columns of a tile of a matrix whose elements share words."""

HALF = (1 << 16) - 1
"""The largest half of a word."""


def tiled_half(seed: Scalar, step: Scalar, site: int, shape: Sequence[int]) -> Scalar:
    """The 16 bits of the current element of matrices of this shape, which are in tiles of 16 x 16, the last ones padded.

    Eight elements share a draw, i and i + 8 of the rows and j, j + 1, j + 8 and j + 9 of the columns, for an even j. So a tile
    has 8 x 4 draws; those of the matrices are numbered in row-major order. Element (i, j) has the lower half of word 0, (i, j +
    8) that of word 1, (i + 8, j) that of word 2 and (i + 8, j + 8) that of word 3. The next column has the upper half.

    A thread holds all eight in a product by tensor cores, and four of them in the transposed product. No larger group is whole
    in both: a thread holds two rows of a product, and so the two products share 2 x 2 elements.
    """
    *outer, i, j = (seed.builder.index(dim) for dim in range(len(shape)))
    row = i.apply("arith.shrui", 4) * 8 + (i & 7)
    column = j.apply("arith.shrui", 4) * 4 + (j & 7).apply("arith.shrui", 1)
    down, across = (-(-size // TILE) for size in shape[-2:])
    draw = numbered(seed, [*outer, row, column], [*shape[:-2], down * 8, across * 4])
    word = one_of(words_at(seed, step, site, draw), (i & 8).differs(0), (j & 8).differs(0))
    return select((j & 1).differs(0), word.apply("arith.shrui", 16), word & HALF)


class RandomizedOp(ValueOp, GeneratedInterface, abc.ABC):
    """An op that draws from `random`."""

    @property
    def domain(self) -> tuple[int, ...]:
        return shape_of(self.results[0])

    @property
    def place(self) -> int:
        """The site: which of the draws of a step it is."""
        site: Any = self.properties["site"]
        return int(site.value.data)

    @property
    @abc.abstractmethod
    def random_vector(self) -> SSAValue:
        """[seed, steps taken]."""

    @property
    def picked(self) -> Mapping[int, int]:
        first = len(self.operands) - 1
        return {first: 0, first + 1: 1}

    @property
    def arguments(self) -> Sequence[Argument]:
        rest: list[Argument] = [(self.random_vector, ()), (self.random_vector, ())]
        return [*((value, range(len(self.domain))) for value in self.operands[:-1]), *rest]


def expect_site(site: int) -> None:
    """Refuse a site that is no word."""
    if not 0 <= site <= WORD:
        raise VerifyException(f"expected site of 32 bits, got {site}")


@irdl_op_definition
class DropoutOp(RandomizedOp, DifferentiableInterface):
    """
    x / (1 - p), or 0 with probability p, each element by itself; everywhere 0 for p = 1.

    As in torch a NaN stays one. The gradient is the same op of the cotangent: the mask is drawn again, not kept.

    A word of 32 bits decides each element; p is rounded to a multiple of 2^-32. With `tiled`, for the weights of attention, half
    a word does (`tiled_half`), and p is rounded to a multiple of 2^-16: 2^-17 or less drops nothing. Kept elements are divided by
    1 - p itself.
    """

    name = "nn.dropout"

    x = operand_def(TensorType)
    random = operand_def(TensorType)
    p = prop_def(FloatAttr.constr(f64))
    site = prop_def(IntegerAttr.constr(i64))
    tiled = prop_def(BoolAttr, default_value=bool_attr(False))

    def __init__(self, x: Value, random: Value, p: float, site: int, tiled: bool = False):
        super().__init__(
            operands=[x, random],
            properties={"p": float_attr(p), "site": IntegerAttr(site, i64), "tiled": bool_attr(tiled)},
            result_types=[tensor_type(x)],
        )

    @property
    def random_vector(self) -> SSAValue:
        return self.random

    def inferred_type(self) -> AnyTensor:
        expect_float("x", self.x)
        expect_type("random", self.random, RANDOM)
        expect_site(self.site.value.data)
        if not 0.0 <= self.p.value.data <= 1.0:
            raise VerifyException(f"expected p between 0 and 1, got {self.p.value.data}")
        if is_true(self.tiled) and len(self.domain) < 2:
            raise VerifyException(f"expected matrices with tiled, got {self.x.type}")
        return tensor_type(self.x)

    def body(self) -> Body:
        p, site = self.p.value.data, self.site.value.data

        def element(x: Scalar, seed: Scalar, step: Scalar) -> Scalar:
            draw, most = (tiled_half, HALF) if is_true(self.tiled) else (shared_word, WORD)
            kept = draw(seed, step, site, self.domain) >= round(p * (most + 1))
            return x * select(kept, x.of(1.0 / (1.0 - p) if p < 1.0 else 0.0), 0.0)

        return trace(self.compute_types, element)

    def vjp(self, builder: Builder, cotangents: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        p, site, tiled = self.p.value.data, self.site.value.data, is_true(self.tiled)
        again = DropoutOp(cotangents[0], self.random, p, site, tiled)
        return [builder.insert(again).result, None]


FRACTION = {"f64": 53, "f32": 24, "f16": 11, "bf16": 8}
"""Binary digits of a uniform number, so that none is rounded to 1."""
LAWS = ("uniform", "normal", "exponential", "word")


@irdl_op_definition
class RandomOp(RandomizedOp):
    """
    A tensor of `shape`: uniform in [0, 1), of the standard normal distribution, exponential of rate 1, or a word of 32 bits.

    A word is an i64, the others are of floating point. There is no gradient.
    """

    name = "nn.random"

    traits = traits_def(Pure(), NotDifferentiable("random numbers do not depend on anything"))

    random = operand_def(TensorType)
    law = prop_def(StringAttr)
    element = prop_def(StringAttr)
    shape = prop_def(DenseArrayBase.constr(i64))
    site = prop_def(IntegerAttr.constr(i64))

    def __init__(self, random: Value, law: str, element: str, shape: Sequence[int], site: int):
        super().__init__(
            operands=[random],
            properties={
                "law": StringAttr(law),
                "element": StringAttr(element),
                "shape": ints_attr(shape),
                "site": IntegerAttr(site, i64),
            },
            result_types=[TensorType(ELEMENT_TYPES[element], list(shape))],
        )

    @property
    def random_vector(self) -> SSAValue:
        return self.random

    def inferred_type(self) -> AnyTensor:
        expect_type("random", self.random, RANDOM)
        expect_site(self.site.value.data)
        expect_one_of("law", self.law, LAWS)
        legal = ("i64",) if self.law.data == "word" else tuple(FRACTION)
        expect_one_of("element", self.element, legal)
        shape = self.shape.get_values()
        if min(shape, default=0) < 0:
            raise VerifyException(f"expected sizes of at least 0, got {list(shape)}")
        return TensorType(ELEMENT_TYPES[self.element.data], list(shape))

    def body(self) -> Body:
        law, name, site = self.law.data, element_name(element_type(self.results[0])), self.site.value.data
        compute = "f64" if name == "f64" else "f32"

        def element(seed: Scalar, step: Scalar) -> Scalar:
            drawn = words(seed, step, site, self.domain)
            if law in ("normal", "exponential"):
                return (normal if law == "normal" else exponential)(drawn, compute)
            if law == "word":
                return drawn[0]
            if compute == "f64":
                return fraction64(*drawn[:2])
            digits = FRACTION[name]
            return drawn[0].apply("arith.shrui", 32 - digits).cast("i32").cast(compute) * 2.0**-digits

        return trace(self.compute_types, element)


@irdl_op_definition
class NextRandomOp(ValueOp, GeneratedInterface):
    """[seed, steps taken] after one more step."""

    name = "nn.next_random"

    traits = traits_def(Pure(), NotDifferentiable("it counts steps"))

    random = operand_def(TensorType)

    def __init__(self, random: Value):
        super().__init__(operands=[random], result_types=[RANDOM])

    def inferred_type(self) -> AnyTensor:
        expect_type("random", self.random, RANDOM)
        return RANDOM

    def body(self) -> Body:
        def element(x: Scalar) -> Scalar:
            return x + x.builder.index(0)

        return trace(self.compute_types, element)
