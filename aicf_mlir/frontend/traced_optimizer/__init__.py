"""An optimizer that no rule describes: its own `step` is traced, and becomes a function of the nn dialect next to the
step.
"""

from aicf_mlir.frontend.traced_optimizer.trace import OptimizerTrace, trace_optimizer, with_gradient

__all__ = ["OptimizerTrace", "trace_optimizer", "with_gradient"]
