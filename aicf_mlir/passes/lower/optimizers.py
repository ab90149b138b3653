"""The one rule for the ops of an optimizer with a kernel: one launch a tensor; fuse makes one of all."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Operation

from aicf_mlir.optimizers import LAUNCHED_OPS
from aicf_mlir.optimizers.op import LaunchedOp
from aicf_mlir.passes.lower.same import BY_NAME


def lower_update(op: LaunchedOp) -> Sequence[Operation]:
    """The launch that the op is: operands, results and flags by the names of the schema."""
    results = {name: value.type for name, value in op.outs().items()}
    return [BY_NAME[f"kernel.{op.LAUNCH}"].launch(op.ins(), results, **op.launch_attributes())]


RULES = dict.fromkeys(LAUNCHED_OPS, lower_update)
