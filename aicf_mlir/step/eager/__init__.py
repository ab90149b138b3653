"""The reference: torch's own eager step on the live model, and the distance of a compiled step from it."""

from aicf_mlir.step.eager.report import Comparison, Difference

__all__ = ["Comparison", "Difference"]
