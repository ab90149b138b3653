"""torch.optim.SGD."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from xdsl.dialects.builtin import BoolAttr, IntegerAttr, TensorType, i64
from xdsl.ir import Operation, SSAValue
from xdsl.irdl import (
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    opt_result_def,
    prop_def,
    result_def,
    var_operand_def,
)
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.ir.expect import Value, expect_tensors
from aicf_mlir.ir.formula import Scalar, select
from aicf_mlir.ir.properties import bool_attr, is_true
from aicf_mlir.ir.tensor_op import tensor_type
from aicf_mlir.optimizers.advance import Array
from aicf_mlir.optimizers.arithmetic import descent
from aicf_mlir.optimizers.launched import Bounded, LaunchedRule
from aicf_mlir.optimizers.op import LaunchedOp, expect_index, expect_step
from aicf_mlir.optimizers.rule import Flag, Setting, TorchClass
from aicf_mlir.optimizers.slots import STEP


@irdl_op_definition
class SgdOp(LaunchedOp):
    """
    torch.optim.SGD for one parameter.

    g = -g if maximize; g += weight_decay * p; with momentum: buf' = g in the parameter's first step
    (step'[index] == 1), else momentum * buf + (1 - dampening) * g; g = g + momentum * buf' if nesterov, else
    buf'; p' = p - lr * g.
    """

    name = "optim.sgd"

    LAUNCH: ClassVar = "sgd_step"
    PARTS: ClassVar = {"with_momentum": ("buf", "momentum", "dampening", "step")}

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
        """`with_momentum`: nothing, or buf, momentum, dampening and the step counters after `advance`. `index`: the position
        of p's counter.
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


def sgd_combined(
    lr: Scalar,
    weight_decay: Scalar,
    momentum: Scalar | None = None,
    dampening: Scalar | None = None,
    step: Scalar | None = None,
    *,
    nesterov: bool = False,
    maximize: bool = False,
) -> dict[str, Scalar]:
    """The combination of the hyperparameters by the rule of csrc/kernels/optim/step.h."""
    combined = {"lr": lr, "weight_decay": weight_decay}
    if momentum is None or dampening is None or step is None:
        return combined
    return {**combined, "momentum": momentum, "one_minus_dampening": 1.0 - dampening, "step": step}


def sgd_updated(
    p: Scalar,
    g: Scalar,
    lr: Scalar,
    weight_decay: Scalar,
    buf: Scalar | None = None,
    momentum: Scalar | None = None,
    one_minus_dampening: Scalar | None = None,
    step: Scalar | None = None,
    *,
    nesterov: bool = False,
    maximize: bool = False,
) -> dict[str, Scalar]:
    """The same rule on one element."""
    g = descent(p, g, weight_decay, maximize)
    if buf is None or momentum is None or one_minus_dampening is None or step is None:
        return {"p": p - lr * g}
    buf = select(step.equal(1.0), g, momentum * buf + one_minus_dampening * g)
    return {"p": p - lr * (g + momentum * buf if nesterov else buf), "buf": buf}


@dataclass(frozen=True)
class Sgd(LaunchedRule):
    """torch.optim.SGD."""

    KIND = "sgd"
    TORCH = (TorchClass("torch.optim", "SGD"),)
    SETTINGS = (
        Setting("lr", {"lr": 1e-3}),
        Setting("momentum", {"momentum": 0.9}),
        Setting("dampening", {"dampening": 0.0}),
        Setting("weight_decay", {"weight_decay": 1e-2}),
    )
    FLAGS = (Flag("momentum", "momentum"), Flag("nesterov", "nesterov"), Flag("maximize", "maximize"))
    REQUIRES: ClassVar = {"nesterov": "momentum"}
    OP = SgdOp
    COMBINED = staticmethod(sgd_combined)
    UPDATED = staticmethod(sgd_updated)

    momentum: bool = False
    nesterov: bool = False
    maximize: bool = False

    @property
    def hyperparameters(self) -> tuple[str, ...]:
        return ("lr", "weight_decay", *(("momentum", "dampening") if self.momentum else ()))

    @property
    def states(self) -> tuple[str, ...]:
        return ("momentum_buffer",) if self.momentum else ()

    @property
    def counts_steps(self) -> bool:
        return self.momentum

    def update(
        self,
        p: SSAValue,
        g: SSAValue,
        states: Sequence[SSAValue],
        arguments: Mapping[str, SSAValue],
        index: int,
    ) -> Operation:
        lr, weight_decay = arguments["lr"], arguments["weight_decay"]
        if not self.momentum:
            return SgdOp(p, g, lr, weight_decay, maximize=self.maximize)
        momentum = [*states, arguments["momentum"], arguments["dampening"], arguments[STEP]]
        flags = {"nesterov": self.nesterov, "maximize": self.maximize}
        return SgdOp(p, g, lr, weight_decay, momentum, index, **flags)

    @staticmethod
    def formula(
        p: Array,
        g: Array,
        lr: Array,
        weight_decay: Array,
        buf: Array | None = None,
        momentum: Array | float = 0.0,
        dampening: Array | float = 0.0,
        step: Array | None = None,
        *,
        bounded: Bounded,
        nesterov: bool = False,
        maximize: bool = False,
    ) -> tuple[Array | None, ...]:
        """The new p and buf. `step` counts the steps of p with this; in the first, buf is `g`."""
        if maximize:
            g = -g
        if weight_decay != 0.0:
            g = g + weight_decay * p
        if buf is None or step is None:
            return p - lr * g, None
        buf = g if step == 1.0 else momentum * buf + (1.0 - dampening) * g
        direction = g + momentum * buf if nesterov else buf
        return p - lr * direction, buf
