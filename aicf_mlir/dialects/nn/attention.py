"""Attention as one op: softmax(scale * query · keyᵀ + mask) · value, with dropout of the weights; no launch keeps the scores.

Operands are [batch, heads, rows, elements]. Queries may have a multiple of the heads of keys and values: those of a
group share one. Scores are in the type that the elements are computed in: f32 for half precision.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import ClassVar

from xdsl.builder import Builder
from xdsl.dialects.builtin import BoolAttr, FloatAttr, IntegerAttr, TensorType, f64, i1, i64
from xdsl.ir import Attribute, Block, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_operand_def, prop_def, result_def
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.dialects.nn.common import NNOp
from aicf_mlir.dialects.nn.composed_attention import Composed, Dropped, Operands
from aicf_mlir.dialects.nn.randomness import RANDOM, DropoutOp, expect_site
from aicf_mlir.dialects.nn.shape import wide_element
from aicf_mlir.ir.dtypes import element_name
from aicf_mlir.ir.expect import Value, expect_float, expect_type, is_float, with_shape
from aicf_mlir.ir.interfaces import DifferentiableInPartsInterface, UnfoldableInterface
from aicf_mlir.ir.properties import bool_attr, float_attr, is_true
from aicf_mlir.ir.tensor_op import AnyTensor, element_type, shape_of, tensor_type

__all__ = ["AttentionDropoutGradOp", "AttentionDropoutOp", "AttentionGradOp", "AttentionOp"]


def out_type(query: Value, value: Value) -> AnyTensor:
    """[B, H, Tq, Dv]."""
    return with_shape(query, [*tensor_type(query).get_shape()[:3], *tensor_type(value).get_shape()[3:]])


def row_type(query: Value) -> AnyTensor:
    """[B, H, Tq], a number for each row of scores."""
    return TensorType(wide_element(query), tensor_type(query).get_shape()[:3])


class HeadsOp(NNOp, abc.ABC):
    """The operands and attributes of attention and its gradient."""

    query = operand_def(TensorType)
    key = operand_def(TensorType)
    value = operand_def(TensorType)
    mask = opt_operand_def(TensorType)
    """[B, H, Tq, Tk], or 1 in their place: true if a query sees a key, or the summand of its score."""
    causal = prop_def(BoolAttr, default_value=bool_attr(False))
    """True if query i sees the keys 0 to i alone."""
    scale = prop_def(FloatAttr.constr(f64))

    @property
    def scores_shape(self) -> tuple[int, ...]:
        """[B, H, Tq, Tk]."""
        return (*shape_of(self.query)[:3], shape_of(self.key)[2])

    @property
    def attended(self) -> Operands:
        """The operands of attention."""
        scale, causal = self.scale.value.data, is_true(self.causal)
        return Operands(self.query, self.key, self.value, self.mask, causal, scale, self.dropped)

    @property
    def dropped(self) -> Dropped | None:
        """Dropout of the weights."""
        return None

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


class AttentionBase(HeadsOp, DifferentiableInPartsInterface, abc.ABC):
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

    def vjp_in_parts(
        self, builder: Builder, cotangents: Sequence[SSAValue | None]
    ) -> Sequence[SSAValue | None]:
        dout = cotangents[0]
        assert dout is not None, "no other result has a gradient"
        grad = builder.insert(self.gradient(dout))
        gradients: list[SSAValue | None] = [grad.dquery, grad.dkey, grad.dvalue]
        if self.mask is not None:
            composed = Composed(builder, self.attended)
            gradients.append(composed.mask_gradient(dout) if is_float(self.mask) else None)
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


class DropoutBase(HeadsOp, abc.ABC):
    """Dropout of the weights: `random` is [seed, steps taken], and the draws are those of `nn.dropout` with `tiled`.

    A weight is dropped with p rounded to a multiple of 2^-16.
    """

    random = operand_def(TensorType)
    p = prop_def(FloatAttr.constr(f64))
    site = prop_def(IntegerAttr.constr(i64))

    MOST: ClassVar[float] = 1.0 - 2.0**-16
    """The largest p: a number of 16 bits decides."""

    @property
    def dropped(self) -> Dropped:
        return Dropped(self.random, self.p.value.data, self.site.value.data)

    def expect_heads(self) -> None:
        super().expect_heads()
        expect_type("random", self.random, RANDOM)
        expect_site(self.site.value.data)
        if not 0.0 <= self.p.value.data <= self.MOST:
            raise VerifyException(f"expected p of at least 0 and at most 1 - 2^-16, got {self.p.value.data}")


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

    def of_ones(self) -> DropoutOp:
        """The dropout of the weights, of numbers that have no op."""
        scores = TensorType(wide_element(self.query), self.scores_shape)
        ones, random = Block(arg_types=[scores, RANDOM]).args
        return DropoutOp(ones, random, self.p.value.data, self.site.value.data, tiled=True)


def dropout_properties(scale: float, p: float, site: int, causal: bool) -> dict[str, Attribute]:
    """The properties of attention with dropout, and of its gradient."""
    return {
        "causal": bool_attr(causal),
        "scale": float_attr(scale),
        "p": float_attr(p),
        "site": IntegerAttr(site, i64),
    }


class AttentionGradBase(HeadsOp, UnfoldableInterface, abc.ABC):
    """The cotangents of query, key and value, with and without dropout."""

    dout = operand_def(TensorType)
    out = operand_def(TensorType)
    largest = operand_def(TensorType)
    total = operand_def(TensorType)
    dquery = result_def(TensorType)
    dkey = result_def(TensorType)
    dvalue = result_def(TensorType)

    def inferred_types(self) -> Sequence[AnyTensor]:
        self.expect_heads()
        for name, each in (("dout", self.dout), ("out", self.out)):
            expect_type(name, each, out_type(self.query, self.value))
        for name, each in (("largest", self.largest), ("total", self.total)):
            expect_type(name, each, row_type(self.query))
        return [tensor_type(each) for each in (self.query, self.key, self.value)]

    def unfold(self, builder: Builder) -> Sequence[SSAValue]:
        """The gradients by products and a softmax, of the operands of attention alone."""
        return Composed(builder, self.attended).gradients(self.dout)


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
