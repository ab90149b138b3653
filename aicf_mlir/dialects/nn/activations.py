"""
Activations and their gradients.

A gradient op takes the cotangent dy and what the forward op leaves behind: its result y (relu, tanh, sigmoid)
or its operand x (gelu, silu).
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import ClassVar

from xdsl.builder import Builder
from xdsl.dialects.builtin import StringAttr, TensorType
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, traits_def

from aicf_mlir.dialects.nn.common import ValueOp
from aicf_mlir.dialects.nn.elementwise import UnaryOp
from aicf_mlir.ir.expect import Value, expect_float, expect_one_of, expect_type
from aicf_mlir.ir.interfaces import NotDifferentiable
from aicf_mlir.ir.tensor_op import AnyTensor, tensor_type

__all__ = [
    "GeluGradOp",
    "GeluOp",
    "ReluGradOp",
    "ReluOp",
    "SigmoidGradOp",
    "SigmoidOp",
    "SiluGradOp",
    "SiluOp",
    "SoftmaxGradOp",
    "SoftmaxOp",
    "TanhGradOp",
    "TanhOp",
]

APPROXIMATE = ("none", "tanh")
"""gelu: "none" is x * Phi(x) by the error function, "tanh" torch's approximation of it."""


class GradOp(ValueOp, abc.ABC):
    """The cotangent of an activation's operand, from the cotangent dy of its result."""

    dy = operand_def(TensorType)
    saved = operand_def(TensorType)

    traits = traits_def(NotDifferentiable("second derivatives are not supported"))

    SAVED: ClassVar[str]
    """What `saved` is: the forward op's result "y" or its operand "x"."""

    def __init__(self, dy: Value, saved: Value, **properties: Attribute):
        super().__init__(operands=[dy, saved], properties=properties, result_types=[tensor_type(dy)])

    def inferred_type(self) -> AnyTensor:
        expect_float("dy", self.dy)
        expect_type(self.SAVED, self.saved, tensor_type(self.dy))
        return tensor_type(self.dy)


@irdl_op_definition
class ReluGradOp(GradOp):
    """0 where y <= 0, else dy: a NaN in y lets dy pass."""

    name = "nn.relu_grad"
    LAUNCH: ClassVar = "relu_bwd"
    SAVED: ClassVar[str] = "y"


@irdl_op_definition
class TanhGradOp(GradOp):
    """dy * (1 - y * y)."""

    name = "nn.tanh_grad"
    LAUNCH: ClassVar = "tanh_bwd"
    SAVED: ClassVar[str] = "y"


@irdl_op_definition
class SigmoidGradOp(GradOp):
    """dy * y * (1 - y)."""

    name = "nn.sigmoid_grad"
    LAUNCH: ClassVar = "sigmoid_bwd"
    SAVED: ClassVar[str] = "y"


@irdl_op_definition
class SiluGradOp(GradOp):
    """dy * s * (1 + x * (1 - s)) with s = sigmoid(x)."""

    name = "nn.silu_grad"
    LAUNCH: ClassVar = "silu_bwd"
    SAVED: ClassVar[str] = "x"


@irdl_op_definition
class SoftmaxGradOp(GradOp):
    """y * (dy - the sum of dy * y over the last dimension)."""

    name = "nn.softmax_grad"
    SAVED: ClassVar[str] = "y"


@irdl_op_definition
class GeluGradOp(GradOp):
    """dy times the derivative of gelu at x."""

    name = "nn.gelu_grad"
    SAVED: ClassVar[str] = "x"

    approximate = prop_def(StringAttr, default_value=StringAttr("none"))

    def __init__(self, dy: Value, saved: Value, approximate: str = "none"):
        super().__init__(dy, saved, approximate=StringAttr(approximate))

    def inferred_type(self) -> AnyTensor:
        expect_one_of("approximate", self.approximate, APPROXIMATE)
        return super().inferred_type()


@irdl_op_definition
class ReluOp(UnaryOp):
    """max(x, 0); NaN stays NaN."""

    name = "nn.relu"

    def vjp(self, builder: Builder, cotangents: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        return [builder.insert(ReluGradOp(cotangents[0], self.result)).result]


@irdl_op_definition
class TanhOp(UnaryOp):
    """The hyperbolic tangent."""

    name = "nn.tanh"

    def vjp(self, builder: Builder, cotangents: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        return [builder.insert(TanhGradOp(cotangents[0], self.result)).result]


@irdl_op_definition
class SigmoidOp(UnaryOp):
    """1 / (1 + exp(-x))."""

    name = "nn.sigmoid"

    def vjp(self, builder: Builder, cotangents: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        return [builder.insert(SigmoidGradOp(cotangents[0], self.result)).result]


@irdl_op_definition
class SiluOp(UnaryOp):
    """x * sigmoid(x)."""

    name = "nn.silu"

    def vjp(self, builder: Builder, cotangents: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        return [builder.insert(SiluGradOp(cotangents[0], self.x)).result]


@irdl_op_definition
class SoftmaxOp(UnaryOp):
    """exp(x) over its sum along the last dimension."""

    name = "nn.softmax"

    def vjp(self, builder: Builder, cotangents: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        return [builder.insert(SoftmaxGradOp(cotangents[0], self.result)).result]


@irdl_op_definition
class GeluOp(UnaryOp):
    """x * Phi(x) by the error function, or torch's tanh approximation of it."""

    name = "nn.gelu"

    approximate = prop_def(StringAttr, default_value=StringAttr("none"))

    def __init__(self, x: Value, approximate: str = "none"):
        super().__init__(x, approximate=StringAttr(approximate))

    def inferred_type(self) -> AnyTensor:
        expect_one_of("approximate", self.approximate, APPROXIMATE)
        return super().inferred_type()

    def vjp(self, builder: Builder, cotangents: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        return [builder.insert(GeluGradOp(cotangents[0], self.x, self.approximate.data)).result]
