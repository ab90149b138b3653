"""The kernel dialect: one op, one launch. Rules on shapes stand in the C++ schemas; each op asks them.

Attributes of a launch are ordinary attributes; `id` and `workspace` follow from select-kernels. What each op
computes is in interpreters/kernel.py. kernel.constant and kernel.reshape are no launches: they become a slot
with a value and an alias.
"""

from __future__ import annotations

import math

from xdsl.dialects.builtin import Float64Type, FloatAttr, TensorType
from xdsl.ir import Dialect
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, result_def, traits_def
from xdsl.traits import ConstantLike, Pure
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.dialects.base import TensorOp
from aicf_mlir.dialects.kernel_op import KernelOp, tensor_spec
from aicf_mlir.dialects.registry import TensorSpec
from aicf_mlir.dialects.verification import expect_tensors


@irdl_op_definition
class ConstantOp(TensorOp):
    """A tensor that holds `value` everywhere."""

    name = "kernel.constant"

    value = prop_def(FloatAttr[Float64Type])
    output = result_def(TensorType)

    traits = traits_def(Pure(), ConstantLike())

    @property
    def number(self) -> float:
        """The value."""
        return self.value.value.data

    @property
    def spec(self) -> TensorSpec:
        """Element type and shape."""
        return tensor_spec(self.output)

    def verify_(self) -> None:
        expect_tensors(self)


@irdl_op_definition
class ReshapeOp(TensorOp):
    """The same elements in the same order under another shape; no memory moves."""

    name = "kernel.reshape"

    input = operand_def(TensorType)
    output = result_def(TensorType)

    traits = traits_def(Pure())

    @property
    def spec(self) -> TensorSpec:
        """Element type and shape of the result."""
        return tensor_spec(self.output)

    def verify_(self) -> None:
        expect_tensors(self)
        (source, old), (target, new) = tensor_spec(self.input), tensor_spec(self.output)
        if source != target:
            raise VerifyException(
                f"a reshape keeps the element type, got {source} -> {target}; use kernel.copy to cast"
            )
        if math.prod(old) != math.prod(new):
            raise VerifyException(
                f"a reshape keeps the number of elements, got {list(old)} ({math.prod(old)})"
                f" -> {list(new)} ({math.prod(new)})"
            )


@irdl_op_definition
class AddOp(KernelOp):
    """(x, y) -> (x + y), broadcasting like NumPy."""

    name = "kernel.add"


@irdl_op_definition
class SubOp(KernelOp):
    """(x, y) -> (x - y), broadcasting like NumPy."""

    name = "kernel.sub"


@irdl_op_definition
class MulOp(KernelOp):
    """(x, y) -> (x * y), broadcasting like NumPy."""

    name = "kernel.mul"


@irdl_op_definition
class DivOp(KernelOp):
    """(x, y) -> (x / y), broadcasting like NumPy."""

    name = "kernel.div"


@irdl_op_definition
class NegOp(KernelOp):
    """(x) -> (-x)."""

    name = "kernel.neg"


@irdl_op_definition
class ReluOp(KernelOp):
    """(x) -> (y); NaN passes."""

    name = "kernel.relu"


@irdl_op_definition
class GeluOp(KernelOp):
    """(x) -> (y), the exact form with erf."""

    name = "kernel.gelu"


@irdl_op_definition
class GeluTanhOp(KernelOp):
    """(x) -> (y), the tanh approximation."""

    name = "kernel.gelu_tanh"


@irdl_op_definition
class SiluOp(KernelOp):
    """(x) -> (y)."""

    name = "kernel.silu"


@irdl_op_definition
class TanhOp(KernelOp):
    """(x) -> (y)."""

    name = "kernel.tanh"


@irdl_op_definition
class SigmoidOp(KernelOp):
    """(x) -> (y)."""

    name = "kernel.sigmoid"


@irdl_op_definition
class ReluBwdOp(KernelOp):
    """(dy, y) -> (dx)."""

    name = "kernel.relu_bwd"


@irdl_op_definition
class GeluBwdOp(KernelOp):
    """(dy, x) -> (dx)."""

    name = "kernel.gelu_bwd"


@irdl_op_definition
class GeluTanhBwdOp(KernelOp):
    """(dy, x) -> (dx)."""

    name = "kernel.gelu_tanh_bwd"


@irdl_op_definition
class SiluBwdOp(KernelOp):
    """(dy, x) -> (dx)."""

    name = "kernel.silu_bwd"


@irdl_op_definition
class TanhBwdOp(KernelOp):
    """(dy, y) -> (dx)."""

    name = "kernel.tanh_bwd"


@irdl_op_definition
class SigmoidBwdOp(KernelOp):
    """(dy, y) -> (dx)."""

    name = "kernel.sigmoid_bwd"


@irdl_op_definition
class BiasAddOp(KernelOp):
    """(x[.., n], bias[n]) -> (x + bias)."""

    name = "kernel.bias_add"


