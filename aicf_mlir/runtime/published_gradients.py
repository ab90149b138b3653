"""The gradients of a step as `p.grad`, as `loss.backward()` leaves them: of the last step alone, in memory of their
own.

They are copies. `p.grad` of torch is a new tensor after each `zero_grad()`, so a kept one stays unchanged. Writes to it
in place must not reach the memory of the plan.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from aicf_mlir.frontend.types import as_users
from aicf_mlir.host.interrupts import held


def publish(gradients: Mapping[str, torch.Tensor], parameters: Mapping[str, torch.nn.Parameter]) -> None:
    """Publish all gradients or none: if there is no memory for the copies, every `p.grad` stays unchanged."""
    copies = {name: as_users(gradient.clone(), parameters[name]) for name, gradient in gradients.items()}
    with held():
        for name, copy in copies.items():
            parameters[name].grad = copy
