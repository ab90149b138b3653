"""Rows that an index sends to rows of a matrix, reduced there: the largest, the smallest, the product.

A sum is nn.scatter_add.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.builder import Builder
from xdsl.dialects.builtin import BoolAttr, StringAttr, TensorType
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, prop_def
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.dialects.nn.common import ValueOp
from aicf_mlir.dialects.nn.gathering import ScatterAddOp, ScatterRowsOp, expect_rows, taken
from aicf_mlir.dialects.nn.pointwise import AddOp, BitwiseAndOp, DivOp, EqOp, MulOp, WhereOp
from aicf_mlir.dialects.nn.shape import CastOp, ConstantOp
from aicf_mlir.ir.expect import Value, expect_float, with_shape
from aicf_mlir.ir.interfaces import DifferentiableInterface
from aicf_mlir.ir.properties import bool_attr, is_true
from aicf_mlir.ir.tensor_op import AnyTensor, element_type, tensor_type

__all__ = ["ScatterReduceOp"]

KINDS = ("max", "min", "prod")


@irdl_op_definition
class ScatterReduceOp(ValueOp, DifferentiableInterface):
    """The matrix x, each row reduced with the rows of `src` whose `index` names it; or only these, if there are any.

    `kind` is max, min or prod; with `include_self` the row of x counts among them. The gradient of an extreme is shared by all
    elements that are equal to it, as in torch: also by an element of x that does not count.
    """

    name = "nn.scatter_reduce"
    LAUNCH: ClassVar = "scatter_rows"

    x = operand_def(TensorType)
    index = operand_def(TensorType)
    src = operand_def(TensorType)
    kind = prop_def(StringAttr)
    include_self = prop_def(BoolAttr, default_value=bool_attr(True))

    def __init__(self, x: Value, index: Value, src: Value, kind: str, include_self: bool = True):
        super().__init__(
            operands=[x, index, src],
            properties={"kind": StringAttr(kind), "include_self": bool_attr(include_self)},
            result_types=[tensor_type(x)],
        )

    def inferred_type(self) -> AnyTensor:
        if self.kind.data not in KINDS:
            raise VerifyException(f"expected a kind of {', '.join(KINDS)}, got {self.kind.data!r}")
        expect_float("x", self.x)
        expect_rows(self.x, self.index, self.src)
        return tensor_type(self.x)

    def vjp(self, builder: Builder, cotangents: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        back = of_product if self.kind.data == "prod" else of_extreme
        dx, dsrc = back(self, builder, cotangents[0])
        if not is_true(self.include_self):
            zeros = builder.insert(ConstantOp(0.0, tensor_type(self.src))).result
            dx = builder.insert(ScatterRowsOp(dx, self.index, zeros)).result
        return [dx, None, dsrc]

    def sent(self, builder: Builder, values: SSAValue) -> SSAValue:
        """For each row the sum of the rows of `values`, which has the shape of src."""
        zeros = builder.insert(ConstantOp(0.0, tensor_type(self.x))).result
        return builder.insert(ScatterAddOp(zeros, self.index, values)).result

    def there(self, builder: Builder, values: SSAValue) -> SSAValue:
        """For each row of src the row of `values`, which has the shape of x, at its target place."""
        return taken(builder, values, self.index)


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
        return make(ScatterReduceOp(x, op.index, src, op.kind.data, is_true(op.include_self)))

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
