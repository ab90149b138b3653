"""Normalisation of rows, the last dimensions of a tensor: by mean and variance, or by the mean square.

The gradient of x is one op; those of weight and bias are sums over all rows, written by other ops. Statistics are in the
type that the elements are computed in: f32 for half precision.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Sequence

from xdsl.builder import Builder
from xdsl.dialects.builtin import FloatAttr, IntegerAttr, TensorType, f64, i64
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import (
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    prop_def,
    result_def,
    var_operand_def,
)
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.dialects.nn.broadcasting import BroadcastToOp, sum_to_shape
from aicf_mlir.dialects.nn.common import NNOp, UnfoldsBody
from aicf_mlir.dialects.nn.pointwise import AddOp, MulOp, SubOp
from aicf_mlir.dialects.nn.reductions import divided
from aicf_mlir.dialects.nn.shape import as_element
from aicf_mlir.ir.body import COMPUTE, Body
from aicf_mlir.ir.dtypes import ELEMENT_TYPES, element_name
from aicf_mlir.ir.expect import Value, expect_float, expect_type
from aicf_mlir.ir.formula import Scalar, row_sum, sqrt, trace
from aicf_mlir.ir.generated import GeneratedInterface
from aicf_mlir.ir.interfaces import DifferentiableInPartsInterface
from aicf_mlir.ir.properties import float_attr
from aicf_mlir.ir.tensor_op import AnyTensor, element_type, shape_of, tensor_type

__all__ = ["LayerNormGradOp", "LayerNormOp", "RmsNormGradOp", "RmsNormOp"]


def statistics_type(x: Value, normalized: int) -> AnyTensor:
    """A number for each row, with the normalized dimensions as those of size 1."""
    shape = shape_of(x)
    element = ELEMENT_TYPES[COMPUTE[element_name(element_type(x))]]
    return TensorType(element, [*shape[: len(shape) - normalized], *[1] * normalized])


class RowsOp(NNOp, GeneratedInterface, abc.ABC):
    """The base of ops whose rows are the last `normalized` dimensions of x."""

    x = operand_def(TensorType)
    normalized = prop_def(IntegerAttr.constr(i64))

    @property
    def row_shape(self) -> tuple[int, ...]:
        """The shape of a row."""
        shape = shape_of(self.x)
        return shape[len(shape) - self.normalized.value.data :]

    @property
    def count(self) -> float:
        """The elements of a row."""
        return float(math.prod(self.row_shape))

    @property
    def domain(self) -> tuple[int, ...]:
        """The shape of x."""
        return shape_of(self.x)

    @property
    def reduced_dims(self) -> tuple[int, ...]:
        rank = len(self.domain)
        return tuple(range(rank - self.normalized.value.data, rank))

    def expect_rows(self, *weights: tuple[str, SSAValue | None]) -> None:
        """Refuse operands that normalisation is not defined for."""
        expect_float("x", self.x)
        if not 0 < self.normalized.value.data <= len(shape_of(self.x)):
            raise VerifyException(
                f"expected 1..{len(shape_of(self.x))} normalized dimensions of {self.x.type}, got"
                f" {self.normalized.value.data}"
            )
        for name, weight in weights:
            if weight is not None:
                expect_type(name, weight, TensorType(element_type(self.x), self.row_shape))

    def statistics(self) -> AnyTensor:
        """The type of a number for each row."""
        return statistics_type(self.x, self.normalized.value.data)


class NormOp(RowsOp, DifferentiableInPartsInterface, abc.ABC):
    """A normalisation with `eps` added to the variance or mean square, and optionally a weight for each place in a row."""

    eps = prop_def(FloatAttr.constr(f64), default_value=float_attr(1e-5))

    def with_statistics(self, builder: Builder, dx: SSAValue | None, *parts: SSAValue | None) -> SSAValue:
        """The cotangent of x, with the parts of it that the statistics give where a gradient is differentiated."""
        added = [as_element(builder, part, element_type(self.x)) for part in parts if part is not None]
        total, *others = added if dx is None else [dx, *added]
        for part in others:
            total = builder.insert(AddOp(total, part)).result
        return total

    def of_rstd(self, builder: Builder, g: SSAValue, rstd: SSAValue, away: SSAValue) -> SSAValue:
        """The part of rstd, whose derivative is -rstd³ times the distance from the mean, or from 0, over the count."""
        cube = builder.insert(MulOp(rstd, builder.insert(MulOp(rstd, rstd)).result)).result
        slope = divided(builder, builder.insert(MulOp(g, cube)).result, -self.count)
        return builder.insert(MulOp(slope, away)).result

    def sums(self, builder: Builder, g: SSAValue, weight: SSAValue, scaled: SSAValue) -> SSAValue:
        """The cotangent of a weight: the sum over all rows of `g` times the factor of the weight."""
        product = builder.insert(MulOp(as_element(builder, g, element_type(scaled)), scaled)).result
        return as_element(builder, sum_to_shape(builder, product, shape_of(weight)), element_type(weight))


def _properties(normalized: int, eps: float | None = None) -> dict[str, Attribute]:
    properties: dict[str, Attribute] = {"normalized": IntegerAttr(normalized, i64)}
    return properties if eps is None else {"eps": float_attr(eps), **properties}


@irdl_op_definition
class LayerNormOp(NormOp):
    """(x - mean) * rstd * weight + bias: mean and 1 / the standard deviation are of each row."""

    name = "nn.layer_norm"

    x = operand_def(TensorType)
    affine = var_operand_def(TensorType)
    """The weights: none, the weight, or weight and bias."""
    result = result_def(TensorType)
    mean = result_def(TensorType)
    rstd = result_def(TensorType)

    def __init__(
        self,
        x: Value,
        weight: Value | None,
        bias: Value | None,
        normalized: int,
        eps: float = 1e-5,
    ):
        if weight is None and bias is not None:
            raise VerifyException("expected a bias beside a weight only; add it to the result")
        statistics = statistics_type(x, normalized)
        super().__init__(
            operands=[x, [each for each in (weight, bias) if each is not None]],
            properties=_properties(normalized, eps),
            result_types=[tensor_type(x), statistics, statistics],
        )

    @property
    def weight(self) -> SSAValue | None:
        """The factor of the normalized elements."""
        return self.affine[0] if self.affine else None

    @property
    def bias(self) -> SSAValue | None:
        """The summand that is added to the weighted elements."""
        return self.affine[1] if len(self.affine) > 1 else None

    def inferred_types(self) -> Sequence[AnyTensor]:
        if len(self.affine) > 2:
            raise VerifyException(
                f"expected x, a weight and a bias, got {len(self.affine)} operands beside x"
            )
        self.expect_rows(("weight", self.weight), ("bias", self.bias))
        return [tensor_type(self.x), self.statistics(), self.statistics()]

    @property
    def whole_results(self) -> tuple[bool, ...]:
        return (True, False, False)

    def body(self) -> Body:
        eps = self.eps.value.data

        def formula(x: Scalar, *affine: Scalar) -> Sequence[Scalar]:
            mean = row_sum(x) / self.count
            away = x - mean
            rstd = 1.0 / sqrt(row_sum(away * away) / self.count + eps)
            y = away * rstd
            y = y * affine[0] if affine else y
            return [y + affine[1] if affine[1:] else y, mean, rstd]

        return trace(self.compute_types, formula)

    def vjp_in_parts(
        self, builder: Builder, cotangents: Sequence[SSAValue | None]
    ) -> Sequence[SSAValue | None]:
        g, mean, rstd = cotangents
        normalized = self.normalized.value.data
        wide = as_element(builder, self.x, element_type(self.mean))
        away = builder.insert(SubOp(wide, self.mean)).result
        dx = weight = bias = None
        if g is not None:
            dx = builder.insert(LayerNormGradOp(g, self.x, self.mean, self.rstd, self.weight, normalized)).dx
            if self.weight is not None:
                scaled = builder.insert(MulOp(away, self.rstd)).result
                weight = self.sums(builder, g, self.weight, scaled)
            if self.bias is not None:
                bias = sum_to_shape(builder, g, shape_of(self.bias))
        if mean is not None:
            mean = builder.insert(BroadcastToOp(divided(builder, mean, self.count), self.domain)).result
        if rstd is not None:
            rstd = self.of_rstd(builder, rstd, self.rstd, away)
        return [self.with_statistics(builder, dx, mean, rstd), weight, bias][: len(self.operands)]


class NormGradOp(RowsOp, UnfoldsBody, abc.ABC):
    """The cotangent of x."""

    dx = result_def(TensorType)


@irdl_op_definition
class LayerNormGradOp(NormGradOp):
    """rstd * (h - mean(h) - xhat * mean(h * xhat)), with h = dy * weight, xhat = (x - mean) * rstd."""

    name = "nn.layer_norm_grad"

    dy = operand_def(TensorType)
    x = operand_def(TensorType)
    mean = operand_def(TensorType)
    rstd = operand_def(TensorType)
    weight = opt_operand_def(TensorType)

    def __init__(self, dy: Value, x: Value, mean: Value, rstd: Value, weight: Value | None, normalized: int):
        super().__init__(
            operands=[dy, x, mean, rstd, weight],
            properties=_properties(normalized),
            result_types=[tensor_type(x)],
        )

    def inferred_types(self) -> Sequence[AnyTensor]:
        self.expect_rows(("weight", self.weight))
        expect_type("dy", self.dy, tensor_type(self.x))
        for name, value in (("mean", self.mean), ("rstd", self.rstd)):
            expect_type(name, value, self.statistics())
        return [tensor_type(self.x)]

    def body(self) -> Body:
        names = _names(self)

        def formula(*given: Scalar) -> Scalar:
            of = dict(zip(names, given, strict=True))
            h = of["dy"] * of["weight"] if "weight" in of else of["dy"]
            scaled = (of["x"] - of["mean"]) * of["rstd"]
            level = row_sum(h) / self.count
            return of["rstd"] * (h - level - scaled * (row_sum(h * scaled) / self.count))

        return trace(self.compute_types, formula)


@irdl_op_definition
class RmsNormOp(NormOp):
    """x * rstd * weight: rstd is 1 / the root of the mean square of each row."""

    name = "nn.rms_norm"

    x = operand_def(TensorType)
    weight = opt_operand_def(TensorType)
    result = result_def(TensorType)
    rstd = result_def(TensorType)

    def __init__(self, x: Value, weight: Value | None, normalized: int, eps: float = 1e-5):
        super().__init__(
            operands=[x, weight],
            properties=_properties(normalized, eps),
            result_types=[tensor_type(x), statistics_type(x, normalized)],
        )

    def inferred_types(self) -> Sequence[AnyTensor]:
        self.expect_rows(("weight", self.weight))
        return [tensor_type(self.x), self.statistics()]

    @property
    def whole_results(self) -> tuple[bool, ...]:
        return (True, False)

    def body(self) -> Body:
        eps = self.eps.value.data

        def formula(x: Scalar, *weight: Scalar) -> Sequence[Scalar]:
            rstd = 1.0 / sqrt(row_sum(x * x) / self.count + eps)
            return [x * rstd * weight[0] if weight else x * rstd, rstd]

        return trace(self.compute_types, formula)

    def vjp_in_parts(
        self, builder: Builder, cotangents: Sequence[SSAValue | None]
    ) -> Sequence[SSAValue | None]:
        g, rstd = cotangents
        wide = as_element(builder, self.x, element_type(self.rstd))
        dx = weight = None
        if g is not None:
            normalized = self.normalized.value.data
            dx = builder.insert(RmsNormGradOp(g, self.x, self.rstd, self.weight, normalized)).dx
            if self.weight is not None:
                scaled = builder.insert(MulOp(wide, self.rstd)).result
                weight = self.sums(builder, g, self.weight, scaled)
        if rstd is not None:
            rstd = self.of_rstd(builder, rstd, self.rstd, wide)
        return [self.with_statistics(builder, dx, rstd), weight][: len(self.operands)]


@irdl_op_definition
class RmsNormGradOp(NormGradOp):
    """rstd * (h - xhat * mean(h * xhat)), with h = dy * weight, xhat = x * rstd."""

    name = "nn.rms_norm_grad"

    dy = operand_def(TensorType)
    x = operand_def(TensorType)
    rstd = operand_def(TensorType)
    weight = opt_operand_def(TensorType)

    def __init__(self, dy: Value, x: Value, rstd: Value, weight: Value | None, normalized: int):
        super().__init__(
            operands=[dy, x, rstd, weight],
            properties=_properties(normalized),
            result_types=[tensor_type(x)],
        )

    def inferred_types(self) -> Sequence[AnyTensor]:
        self.expect_rows(("weight", self.weight))
        expect_type("dy", self.dy, tensor_type(self.x))
        expect_type("rstd", self.rstd, self.statistics())
        return [tensor_type(self.x)]

    def body(self) -> Body:
        names = _names(self)

        def formula(*given: Scalar) -> Scalar:
            of = dict(zip(names, given, strict=True))
            h = of["dy"] * of["weight"] if "weight" in of else of["dy"]
            scaled = of["x"] * of["rstd"]
            return of["rstd"] * (h - scaled * (row_sum(h * scaled) / self.count))

        return trace(self.compute_types, formula)


def _names(op: NormGradOp) -> list[str]:
    """The names of the operands that are there."""
    names = [name for name, _ in op.get_irdl_definition().operands]
    return [name for name in names if getattr(op, name) is not None]
