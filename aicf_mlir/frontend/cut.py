"""The op in an exported graph that no gradient flows through: `aten.detach` for a value, not for memory.

`detach` is a view. If its memory is written to later, torch makes the graph functional by a second detach, of the
written value: a gradient that torch lets through would be cut there. The result of this op has memory of its own.
"""

from __future__ import annotations

from typing import Any

import torch

_library: Any = torch.library.Library("aicf", "DEF")
_library.define("cut(Tensor self) -> Tensor")
_library.impl("cut", torch.clone, "CompositeExplicitAutograd")


def _batched(info: Any, dims: Any, x: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Return the cut of all rows of vmap."""
    return CUT(x), dims[0]


_registry: Any = torch.library
_registry.register_vmap("aicf::cut", _batched, lib=_library)

_ops: Any = torch.ops.aicf

CUT: Any = _ops.cut.default
"""A copy of a tensor, without its gradient."""
