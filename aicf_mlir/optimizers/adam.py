"""torch.optim.Adam and AdamW."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from xdsl.dialects.builtin import BoolAttr, IntegerAttr, TensorType, f64, i64
from xdsl.ir import Operation, SSAValue
from xdsl.irdl import (
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_result_def,
    prop_def,
    result_def,
)
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.ir.expect import Value, expect_tensors, expect_type
from aicf_mlir.ir.formula import Scalar, select, sqrt
from aicf_mlir.ir.properties import bool_attr, is_true
from aicf_mlir.ir.tensor_op import element_type, shape_of, tensor_type
from aicf_mlir.optimizers import advance, arithmetic
from aicf_mlir.optimizers.advance import Array
from aicf_mlir.optimizers.launched import Bounded, LaunchedRule
from aicf_mlir.optimizers.op import LaunchedOp, expect_index
from aicf_mlir.optimizers.rule import Flag, Setting, TorchClass


@irdl_op_definition
class AdamOp(LaunchedOp):
    """
    torch.optim.Adam (or AdamW if `decoupled`) for one parameter.

    g = -g if maximize; weight decay: p *= 1 - lr * weight_decay if decoupled, else g += weight_decay * p;
    m' = torch.lerp(m, g, w) with w = 1 - beta1: m + w * (g - m) if w < 0.5, else g - (g - m) * (1 - w);
    v' = beta2 * v + (1 - beta2) * g * g; vmax' = max(vmax, v'), NaN wins;
    p' = p - lr * bc1_inv[i] * m' / (sqrt(vmax' if amsgrad else v') * sqrt(bc2_inv[i]) + eps), i = index.
    """

    name = "optim.adam"

    LAUNCH: ClassVar = "adam_step"

    p = operand_def(TensorType)
    g = operand_def(TensorType)
    m = operand_def(TensorType)
    v = operand_def(TensorType)
    lr = operand_def(TensorType)
    beta1 = operand_def(TensorType)
    beta2 = operand_def(TensorType)
    eps = operand_def(TensorType)
    weight_decay = operand_def(TensorType)
    bc1_inv = operand_def(TensorType)
    bc2_inv = operand_def(TensorType)
    vmax = opt_operand_def(TensorType)
    index = prop_def(IntegerAttr.constr(i64))
    decoupled = prop_def(BoolAttr, default_value=bool_attr(False))
    amsgrad = prop_def(BoolAttr, default_value=bool_attr(False))
    maximize = prop_def(BoolAttr, default_value=bool_attr(False))
    next_p = result_def(TensorType)
    next_m = result_def(TensorType)
    next_v = result_def(TensorType)
    next_vmax = opt_result_def(TensorType)

    def __init__(
        self,
        p: Value,
        g: Value,
        moments: Sequence[Value],
        hyperparameters: Sequence[Value],
        index: int,
        *,
        decoupled: bool = False,
        maximize: bool = False,
    ):
        """`moments`: m, v and, for amsgrad, vmax. `hyperparameters`: lr, beta1, beta2, eps, weight_decay, and the group's
        bc1_inv and bc2_inv. `index`: the position of p's corrections.
        """
        m, v, *vmax = moments
        kind = tensor_type(p)
        super().__init__(
            operands=[p, g, m, v, *hyperparameters, vmax],
            properties={
                "index": IntegerAttr(index, i64),
                "decoupled": bool_attr(decoupled),
                "amsgrad": bool_attr(bool(vmax)),
                "maximize": bool_attr(maximize),
            },
            result_types=[kind, kind, kind, kind if vmax else None],
        )

    def verify_(self) -> None:
        expect_tensors(self)
        amsgrad = is_true(self.amsgrad)
        if (self.vmax is not None, self.next_vmax is not None) != (amsgrad, amsgrad):
            raise VerifyException(
                f"expected operand vmax and result vmax' exactly if amsgrad = true, got amsgrad = "
                f"{str(amsgrad).lower()}, {len(self.operands)} operands and {len(self.results)} results"
            )
        self.expect_like_parameter(self.p, g=self.g, m=self.m, v=self.v, vmax=self.vmax)
        self.expect_hyperparameters(
            lr=self.lr,
            beta1=self.beta1,
            beta2=self.beta2,
            eps=self.eps,
            weight_decay=self.weight_decay,
        )
        if len(shape_of(self.bc1_inv)) != 1 or element_type(self.bc1_inv) != f64:
            raise VerifyException(f"expected bc1_inv of type tensor<nxf64>, got {tensor_type(self.bc1_inv)}")
        expect_type("bc2_inv", self.bc2_inv, tensor_type(self.bc1_inv))
        expect_index(self.index.value.data, "bc1_inv", self.bc1_inv)
        self.expect_like_parameter(
            self.p, **{"p'": self.next_p, "m'": self.next_m, "v'": self.next_v, "vmax'": self.next_vmax}
        )


def adam_combined(
    lr: Scalar,
    beta1: Scalar,
    beta2: Scalar,
    eps: Scalar,
    weight_decay: Scalar,
    bc1_inv: Scalar,
    bc2_inv: Scalar,
    *,
    decoupled: bool = False,
    maximize: bool = False,
) -> dict[str, Scalar]:
    """The combination of the hyperparameters by the rule of csrc/kernels/optim/step.h."""
    return {
        "decay": 1.0 - lr * weight_decay if decoupled else weight_decay,
        "one_minus_beta1": 1.0 - beta1,
        "beta2": beta2,
        "one_minus_beta2": 1.0 - beta2,
        "eps": eps,
        "step_size": lr * bc1_inv,
        "bc2_inv_sqrt": sqrt(bc2_inv),
    }


def adam_updated(
    p: Scalar,
    g: Scalar,
    m: Scalar,
    v: Scalar,
    decay: Scalar,
    one_minus_beta1: Scalar,
    beta2: Scalar,
    one_minus_beta2: Scalar,
    eps: Scalar,
    step_size: Scalar,
    bc2_inv_sqrt: Scalar,
    vmax: Scalar | None = None,
    *,
    decoupled: bool = False,
    maximize: bool = False,
) -> dict[str, Scalar]:
    """The same rule on one element."""
    if maximize:
        g = -g
    if decoupled:
        p = p * decay
    else:
        g = select(decay.differs(0.0), g + decay * p, g)
    m = arithmetic.lerp(m, g, one_minus_beta1)
    v = beta2 * v + one_minus_beta2 * g * g
    largest = v if vmax is None else select((v > vmax) | v.is_nan(), v, vmax)
    p = p - step_size * m / (sqrt(largest) * bc2_inv_sqrt + eps)
    return {"p": p, "m": m, "v": v, "vmax": largest}


@dataclass(frozen=True)
class Adam(LaunchedRule):
    """torch.optim.Adam and, `decoupled`, torch.optim.AdamW."""

    KIND = "adam"
    TORCH = (TorchClass("torch.optim", "Adam"), TorchClass("torch.optim", "AdamW", {"decoupled": True}))
    SETTINGS = (
        Setting("lr", {"lr": 1e-3}),
        Setting("betas", {"beta1": 0.9, "beta2": 0.999}),
        Setting("eps", {"eps": 1e-8}),
        Setting("weight_decay", {"weight_decay": 1e-2}),
    )
    FLAGS = (
        Flag("amsgrad", "amsgrad"),
        Flag("maximize", "maximize"),
        Flag("decoupled", "decoupled_weight_decay", optional=True),
    )
    CORRECTIONS = advance.CORRECTIONS
    COUNTS_IN_STATE = True
    OP = AdamOp
    COMBINED = staticmethod(adam_combined)
    UPDATED = staticmethod(adam_updated)

    amsgrad: bool = False
    decoupled: bool = False
    maximize: bool = False

    @property
    def states(self) -> tuple[str, ...]:
        return ("exp_avg", "exp_avg_sq", *(("max_exp_avg_sq",) if self.amsgrad else ()))

    def update(
        self,
        p: SSAValue,
        g: SSAValue,
        states: Sequence[SSAValue],
        arguments: Mapping[str, SSAValue],
        index: int,
    ) -> Operation:
        given = [arguments[name] for name in (*self.hyperparameters, *self.written_scalars)]
        flags = {"decoupled": self.decoupled, "maximize": self.maximize}
        return AdamOp(p, g, states, given, index, **flags)

    @staticmethod
    def formula(
        p: Array,
        g: Array,
        m: Array,
        v: Array,
        lr: Array,
        beta1: Array,
        beta2: Array,
        eps: Array,
        weight_decay: Array,
        bc1_inv: Array,
        bc2_inv: Array,
        vmax: Array | None = None,
        *,
        bounded: Bounded,
        decoupled: bool = False,
        maximize: bool = False,
    ) -> tuple[Array | None, ...]:
        """The new p, m, v and vmax (amsgrad). If a square is out of range the parameter stays, as in torch."""
        import numpy as np

        if maximize:
            g = -g
        if decoupled:
            p = p * (1.0 - lr * weight_decay)
        elif weight_decay != 0.0:
            g = g + weight_decay * p
        m = lerp(m, g, 1.0 - beta1)
        v = bounded(beta2 * v + (1.0 - beta2) * g * g)
        if vmax is not None:
            vmax = np.maximum(vmax, v)
        denominator = np.sqrt(v if vmax is None else vmax) * np.sqrt(bc2_inv) + eps
        return p - lr * bc1_inv * m / denominator, m, v, vmax


def lerp(start: Array, end: Array, weight: Array) -> Array:
    """torch.lerp: computed from the nearer end, so that a small `end` survives next to a large `start`."""
    if abs(weight) < 0.5:
        return start + weight * (end - start)
    return end - (end - start) * (1.0 - weight)
