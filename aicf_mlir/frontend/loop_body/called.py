"""The signatures of torch's functions that a loop body may call: their arguments, and the arguments they write to."""

from __future__ import annotations

OF_BACKWARD = ("gradient", "retain_graph", "create_graph", "inputs")
"""The arguments of `loss.backward()`."""
OF_FUNCTION = ("tensors", "grad_tensors", "retain_graph", "create_graph", "grad_variables", "inputs")
"""The arguments of `torch.autograd.backward()`."""


def writes_in_place(name: str) -> bool:
    """True if a method of this name writes to its tensor."""
    if name.startswith("__"):
        return name == "__setitem__" or (
            name.startswith("__i") and name not in ("__invert__", "__index__", "__int__")
        )
    return name.endswith("_") and not name.startswith(("requires_grad", "detach"))
