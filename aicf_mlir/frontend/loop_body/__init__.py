"""The body of a training loop, as it is traced: zero_grad, backward, step and the code between them, in one function."""

from aicf_mlir.frontend.loop_body.body import LoopBody
from aicf_mlir.frontend.loop_body.gradients import WritesState
from aicf_mlir.frontend.loop_body.trace import LoopTraced, trace_loop

__all__ = ["LoopBody", "LoopTraced", "WritesState", "trace_loop"]
