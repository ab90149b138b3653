"""The optim dialect: counting the steps of a param group, and the op of each optimizer of `aicf_mlir.optimizers`."""

from __future__ import annotations

from xdsl.ir import Dialect

from aicf_mlir.optimizers import OPS

Optim = Dialect("optim", list(OPS))
