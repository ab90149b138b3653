"""The gradients of attention: those of query, key and value, and that of a mask that is added."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import ClassVar

from xdsl.builder import Builder
from xdsl.dialects.builtin import TensorType
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_operand_def, result_def
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.dialects.nn.attention_heads import (
    DropoutBase,
    HeadsOp,
    dropout_properties,
    mask_gradient_type,
    out_type,
    row_type,
)
from aicf_mlir.dialects.nn.composed_attention import Composed
from aicf_mlir.ir.expect import Value, expect_type, is_float
from aicf_mlir.ir.interfaces import UnfoldableInterface
from aicf_mlir.ir.properties import bool_attr, float_attr
from aicf_mlir.ir.tensor_op import AnyTensor, tensor_type

__all__ = ["AttentionDropoutGradOp", "AttentionDropoutMaskGradOp", "AttentionGradOp", "AttentionMaskGradOp"]


class OfDout(HeadsOp, UnfoldableInterface, abc.ABC):
    """What the gradients are given: the cotangent of the result, and all results."""

    dout = operand_def(TensorType)
    out = operand_def(TensorType)
    largest = operand_def(TensorType)
    total = operand_def(TensorType)

    def expect_given(self) -> None:
        """Refuse operands and results of attention that do not fit."""
        self.expect_heads()
        for name, each in (("dout", self.dout), ("out", self.out)):
            expect_type(name, each, out_type(self.query, self.value))
        for name, each in (("largest", self.largest), ("total", self.total)):
            expect_type(name, each, row_type(self.query))

    @abc.abstractmethod
    def by(self, composed: Composed) -> Sequence[SSAValue]:
        """The results by products and a softmax."""

    def unfold(self, builder: Builder) -> Sequence[SSAValue]:
        """The results from the operands of attention alone."""
        return self.by(Composed(builder, self.attended))


class MaskGradBase(OfDout, abc.ABC):
    """The cotangent of an added mask, for all queries and keys; summed over images and heads that share one of its matrices."""

    mask = operand_def(TensorType)
    dmask = result_def(TensorType)

    def inferred_types(self) -> Sequence[AnyTensor]:
        self.expect_given()
        if not is_float(self.mask):
            raise VerifyException(f"expected a mask of floats, got {self.mask.type}")
        return [mask_gradient_type(self.query, self.key, self.mask)]

    def by(self, composed: Composed) -> Sequence[SSAValue]:
        return [composed.mask_gradient(self.dout, tensor_type(self.dmask))]


class AttentionGradBase(OfDout, abc.ABC):
    """The cotangents of query, key and value, with and without dropout."""

    dquery = result_def(TensorType)
    dkey = result_def(TensorType)
    dvalue = result_def(TensorType)

    def inferred_types(self) -> Sequence[AnyTensor]:
        self.expect_given()
        return [tensor_type(each) for each in (self.query, self.key, self.value)]

    def by(self, composed: Composed) -> Sequence[SSAValue]:
        return composed.gradients(self.dout)


@irdl_op_definition
class AttentionGradOp(AttentionGradBase):
    """The cotangents of query, key and value, from the scores once more; the mask has none here."""

    name = "nn.attention_grad"

    dout = operand_def(TensorType)
    query = operand_def(TensorType)
    key = operand_def(TensorType)
    value = operand_def(TensorType)
    out = operand_def(TensorType)
    largest = operand_def(TensorType)
    total = operand_def(TensorType)
    mask = opt_operand_def(TensorType)
    dquery = result_def(TensorType)
    dkey = result_def(TensorType)
    dvalue = result_def(TensorType)

    def __init__(
        self,
        dout: Value,
        query: Value,
        key: Value,
        value: Value,
        out: Value,
        largest: Value,
        total: Value,
        mask: Value | None = None,
        *,
        scale: float,
        causal: bool = False,
    ):
        super().__init__(
            operands=[dout, query, key, value, out, largest, total, mask],
            properties={"causal": bool_attr(causal), "scale": float_attr(scale)},
            result_types=[tensor_type(each) for each in (query, key, value)],
        )


@irdl_op_definition
class AttentionMaskGradOp(MaskGradBase):
    """The cotangent of a mask that is added, from the scores once more."""

    name = "nn.attention_mask_grad"

    dout = operand_def(TensorType)
    query = operand_def(TensorType)
    key = operand_def(TensorType)
    value = operand_def(TensorType)
    out = operand_def(TensorType)
    largest = operand_def(TensorType)
    total = operand_def(TensorType)
    mask = operand_def(TensorType)
    dmask = result_def(TensorType)

    def __init__(
        self,
        dout: Value,
        query: Value,
        key: Value,
        value: Value,
        out: Value,
        largest: Value,
        total: Value,
        mask: Value,
        *,
        scale: float,
        causal: bool = False,
    ):
        super().__init__(
            operands=[dout, query, key, value, out, largest, total, mask],
            properties={"causal": bool_attr(causal), "scale": float_attr(scale)},
            result_types=[mask_gradient_type(query, key, mask)],
        )


@irdl_op_definition
class AttentionDropoutGradOp(DropoutBase, AttentionGradBase):
    """`nn.attention_grad` with dropout: the weights that were dropped are drawn again."""

    name = "nn.attention_dropout_grad"
    LAUNCH: ClassVar[str | None] = "attention_grad"

    dout = operand_def(TensorType)
    query = operand_def(TensorType)
    key = operand_def(TensorType)
    value = operand_def(TensorType)
    out = operand_def(TensorType)
    largest = operand_def(TensorType)
    total = operand_def(TensorType)
    mask = opt_operand_def(TensorType)
    random = operand_def(TensorType)
    dquery = result_def(TensorType)
    dkey = result_def(TensorType)
    dvalue = result_def(TensorType)

    def __init__(
        self,
        dout: Value,
        query: Value,
        key: Value,
        value: Value,
        out: Value,
        largest: Value,
        total: Value,
        mask: Value | None,
        random: Value,
        *,
        scale: float,
        p: float,
        site: int,
        causal: bool = False,
    ):
        super().__init__(
            operands=[dout, query, key, value, out, largest, total, mask, random],
            properties=dropout_properties(scale, p, site, causal),
            result_types=[tensor_type(each) for each in (query, key, value)],
        )


@irdl_op_definition
class AttentionDropoutMaskGradOp(DropoutBase, MaskGradBase):
    """`nn.attention_mask_grad` with dropout: the weights that were dropped are drawn again."""

    name = "nn.attention_dropout_mask_grad"
    LAUNCH: ClassVar[str | None] = "attention_mask_grad"

    dout = operand_def(TensorType)
    query = operand_def(TensorType)
    key = operand_def(TensorType)
    value = operand_def(TensorType)
    out = operand_def(TensorType)
    largest = operand_def(TensorType)
    total = operand_def(TensorType)
    mask = operand_def(TensorType)
    random = operand_def(TensorType)
    dmask = result_def(TensorType)

    def __init__(
        self,
        dout: Value,
        query: Value,
        key: Value,
        value: Value,
        out: Value,
        largest: Value,
        total: Value,
        mask: Value,
        random: Value,
        *,
        scale: float,
        p: float,
        site: int,
        causal: bool = False,
    ):
        super().__init__(
            operands=[dout, query, key, value, out, largest, total, mask, random],
            properties=dropout_properties(scale, p, site, causal),
            result_types=[mask_gradient_type(query, key, mask)],
        )
