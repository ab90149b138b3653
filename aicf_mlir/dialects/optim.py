"""
The optim dialect: one op per updated tensor, on immutable tensors.

A param group counts its steps in one vector, an element for each parameter. Whatever follows from the count
has the same length, and the update of a parameter reads the element that its `index` names.

Hyperparameters are 0-d f64 operands, never attributes: the host may change them between steps. They are
combined in f64 and rounded once. Each op returns new values; that they replace the old ones is said by the
results of the function. What each op computes stands in `aicf_mlir.interpreters.optim`.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence

from xdsl.dialects.builtin import BoolAttr, Float32Type, IntegerAttr, TensorType, f64, i64
from xdsl.ir import Dialect, SSAValue
from xdsl.irdl import (
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    opt_result_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.ir.expect import Value, expect_float, expect_tensors, expect_type
from aicf_mlir.ir.interfaces import NotDifferentiable
from aicf_mlir.ir.properties import bool_attr, is_true
from aicf_mlir.ir.tensor_op import AnyTensor, TensorOp, element_type, shape_of, tensor_type

HYPERPARAMETER: AnyTensor = TensorType(f64, ())
"""The type of lr, beta1, ... and of the pins of the bias corrections."""


class OptimOp(TensorOp, abc.ABC):
    """A pure op of the optimizer's update."""

    traits = traits_def(Pure(), NotDifferentiable("it belongs to the optimizer's update"))

    def expect_hyperparameters(self, **operands: Value) -> None:
        """Refuse a hyperparameter that is not a 0-d f64 tensor."""
        for name, value in operands.items():
            expect_type(name, value, HYPERPARAMETER)

    def expect_like_parameter(self, p: Value, **values: Value | None) -> None:
        """Refuse a gradient, state or result of another type than the parameter."""
        expect_float("p", p)
        for name, value in values.items():
            if value is not None:
                expect_type(name, value, tensor_type(p))


def corrections_of(step: Value) -> AnyTensor:
    """The type of the bias corrections beside step counters: one f64 per parameter of the group."""
    return TensorType(f64, shape_of(step))


def expect_step(step: SSAValue) -> None:
    """Refuse step counters that are not one f32 per parameter of the group."""
    if len(shape_of(step)) != 1 or shape_of(step)[0] < 1 or not isinstance(element_type(step), Float32Type):
        raise VerifyException(f"expected step of type tensor<nxf32> with n > 0, got {tensor_type(step)}")


def expect_index(index: int, name: str, vector: Value) -> None:
    """Refuse an index of no element of `vector`, which is called `name`."""
    if not 0 <= index < shape_of(vector)[0]:
        raise VerifyException(f"expected index of an element of {name} {tensor_type(vector)}, got {index}")


@irdl_op_definition
class AdvanceOp(OptimOp):
    """
    step' = step + 1 for every parameter of the group, and for Adam the inverse bias corrections of its step.

    bc1_inv = 1 / (1 - beta1^step') where bc1_pin is NaN, else bc1_pin for the whole group; the same for 2.
    """

    name = "optim.advance"

    step = operand_def(TensorType)
    correction = var_operand_def(TensorType)  # none, or beta1, beta2, bc1_pin, bc2_pin
    next_step = result_def(TensorType)
    corrections = var_result_def(TensorType)  # none, or bc1_inv, bc2_inv

    def __init__(self, step: Value, correction: Sequence[Value] = ()):
        """`correction`: nothing, or beta1, beta2, bc1_pin, bc2_pin."""
        super().__init__(
            operands=[step, list(correction)],
            result_types=[tensor_type(step), [corrections_of(step)] * (2 if correction else 0)],
        )

    def verify_(self) -> None:
        expect_tensors(self)
        expect_step(self.step)
        if (len(self.correction), len(self.corrections)) not in ((0, 0), (4, 2)):
            raise VerifyException(
                "expected (step) -> (step') or "
                "(step, beta1, beta2, bc1_pin, bc2_pin) -> (step', bc1_inv, bc2_inv), "
                f"got {len(self.operands)} operands and {len(self.results)} results"
            )
        expect_type("step'", self.next_step, tensor_type(self.step))
        operands = zip(("beta1", "beta2", "bc1_pin", "bc2_pin"), self.correction, strict=False)
        self.expect_hyperparameters(**dict(operands))
        for name, correction in zip(("bc1_inv", "bc2_inv"), self.corrections, strict=False):
            expect_type(name, correction, corrections_of(self.step))


