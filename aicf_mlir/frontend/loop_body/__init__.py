"""The body of a training loop, as one traces it: zero_grad, backward, step and what lies between, in one function."""

from aicf_mlir.frontend.loop_body.body import LoopBody
from aicf_mlir.frontend.loop_body.gradients import WritesState
from aicf_mlir.frontend.loop_body.trace import LoopTraced, trace_loop

__all__ = ["LoopBody", "LoopTraced", "WritesState", "trace_loop"]
