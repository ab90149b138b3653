"""A record of the computation of one call of a step, so that two calls can be compared.

Python state with a known place is put back between them. Remaining differences depend on state without a known place: a
compiled step would repeat the values that its trace has seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch
from torch._ops import OpOverload
from torch.overrides import TorchFunctionMode

from aicf_mlir.frontend import source
from aicf_mlir.frontend.batched import is_batched
from aicf_mlir.frontend.contents import content
from aicf_mlir.frontend.known_values import CONSTANT
from aicf_mlir.frontend.recorder import PLAIN, function_name, tensors
from aicf_mlir.frontend.values import is_a, members, tokens
from aicf_mlir.ir.locations import SourceLocation

SAID = (torch.layout, torch.memory_format, slice)
"""Types whose `repr` describes them; for a slice, with numbers."""

Call = tuple[str, object]
"""The name of a function of torch that was called, and its operands."""


class Calls(TorchFunctionMode):
    """The torch functions that are called, in order, each with its plain operands and the sources of its tensors."""

    def __init__(
        self, given: Iterable[torch.Tensor], sought: int | None = None, *, always_copies: bool = False
    ):
        """Take `given`, tensors that are the same in each call to compare, and `sought`, the number of the function
        whose line to find. `always_copies`: `contiguous()` copies a dense tensor too, as one of any other strides.
        """
        super().__init__()
        self.always_copies = always_copies
        self.made: list[Call] = []
        self.of_users_code = False
        """True if the call has run code of the user's."""
        self.sought = sought
        self.location: SourceLocation | None = None
        self._known: dict[int, tuple[torch.Tensor, object]] = {
            id(tensor): (tensor, ("given", number)) for number, tensor in enumerate(given)
        }
        """Tensors by their id, each with its name; they are kept, since another might get their id."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = args, kwargs or {}
        operands = self.described(given)
        if func is torch.Tensor.as_strided or func is torch.as_strided:
            operands = operands, *(held.stride() for held in tensors(given))
        result = func(*args, **(kwargs or {}))
        if self.always_copies and func is torch.Tensor.contiguous and result is args[0]:
            result = result.clone()
        made = list(tensors(result))
        if type(func) is OpOverload and not made and next(tensors(given), None) is None:
            return result  # fake tensors have called it, and remember the result
        number = len(self.made)
        self.made.append((function_name(func), operands))
        if number == self.sought:
            self.location = source.here()
        for place, tensor in enumerate(made):
            self._known[id(tensor)] = tensor, ("made", number, place)
        return result

    def described(self, value: Any) -> object:
        """Return a key that is equal for equal values, and for tensors from the same place."""
        if is_a(value, torch.Tensor):
            if hasattr(value, CONSTANT):
                return content(value)
            if type(value) in PLAIN and not is_batched(value) and id(value) not in self._known:
                self._known[id(value)] = value, ("real", id(value))
            _, name = self._known.setdefault(id(value), (value, ("met", len(self._known))))
            return name
        if (held := members(value)) is not None:
            return type(value).__name__, *((self.described(key), self.described(each)) for key, each in held)
        if is_a(value, np.ndarray):
            numbers = np.asarray(cast(Any, value))
            return numbers.dtype.str, numbers.shape, numbers.tobytes()
        return tokens([value]) or (repr(value) if type(value) in SAID else type(value).__name__)

    def end(self, result: object) -> None:
        """End the call with this result."""
        self.made.append(("the result", self.described(result)))


def first_difference(one: Sequence[Call], other: Sequence[Call]) -> int | None:
    """Return the number of the first call that differs, or is in one only; None if all are alike."""
    differing = (n for n, (before, after) in enumerate(zip(one, other, strict=False)) if before != after)
    return next(differing, None if len(one) == len(other) else min(len(one), len(other)))