@irdl_op_definition
class SgdOp(OptimOp):
    """
    torch.optim.SGD for one parameter.

    g = -g if maximize; g += weight_decay * p; with momentum: buf' = g in the parameter's first step
    (step'[index] == 1), else momentum * buf + (1 - dampening) * g; g = g + momentum * buf' if nesterov, else
    buf'; p' = p - lr * g.
    """

    name = "optim.sgd"

    p = operand_def(TensorType)
    g = operand_def(TensorType)
    lr = operand_def(TensorType)
    weight_decay = operand_def(TensorType)
    with_momentum = var_operand_def(TensorType)  # none, or buf, momentum, dampening, step'
    index = opt_prop_def(IntegerAttr.constr(i64))  # of the parameter in step'; none without momentum
    nesterov = prop_def(BoolAttr, default_value=bool_attr(False))
    maximize = prop_def(BoolAttr, default_value=bool_attr(False))
    next_p = result_def(TensorType)
    next_buf = opt_result_def(TensorType)

    def __init__(
        self,
        p: Value,
        g: Value,
        lr: Value,
        weight_decay: Value,
        with_momentum: Sequence[Value] = (),
        index: int | None = None,
        *,
        nesterov: bool = False,
        maximize: bool = False,
    ):
        """
        `with_momentum`: nothing, or buf, momentum, dampening and the step counters after `advance`.
        `index`: which of the counters is that of p.
        """
        super().__init__(
            operands=[p, g, lr, weight_decay, list(with_momentum)],
            properties={
                "index": None if index is None else IntegerAttr(index, i64),
                "nesterov": bool_attr(nesterov),
                "maximize": bool_attr(maximize),
            },
            result_types=[tensor_type(p), tensor_type(with_momentum[0]) if with_momentum else None],
        )

    def verify_(self) -> None:
        expect_tensors(self)
        if (len(self.with_momentum), len(self.results)) not in ((0, 1), (4, 2)):
            raise VerifyException(
                "expected (p, g, lr, weight_decay) -> (p') or "
                "(p, g, lr, weight_decay, buf, momentum, dampening, step') -> (p', buf'), "
                f"got {len(self.operands)} operands and {len(self.results)} results"
            )
        self.expect_like_parameter(self.p, g=self.g)
        self.expect_hyperparameters(lr=self.lr, weight_decay=self.weight_decay)
        if (self.index is not None) != bool(self.with_momentum):
            raise VerifyException(
                "expected index exactly beside step', "
                f"got {'none' if self.index is None else self.index.value.data}"
            )
        if self.with_momentum and self.index is not None:
            buf, momentum, dampening, step = self.with_momentum
            self.expect_like_parameter(self.p, buf=buf)
            self.expect_hyperparameters(momentum=momentum, dampening=dampening)
            expect_step(step)
            expect_index(self.index.value.data, "step'", step)
        elif is_true(self.nesterov):
            raise VerifyException("expected momentum operands for nesterov = true, got none")
        self.expect_like_parameter(self.p, **{"p'": self.next_p, "buf'": self.next_buf})


@irdl_op_definition
class AdamOp(OptimOp):
    """
    torch.optim.Adam (or AdamW if `decoupled`) for one parameter.

    g = -g if maximize; weight decay: p *= 1 - lr * weight_decay if decoupled, else g += weight_decay * p;
    m' = torch.lerp(m, g, w) with w = 1 - beta1: m + w * (g - m) if w < 0.5, else g - (g - m) * (1 - w);
    v' = beta2 * v + (1 - beta2) * g * g; vmax' = max(vmax, v'), NaN wins;
    p' = p - lr * bc1_inv[i] * m' / (sqrt(vmax' if amsgrad else v') * sqrt(bc2_inv[i]) + eps), i = index.
    """

    name = "optim.adam"

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
        """
        `moments`: m, v and, for amsgrad, vmax.
        `hyperparameters`: lr, beta1, beta2, eps, weight_decay, and the group's bc1_inv and bc2_inv.
        `index`: which of the corrections are those of p.
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


Optim = Dialect("optim", [AdvanceOp, SgdOp, AdamOp])
