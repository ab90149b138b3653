"""The front end: it turns a PyTorch model, loss and optimizer into the nn dialect."""

from aicf_mlir.frontend.example import LossFunction, TensorSpec, default_loss
from aicf_mlir.frontend.tracing import Traced, trace

__all__ = ["LossFunction", "TensorSpec", "Traced", "default_loss", "trace"]
