"""Walks over the graphs of torch.fx."""

from __future__ import annotations

from collections.abc import Iterable

from torch.fx import Node


def needed_by(nodes: Iterable[Node]) -> set[Node]:
    """Return the nodes, and all that they are computed from."""
    needed, pending = set[Node](), list(nodes)
    while pending:
        node = pending.pop()
        if node not in needed:
            needed.add(node)
            pending += node.all_input_nodes
    return needed


def following(node: Node) -> Node:
    """Return the node before which a new value is inserted: the next one, or the first after all placeholders."""
    after = node.next
    while node.op == "placeholder" and after.op == "placeholder":
        after = after.next
    return after
