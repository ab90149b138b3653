"""Values that a trace knows: tensors that the step closes over, buffers that it only reads, literals, and all that is
computed from them.

While the user's code calls torch functions on known tensors alone, torch computes the same on the real ones. If
Python reads a value, or a shape depends on values (`nonzero`, a boolean index), the trace continues with the real
result, as a constant. The tensors that the result comes from are the step's `sources`, and guards compare their values.
Every other tensor has a reason why it is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only  # pyright: ignore[reportUnknownVariableType]
from torch.utils.weak import WeakIdKeyDictionary

from aicf_mlir.frontend.batched import is_batched
from aicf_mlir.frontend.known import (
    DRAWN,
    MADE,
    ORDERED,
    UNIFORM,
    Known,
    KnownMemory,
    any_like,
    at_the_ends,
    mapped,
    outside,
    real_tensors,
)
from aicf_mlir.frontend.special import PLAIN, special
from aicf_mlir.frontend.values import is_a

MOST_ELEMENTS = 1 << 26
"""The most elements of a tensor whose values a trace computes with: these values are compared before each step."""

BY_VALUES = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
"""The tags of ops whose result is a Python number, or has a shape that depends on values."""

BY_SHAPE = frozenset(
    ("zeros_like", "ones_like", "full_like", "empty_like", "new_zeros", "new_ones", "new_full", "new_empty")
)
"""Functions, by name, that read no value of their first operand."""

WRITTEN_UNSAID = "running_"
"""How torch names the operands that a norm may write to though its schema does not say so."""

MASKS = (torch.bool, torch.uint8)

CONSTANT = "aicf_constant"
"""The attribute of a real tensor that a trace has computed."""

Result = TypeVar("Result")
Given = ParamSpec("Given")


def unseen(method: Callable[Given, Result]) -> Callable[Given, Result]:
    """Decorate a method whose reads of tensors are not functions that the step calls."""

    @wraps(method)
    def called(*args: Given.args, **kwargs: Given.kwargs) -> Result:
        with torch._C.DisableTorchFunction():  # pyright: ignore[reportPrivateUsage]
            return method(*args, **kwargs)

    return called


class Unknown(Exception):
    """The values of a tensor are not known; the message names the cause."""

    is_uniform = False
    """True if the values are drawn from [0, 1)."""


@dataclass(eq=False)
class Computed:
    """The result of a function on real tensors."""

    result: Any
    operands: list[Known]
    sources: dict[int, torch.Tensor]
    by_values: bool
    """True if no trace can continue without the values."""


class Looking(TorchDispatchMode):
    """Sees each op on real tensors. Raises Unknown if it would draw numbers or change a user's tensor."""

    def __init__(self, kept: Mapping[int, str]):
        """Take `kept`: the user's name for each memory that nothing may write to."""
        super().__init__()  # pyright: ignore[reportUnknownMemberType]
        self._kept = kept
        self.by_values = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        if torch.Tag.nondeterministic_seeded in func.tags:
            drawn = Unknown(DRAWN)
            drawn.is_uniform = func in UNIFORM
            raise drawn
        for number, argument in enumerate(func._schema.arguments):
            says = argument.alias_info is not None and argument.alias_info.is_write
            if not says and not argument.name.startswith(WRITTEN_UNSAID):
                continue
            value = given.get(argument.name, args[number] if number < len(args) else None)
            for tensor in real_tensors(value):
                if (name := self._kept.get(place_of(tensor))) is not None:
                    raise Unknown(f"{name}, which the step writes to")
        if not BY_VALUES.isdisjoint(func.tags):
            self.by_values |= func is not torch.ops.aten.index.Tensor or any(map(is_mask, args[1]))
        return func(*args, **given)


