"""Attention as one op: softmax(scale * query · keyᵀ + mask) · value, of which no launch keeps the scores.

Operands are [batch, heads, rows, elements]. Queries may have a multiple of the heads of keys and values: those of a
group share one. Scores are in the type that the elements are computed in: f32 for half precision.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Sequence

from xdsl.builder import Builder
from xdsl.dialects.builtin import BoolAttr, FloatAttr, TensorType, f64, i1
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_operand_def, prop_def, result_def, traits_def
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.dialects.nn.broadcasting import BroadcastToOp, SumOp, sum_to_shape
from aicf_mlir.dialects.nn.common import NNOp
from aicf_mlir.dialects.nn.linear_algebra import MatmulOp
from aicf_mlir.dialects.nn.pointwise import AddOp, EqOp, ExpOp, MulOp, PointwiseOp, SubOp, WhereOp
from aicf_mlir.dialects.nn.rearranging import BandOp
from aicf_mlir.dialects.nn.shape import ConstantOp, ReshapeOp, as_element, wide_element
from aicf_mlir.ir.dtypes import element_name
from aicf_mlir.ir.expect import Value, expect_float, expect_type, is_float, scalar_of, with_shape
from aicf_mlir.ir.interfaces import DifferentiableInPartsInterface, NotDifferentiable
from aicf_mlir.ir.properties import bool_attr, float_attr, is_true
from aicf_mlir.ir.tensor_op import AnyTensor, element_type, shape_of, tensor_type

__all__ = ["AttentionGradOp", "AttentionOp"]


def out_type(query: Value, value: Value) -> AnyTensor:
    """[B, H, Tq, Dv]."""
    return with_shape(query, [*tensor_type(query).get_shape()[:3], *tensor_type(value).get_shape()[3:]])


def lse_type(query: Value) -> AnyTensor:
    """[B, H, Tq], a number for each row of scores."""
    return TensorType(wide_element(query), tensor_type(query).get_shape()[:3])


class HeadsOp(NNOp, abc.ABC):
    """What attention and its gradient are of."""

    query = operand_def(TensorType)
    key = operand_def(TensorType)
    value = operand_def(TensorType)
    mask = opt_operand_def(TensorType)
    """[B, H, Tq, Tk], or 1 in their place: whether a query sees a key, or what is added to its score."""
    causal = prop_def(BoolAttr, default_value=bool_attr(False))
    """Whether query i sees the keys 0 to i alone."""
    scale = prop_def(FloatAttr.constr(f64))

    @property
    def scores_shape(self) -> tuple[int, ...]:
        """[B, H, Tq, Tk]."""
        return (*shape_of(self.query)[:3], shape_of(self.key)[2])

    def expect_heads(self) -> None:
        """Refuse operands that attention is not defined for."""
        expect_float("query", self.query)
        for name, each in (("query", self.query), ("key", self.key), ("value", self.value)):
            if len(shape_of(each)) != 4:
                raise VerifyException(
                    f"expected {name} of shape [batch, heads, rows, elements], got {each.type}"
                )
        batch, heads, _, size = shape_of(self.query)
        groups, keys = shape_of(self.key)[1:3]
        if groups < 1 or heads % groups:
            raise VerifyException(
                "expected heads of queries that are a multiple of those of keys, got query:"
                f" {self.query.type} and key: {self.key.type}"
            )
        if size < 1:
            raise VerifyException(f"expected queries with elements, got {self.query.type}")
        expect_type("key", self.key, with_shape(self.query, (batch, groups, keys, size)))
        expect_type(
            "value", self.value, with_shape(self.query, (batch, groups, keys, shape_of(self.value)[3]))
        )
        if self.mask is not None:
            self.expect_mask(self.mask)

    def expect_mask(self, mask: SSAValue) -> None:
        """Refuse a mask that does not fit the scores."""
        elements = dict.fromkeys((i1, element_type(self.query), wide_element(self.query)))
        if element_type(mask) not in elements:
            listed = " or ".join(element_name(each) for each in elements)
            raise VerifyException(f"expected mask of element type {listed}, got {mask.type}")
        shape, scores = shape_of(mask), self.scores_shape
        if len(shape) != 4 or any(size not in (1, all_) for size, all_ in zip(shape, scores, strict=True)):
            raise VerifyException(
                f"expected mask of shape {list(scores)}, or 1 in place of a number, got {mask.type}"
            )


@irdl_op_definition
class AttentionOp(HeadsOp, DifferentiableInPartsInterface):
    """
    softmax(scale * query · keyᵀ + mask) · value, and the logsumexp of each row of scores.

    Where the mask is false, and with `causal` behind the query, the score is -infinity. A row without any other has 0
    as its result, and no gradient. What is not finite in a value may reach queries that do not see it, as 0 times it.
    """

    name = "nn.attention"

    query = operand_def(TensorType)
    key = operand_def(TensorType)
    value = operand_def(TensorType)
    mask = opt_operand_def(TensorType)
    out = result_def(TensorType)
    lse = result_def(TensorType)

    def __init__(
        self,
        query: Value,
        key: Value,
        value: Value,
        mask: Value | None = None,
        *,
        scale: float,
        causal: bool = False,
    ):
        super().__init__(
            operands=[query, key, value, mask],
            properties={"causal": bool_attr(causal), "scale": float_attr(scale)},
            result_types=[out_type(query, value), lse_type(query)],
        )

    def inferred_types(self) -> Sequence[AnyTensor]:
        self.expect_heads()
        return [out_type(self.query, self.value), lse_type(self.query)]

    @property
    def without_gradient(self) -> Sequence[SSAValue]:
        """The logsumexp is for the gradient of the other result."""
        return [self.lse]

    def vjp_in_parts(
        self, builder: Builder, cotangents: Sequence[SSAValue | None]
    ) -> Sequence[SSAValue | None]:
        dout = cotangents[0]
        assert dout is not None, "no other result has a gradient"
        scale, causal = self.scale.value.data, is_true(self.causal)
        operands = (dout, self.query, self.key, self.value, self.out, self.lse, self.mask)
        grad = builder.insert(AttentionGradOp(*operands, scale=scale, causal=causal))
        found: list[SSAValue | None] = [grad.dquery, grad.dkey, grad.dvalue]
        if self.mask is not None:
            found.append(mask_gradient(builder, self, self.mask, dout) if is_float(self.mask) else None)
        return found


@irdl_op_definition
class AttentionGradOp(HeadsOp):
    """The cotangents of query, key and value, from the scores once more: of a mask there is none here."""

    name = "nn.attention_grad"

    dout = operand_def(TensorType)
    query = operand_def(TensorType)
    key = operand_def(TensorType)
    value = operand_def(TensorType)
    out = operand_def(TensorType)
    lse = operand_def(TensorType)
    mask = opt_operand_def(TensorType)
    dquery = result_def(TensorType)
    dkey = result_def(TensorType)
    dvalue = result_def(TensorType)

    traits = traits_def(NotDifferentiable("second derivatives are not supported"))

    def __init__(
        self,
        dout: Value,
        query: Value,
        key: Value,
        value: Value,
        out: Value,
        lse: Value,
        mask: Value | None = None,
        *,
        scale: float,
        causal: bool = False,
    ):
        super().__init__(
            operands=[dout, query, key, value, out, lse, mask],
            properties={"causal": bool_attr(causal), "scale": float_attr(scale)},
            result_types=[tensor_type(each) for each in (query, key, value)],
        )

    def inferred_types(self) -> Sequence[AnyTensor]:
        self.expect_heads()
        for name, each in (("dout", self.dout), ("out", self.out)):
            expect_type(name, each, out_type(self.query, self.value))
        expect_type("lse", self.lse, lse_type(self.query))
        return [tensor_type(each) for each in (self.query, self.key, self.value)]


def mask_gradient(builder: Builder, op: AttentionOp, mask: SSAValue, dout: SSAValue) -> SSAValue:
    """That of the scores, written by other ops and summed to what the mask has: all of it is there at once."""

    def pointwise(op_type: type[PointwiseOp], *operands: SSAValue) -> SSAValue:
        return builder.insert(op_type(*operands)).result

    def wide(value: SSAValue) -> SSAValue:
        return as_element(builder, value, wide_element(op.query))

    def reshaped(value: SSAValue, shape: Sequence[int]) -> SSAValue:
        return value if shape_of(value) == tuple(shape) else builder.insert(ReshapeOp(value, shape)).result

    def products(a: SSAValue, b: SSAValue) -> SSAValue:
        """Of the rows of each head of `a` with those of its group's head of `b`."""
        batch, groups = shape_of(b)[:2]
        rows = (batch, groups, math.prod(shape_of(a)[1:3]) // groups, shape_of(a)[3])
        product = builder.insert(MatmulOp(reshaped(wide(a), rows), wide(b), trans_b=True)).result
        return reshaped(product, op.scores_shape)

    def number(value: float) -> SSAValue:
        return builder.insert(ConstantOp(value, scalar_of(op.lse))).result

    scores = pointwise(
        AddOp, pointwise(MulOp, products(op.query, op.key), number(op.scale.value.data)), wide(mask)
    )
    if is_true(op.causal):
        scores = builder.insert(BandOp(scores, None, 0, -math.inf)).result
    lse = reshaped(op.lse, (*shape_of(op.lse), 1))
    weights = pointwise(ExpOp, pointwise(SubOp, scores, lse))
    nothing = builder.insert(BroadcastToOp(pointwise(EqOp, lse, number(-math.inf)), op.scores_shape)).result
    weights = pointwise(WhereOp, nothing, number(0.0), weights)
    products_of_out = pointwise(MulOp, wide(dout), wide(op.out))
    delta = builder.insert(SumOp(products_of_out, [3], keepdim=True)).result
    slopes = pointwise(MulOp, weights, pointwise(SubOp, products(dout, op.value), delta))
    summed = sum_to_shape(builder, slopes, shape_of(mask))
    return as_element(builder, summed, element_type(mask))
