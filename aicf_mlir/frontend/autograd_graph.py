"""What torch's autograd has recorded behind a tensor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container
from typing import Any

import torch


def nodes_behind(tensor: torch.Tensor) -> list[Any]:
    """Each node of the graph that `tensor` was computed by, once; those that a node needs stand behind it."""
    found: list[Any] = []
    seen = set[object]()
    pending: list[tuple[Any, bool]] = [(tensor.grad_fn, False)]
    while pending:
        node, is_done = pending.pop()
        if is_done:
            found.append(node)
        elif node is not None and node not in seen:
            seen.add(node)
            pending.append((node, True))
            pending += [(before, False) for before, _ in node.next_functions]
    return found[::-1]


def recorded(tensor: torch.Tensor, own: Container[int] = ()) -> Counter[str]:
    """
    How many nodes of which kind lead from `tensor` to a leaf: a parameter, say.

    Neither views made under `no_grad` are leaves, though torch has nodes for them, nor are the tensors of the ids `own`.
    """
    leading = set[object]()
    kinds = Counter[str]()
    for node in reversed(nodes_behind(tensor)):
        leaf = getattr(node, "variable", None)
        is_leaf = leaf is not None and leaf._base is None and id(leaf) not in own
        if is_leaf or any(before in leading for before, _ in node.next_functions):
            leading.add(node)
            kinds[node.name()] += 1
    return kinds


def leaves_of(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The leaves that torch would accumulate a gradient in."""
    leaves = (getattr(node, "variable", None) for node in nodes_behind(tensor))
    return [leaf for leaf in leaves if leaf is not None]
