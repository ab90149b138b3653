"""Counting the steps of a param group, and the bias corrections that follow from the count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from xdsl.dialects.builtin import TensorType
from xdsl.irdl import irdl_op_definition, operand_def, result_def, var_operand_def, var_result_def
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.ir.expect import Value, expect_tensors, expect_type
from aicf_mlir.ir.tensor_op import tensor_type
from aicf_mlir.optimizers.op import LaunchedOp, corrections_of, expect_step

if TYPE_CHECKING:
    import numpy.typing as npt

Array: TypeAlias = "npt.NDArray[Any]"
"""NumPy is loaded by the formulas that need it, so that rules can be read without it."""


@dataclass(frozen=True)
class Correction:
    """The inverse of an Adam moment's bias, for each parameter of a group; the host may pin it."""

    name: str
    beta: str
    """The hyperparameter that it follows from."""
    pin: str
    """The host scalar that is NaN, or the value for the whole group."""

    @staticmethod
    def free(beta: Any, steps: Any) -> Any:
        """The free correction 1 / (1 - beta^steps), of any values with arithmetic."""
        return 1.0 / (1.0 - beta**steps)


CORRECTIONS = (Correction("bc1_inv", "beta1", "bc1_pin"), Correction("bc2_inv", "beta2", "bc2_pin"))

CORRECTED = (*(row.beta for row in CORRECTIONS), *(row.pin for row in CORRECTIONS))
"""The further operands of `advance`, in addition to the counters, if there are corrections."""


def advance(step: Array, **correction: Array) -> list[Array]:
    """Advance by one step for each parameter of a group, and with the betas and pins compute the corrections of that step."""
    import numpy as np

    following = step + 1.0
    return [
        following,
        *(
            np.where(np.isnan(pin := correction[row.pin]), row.free(correction[row.beta], following), pin)
            for row in CORRECTIONS
            if correction
        ),
    ]


@irdl_op_definition
class AdvanceOp(LaunchedOp):
    """
    step' = step + 1 for every parameter of the group, and for Adam the inverse bias corrections of its step.

    bc1_inv = 1 / (1 - beta1^step') where bc1_pin is NaN, else bc1_pin for the whole group; the same for 2.
    """

    name = "optim.advance"

    LAUNCH: ClassVar = "advance"
    PARTS: ClassVar = {"correction": CORRECTED, "corrections": tuple(row.name for row in CORRECTIONS)}

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
        self.expect_hyperparameters(**dict(zip(CORRECTED, self.correction, strict=False)))
        for row, correction in zip(CORRECTIONS, self.corrections, strict=False):
            expect_type(row.name, correction, corrections_of(self.step))
