"""The results of each optim op, in NumPy: its body, or the computation of its launch for one tensor in one group."""

from __future__ import annotations

from xdsl.ir import Operation

from aicf_mlir.dialects.kernel_op import tensor_spec
from aicf_mlir.interpreters import kernel
from aicf_mlir.interpreters.generated import generated
from aicf_mlir.interpreters.numerics import Array
from aicf_mlir.interpreters.runner import Meaning, Operands, functions
from aicf_mlir.optimizers import LAUNCHED_OPS
from aicf_mlir.optimizers.op import LaunchedOp
from aicf_mlir.optimizers.pointwise import ScalarsOp, UpdateOp


def by_launch(op: LaunchedOp, operands: Operands) -> tuple[Array, ...]:
    """The results of the launch."""
    inputs = {name: [operand] for name, operand in zip(op.ins(), operands, strict=True)}
    outputs = {name: [tensor_spec(value)] for name, value in op.outs().items()}
    return tuple(kernel.MEANINGS[op.LAUNCH](kernel.Call(inputs, op.launch_attributes(), outputs)))


MEANINGS: dict[type[Operation], Meaning] = {
    **dict.fromkeys(LAUNCHED_OPS, by_launch),
    ScalarsOp: generated,
    UpdateOp: generated,
}
"""One row per op of the dialect."""

OptimFunctions = functions("OptimFunctions", MEANINGS)
"""The implementations for xDSL's interpreter."""
