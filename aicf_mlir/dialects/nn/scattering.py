"""Elements that an index sends to places of a tensor, reduced there: the largest, the smallest, the product.

Each place looks at every element of the index along one dimension, as nn.scatter does; a sum is nn.scatter_add, which does not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import mul
from typing import Any

from xdsl.builder import Builder
from xdsl.dialects.builtin import BoolAttr, IntegerAttr, StringAttr, i64
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, prop_def
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.dialects.nn.common import ValueOp
from aicf_mlir.dialects.nn.gathering import (
    ElementNumberOp,
    GatherOp,
    ScatterAddOp,
    ScatterBase,
    ScatterOp,
    reshaped,
)
from aicf_mlir.dialects.nn.pointwise import AddOp, BitwiseAndOp, DivOp, EqOp, MulOp, WhereOp
from aicf_mlir.dialects.nn.shape import CastOp, ConstantOp
from aicf_mlir.ir.body import Body
from aicf_mlir.ir.expect import Value, expect_float, with_shape
from aicf_mlir.ir.formula import Scalar, maximum, minimum, row_max, row_min, row_prod, select, trace
from aicf_mlir.ir.generated import Argument
from aicf_mlir.ir.properties import bool_attr, is_true
from aicf_mlir.ir.tensor_op import AnyTensor, element_type, shape_of, tensor_type

__all__ = ["ScatterReduceOp"]

KINDS: dict[str, tuple[float, Any, Any]] = {
    "max": (-math.inf, row_max, maximum),
    "min": (math.inf, row_min, minimum),
    "prod": (1.0, row_prod, mul),
}
"""For each kind of reduction: its identity, the reduction of a row, the reduction of two."""


@irdl_op_definition
class ScatterReduceOp(ScatterBase):
    """x, each element reduced with those of `src` that a gather by `index` has at its place; or only these, if there are any.

    `kind` is max, min or prod; with `include_self` the element of x counts among them. The gradient of an extreme is shared by
    all elements that are equal to it, as in torch: also by an element of x that does not count.
    """

    name = "nn.scatter_reduce"

    kind = prop_def(StringAttr)
    include_self = prop_def(BoolAttr, default_value=bool_attr(True))

    def __init__(self, x: Value, index: Value, src: Value, kind: str, dim: int, include_self: bool = True):
        super().__init__(
            operands=[x, index, src],
            properties={
                "kind": StringAttr(kind),
                "dim": IntegerAttr(dim, i64),
                "include_self": bool_attr(include_self),
            },
            result_types=[tensor_type(x)],
        )

    def inferred_type(self) -> AnyTensor:
        if self.kind.data not in KINDS:
            raise VerifyException(f"expected a kind of {', '.join(KINDS)}, got {self.kind.data!r}")
        expect_float("x", self.x)
        return super().inferred_type()

    @property
    def arguments(self) -> Sequence[Argument]:
        own = range(1, len(shape_of(self.x)) + 1)
        sent = [0 if d == self.dim.value.data + 1 else d for d in own]
        return [(self.x, own), (self.index, sent), (self.src, sent)]

    def body(self) -> Body:
        none, of_row, of_two = KINDS[self.kind.data]

        def formula(x: Scalar, index: Scalar, src: Scalar) -> Scalar:
            hits = index.equal(index.builder.index(self.dim.value.data + 1))
            found = of_row(select(hits, src, none))
            if is_true(self.include_self):
                return of_two(x, found)
            return select(row_max(hits.cast("i64")).equal(0), x, found)

        return trace(self.compute_types, formula)

    def vjp(self, builder: Builder, cotangents: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        back = of_product if self.kind.data == "prod" else of_extreme
        dx, dsrc = back(self, builder, cotangents[0])
        if not is_true(self.include_self):
            zeros = builder.insert(ConstantOp(0.0, tensor_type(self.src))).result
            dx = builder.insert(ScatterOp(dx, self.index, zeros, self.dim.value.data)).result
        return [dx, None, dsrc]

    def sent(self, builder: Builder, values: SSAValue) -> SSAValue:
        """For each place the sum of the elements of `values`, which has the shape of src."""
        shape, count = shape_of(self.x), math.prod(shape_of(self.index))
        numbers = builder.insert(ElementNumberOp(self.index, shape, self.dim.value.data)).result
        zeros = builder.insert(ConstantOp(0.0, with_shape(self.x, (math.prod(shape), 1)))).result
        rows, values = reshaped(builder, numbers, (count,)), reshaped(builder, values, (count, 1))
        return reshaped(builder, builder.insert(ScatterAddOp(zeros, rows, values)).result, shape)

    def there(self, builder: Builder, values: SSAValue) -> SSAValue:
        """For each element of src the element of `values`, which has the shape of x, at its target place."""
        return builder.insert(GatherOp(values, self.index, self.dim.value.data)).result


def of_extreme(op: ScatterReduceOp, builder: Builder, g: SSAValue) -> tuple[SSAValue, SSAValue]:
    """The gradient of x and src: shared by the elements that are the extreme."""

    def equals(a: SSAValue, b: SSAValue) -> SSAValue:
        same = builder.insert(EqOp(a, b)).result
        return builder.insert(CastOp(same, element_type(g))).result

    of_x, of_src = equals(op.x, op.result), equals(op.src, op.there(builder, op.result))
    count = builder.insert(AddOp(of_x, op.sent(builder, of_src))).result
    share = builder.insert(DivOp(g, count)).result
    dx = builder.insert(MulOp(of_x, share)).result
    return dx, builder.insert(MulOp(of_src, op.there(builder, share))).result


def of_product(op: ScatterReduceOp, builder: Builder, g: SSAValue) -> tuple[SSAValue, SSAValue]:
    """The gradient of x and src: the product of the others."""

    def make(op: ValueOp) -> SSAValue:
        return builder.insert(op).result

    zero, one = (builder.insert(ConstantOp(n, with_shape(g, ()))).result for n in (0.0, 1.0))

    def reduced(x: SSAValue, src: SSAValue) -> SSAValue:
        return make(
            ScatterReduceOp(x, op.index, src, op.kind.data, op.dim.value.data, is_true(op.include_self))
        )

    whole = make(MulOp(g, op.result))
    own = make(WhereOp(make(EqOp(op.x, zero)), one, op.x))
    dx = make(DivOp(make(MulOp(g, reduced(own, op.src))), own))
    is_zero = make(EqOp(op.src, zero))
    zeros = op.there(builder, op.sent(builder, make(CastOp(is_zero, element_type(g)))))
    alone = make(BitwiseAndOp(is_zero, make(EqOp(zeros, one))))
    kept = make(WhereOp(alone, one, op.src))
    without = op.there(builder, make(MulOp(g, reduced(op.x, kept))))
    rest = make(DivOp(op.there(builder, whole), make(WhereOp(is_zero, one, op.src))))
    return dx, make(WhereOp(alone, without, rest))
