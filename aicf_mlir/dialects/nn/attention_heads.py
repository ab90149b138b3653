"""What attention and its gradients share: operands [batch, heads, rows, elements], a mask, dropout of the weights."""

from __future__ import annotations

import abc
from typing import ClassVar

from xdsl.dialects.builtin import BoolAttr, FloatAttr, IntegerAttr, TensorType, f64, i1, i64
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import operand_def, opt_operand_def, prop_def
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.dialects.nn.common import NNOp
from aicf_mlir.dialects.nn.composed_attention import Dropped, Operands
from aicf_mlir.dialects.nn.randomness import RANDOM, expect_site
from aicf_mlir.dialects.nn.shape import wide_element
from aicf_mlir.ir.dtypes import element_name
from aicf_mlir.ir.expect import Value, expect_float, expect_type, with_shape
from aicf_mlir.ir.properties import bool_attr, float_attr, is_true
from aicf_mlir.ir.tensor_op import AnyTensor, element_type, shape_of, tensor_type


def out_type(query: Value, value: Value) -> AnyTensor:
    """[B, H, Tq, Dv]."""
    return with_shape(query, [*tensor_type(query).get_shape()[:3], *tensor_type(value).get_shape()[3:]])


def row_type(query: Value) -> AnyTensor:
    """[B, H, Tq], a number for each row of scores."""
    return TensorType(wide_element(query), tensor_type(query).get_shape()[:3])


def mask_gradient_type(query: Value, key: Value, mask: Value) -> AnyTensor:
    """[B or 1, H or 1, Tq, Tk], as the mask has images and heads; of the mask's type if that is the mask's shape."""
    shape = (*shape_of(mask)[:2], shape_of(query)[2], shape_of(key)[2])
    return TensorType(element_type(mask) if shape == shape_of(mask) else wide_element(query), shape)


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


def dropout_properties(scale: float, p: float, site: int, causal: bool) -> dict[str, Attribute]:
    """The properties of attention with dropout, and of its gradient."""
    return {
        "causal": bool_attr(causal),
        "scale": float_attr(scale),
        "p": float_attr(p),
        "site": IntegerAttr(site, i64),
    }
