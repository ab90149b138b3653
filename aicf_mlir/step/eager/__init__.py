"""The reference: torch's own eager step on the live model, and how far a compiled step is from it."""

from aicf_mlir.step.eager.report import Comparison, Difference

__all__ = ["Comparison", "Difference"]
