"""What each nn op computes, in NumPy: float64 inside, rounded once to the type of the result."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from xdsl.ir import Operation

from aicf_mlir.dialects import nn
from aicf_mlir.dialects.nn.losses import CrossEntropyBase
from aicf_mlir.interpreters import checks, losses
from aicf_mlir.interpreters.activations import ACTIVATIONS, DERIVATIVES
from aicf_mlir.interpreters.numerics import Array
from aicf_mlir.interpreters.runner import Meaning, Operands, functions
from aicf_mlir.ir.properties import is_true
from aicf_mlir.ir.tensor_op import shape_of


def unary(function: Callable[[Array], Array]) -> Meaning:
    """An op that is a function of its operand, whatever its attributes."""
    return lambda op, operands: function(operands[0])


def binary(function: Callable[[Array, Array], Array]) -> Meaning:
    """An op that is a function of its two operands, whatever its attributes."""
    return lambda op, operands: function(operands[0], operands[1])


def gelu(op: nn.GeluOp, operands: Operands) -> Array:
    """The error function's or tanh's version."""
    return ACTIVATIONS["gelu_tanh" if op.approximate.data == "tanh" else "gelu"](operands[0])


def gelu_grad(op: nn.GeluGradOp, operands: Operands) -> Array:
    """The derivative of either."""
    return DERIVATIVES["gelu_tanh" if op.approximate.data == "tanh" else "gelu"](operands[0], operands[1])


def linear(op: nn.LinearOp, operands: Operands) -> Array:
    """The product x · wᵀ, plus the bias if there is one."""
    x, w, *bias = operands
    return np.matmul(x, w.T) + (bias[0] if bias else 0.0)


def matmul(op: nn.MatmulOp, operands: Operands) -> Array:
    """The product over the last two dimensions, of which the flags transpose some."""
    a, b = operands
    left = np.swapaxes(a, -1, -2) if is_true(op.trans_a) else a
    right = np.swapaxes(b, -1, -2) if is_true(op.trans_b) else b
    return np.matmul(left, right)


def total(op: nn.ReductionOp, operands: Operands) -> Array:
    """The sum over the op's dimensions; over none the operand itself, whose -0.0 a sum would lose."""
    dims = tuple(op.dims.get_values())
    return np.sum(operands[0], axis=dims, keepdims=is_true(op.keepdim)) if dims else operands[0]


def mean(op: nn.MeanOp, operands: Operands) -> Array:
    """The sum over how many elements it has."""
    return np.divide(total(op, operands), op.reduced_count())


def var_mean(op: nn.VarMeanOp, operands: Operands) -> tuple[Array, Array]:
    """The mean squared difference from the mean, and the mean."""
    (x,) = operands
    dims, keepdim = tuple(op.dims.get_values()), is_true(op.keepdim)
    centre = np.mean(x, axis=dims, keepdims=True)
    total = np.sum(np.square(x - centre), axis=dims, keepdims=keepdim)
    return np.divide(total, op.divisor), centre.reshape(shape_of(op.mean))


def mse_loss(op: nn.MseLossOp, operands: Operands) -> Array:
    """The squared differences, averaged or summed."""
    y, t = operands
    return losses.mse_loss(y, t, op.reduction.data)


def mse_loss_grad(op: nn.MseLossGradOp, operands: Operands) -> Array:
    """With respect to y."""
    dloss, y, t = operands
    return losses.mse_grad(dloss, y, t, op.reduction.data)


def cross_entropy(op: nn.CrossEntropyOp, operands: Operands) -> Array:
    """Averaged or summed over rows."""
    logits, target = operands
    return losses.cross_entropy(logits, target, *cross_entropy_options(op))


def cross_entropy_grad(op: nn.CrossEntropyGradOp, operands: Operands) -> Array:
    """With respect to the logits."""
    dloss, logits, target = operands
    return losses.cross_entropy_grad(dloss, logits, target, *cross_entropy_options(op))


def cross_entropy_options(op: CrossEntropyBase) -> tuple[str, int, float]:
    """The attributes in the order in which `losses` takes them."""
    return op.reduction.data, op.ignore_index.value.data, op.label_smoothing.value.data


def check_index(op: nn.CheckIndexOp, operands: Operands) -> Array:
    """The status after the check."""
    ignored = None if op.ignore_index is None else op.ignore_index.value.data
    status, target = operands
    return checks.check_index(status, target, op.classes.value.data, ignored, op.code.value.data)


def check_finite(op: nn.CheckFiniteOp, operands: Operands) -> Array:
    """The status after the check."""
    status, *values = operands
    return checks.check_finite(status, values, op.code.value.data)


def constant(op: nn.ConstantOp, operands: Operands) -> Array:
    """The value everywhere."""
    return np.full(shape_of(op.result), op.value.value.data)


def reshape(op: nn.ReshapeOp, operands: Operands) -> Array:
    """Row-major order throughout."""
    return np.reshape(operands[0], shape_of(op.result))


def transpose(op: nn.TransposeOp, operands: Operands) -> Array:
    """Dimension i of the result is dimension perm[i]."""
    return np.transpose(operands[0], op.perm.get_values())


def broadcast_to(op: nn.BroadcastToOp, operands: Operands) -> Array:
    """Repeated to the shape of the result."""
    return np.broadcast_to(operands[0], shape_of(op.result))


MEANINGS: dict[type[Operation], Meaning] = {
    nn.ConstantOp: constant,
    nn.DetachOp: unary(np.asarray),
    nn.AddOp: binary(np.add),
    nn.SubOp: binary(np.subtract),
    nn.MulOp: binary(np.multiply),
    nn.DivOp: binary(np.divide),
    nn.NegOp: unary(np.negative),
    nn.ReluOp: unary(ACTIVATIONS["relu"]),
    nn.GeluOp: gelu,
    nn.SiluOp: unary(ACTIVATIONS["silu"]),
    nn.TanhOp: unary(ACTIVATIONS["tanh"]),
    nn.SigmoidOp: unary(ACTIVATIONS["sigmoid"]),
    nn.ReluGradOp: binary(DERIVATIVES["relu"]),
    nn.GeluGradOp: gelu_grad,
    nn.SiluGradOp: binary(DERIVATIVES["silu"]),
    nn.TanhGradOp: binary(DERIVATIVES["tanh"]),
    nn.SigmoidGradOp: binary(DERIVATIVES["sigmoid"]),
    nn.LinearOp: linear,
    nn.MatmulOp: matmul,
    nn.ReshapeOp: reshape,
    nn.TransposeOp: transpose,
    nn.BroadcastToOp: broadcast_to,
    nn.SumOp: total,
    nn.MeanOp: mean,
    nn.VarMeanOp: var_mean,
    nn.CastOp: unary(np.asarray),
    nn.MseLossOp: mse_loss,
    nn.MseLossGradOp: mse_loss_grad,
    nn.CrossEntropyOp: cross_entropy,
    nn.CrossEntropyGradOp: cross_entropy_grad,
    nn.CheckIndexOp: check_index,
    nn.CheckFiniteOp: check_finite,
}
"""One row per op of the dialect."""

NNFunctions = functions("NNFunctions", MEANINGS)
"""The implementations for xDSL's interpreter."""
