"""Each element of a row joined with all in front of it: running sums and products, and recurrences."""

from __future__ import annotations

import math
from collections.abc import Sequence

from xdsl.builder import Builder
from xdsl.dialects.builtin import BoolAttr, IntegerAttr, StringAttr, TensorType, i64
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_operand_def, prop_def
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.dialects.nn.common import ValueOp
from aicf_mlir.dialects.nn.pointwise import EqOp, ExpOp, MulOp, NeOp, SubOp, WhereOp
from aicf_mlir.dialects.nn.ranking import CumsumOp, expect_dim, is_short
from aicf_mlir.dialects.nn.rearranging import PadOp
from aicf_mlir.dialects.nn.rows.row import FLOATS, NUMBERS
from aicf_mlir.dialects.nn.shape import ConstantOp
from aicf_mlir.ir.expect import Value, expect_element, expect_type, with_shape
from aicf_mlir.ir.interfaces import DifferentiableInterface
from aicf_mlir.ir.properties import bool_attr, is_true
from aicf_mlir.ir.tensor_op import AnyTensor, shape_of, tensor_type

__all__ = ["ScanOp", "running_sum", "sums_at_extremes"]

PLACES = ("argmax", "argmin")
FACTORED = ("linear", "exp_linear", "segment_sum")
KINDS = ("sum", "prod", "logaddexp", *FACTORED, *PLACES)


