"""Attention as one op: softmax(scale * query · keyᵀ + mask) · value, with dropout of the weights; no launch keeps the scores.

Operands are [batch, heads, rows, elements]. Queries may have a multiple of the heads of keys and values: those of a
group share one. Scores are in the type that the elements are computed in: f32 for half precision.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import ClassVar

from xdsl.builder import Builder
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Block, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_operand_def, result_def

from aicf_mlir.dialects.nn.attention_gradients import (
    AttentionDropoutGradOp,
    AttentionDropoutMaskGradOp,
    AttentionGradBase,
    AttentionGradOp,
    AttentionMaskGradOp,
    MaskGradBase,
)
from aicf_mlir.dialects.nn.attention_heads import DropoutBase, HeadsOp, dropout_properties, out_type, row_type
from aicf_mlir.dialects.nn.broadcasting import sum_to_shape
from aicf_mlir.dialects.nn.common import Canonicalized
from aicf_mlir.dialects.nn.randomness import RANDOM, DropoutOp
from aicf_mlir.dialects.nn.shape import as_element, wide_element
from aicf_mlir.ir.expect import Value, is_float
from aicf_mlir.ir.interfaces import DifferentiableInPartsInterface
from aicf_mlir.ir.properties import bool_attr, float_attr, is_true
from aicf_mlir.ir.tensor_op import AnyTensor, element_type, shape_of

__all__ = ["AttentionDropoutOp", "AttentionOp"]


class AttentionBase(HeadsOp, DifferentiableInPartsInterface, Canonicalized, abc.ABC):
    """What attention gives, with and without dropout."""

    out = result_def(TensorType)
    largest = result_def(TensorType)
    total = result_def(TensorType)

    def inferred_types(self) -> Sequence[AnyTensor]:
        self.expect_heads()
        return [out_type(self.query, self.value), row_type(self.query), row_type(self.query)]

    @property
    def without_gradient(self) -> Sequence[SSAValue]:
        """The two results for each row: they exist for the gradient of the first result."""
        return [self.largest, self.total]

    @abc.abstractmethod
    def gradient(self, dout: SSAValue) -> AttentionGradBase:
        """The op of the gradients of query, key and value."""

    @abc.abstractmethod
    def mask_gradient(self, dout: SSAValue) -> MaskGradBase:
        """The op of the gradient of the mask."""

    def vjp_in_parts(
        self, builder: Builder, cotangents: Sequence[SSAValue | None]
    ) -> Sequence[SSAValue | None]:
        dout = cotangents[0]
        assert dout is not None, "no other result has a gradient"
        grad = builder.insert(self.gradient(dout))
        gradients: list[SSAValue | None] = [grad.dquery, grad.dkey, grad.dvalue]
        if self.mask is not None and is_float(self.mask):
            of_scores = builder.insert(self.mask_gradient(dout)).dmask
            summed = sum_to_shape(builder, of_scores, shape_of(self.mask))
            gradients.append(as_element(builder, summed, element_type(self.mask)))
        return [*gradients, *[None] * (len(self.operands) - len(gradients))]


@irdl_op_definition
class AttentionOp(AttentionBase):
    """Attention: softmax(scale * query · keyᵀ + mask) · value, and for each row of scores the largest and the sum of exp(score -
    largest).

    -infinity is added to the score if the mask is false; with `causal` it is the score of later keys. A row of such scores only
    has weights of 0; its largest is 0 and its total 1. If a score is NaN or infinity both are NaN. The two are kept apart: for
    huge scores, the logarithm of the total is lost in their sum. A value that is not finite reaches queries that a mask hides it
    from, as 0 times it does in torch. A value that `causal` hides is not always read, as in torch.
    """

    name = "nn.attention"

    query = operand_def(TensorType)
    key = operand_def(TensorType)
    value = operand_def(TensorType)
    mask = opt_operand_def(TensorType)
    out = result_def(TensorType)
    largest = result_def(TensorType)
    total = result_def(TensorType)

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
            result_types=[out_type(query, value), row_type(query), row_type(query)],
        )

    def gradient(self, dout: SSAValue) -> AttentionGradBase:
        operands = (dout, self.query, self.key, self.value, self.out, self.largest, self.total, self.mask)
        return AttentionGradOp(*operands, scale=self.scale.value.data, causal=is_true(self.causal))

    def mask_gradient(self, dout: SSAValue) -> MaskGradBase:
        assert self.mask is not None, "asked for where there is one"
        operands = (dout, self.query, self.key, self.value, self.out, self.largest, self.total, self.mask)
        return AttentionMaskGradOp(*operands, scale=self.scale.value.data, causal=is_true(self.causal))


@irdl_op_definition
class AttentionDropoutOp(DropoutBase, AttentionBase):
    """`nn.attention` with dropout: a weight is 0 with probability p, else divided by 1 - p. The sums of a row count all."""

    name = "nn.attention_dropout"
    LAUNCH: ClassVar[str | None] = "attention"

    query = operand_def(TensorType)
    key = operand_def(TensorType)
    value = operand_def(TensorType)
    mask = opt_operand_def(TensorType)
    random = operand_def(TensorType)
    out = result_def(TensorType)
    largest = result_def(TensorType)
    total = result_def(TensorType)

    def __init__(
        self,
        query: Value,
        key: Value,
        value: Value,
        mask: Value | None,
        random: Value,
        *,
        scale: float,
        p: float,
        site: int,
        causal: bool = False,
    ):
        super().__init__(
            operands=[query, key, value, mask, random],
            properties=dropout_properties(scale, p, site, causal),
            result_types=[out_type(query, value), row_type(query), row_type(query)],
        )

    def gradient(self, dout: SSAValue) -> AttentionGradBase:
        given = (self.query, self.key, self.value, self.out, self.largest, self.total, self.mask, self.random)
        return AttentionDropoutGradOp(
            dout, *given, scale=self.scale.value.data, causal=is_true(self.causal), p=self.p.value.data,
            site=self.site.value.data,
        )  # fmt: skip

    def mask_gradient(self, dout: SSAValue) -> MaskGradBase:
        assert self.mask is not None, "asked for where there is one"
        given = (self.query, self.key, self.value, self.out, self.largest, self.total, self.mask, self.random)
        return AttentionDropoutMaskGradOp(
            dout, *given, scale=self.scale.value.data, causal=is_true(self.causal), p=self.p.value.data,
            site=self.site.value.data,
        )  # fmt: skip

    def of_ones(self) -> DropoutOp:
        """The dropout of the weights, of numbers that have no op."""
        scores = TensorType(wide_element(self.query), self.scores_shape)
        ones, random = Block(arg_types=[scores, RANDOM]).args
        return DropoutOp(ones, random, self.p.value.data, self.site.value.data, tiled=True)
