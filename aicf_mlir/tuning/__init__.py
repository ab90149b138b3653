"""The kernel that runs each op, measured once on one machine and kept as text: `aicf.lock`."""

from aicf_mlir.tuning.lock import Lock
from aicf_mlir.tuning.measure import tuned

__all__ = ["Lock", "tuned"]
