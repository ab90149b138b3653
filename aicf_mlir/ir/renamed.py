"""Our former names for things that the field names differently: errors about text and commands with these names give the new
one.
"""

from __future__ import annotations

from collections.abc import Mapping

RENAMED: Mapping[str, str] = {
    "chain": "back_to_back",
    "chain-rows": "back-to-back-rows",
    "keep-copies": "persistent-weights",
    "map_each": "multi_tensor_map",
    "meta": "host_scalar",
    "read-ahead": "prefetch",
    "rowwise_each": "multi_tensor_rowwise",
    "side-by-side": "multi-stream",
    "together": "horizontal",
    "unless": "predicate not",
    "verify-host-meta": "verify-host-scalars",
}
"""Ops of the kernel dialect, passes and their options, roles, and words of a plan."""


def now_called(name: str) -> str | None:
    """The hint for an unknown name: its new name; None if it has not been renamed."""
    prefix = name[: len(name) - len(name.lstrip("-"))] + ("kernel." if "kernel." in name else "")
    new = RENAMED.get(name.removeprefix(prefix))
    return None if new is None else f"it is now called {prefix}{new}"


def if_renamed(name: str) -> str:
    """`now_called` as the end of a sentence; empty for a name that has not been renamed."""
    advice = now_called(name)
    return "" if advice is None else f"; {advice}"