@irdl_op_definition
class GemmOp(KernelOp):
    """(a, b) -> (op(a) · op(b)) {trans_a, trans_b}; rank 2, or more with equal leading dimensions."""

    name = "kernel.gemm"


@irdl_op_definition
class GemmEpilogueOp(KernelOp):
    """(a, b, [bias], [saved]) -> (out, [pre], [bias_grad]): a gemm and what follows it.

    z = op(a) · op(b) [+ bias]; pre = z; out = act(z) or act_grad(z, saved); bias_grad = sum of op(a) along k.
    Attributes {trans_a, trans_b, bias, act, act_grad, pre, bias_grad}. Each result is rounded once, from the
    accumulators: in f16 and bf16 `out` therefore sees an unrounded z.
    """

    name = "kernel.gemm_epilogue"


@irdl_op_definition
class ReduceSumOp(KernelOp):
    """(x) -> (scale * sum of x over dims) {dims, scale = 1.0}."""

    name = "kernel.reduce_sum"


@irdl_op_definition
class MseLossOp(KernelOp):
    """(y, t) -> (loss[]) {reduction}."""

    name = "kernel.mse_loss"


@irdl_op_definition
class MseGradOp(KernelOp):
    """(dloss[], y, t) -> (dy) {reduction}."""

    name = "kernel.mse_grad"


@irdl_op_definition
class CrossEntropyOp(KernelOp):
    """(logits[n, c], target[n]) -> (loss[]) {reduction, ignore_index, label_smoothing}."""

    name = "kernel.cross_entropy"


@irdl_op_definition
class CrossEntropyGradOp(KernelOp):
    """(dloss[], logits[n, c], target[n]) -> (dlogits); attributes as cross_entropy."""

    name = "kernel.cross_entropy_grad"


@irdl_op_definition
class CopyOp(KernelOp):
    """(x) -> (y): the same shape, cast to the element type of y."""

    name = "kernel.copy"


@irdl_op_definition
class TransposeOp(KernelOp):
    """(x) -> (y) {perm}: dimension i of y is dimension perm[i] of x."""

    name = "kernel.transpose"


@irdl_op_definition
class BroadcastOp(KernelOp):
    """(x) -> (y): x repeated to the shape of y, by the rules of NumPy."""

    name = "kernel.broadcast"


@irdl_op_definition
class AdvanceOp(KernelOp):
    """(step[n], [beta1, beta2, bc1_pin, bc2_pin]) -> (step[n] + 1, [bc1_inv[n], bc2_inv[n]]).

    One count, and one bias correction, for each of the n parameters of a group.
    """

    name = "kernel.advance"


@irdl_op_definition
class SgdStepOp(KernelOp):
    """(p[n], g[n], [buf[n]], per group: metas) -> (p[n], [buf[n]]).

    Metas are lr, weight_decay, [momentum, dampening, step[..]]. One launch for n tensors; {groups = group of
    each tensor, [indices = its element of the group's step], momentum, nesterov, maximize}.
    """

    name = "kernel.sgd_step"


@irdl_op_definition
class AdamStepOp(KernelOp):
    """(p[n], g[n], m[n], v[n], [vmax[n]], per group: metas) -> (p[n], m[n], v[n], [vmax[n]]).

    Metas are lr, beta1, beta2, eps, weight_decay, bc1_inv[..], bc2_inv[..]. One launch for n tensors; {groups =
    group of each tensor, indices = its element of the group's corrections, amsgrad, decoupled, maximize}.
    """

    name = "kernel.adam_step"


@irdl_op_definition
class CheckIndexOp(KernelOp):
    """(status[3], target) -> (status'[3]) {classes, ignore_index, code}: see nn.check_index."""

    name = "kernel.check_index"


@irdl_op_definition
class CheckFiniteOp(KernelOp):
    """(status[3], x...) -> (status'[3]) {code}: see nn.check_finite."""

    name = "kernel.check_finite"


LAUNCHES: tuple[type[KernelOp], ...] = (
    AddOp,
    SubOp,
    MulOp,
    DivOp,
    NegOp,
    ReluOp,
    GeluOp,
    GeluTanhOp,
    SiluOp,
    TanhOp,
    SigmoidOp,
    ReluBwdOp,
    GeluBwdOp,
    GeluTanhBwdOp,
    SiluBwdOp,
    TanhBwdOp,
    SigmoidBwdOp,
    BiasAddOp,
    GemmOp,
    GemmEpilogueOp,
    ReduceSumOp,
    MseLossOp,
    MseGradOp,
    CrossEntropyOp,
    CrossEntropyGradOp,
    CopyOp,
    TransposeOp,
    BroadcastOp,
    CheckIndexOp,
    CheckFiniteOp,
    AdvanceOp,
    SgdStepOp,
    AdamStepOp,
)
"""Every op that is a launch, in the order of the folders of their kernels."""

Kernel = Dialect("kernel", [ConstantOp, ReshapeOp, *LAUNCHES], [])
