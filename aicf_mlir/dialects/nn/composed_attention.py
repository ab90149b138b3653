"""Attention by products, masks and a softmax: for a device that rather keeps the scores, and for the gradient of a mask."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from xdsl.builder import Builder
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, SSAValue

from aicf_mlir.dialects.nn.broadcasting import sum_to_shape
from aicf_mlir.dialects.nn.common import ValueOp
from aicf_mlir.dialects.nn.linear_algebra import MatmulOp
from aicf_mlir.dialects.nn.pointwise import AddOp, MulOp, PointwiseOp, WhereOp
from aicf_mlir.dialects.nn.randomness import DropoutOp
from aicf_mlir.dialects.nn.rearranging import BandOp
from aicf_mlir.dialects.nn.shape import ConstantOp, ReshapeOp, as_element, wide_element
from aicf_mlir.dialects.nn.softmax import SafeSoftmaxOp, SoftmaxGradOp, SoftmaxOp
from aicf_mlir.ir.expect import is_float
from aicf_mlir.ir.tensor_op import AnyTensor, element_type, shape_of


@dataclass(frozen=True)
class Dropped:
    """Dropout of the weights of attention, `nn.dropout` with `tiled`."""

    random: SSAValue
    p: float
    site: int

    def of(self, weights: SSAValue) -> DropoutOp:
        """The weights that are left, and in the gradient what reaches the weights."""
        return DropoutOp(weights, self.random, self.p, self.site, tiled=True)


@dataclass(frozen=True)
class Operands:
    """The operands of attention; see `nn.attention`."""

    query: SSAValue
    key: SSAValue
    value: SSAValue
    mask: SSAValue | None
    causal: bool
    scale: float
    dropped: Dropped | None = None
    before: int = 0
    """Keys that the first query sees besides its own, if it is causal: the query is not the first of all."""


@dataclass(frozen=True)
class Composed:
    """Attention of some operands by products and a softmax, which has all scores at once."""

    builder: Builder
    """The builder at its current place: values made before are not made again."""
    of: Operands
    _widened: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])

    @property
    def grouped(self) -> tuple[int, ...]:
        """[B, Hkv, H / Hkv * Tq]: the queries of the heads that share one of keys are rows of one product."""
        batch, heads, rows, _ = shape_of(self.of.query)
        groups = shape_of(self.of.key)[1]
        return (batch, groups, heads // groups * rows)

    @cached_property
    def query(self) -> SSAValue:
        """Times the scale, so that scores are not multiplied again."""
        scaled = self.pointwise(MulOp, self.widened(self.of.query), self.constant(self.of.scale))
        return self.rows(scaled)

    @cached_property
    def weights(self) -> SSAValue:
        """[B, H, Tq, Tk]: the softmax of the scores, before dropout; 0 throughout a row that sees nothing."""
        of, scores = self.of, self.heads(self.product(self.query, self.widened(self.of.key), trans_b=True))
        if of.causal:
            scores = self.inserted(BandOp(scores, None, of.before, -math.inf))
        if of.mask is None:
            return self.inserted(SoftmaxOp(scores))
        mask = of.mask
        if not is_float(mask):
            mask = self.pointwise(WhereOp, mask, self.constant(0.0), self.constant(-math.inf))
        scores = self.pointwise(AddOp, scores, self.widened(mask))
        return self.inserted(SafeSoftmaxOp(scores))

    def dropped(self, weights: SSAValue) -> SSAValue:
        """The weights after dropout, if there is any; in the gradient the same of their cotangent."""
        return weights if self.of.dropped is None else self.inserted(self.of.dropped.of(weights))

    def out(self) -> SSAValue:
        """The result."""
        out = self.product(self.rows(self.dropped(self.weights)), self.widened(self.of.value))
        return as_element(self.builder, self.heads(out), element_type(self.of.query))

    def gradients(self, dout: SSAValue) -> list[SSAValue]:
        """The gradients of query, key and value."""
        dout = self.rows(self.widened(dout))
        scale = self.constant(self.of.scale)
        dvalue = self.product(self.rows(self.dropped(self.weights)), dout, trans_a=True)
        dscores = self.rows(self.dscores(dout))
        dquery = self.pointwise(MulOp, self.heads(self.product(dscores, self.widened(self.of.key))), scale)
        dkey = self.product(dscores, self.query, trans_a=True)
        element = element_type(self.of.query)
        return [as_element(self.builder, each, element) for each in (dquery, dkey, dvalue)]

    def mask_gradient(self, dout: SSAValue, type_: AnyTensor) -> SSAValue:
        """The gradient of the scores, summed to a type."""
        dscores = self.dscores(self.rows(self.widened(dout)))
        summed = sum_to_shape(self.builder, dscores, type_.get_shape())
        return as_element(self.builder, summed, type_.element_type)

    def dscores(self, dout: SSAValue) -> SSAValue:
        """The gradient of the scores, from the widened rows of the cotangent, through the softmax."""
        dweights = self.heads(self.product(dout, self.widened(self.of.value), trans_b=True))
        return self.inserted(SoftmaxGradOp(self.dropped(dweights), self.weights))

    @property
    def wide(self) -> Attribute:
        """The element type that scores are computed in."""
        return wide_element(self.of.query)

    def widened(self, value: SSAValue) -> SSAValue:
        """The value in the type of the scores."""
        if value not in self._widened:
            self._widened[value] = as_element(self.builder, value, self.wide)
        return self._widened[value]

    def rows(self, value: SSAValue) -> SSAValue:
        """[B, H, Tq, N] as rows of the groups."""
        return self.reshaped(value, (*self.grouped, shape_of(value)[-1]))

    def heads(self, value: SSAValue) -> SSAValue:
        """The reverse."""
        return self.reshaped(value, (*shape_of(self.of.query)[:3], shape_of(value)[-1]))

    def reshaped(self, value: SSAValue, shape: Sequence[int]) -> SSAValue:
        """The value with this shape; the value itself if the shape stays."""
        return value if shape_of(value) == tuple(shape) else self.inserted(ReshapeOp(value, shape))

    def product(self, a: SSAValue, b: SSAValue, trans_a: bool = False, trans_b: bool = False) -> SSAValue:
        """The product of matrices."""
        return self.inserted(MatmulOp(a, b, trans_a, trans_b))

    def pointwise(self, op_type: type[PointwiseOp], *operands: SSAValue) -> SSAValue:
        """Element by element."""
        return self.inserted(op_type(*operands))

    def constant(self, value: float) -> SSAValue:
        """A constant of the type of the scores."""
        return self.inserted(ConstantOp(value, TensorType(self.wide, [])))

    def inserted(self, op: ValueOp) -> SSAValue:
        """The result of a new op."""
        return self.builder.insert(op).result
