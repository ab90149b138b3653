"""The arguments that an op writes to, by torch's own schemas: annotated arguments, and the ones of the ops it consists of.

`batch_norm` and `instance_norm` have no annotation, and update running statistics: the ops that torch makes of them are
annotated. Passes that drop unread code use this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import torch
from torch._ops import OpOverload
from torch.fx import Node
from torch.utils._python_dispatch import TorchDispatchMode

from aicf_mlir.frontend.recorder import memory_of, tensors

EFFECT = "aicf_effect"
"""The entry of a node's `meta` that is true if its op writes to an operand and its own schema does not declare it."""


def schema_of(op: Any) -> Any:
    """Return the schema of an op: its arguments, and the ones it writes to; torch has no public name for it."""
    return op._schema


def has_effect(node: Node) -> bool:
    """True if the op of `node` writes to an operand."""
    op = node.target
    is_mutable = isinstance(op, OpOverload) and schema_of(op).is_mutable
    return is_mutable or bool(node.meta.get(EFFECT))


def written_operands(op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[torch.Tensor]:
    """Yield the tensors among the arguments of a call that the op's schema declares as written."""
    for number, argument in enumerate(schema_of(op).arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            yield from tensors(args[number] if number < len(args) else kwargs.get(argument.name))


class Writes(TorchDispatchMode):
    """The memory that ops write to while it is entered, including the ops inside of other ops."""

    def __init__(self) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType]
        self.memory = set[object]()

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if isinstance(func, OpOverload):
            self.memory.update(memory_of(tensor) for tensor in written_operands(func, args, kwargs or {}))
        result: Any = cast(Any, func)(*args, **(kwargs or {}))
        return result
