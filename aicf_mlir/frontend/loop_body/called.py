"""The signatures of torch's functions that a loop body may call: their arguments, and the arguments they write to."""

from __future__ import annotations

from typing import Any

import torch

OF_BACKWARD = ("gradient", "retain_graph", "create_graph", "inputs")
"""The arguments of `loss.backward()`."""
OF_FUNCTION = ("tensors", "grad_tensors", "retain_graph", "create_graph", "grad_variables", "inputs")
"""The arguments of `torch.autograd.backward()`."""
OF_GRAD = (
    *("outputs", "inputs", "grad_outputs", "retain_graph", "create_graph", "only_inputs", "allow_unused"),
    *("is_grads_batched", "materialize_grads"),
)
"""The arguments of `torch.autograd.grad()`."""


def writes_in_place(name: str) -> bool:
    """True if a method of this name writes to its tensor."""
    if name.startswith("__"):
        return name == "__setitem__" or (
            name.startswith("__i") and name not in ("__invert__", "__index__", "__int__")
        )
    return name.endswith("_") and not name.startswith(("requires_grad", "detach"))


def as_list(given: Any) -> list[Any]:
    """Return one tensor, several or none as a list."""
    if given is None:
        return []
    return [given] if isinstance(given, torch.Tensor) else list(given)
