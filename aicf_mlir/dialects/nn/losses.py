"""Losses and their gradients; each loss is a 0-d tensor of its input's element type."""

from __future__ import annotations

import abc
import math
from collections.abc import Sequence
from typing import ClassVar

from xdsl.builder import Builder
from xdsl.dialects.builtin import FloatAttr, IntegerAttr, IntegerType, StringAttr, TensorType, f64, i64
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, prop_def
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.dialects.nn.broadcasting import SumOp
from aicf_mlir.dialects.nn.common import ValueOp
from aicf_mlir.dialects.nn.extremes import AtIndexOp
from aicf_mlir.dialects.nn.pointwise import AddOp, DivOp, MulOp, NegOp, NeOp, SubOp, WhereOp
from aicf_mlir.dialects.nn.reductions import divided
from aicf_mlir.dialects.nn.shape import ConstantOp, ReshapeOp, as_element, wide_element
from aicf_mlir.dialects.nn.softmax import SoftmaxOp
from aicf_mlir.ir.expect import Value, expect_float, expect_one_of, expect_type, scalar_of
from aicf_mlir.ir.interfaces import DifferentiableInterface, UnfoldableInterface
from aicf_mlir.ir.properties import float_attr
from aicf_mlir.ir.tensor_op import AnyTensor, element_type, shape_of, tensor_type

__all__ = ["CrossEntropyGradOp", "CrossEntropyOp", "MseLossGradOp", "MseLossOp"]

REDUCTIONS = ("mean", "sum")


