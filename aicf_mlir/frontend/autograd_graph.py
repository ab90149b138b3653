"""What torch's autograd has recorded behind a tensor."""

from __future__ import annotations

from typing import Any

import torch


def nodes_behind(tensor: torch.Tensor) -> list[Any]:
    """Each node of the graph that `tensor` was computed by, once."""
    found: dict[Any, None] = {}
    pending: list[Any] = [tensor.grad_fn]
    while pending:
        node = pending.pop()
        if node is not None and node not in found:
            found[node] = None
            pending += [before for before, _ in node.next_functions]
    return list(found)


def leaves_of(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The leaves that torch would accumulate a gradient in."""
    leaves = (getattr(node, "variable", None) for node in nodes_behind(tensor))
    return [leaf for leaf in leaves if leaf is not None]
