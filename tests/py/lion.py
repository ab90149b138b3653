"""Lion (arXiv:2302.06675), as one file of `aicf_mlir/optimizers` would hold it; there is no kernel of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, result_def

from aicf_mlir.ir.tensor_op import tensor_type
from aicf_mlir.optimizers.op import OptimOp
from aicf_mlir.optimizers.rule import Setting, TorchClass, UpdateRule


@irdl_op_definition
class LionOp(OptimOp):
    """p' = p * (1 - lr * weight_decay) - lr * sign(beta1 * m + (1 - beta1) * g); m' = beta2 * m + (1 - beta2) * g."""

    name = "optim.lion"

    LAUNCH: ClassVar = "lion_step"

    p = operand_def(TensorType)
    g = operand_def(TensorType)
    m = operand_def(TensorType)
    lr = operand_def(TensorType)
    beta1 = operand_def(TensorType)
    beta2 = operand_def(TensorType)
    weight_decay = operand_def(TensorType)
    next_p = result_def(TensorType)
    next_m = result_def(TensorType)

    def __init__(self, operands: Sequence[SSAValue]):
        super().__init__(operands=operands, result_types=[tensor_type(operands[0])] * 2)

    def verify_(self) -> None:
        self.expect_like_parameter(self.p, g=self.g, m=self.m)


@dataclass(frozen=True)
class Lion(UpdateRule):
    """The rule."""

    KIND = "lion"
    TORCH = (TorchClass("__main__", "Lion"),)
    SETTINGS = (
        Setting("lr", {"lr": 1e-4}),
        Setting("betas", {"beta1": 0.9, "beta2": 0.99}),
        Setting("weight_decay", {"weight_decay": 1e-2}),
    )
    FLAGS = ()
    OP = LionOp

    @property
    def states(self) -> tuple[str, ...]:
        return ("exp_avg",)

    @property
    def counts_steps(self) -> bool:
        return False

    def update(
        self, p: SSAValue, g: SSAValue, states: Sequence[SSAValue], meta: Mapping[str, SSAValue], index: int
    ) -> Operation:
        return LionOp([p, g, *states, *(meta[name] for name in self.hyperparameters)])

    @staticmethod
    def formula(
        p: Any, g: Any, m: Any, lr: Any, beta1: Any, beta2: Any, weight_decay: Any, *, bounded: Any
    ) -> tuple[Any, ...]:
        """The new p and m."""
        direction = np.sign(beta1 * m + (1.0 - beta1) * g)
        return p * (1.0 - lr * weight_decay) - lr * direction, beta2 * m + (1.0 - beta2) * g