class KnownValues:
    """The values that one trace knows."""

    def __init__(self) -> None:
        self.sources: dict[int, torch.Tensor] = {}
        """The user's tensors whose values the trace has used, by id."""
        self._known: Any = WeakIdKeyDictionary()
        self._kept: dict[int, str] = {}
        """The user's name of each tensor that is not computed from another one and that no step may write to, by its
        memory.
        """
        self._unknown: dict[int, str] = {}
        """The reason why the values of a user's tensor are unknown, by memory."""

    @unseen
    def begin(
        self,
        own: Mapping[str, torch.Tensor],
        traced: Mapping[str, torch.Tensor],
        batch: Mapping[str, torch.Tensor],
        written: AbstractSet[str],
        numbers: Iterable[torch.Tensor],
    ) -> None:
        """Begin with `own`, the user's parameters and buffers by path, `traced`, the trace's tensors in their place, and the
        entries of `batch`.

        `written` names the paths whose tensors the step writes to. `numbers`: 0-d tensors that replace numbers that may
        change.
        """
        self._unknown = {place_of(tensor): "a number that meta= lets change" for tensor in numbers}
        for name, tensor in batch.items():
            self._known[tensor] = Known(None, None, f"{name!r} of the batch")
        for path, tensor in traced.items():
            name = repr(path.removeprefix("model."))
            why = f"the parameter {name}" if tensor.requires_grad else ""
            why = f"{name}, which the step writes to" if path in written else why
            if why and path in own:
                self._unknown[place_of(own[path])] = why
            self._known[tensor] = Known(None, None, why)
        for path, tensor in traced.items():
            if path in own:
                self._known[tensor] = self._source(own[path], tensor, repr(path.removeprefix("model.")))

    def end(self) -> None:
        """Drop all references of the step to the memory of the user's tensors."""
        self._known.clear()

    def _source(self, own: torch.Tensor, traced: torch.Tensor, name: str) -> Known:
        """Return the knowledge about a user's tensor, which the trace has as `traced`."""
        if special(own) is not None or own.is_meta or own.is_inference():
            return Known(None, None, f"{name}, which has no values")
        if (why := self._unknown.get(place_of(own))) is not None:
            return Known(None, None, why)
        if own.requires_grad:
            return Known(None, None, f"{name}, which has a gradient")
        self._kept[place_of(own)] = name
        with outside():
            return Known(own.detach(), KnownMemory({id(own): own}, name, traced._version))

    def known(self, tensor: torch.Tensor) -> Known:
        """Return the knowledge about a tensor in the user's code; its `memory` is None if nothing is known."""
        found: Known | None = self._known.get(tensor)
        if found is None:
            if type(tensor) not in PLAIN or is_batched(tensor):
                return Known(None, None)
            if hasattr(tensor, CONSTANT):
                return Known(
                    tensor, KnownMemory({}, MADE, tensor._version)
                )  # the trace already has its sources noted
            self._known[tensor] = found = self._source(tensor, tensor, "a tensor of yours")
        if found.memory is not None:
            if not found.memory.why and tensor._version != found.memory.version:
                found.memory.why = f"{found.memory.name}, which the step writes to"
            if tensor.requires_grad:
                return Known(None, None, "a tensor with a gradient")
            if found.memory.why:
                return Known(None, None, found.memory.why)
        return found

    @unseen
    def why(self, operands: Iterable[torch.Tensor]) -> str:
        """Return the unknown input that the operands' values depend on; empty if it cannot be named. Masks and indices
        come first.
        """
        operands = sorted(operands, key=lambda each: each.is_floating_point())
        return next((found.why for each in operands if (found := self.known(each)).memory is None), "")

    @unseen
    def has_all(self, operands: object) -> bool:
        """True if the values of all tensors in `operands` are known."""
        return all(self.known(each).memory is not None for each in real_tensors(operands))

    def taken(self, function: Callable[..., torch.Tensor], *args: Any) -> torch.Tensor:
        """Return the result of a function on known values, as a constant. Raises Unknown."""
        return self.constants(self._computed(function, args, {}))

    def computed(
        self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Computed | Unknown:
        """Return the result of a function on the real tensors, or the reason if it is unknown or torch rejects them."""
        try:
            return self._computed(func, args, kwargs)
        except Unknown as unknown:
            again = Unknown(str(unknown))  # without the frames that raised it, and their tensors
            again.is_uniform = unknown.is_uniform
            return again
        except Exception:  # noqa: BLE001 - the trace meets it too, or it is raised at run time
            return Unknown("")

    @unseen
    def _computed(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Computed:
        """Do the work of `computed`. Raises Unknown, and any error of torch."""
        operands = [self.known(tensor) for tensor in real_tensors((args, kwargs))]
        if not operands and getattr(func, "__name__", "").startswith("_"):
            raise Unknown("")  # it may change a state of torch, such as that of forward-mode differentiation
        if getattr(func, "__name__", "") in BY_SHAPE and args and is_a(args[0], torch.Tensor):
            operands[0] = any_like(args[0])
        if getattr(func, "__name__", "") in ORDERED:
            operands = at_the_ends(func, args, kwargs, operands)
        sources: dict[int, torch.Tensor] = {}
        for each in operands:
            if each.memory is None or each.value is None:
                raise Unknown(each.why)
            if each.value.numel() > MOST_ELEMENTS:
                raise Unknown(f"a tensor of more than {MOST_ELEMENTS} elements")
            sources |= each.memory.sources
        versions = [cast(torch.Tensor, each.value)._version for each in operands]
        values = iter([each.value for each in operands])
        real_args, real_kwargs = mapped(lambda _: next(values), (tuple(args), dict(kwargs)))
        try:
            with outside(), Looking(self._kept) as looking:
                result = func(*real_args, **real_kwargs)
            if any(special(tensor) is not None or tensor.requires_grad for tensor in real_tensors(result)):
                raise Unknown("a special tensor")
        except Exception as error:
            self._forget(operands, versions, str(error))
            raise
        for each, version in zip(operands, versions, strict=True):
            if cast(torch.Tensor, each.value)._version != version:
                if looking.by_values:
                    cast(KnownMemory, each.memory).why = "a function that writes to it by its values"
                    raise Unknown(cast(KnownMemory, each.memory).why)
                cast(KnownMemory, each.memory).sources |= sources
        return Computed(result, operands, sources, looking.by_values)

    @staticmethod
    def _forget(operands: Sequence[Known], versions: Sequence[int], why: str) -> None:
        """Forget the values of tensors that a failed function may have partly written."""
        for each, version in zip(operands, versions, strict=True):
            if each.value is not None and each.memory is not None and each.value._version != version:
                each.memory.why = why

    def read(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Return the Python value that a function reads from tensors. Raises Unknown, and any error of torch."""
        computed = self._computed(func, args, kwargs)
        self.sources |= computed.sources
        if is_a(computed.result, np.ndarray):  # of the user's own memory
            array: Any = cast(Any, computed.result).copy()
            array.setflags(write=False)
            return array
        return computed.result

    @unseen
    def constants(self, computed: Computed) -> Any:
        """Return the result of a function, each tensor replaced by a copy that the trace continues with."""
        self.sources |= computed.sources

        def copied(tensor: torch.Tensor) -> torch.Tensor:
            with outside():
                copy = tensor.clone()
            setattr(copy, CONSTANT, True)
            return copy

        return tree_map_only(torch.Tensor, copied, computed.result)

    @unseen
    def follow(self, traced: Any, given: Any, computed: Computed | Unknown) -> None:
        """Note the knowledge about the result of a function, now that it is traced too, and about the tensors it wrote to."""
        operands, made = real_tensors(given), real_tensors(traced)
        if isinstance(computed, Unknown):
            why = str(computed)
            for tensor in operands:
                memory = self._known[tensor].memory if tensor in self._known else None
                if memory is not None and memory.name is MADE and tensor._version != memory.version:
                    memory.why = memory.why or why
            for tensor in made:
                if tensor not in self._known:
                    uniform = tensor._version if computed.is_uniform else None
                    self._known[tensor] = Known(None, None, why, uniform)
            return
        for tensor, known in zip(operands, computed.operands, strict=True):
            if known.memory is not None:
                known.memory.version = tensor._version
        real = list(real_tensors(computed.result))
        if len(real) != len(made):
            return
        memories = {place_of(each.value): each.memory for each in computed.operands if each.value is not None}
        for tensor, value in zip(made, real, strict=True):
            alike = (tensor.shape, tensor.dtype, tensor.device) == (value.shape, value.dtype, value.device)
            if not alike:
                self._known[tensor] = Known(None, None, "a function that torch traces otherwise")
                continue
            memory = memories.setdefault(
                place_of(value), KnownMemory(dict(computed.sources), MADE, tensor._version)
            )
            if tensor not in self._known:
                self._known[tensor] = Known(value, memory)


def place_of(tensor: torch.Tensor) -> int:
    """Return a key that is equal for two real tensors that are views of the same memory."""
    storage: Any = tensor.untyped_storage()
    return storage._cdata


def is_mask(value: object) -> bool:
    """True if an index selects by booleans."""
    return is_a(value, torch.Tensor) and value.dtype in MASKS
