"""What each optim op computes, in NumPy: torch's single-tensor formulas in float64, rounded once."""

from __future__ import annotations

from xdsl.ir import Operation

from aicf_mlir.dialects import optim
from aicf_mlir.interpreters import updates
from aicf_mlir.interpreters.numerics import Array
from aicf_mlir.interpreters.runner import Meaning, Operands, functions
from aicf_mlir.ir.dtypes import element_name
from aicf_mlir.ir.properties import is_true
from aicf_mlir.ir.tensor_op import element_type


def advance(op: optim.AdvanceOp, operands: Operands) -> tuple[Array, ...]:
    """One more step for every parameter of the group, and the inverse bias corrections of that step."""
    step, *correction = operands
    following = updates.advance(step)
    if not correction:
        return (following,)
    beta1, beta2, pin1, pin2 = correction
    return (
        following,
        updates.inverse_bias_correction(beta1, following, pin1),
        updates.inverse_bias_correction(beta2, following, pin2),
    )


def sgd(op: optim.SgdOp, operands: Operands) -> tuple[Array, ...]:
    """The new parameter and momentum buffer."""
    if op.index is not None:
        operands = [*operands[:-1], operands[-1][op.index.value.data]]
    results = updates.sgd(*operands, nesterov=is_true(op.nesterov), maximize=is_true(op.maximize))
    return tuple(result for result in results if result is not None)


def adam(op: optim.AdamOp, operands: Operands) -> tuple[Array, ...]:
    """The new parameter, moments and, for amsgrad, maximum of the second moment."""
    p, g, m, v, *hyperparameters = operands
    vmax = hyperparameters.pop() if is_true(op.amsgrad) else None
    *hyperparameters, bc1_inv, bc2_inv = hyperparameters
    corrections = [vector[op.index.value.data] for vector in (bc1_inv, bc2_inv)]
    element = element_name(element_type(op.results[0]))
    flags = {"decoupled": is_true(op.decoupled), "maximize": is_true(op.maximize)}
    results = updates.adam(p, g, m, v, vmax, *hyperparameters, *corrections, element=element, **flags)
    return tuple(result for result in results if result is not None)


MEANINGS: dict[type[Operation], Meaning] = {
    optim.AdvanceOp: advance,
    optim.SgdOp: sgd,
    optim.AdamOp: adam,
}
"""One row per op of the dialect."""

OptimFunctions = functions("OptimFunctions", MEANINGS)
"""The implementations for xDSL's interpreter."""