@irdl_op_definition
class ScanOp(ValueOp, DifferentiableInterface):
    """Each element of x joined with those up to it along `dim`; with `reverse` with those from it on.

    `kind` says how: the sum, the product, the log of the sum of exponentials (logaddexp), the place of the last extreme (argmax,
    argmin; a NaN is one), the recurrence y = factor · y + x (linear) or y = exp(factor) · y + x (exp_linear), where y begins
    as 0, or the sum since the last element whose factor is 0, that element included (segment_sum).
    """

    name = "nn.scan"

    x = operand_def(TensorType)
    factor = opt_operand_def(TensorType)
    dim = prop_def(IntegerAttr.constr(i64))
    kind = prop_def(StringAttr)
    reverse = prop_def(BoolAttr, default_value=bool_attr(False))

    def __init__(self, x: Value, dim: int, kind: str, *, factor: Value | None = None, reverse: bool = False):
        super().__init__(
            operands=[x, factor],
            properties={
                "dim": IntegerAttr(dim, i64),
                "kind": StringAttr(kind),
                "reverse": bool_attr(reverse),
            },
            result_types=[TensorType(i64, shape_of(x)) if kind in PLACES else tensor_type(x)],
        )

    def inferred_type(self) -> AnyTensor:
        kind = self.kind.data
        if kind not in KINDS:
            raise VerifyException(f"expected a kind of {', '.join(KINDS)}, got {kind!r}")
        expect_element("x", self.x, FLOATS if kind in ("logaddexp", *FACTORED) else NUMBERS)
        expect_dim(self.x, self.dim.value.data)
        if (self.factor is not None) != (kind in FACTORED):
            raise VerifyException("expected a factor for the kinds linear, exp_linear and segment_sum alone")
        if self.factor is not None:
            expect_type("factor", self.factor, tensor_type(self.x))
        return TensorType(i64, shape_of(self.x)) if kind in PLACES else tensor_type(self.x)

    def vjp(self, builder: Builder, cotangents: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        """The gradient by the chain rule from step to step, which is a linear recurrence in the other direction."""
        (g,) = cotangents
        match self.kind.data:
            case "sum":
                return [self.back(builder, g, None)]
            case "prod":
                total = self.back(builder, g, self.moved(builder, self.x, -1, 0.0))
                before = self.moved(builder, self.result, 1, 1.0)
                return [builder.insert(MulOp(total, before)).result]
            case "linear":
                assert self.factor is not None
                total = self.back(builder, g, self.moved(builder, self.factor, -1, 0.0))
                before = self.moved(builder, self.result, 1, 0.0)
                return [total, builder.insert(MulOp(total, before)).result]
            case "exp_linear":
                assert self.factor is not None
                total = self.back(builder, g, self.moved(builder, self.factor, -1, -math.inf))
                before = builder.insert(MulOp(total, self.moved(builder, self.result, 1, 0.0))).result
                return [
                    total,
                    builder.insert(MulOp(before, builder.insert(ExpOp(self.factor)).result)).result,
                ]
            case "segment_sum":
                assert self.factor is not None
                total = self.back(builder, g, self.moved(builder, self.factor, -1, 0.0))
                return [total, builder.insert(ConstantOp(0.0, tensor_type(self.factor))).result]
            case "logaddexp":
                later = exponent(builder, self.result, self.moved(builder, self.result, -1, math.inf))
                total = self.back(builder, g, later, "exp_linear")
                own = builder.insert(ExpOp(exponent(builder, self.x, self.result))).result
                return [builder.insert(MulOp(total, own)).result]
            case _:
                return [None]

    def back(self, builder: Builder, g: SSAValue, factor: SSAValue | None, kind: str = "") -> SSAValue:
        """The sums of g in the other direction, with `factor` at each step; by default of the same kind, or linear."""
        own = self.kind.data if self.kind.data in FACTORED else "linear"
        kind = "sum" if factor is None else kind or own
        scan = ScanOp(g, self.dim.value.data, kind, factor=factor, reverse=not is_true(self.reverse))
        return builder.insert(scan).result

    def moved(self, builder: Builder, x: SSAValue, steps: int, value: float) -> SSAValue:
        """X one step later, or with -1 one step earlier; `value` in the place that becomes free."""
        shape, dim = shape_of(x), self.dim.value.data
        if not shape[dim]:
            return x
        low = -steps if is_true(self.reverse) else steps
        widths = [low if d == dim else 0 for d in range(len(shape))]
        return builder.insert(PadOp(x, widths, [-width for width in widths], value)).result


def sums_at_extremes(builder: Builder, g: SSAValue, index: SSAValue, dim: int) -> SSAValue | None:
    """The elements of g added at the places of running extremes that `index` names along `dim`; None for another index.

    Such an index is the same from each extreme to the next, and the first of these elements stands where the extreme does.
    """
    scan = index.owner
    if not isinstance(scan, ScanOp) or scan.kind.data not in PLACES or scan.dim.value.data != dim:
        return None
    zero = builder.insert(ConstantOp(0.0, with_shape(g, ()))).result
    goes_on = builder.insert(EqOp(index, scan.moved(builder, index, -1, -1))).result
    begins = builder.insert(NeOp(index, scan.moved(builder, index, 1, -1))).result
    one = builder.insert(ConstantOp(1.0, with_shape(g, ()))).result
    factor = builder.insert(WhereOp(goes_on, one, zero)).result
    sums = ScanOp(g, dim, "segment_sum", factor=factor, reverse=not is_true(scan.reverse))
    return builder.insert(WhereOp(begins, builder.insert(sums).result, zero)).result


def exponent(builder: Builder, part: SSAValue, whole: SSAValue) -> SSAValue:
    """The logarithm of the share that the part has in the whole, both logarithms: 0 where they are the same infinity."""
    zero = builder.insert(ConstantOp(0.0, with_shape(part, ()))).result
    same = builder.insert(EqOp(part, whole)).result
    difference = builder.insert(SubOp(part, whole)).result
    return builder.insert(WhereOp(same, zero, difference)).result


def running_sum(x: Value, dim: int, reverse: bool = False) -> ValueOp:
    """The op of the sums of x up to each element along `dim`; with `reverse` from each on."""
    if is_short(shape_of(x)[dim]):
        return CumsumOp(x, dim, reverse)
    return ScanOp(x, dim, "sum", reverse=reverse)
