"""The arguments that an op writes to, by torch's own schemas: annotated arguments, and the ones of the ops it consists of.

`batch_norm` and `instance_norm` have no annotation, and update running statistics: the ops that torch makes of them are
annotated. Passes that drop unread code use this module.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Self, cast

import torch
from torch._ops import OpOverload
from torch.fx import Node
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from aicf_mlir.frontend.known import outside
from aicf_mlir.frontend.recorder import PLAIN, tensors
from aicf_mlir.frontend.replaced_data import memory_of

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
    """Hands each tensor that an op is about to write to over to `note`, including those of the ops inside of other ops."""

    def __init__(self, note: Callable[[torch.Tensor], object]) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType]
        self._note = note

    @classmethod
    def supports_higher_order_operators(cls) -> bool:
        """True: they pass."""
        return True

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if not isinstance(func, OpOverload):
            result: Any = func(*args, **(kwargs or {}))
            return result
        if schema_of(func).is_mutable:
            for tensor in written_operands(func, args, kwargs or {}):
                self._note(tensor)
        with torch._C.DisableTorchFunction():  # pyright: ignore[reportPrivateUsage]
            return cast(Any, func)(*args, **(kwargs or {}))


class WritesUndone:
    """Puts back, as it is left, what ops have written to tensors with values while `seen` or `seen_in_calls` was entered:
    fake tensors let such an op run.
    """

    def __init__(self) -> None:
        self._before: dict[object, tuple[torch.Tensor, torch.Tensor]] = {}
        """Each written view, and its values before the first write."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        for tensor, values in reversed(self._before.values()):
            tensor.copy_(values)

    @contextmanager
    def seen(self) -> Generator[None]:
        """See each write of the ops inside."""
        with Writes(self._keep):
            yield

    @contextmanager
    def seen_in_calls(self) -> Generator[None]:
        """See each write of the calls inside that are given a tensor with values. Others find no mode that dispatches,
        beneath which torch compiles nothing.
        """
        with _CallsWithValues(self):
            yield

    def _keep(self, tensor: torch.Tensor) -> None:
        # A fake tensor of few elements has its values.
        given: object = getattr(tensor, "constant", tensor)
        if type(given) not in PLAIN:
            return
        real = cast(torch.Tensor, given)
        with outside():
            if real.layout is torch.strided and not real.is_meta:
                view = memory_of(real), real.storage_offset(), real.shape, real.stride()
                if view not in self._before:
                    self._before[view] = real.data, real.detach().clone()


class _CallsWithValues(TorchFunctionMode):
    def __init__(self, undone: WritesUndone) -> None:
        super().__init__()
        self._undone = undone

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        has_values = any(type(tensor) in PLAIN for tensor in tensors((args, kwargs)))
        with self._undone.seen() if has_values else nullcontext():
            return func(*args, **(kwargs or {}))
