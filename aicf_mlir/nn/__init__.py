"""torch.nn modules that can be compiled: the same classes, with the methods of `CompiledMethods`.

Any other torch.nn.Module compiles just as well, by `aicf_mlir.compile_train_step`.
"""

from __future__ import annotations

import torch

from aicf_mlir.nn.compiled import CompiledMethods

__all__ = [
    "GELU",
    "CompiledMethods",
    "CrossEntropyLoss",
    "Dropout",
    "Flatten",
    "Identity",
    "Linear",
    "MSELoss",
    "Module",
    "ReLU",
    "Sequential",
    "SiLU",
    "Sigmoid",
    "Tanh",
    "Unflatten",
]


class Module(CompiledMethods):
    """torch.nn.Module."""


class Sequential(CompiledMethods, torch.nn.Sequential):
    """torch.nn.Sequential."""


class Linear(CompiledMethods, torch.nn.Linear):
    """torch.nn.Linear."""


class ReLU(CompiledMethods, torch.nn.ReLU):
    """torch.nn.ReLU."""


class GELU(CompiledMethods, torch.nn.GELU):
    """torch.nn.GELU."""


class SiLU(CompiledMethods, torch.nn.SiLU):
    """torch.nn.SiLU."""


class Tanh(CompiledMethods, torch.nn.Tanh):
    """torch.nn.Tanh."""


class Sigmoid(CompiledMethods, torch.nn.Sigmoid):
    """torch.nn.Sigmoid."""


class Identity(CompiledMethods, torch.nn.Identity):
    """torch.nn.Identity."""


class Dropout(CompiledMethods, torch.nn.Dropout):
    """torch.nn.Dropout; compiles with p=0 or in evaluation mode."""


class Flatten(CompiledMethods, torch.nn.Flatten):
    """torch.nn.Flatten."""


class Unflatten(CompiledMethods, torch.nn.Unflatten):
    """torch.nn.Unflatten."""


class MSELoss(CompiledMethods, torch.nn.MSELoss):
    """torch.nn.MSELoss."""


class CrossEntropyLoss(CompiledMethods, torch.nn.CrossEntropyLoss):
    """torch.nn.CrossEntropyLoss; compiles with class indices as targets."""
