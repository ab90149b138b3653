"""The graph that torch's autograd has recorded for a tensor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import torch

from aicf_mlir.frontend.types import has_numbers


def edges_behind(tensor: torch.Tensor) -> Iterator[tuple[Any, int]]:
    """Yield each node of the graph that computed `tensor`, with each of its results that was read: `tensor` first."""
    return edges_from(tensor.grad_fn, tensor.output_nr)


def edges_from(node: Any, result: int = 0) -> Iterator[tuple[Any, int]]:
    """Yield a node of a graph and each node before it, as `edges_behind` does."""
    seen = set[Any]()
    pending: list[tuple[Any, int]] = [(node, result)]
    while pending:
        node, result = pending.pop()
        if node is None:
            continue
        yield node, result
        if node not in seen:
            seen.add(node)
            pending += node.next_functions


def leaves_of(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The leaves that torch would accumulate a gradient in: none that has been frozen since the graph was recorded."""
    nodes = dict.fromkeys(node for node, _ in edges_behind(tensor))
    leaves = (getattr(node, "variable", None) for node in nodes)
    return [leaf for leaf in leaves if leaf is not None and leaf.requires_grad]


def has_none(tensor: torch.Tensor) -> bool:
    """True if a tensor could have a gradient and has none."""
    return has_numbers(tensor) and not tensor.requires_grad


def is_differentiable(value: object) -> bool:
    """True if it is a tensor with a gradient."""
    return isinstance(value, torch.Tensor) and value.requires_grad


def like(made: object, carries_gradient: bool) -> Any:
    """Return results as the tracer describes them, each with a gradient or none."""
    if isinstance(made, torch.Tensor):
        return made.detach().requires_grad_(carries_gradient and has_numbers(made))
    if isinstance(made, (list, tuple)):
        return [like(each, carries_gradient) for each in cast(Sequence[object], made)]
    return made