@irdl_op_definition
class MseLossOp(ValueOp, DifferentiableInterface):
    """The squared differences of y and t, averaged or summed over all elements."""

    name = "nn.mse_loss"

    y = operand_def(TensorType)
    t = operand_def(TensorType)
    reduction = prop_def(StringAttr, default_value=StringAttr("mean"))

    def __init__(self, y: Value, t: Value, reduction: str = "mean"):
        super().__init__(
            operands=[y, t],
            properties={"reduction": StringAttr(reduction)},
            result_types=[scalar_of(y)],
        )

    def inferred_type(self) -> AnyTensor:
        expect_mse_operands(self.y, self.t, self.reduction)
        return scalar_of(self.y)

    def vjp(self, builder: Builder, cotangents: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        dy = builder.insert(MseLossGradOp(cotangents[0], self.y, self.t, self.reduction.data)).result
        return [dy, builder.insert(NegOp(dy)).result]


@irdl_op_definition
class MseLossGradOp(ValueOp, UnfoldableInterface):
    """The cotangent of y: 2 * (y - t) * dloss, over the number of elements for the mean."""

    name = "nn.mse_loss_grad"
    LAUNCH: ClassVar = "mse_grad"

    dloss = operand_def(TensorType)
    y = operand_def(TensorType)
    t = operand_def(TensorType)
    reduction = prop_def(StringAttr, default_value=StringAttr("mean"))

    def __init__(self, dloss: Value, y: Value, t: Value, reduction: str = "mean"):
        super().__init__(
            operands=[dloss, y, t],
            properties={"reduction": StringAttr(reduction)},
            result_types=[tensor_type(y)],
        )

    def inferred_type(self) -> AnyTensor:
        expect_mse_operands(self.y, self.t, self.reduction)
        expect_type("dloss", self.dloss, scalar_of(self.y))
        return tensor_type(self.y)

    def unfold(self, builder: Builder) -> Sequence[SSAValue]:
        count = math.prod(shape_of(self.y)) if self.reduction.data == "mean" else 1
        away = builder.insert(SubOp(self.y, self.t)).result
        slope = builder.insert(MulOp(builder.insert(AddOp(away, away)).result, self.dloss)).result
        return [divided(builder, slope, max(count, 1))]


def expect_mse_operands(y: Value, t: Value, reduction: StringAttr) -> None:
    """Refuse operands of different types: a broadcast of y against t is nearly always a mistake."""
    expect_float("y", y)
    expect_type("t", t, tensor_type(y))
    expect_one_of("reduction", reduction, REDUCTIONS)


class CrossEntropyBase(ValueOp, abc.ABC):
    """Cross entropy of logits [N, C] against class indices [N] in 0..C-1, as torch defines it.

    Rows whose target is `ignore_index` do not count; the mean is over the other rows, NaN if there are none. With
    `label_smoothing` s the wanted distribution is (1 - s) at the target plus s / C everywhere. A target that is neither a class
    nor `ignore_index` gives NaN; nn.check_index refuses it.
    """

    reduction = prop_def(StringAttr, default_value=StringAttr("mean"))
    ignore_index = prop_def(IntegerAttr.constr(i64), default_value=IntegerAttr(-100, i64))
    label_smoothing = prop_def(FloatAttr.constr(f64), default_value=float_attr(0.0))

    def expect_operands(self, logits: Value, target: Value) -> None:
        """Refuse operands or attributes that cross entropy is not defined for."""
        expect_float("logits", logits)
        if len(shape := shape_of(logits)) != 2 or shape[1] < 1:
            raise VerifyException(
                f"expected logits of shape [rows, classes], classes > 0, got {tensor_type(logits)}"
            )
        wanted = TensorType(i64, shape[:1])
        if shape_of(target) != shape[:1] or element_type(target) not in (i64, IntegerType(32)):
            raise VerifyException(f"expected target of type {wanted} (or i32), got {tensor_type(target)}")
        expect_one_of("reduction", self.reduction, REDUCTIONS)
        if not 0.0 <= self.label_smoothing.value.data <= 1.0:
            raise VerifyException(f"expected label_smoothing in 0..1, got {self.label_smoothing.value.data}")


@irdl_op_definition
class CrossEntropyOp(CrossEntropyBase, DifferentiableInterface):
    """The cross entropy, averaged or summed over rows."""

    name = "nn.cross_entropy"

    logits = operand_def(TensorType)
    target = operand_def(TensorType)

    def __init__(
        self,
        logits: Value,
        target: Value,
        reduction: str = "mean",
        ignore_index: int = -100,
        label_smoothing: float = 0.0,
    ):
        super().__init__(
            operands=[logits, target],
            properties=cross_entropy_properties(reduction, ignore_index, label_smoothing),
            result_types=[scalar_of(logits)],
        )

    def inferred_type(self) -> AnyTensor:
        self.expect_operands(self.logits, self.target)
        return scalar_of(self.logits)

    def vjp(self, builder: Builder, cotangents: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        grad = CrossEntropyGradOp(
            cotangents[0],
            self.logits,
            self.target,
            self.reduction.data,
            self.ignore_index.value.data,
            self.label_smoothing.value.data,
        )
        return [builder.insert(grad).result, None]


@irdl_op_definition
class CrossEntropyGradOp(CrossEntropyBase, UnfoldableInterface):
    """The cotangent of logits: (softmax - wanted distribution) * dloss, over the counted rows for a mean."""

    name = "nn.cross_entropy_grad"

    dloss = operand_def(TensorType)
    logits = operand_def(TensorType)
    target = operand_def(TensorType)

    def __init__(
        self,
        dloss: Value,
        logits: Value,
        target: Value,
        reduction: str = "mean",
        ignore_index: int = -100,
        label_smoothing: float = 0.0,
    ):
        super().__init__(
            operands=[dloss, logits, target],
            properties=cross_entropy_properties(reduction, ignore_index, label_smoothing),
            result_types=[tensor_type(logits)],
        )

    def inferred_type(self) -> AnyTensor:
        self.expect_operands(self.logits, self.target)
        expect_type("dloss", self.dloss, scalar_of(self.logits))
        return tensor_type(self.logits)

    def unfold(self, builder: Builder) -> Sequence[SSAValue]:
        """The gradient by a softmax, for targets that are classes or `ignore_index`."""
        rows, classes = shape_of(self.logits)
        wide = wide_element(self.logits)
        smoothing = self.label_smoothing.value.data
        logits, dloss = (as_element(builder, value, wide) for value in (self.logits, self.dloss))
        index = builder.insert(ReshapeOp(as_element(builder, self.target, i64), (rows, 1))).result

        def constant(value: float, element: Attribute, *shape: int) -> SSAValue:
            return builder.insert(ConstantOp(value, TensorType(element, shape))).result

        hit = builder.insert(AtIndexOp(constant(1.0 - smoothing, wide, rows, 1), index, 1, classes)).result
        wanted = builder.insert(AddOp(hit, constant(smoothing / classes, wide))).result
        away = builder.insert(SubOp(builder.insert(SoftmaxOp(logits)).result, wanted)).result
        counts = builder.insert(NeOp(index, constant(self.ignore_index.value.data, i64))).result
        if self.reduction.data == "mean":
            count = builder.insert(SumOp(as_element(builder, counts, wide))).result
            dloss = builder.insert(DivOp(dloss, count)).result
        slope = builder.insert(MulOp(away, dloss)).result
        slope = builder.insert(WhereOp(counts, slope, constant(0.0, wide))).result
        return [as_element(builder, slope, element_type(self.logits))]


def cross_entropy_properties(
    reduction: str, ignore_index: int, label_smoothing: float
) -> dict[str, StringAttr | IntegerAttr[IntegerType] | FloatAttr]:
    """The attributes that cross entropy and its gradient share."""
    return {
        "reduction": StringAttr(reduction),
        "ignore_index": IntegerAttr(ignore_index, i64),
        "label_smoothing": float_attr(label_smoothing),
    }
