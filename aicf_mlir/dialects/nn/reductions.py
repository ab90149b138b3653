"""Reductions: the mean, and the reductions of one table, each with its gradient as an op of its own."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from xdsl.builder import Builder
from xdsl.dialects.builtin import DenseArrayBase, TensorType, i64
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, traits_def
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.dialects.nn.broadcasting import ReductionOp, reduced_type
from aicf_mlir.dialects.nn.common import UnfoldsBody, ValueOp
from aicf_mlir.dialects.nn.made import attributes_of, make_class, parameters_of
from aicf_mlir.dialects.nn.pointwise import DivOp
from aicf_mlir.dialects.nn.rows.functions import sign
from aicf_mlir.dialects.nn.rows.row import ALL, FLOATS, NUMBERS, Formula
from aicf_mlir.dialects.nn.shape import ConstantOp, as_element, wide_element
from aicf_mlir.ir.body import COMPUTE, Body
from aicf_mlir.ir.dtypes import element_name
from aicf_mlir.ir.expect import Value, expect_type, scalar_of, with_shape
from aicf_mlir.ir.formula import (
    Scalar,
    absolute,
    exp,
    log,
    power,
    row_max,
    row_min,
    row_prod,
    row_sum,
    select,
    sqrt,
    trace,
)
from aicf_mlir.ir.interfaces import DifferentiableInterface, NotDifferentiable
from aicf_mlir.ir.properties import ints_attr
from aicf_mlir.ir.tensor_op import AnyTensor, element_type, shape_of, tensor_type

__all__ = ["MeanOp", "TableReductionOp"]


@irdl_op_definition
class MeanOp(ReductionOp, DifferentiableInterface):
    """The sum over `dims` divided by how many elements it has; NaN over no elements, as in torch."""

    name = "nn.mean"

    def formula(self, x: Scalar) -> Scalar:
        return row_sum(x) / float(self.reduced_count())

    def vjp(self, builder: Builder, cotangents: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        (g,) = cotangents
        return [self.spread(builder, divided(builder, g, self.reduced_count()))]


def divided(builder: Builder, x: SSAValue, divisor: float) -> SSAValue:
    """`x` of floats over a number, which a 16-bit type may be too narrow for."""
    if divisor == 1:
        return x
    wide = as_element(builder, x, wide_element(x))
    number = builder.insert(ConstantOp(divisor, scalar_of(wide))).result
    return as_element(builder, builder.insert(DivOp(wide, number)).result, element_type(x))


ReductionGradient = Callable[[Any, Any, Any], Scalar] | Callable[[Any, Any, Any, Any], Scalar]


@dataclass(frozen=True, eq=False)
class Reduction:
    """A row: one op over some dimensions."""

    name: str
    doc: str
    formula: Formula
    """The formula from x and the parameters; with `indexed` from x, the first of the reduced dimensions, and the parameters."""
    gradient: ReductionGradient | None = None
    """The gradient from the cotangent of the result, x, the result and the parameters; it may reduce the same dimensions."""
    takes: frozenset[str] = FLOATS
    result: str | None = None
    parameters: Mapping[str, float] = field(default_factory=dict[str, float])
    indexed: bool = False
    of_one: bool = True
    """True if of one element the result is that element, and its cotangent that of the element, at a NaN too."""
    of_single: Formula | None = None
    """The formula for one element, if `formula` may overflow there."""


def logsumexp(x: Scalar) -> Scalar:
    """The logarithm of the sum of exponentials without overflow; for infinities alone it is the infinity."""
    largest = row_max(x)
    shift = select(absolute(largest).equal(math.inf), 0.0, largest)
    return log(row_sum(exp(x - shift))) + shift


def vector_norm(x: Scalar, ord: float) -> Scalar:
    """The p-norm; of order 0 the number of elements that are not 0."""
    size = absolute(x)
    match ord:
        case 0.0:
            return row_sum(select(x.equal(0.0), x.of(0.0), 1.0))
        case 1.0:
            return row_sum(size)
        case 2.0:
            return sqrt(row_sum(x * x))
        case math.inf:
            return row_max(size)
        case _ if ord == -math.inf:
            return row_min(size)
        case _:
            return power(row_sum(power(size, ord)), 1.0 / ord)


def vector_norm_gradient(g: Scalar, x: Scalar, y: Scalar, ord: float) -> Scalar:
    """0 where the norm or the element is 0, or a NaN is largest; that of the largest elements is shared evenly."""
    match ord:
        case 0.0:
            return g.of(0.0)
        case 1.0:
            return g * sign(x)
        case 2.0:
            return g * select(y.equal(0.0), 0.0, x / y)
        case _ if math.isinf(ord):
            nan = x.is_nan() & y.is_nan()
            chosen = select(absolute(x).equal(y) | nan, x.of(1.0), 0.0)
            return sign(x) * chosen * (g / row_sum(chosen))
        case _:
            slope = select(x.equal(0.0), 0.0, sign(x) * power(absolute(x), ord - 1.0))
            return slope * select(y.equal(0.0), 0.0, g / power(y, ord - 1.0))


def shared(g: Scalar, x: Scalar, y: Scalar) -> Scalar:
    """The gradient in even parts to all elements that equal the result; a g that is not finite gives NaN to the others."""
    chosen = select(x.equal(y), x.of(1.0), 0.0)
    return g * chosen / row_sum(chosen)


def shared_of_all(g: Scalar, x: Scalar, y: Scalar) -> Scalar:
    """The gradient in even parts to all elements that equal the result, NaNs too, and nothing to the others."""
    chosen = x.equal(y) | (x.is_nan() & y.is_nan())
    return select(chosen, g / row_sum(select(chosen, x.of(1.0), 0.0)), 0.0)


def product_gradient(g: Scalar, x: Scalar, y: Scalar) -> Scalar:
    """The product of all others, also if one of them is 0: that times a NaN or an infinity is a NaN."""
    zero, endless = x.equal(0.0), (x - x).differs(0.0)
    zeros = row_sum(select(zero, x.of(1.0), 0.0))
    many = row_sum(select(endless, x.of(1.0), 0.0))
    others = row_prod(select(zero, 1.0, x))
    none = select(many > select(endless, x.of(1.0), 0.0), math.nan, x.of(0.0))
    return select(zeros.equal(0.0), g * (y / x), g * select(zero & zeros.equal(1.0), others, none))


def first(chosen: Scalar, dim: int) -> Scalar:
    """The first index of those chosen."""
    index = chosen.builder.index(dim)
    return row_min(select(chosen, index, (1 << 63) - 1))


def argmax(x: Scalar, dim: int) -> Scalar:
    """A NaN counts as the largest."""
    return first(extreme(x, row_max(x)), dim)


def argmin(x: Scalar, dim: int) -> Scalar:
    """A NaN counts as the smallest."""
    return first(extreme(x, row_min(x)), dim)


def extreme(x: Scalar, y: Scalar) -> Scalar:
    """True if x is the extreme y of its row: a NaN is, with any other values."""
    return x.equal(y) | x.is_nan() if x.is_float else x.equal(y)


ROWS = (
    Reduction("prod", "The product.", row_prod, product_gradient, takes=NUMBERS),
    Reduction("amax", "The largest; a NaN where there is one.", row_max, shared, takes=ALL, of_one=False),
    Reduction("amin", "The smallest; a NaN where there is one.", row_min, shared, takes=ALL, of_one=False),
    Reduction("max", "As `amax`, with a gradient where that is a NaN.", row_max, shared_of_all, takes=ALL),
    Reduction("min", "As `amin`, with a gradient where that is a NaN.", row_min, shared_of_all, takes=ALL),
    Reduction(
        "logsumexp",
        "The logarithm of the sum of exp(x).",
        logsumexp,
        lambda g, x, y: g * exp(x - y),
        of_one=False,
    ),
    Reduction(
        "vector_norm",
        "The norm of order `ord`.",
        vector_norm,
        vector_norm_gradient,
        parameters={"ord": 2.0},
        of_one=False,
        of_single=lambda x, ord: vector_norm(x, math.inf if ord else 0.0),
    ),
    Reduction("any", "Whether one is true.", row_max, takes=frozenset({"i1"})),
    Reduction("all", "Whether all are true.", row_min, takes=frozenset({"i1"})),
    Reduction(
        "argmax",
        "The index of the first of the largest; over one dimension.",
        argmax,
        takes=NUMBERS,
        result="i64",
        indexed=True,
        of_one=False,
    ),
    Reduction(
        "argmin",
        "The index of the first of the smallest; over one dimension.",
        argmin,
        takes=NUMBERS,
        result="i64",
        indexed=True,
        of_one=False,
    ),
)

TABLE: dict[str, Reduction] = {row.name: row for row in ROWS}


class TableReductionOp(ReductionOp, abc.ABC):
    """A reduction of the table."""

    def __init__(
        self,
        x: Value,
        dims: Sequence[int] | None = None,
        keepdim: bool = False,
        **parameters: float,
    ):
        super().__init__(x, dims, keepdim, attributes_of({**self.row().parameters, **parameters}))

    @classmethod
    def row(cls) -> Reduction:
        """The row of the table for this op."""
        return TABLE[cls.name.removeprefix("nn.")]

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters by name."""
        return parameters_of(self, self.row().parameters)

    def inferred_type(self) -> AnyTensor:
        if self.row().indexed and len(self.dims) > 1:
            raise VerifyException(f"expected one dimension at most, got dims {list(self.dims.get_values())}")
        return super().inferred_type()

    def formula(self, x: Scalar) -> Scalar:
        row = self.row()
        dims = self.reduced_dims[:1] if row.indexed else ()
        single = self.reduced_count() == 1 and row.of_single is not None
        formula: Callable[..., Scalar] = row.of_single if single and row.of_single else row.formula
        return formula(x, *dims, **self.parameters)

    @property
    def is_one_itself(self) -> bool:
        return self.row().of_one


