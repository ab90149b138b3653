"""torch.optim optimizers that also take a module, and show Adam's bias corrections once a step is compiled; and Lion.

Plain torch.optim objects compile just as well. State, `state_dict()` and schedulers are torch's own.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch

from aicf_mlir.optim.bias_corrections import BiasCorrection
from aicf_mlir.optim.lion import Lion
from aicf_mlir.optim.parameters import Parameters, parameters_of

__all__ = ["SGD", "Adam", "AdamW", "Lion", "Parameters"]


class SGD(torch.optim.SGD):
    """torch.optim.SGD; `params` may be a module."""

    __signature__ = inspect.signature(torch.optim.SGD)

    def __init__(self, params: Parameters, *args: Any, **kwargs: Any) -> None:
        super().__init__(parameters_of(params), *args, **kwargs)


class Adam(torch.optim.Adam):
    """torch.optim.Adam; `params` may be a module."""

    __signature__ = inspect.signature(torch.optim.Adam)

    bc1_inv = BiasCorrection()
    bc2_inv = BiasCorrection()

    def __init__(self, params: Parameters, *args: Any, **kwargs: Any) -> None:
        super().__init__(parameters_of(params), *args, **kwargs)


class AdamW(torch.optim.AdamW):
    """torch.optim.AdamW; `params` may be a module."""

    __signature__ = inspect.signature(torch.optim.AdamW)

    bc1_inv = BiasCorrection()
    bc2_inv = BiasCorrection()

    def __init__(self, params: Parameters, *args: Any, **kwargs: Any) -> None:
        super().__init__(parameters_of(params), *args, **kwargs)