class DifferentiableReductionOp(TableReductionOp, DifferentiableInterface, abc.ABC):
    """A reduction with a gradient."""

    def vjp(self, builder: Builder, cotangents: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        g, y = self.kept(builder, cotangents[0]), self.kept(builder, self.result)
        dims = self.dims.get_values()
        made = GRADIENTS[f"{self.row().name}_grad"](g, self.x, y, dims, **self.parameters)
        return [builder.insert(made).result]


class ReductionGradOp(ValueOp, UnfoldsBody, abc.ABC):
    """The cotangent of the operand of a reduction over `dims`, which dy and the result y have with size 1."""

    dy = operand_def(TensorType)
    x = operand_def(TensorType)
    y = operand_def(TensorType)
    dims = prop_def(DenseArrayBase.constr(i64))

    def __init__(self, dy: Value, x: Value, y: Value, dims: Sequence[int], **parameters: float):
        super().__init__(
            operands=[dy, x, y],
            properties={
                **attributes_of({**self.row().parameters, **parameters}),
                "dims": ints_attr(list(dims)),
            },
            result_types=[tensor_type(x)],
        )

    @classmethod
    def row(cls) -> Reduction:
        """The row of the table for the reduction."""
        return TABLE[cls.name.removeprefix("nn.").removesuffix("_grad")]

    def inferred_type(self) -> AnyTensor:
        kept = reduced_type(self.x, self.dims.get_values(), keepdim=True)
        expect_type("dy", self.dy, kept)
        expect_type("y", self.y, kept)
        return with_shape(self.x, shape_of(self.x))

    def body(self) -> Body:
        gradient = self.row().gradient
        assert gradient is not None
        return trace(self.compute_types, gradient, **parameters_of(self, self.row().parameters))

    @property
    def compute_types(self) -> tuple[str, ...]:
        """The compute types of the operands in order: the domain depends on the body, which is made for them."""
        return tuple(COMPUTE[element_name(element_type(operand))] for operand in self.operands)

    @property
    def domain(self) -> tuple[int, ...]:
        """The dimensions of the domain, with one more if none is reduced."""
        shape = shape_of(self.x)
        return shape if len(self.dims) or not self.body().reduces else (1, *shape)

    @property
    def reduced_dims(self) -> tuple[int, ...]:
        return (tuple(self.dims.get_values()) or (0,)) if self.body().reduces else ()


def _reduction(row: Reduction) -> type[TableReductionOp]:
    annotations = dict.fromkeys(("TAKES", "RESULT"), ClassVar)
    facts: dict[str, Any] = {"TAKES": row.takes, "RESULT": row.result, "__annotations__": annotations}
    if row.gradient is not None:
        return make_class(row.name, DifferentiableReductionOp, row.doc, row.parameters, **facts)
    traits = traits_def(NotDifferentiable("it is a step function"))
    return make_class(row.name, TableReductionOp, row.doc, row.parameters, traits=traits, **facts)


def _gradient(row: Reduction) -> type[ReductionGradOp]:
    doc = f"The cotangent of x in nn.{row.name}."
    return make_class(f"{row.name}_grad", ReductionGradOp, doc, row.parameters)


REDUCTIONS: dict[str, type[TableReductionOp]] = {row.name: _reduction(row) for row in ROWS}

GRADIENTS: dict[str, type[ReductionGradOp]] = {
    f"{row.name}_grad": _gradient(row) for row in ROWS if row.gradient is not None
}

CLASSES: dict[str, type[TableReductionOp] | type[ReductionGradOp]] = {**REDUCTIONS, **GRADIENTS}
"""Every op class by the name of its row."""
