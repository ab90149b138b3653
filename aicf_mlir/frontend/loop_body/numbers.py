"""`loss.item()` in a loop body: a Python number that is known after each step, and values that the body computes from
it.

It may be returned, printed, stored, and computed with others as Python does, on the host after the step. If Python must know
it at once, to decide by it, the body is refused. A number of a Python place (`python_state.py`) is known before each step: if
Python must know it at once, its value is a guard of the step.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map  # pyright: ignore[reportUnknownVariableType]

from aicf_mlir.frontend import source
from aicf_mlir.frontend.loop_body.converted import runs_percent
from aicf_mlir.frontend.loop_body.decided import DECIDED, is_decided_by
from aicf_mlir.frontend.loop_body.texts import Texts
from aicf_mlir.frontend.recorder import function_name
from aicf_mlir.frontend.source import quoted, trace_error
from aicf_mlir.frontend.values import same

if TYPE_CHECKING:
    from aicf_mlir.frontend.loop_body.python_state import KeptPlace

READ: dict[str, Callable[[torch.Tensor], Any]] = {
    **dict.fromkeys(("item", "__float__", "__int__"), torch.Tensor.item),
    "numpy": lambda tensor: tensor.detach().cpu().numpy(),
}
"""The conversion of a tensor to a Python value, by the method's name."""

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
FILLS = ("full", "full_like", "arange", "linspace")
OPERANDS = ("input", "other", "min", "max", "exponent", "data")
"""The keywords for which functions of torch take tensors as well as numbers."""
DRIVERS = tuple(str(Path(str(module.__file__)).parent) for module in (torch.optim, torch.amp))
"""The folders of optimizers, schedulers and scalers, whose reads are no part of a body."""
NEEDED = "needs the value of a tensor at once; return it, and decide by it outside"
PERCENT = "writes a number that it has read from a tensor by %, which needs it at once; an f-string may have it, and str()"


@dataclass(frozen=True)
class ReadTensor:
    """A tensor that the body has read a number from."""

    tensor: torch.Tensor
    version: int
    copy: torch.Tensor
    """Its value then."""
    way: Callable[[torch.Tensor], Any]
    """The conversion."""

    @property
    def value(self) -> torch.Tensor:
        """The tensor, or the copy if the body has written to the tensor since."""
        return self.tensor if self.tensor._version == self.version else self.copy


Read = Callable[[int], Any]
"""The Python number that a read of the body returns, by its place among the reads."""


class Known(Protocol):
    """A value that is known before each step."""

    @property
    def kept(self) -> Sequence[KeptPlace]:
        """The Python places from which it follows."""
        ...

    def differences(self) -> Iterable[tuple[str, Any, Any]]:
        """Return the places from which it follows that have changed since the last step: name, then and now."""
        ...

    def now(self) -> Any:
        """Return what it would be in the next step."""
        ...


@dataclass
class Book:
    """What is noted of the numbers of one body while it is traced."""

    refused: list[Exception] = field(default_factory=list[Exception])
    """Errors for values that Python would have to know at once, since a library may catch them."""
    needed: list[tuple[Known, Any]] = field(default_factory=list["tuple[Known, Any]"])
    """What Python needed at once, each with its value."""
    texts: Texts = field(default_factory=Texts)

    def begin(self) -> None:
        """Begin one call; what an earlier call of the trace needed is still noted."""
        self.refused.clear()
        self.texts = Texts(at_once=self.texts.at_once)


class Number:
    """A value that is known after each step: the number of a read, or `function` of other values and numbers."""

    def __init__(
        self,
        function: Callable[..., Any] | None,
        parts: tuple[Any, ...],
        book: Book,
        tensor: Callable[[], torch.Tensor] | None = None,
        alive: str | None = None,
    ):
        """Take no `function` for a read, whose one part is its place."""
        self.function = function
        self.parts = parts
        self.book = book
        self._tensor = tensor
        self._alive = alive
        """The forbidden use of a number that does not come from a tensor."""

    @property
    def is_alive(self) -> bool:
        """True if it does not come from a tensor."""
        return self._alive is not None

    @property
    def kept(self) -> tuple[KeptPlace, ...]:
        """The Python places from which it is computed."""
        if self.function is held:
            return self.parts
        return tuple(place for part in self.parts if type(part) is Number for place in part.kept)

    @property
    def is_known(self) -> bool:
        """True if it is computed from Python places alone: it is known before each step."""
        numbers = [part for part in self.parts if type(part) is Number]
        if self.function is held:
            return True
        return self.function is not None and bool(numbers) and all(part.is_known for part in numbers)

    @property
    def places(self) -> tuple[int, ...]:
        """The reads from which it is computed."""
        if self.function is None:
            return self.parts
        return tuple(place for part in self.parts if type(part) is Number for place in part.places)

    def compute(self, read: Read | None = None, *, now: bool = False) -> Any:
        """Return its value after a step; of a known number without `read`, with `now` what it would be in the next step."""
        if self.function is None:
            assert read is not None
            return read(*self.parts)
        if now and self.function is held:
            return self.parts[0].content()
        parts = (part.compute(read, now=now) if type(part) is Number else part for part in self.parts)
        return self.function(*parts)

    def now(self) -> Any:
        """Return what a known number would be in the next step."""
        return self.compute(now=True)

    def differences(self) -> Iterable[tuple[str, Any, Any]]:
        """Return the places from which it is computed that have changed since the last step: name, then and now."""
        each = [(place.name, place.held, place.content()) for place in dict.fromkeys(self.kept)]
        return [(name, then, now) for name, then, now in each if not same(then, now)]

    def at_once(self) -> Any:
        """Return the value of a known number; from now on it is a guard of the step. Raises TraceError for another."""
        if not self.is_known:
            self.refuse()
        value = self.compute()
        self.book.needed.append((self, value))
        return value

    def tensor(self) -> torch.Tensor:
        """Return its value in the step, 0-d and without a gradient: of floats computed in f64, as Python does."""
        if self.function is not None and self.function not in _OF_TENSORS:
            self.refuse(
                "computes with a tensor and a number that it has made of others; compute it with tensors"
            )
        if self.function is not None:
            parts = [part.plain() if type(part) is Number else part for part in self.parts]
            is_real = self.function in _REAL or any(isinstance(part, float) for part in parts)
            return self.function(*(_wide(part, is_real) for part in parts))
        tensor = None if self._tensor is None else self._tensor()
        if tensor is None or tensor.numel() != 1:
            self.refuse("computes with a tensor and the elements of another; compute it with tensors")
        return tensor.detach().reshape(())

    def plain(self) -> Any:
        """Return what stands for it in a function of torch: a known number itself, else a tensor."""
        return self.at_once() if self.is_known else self.tensor()

    def beside(self, other: torch.Tensor) -> Any:
        """Return its value in a type that changes that of `other` as little as a Python number does."""
        if self.is_known:
            return self.at_once()
        tensor = self.tensor()
        if tensor.is_floating_point() and not (other.is_floating_point() or other.is_complex()):
            return tensor.to(torch.get_default_dtype())
        is_kindred = tensor.is_floating_point() or other.dtype not in (torch.bool, *FLOATS)
        return tensor if other.dim() or not is_kindred or other.is_complex() else tensor.to(other.dtype)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Let functions of torch take it where they take a tensor."""
        return func(*with_tensors(args), **with_tensors(kwargs or {}))

    def refuse(self, what: str = NEEDED) -> NoReturn:
        """Raise TraceError for a use that needs its value at once."""
        what = self._alive or what
        location = source.here()
        error = trace_error(f"the loop body {what}{quoted(location)}", location)
        self.book.refused.append(error)
        raise error

    def of(self, function: Callable[..., Any], *parts: Any) -> Number:
        """Return `function` of these parts, of which it is one."""
        return Number(function, parts, self.book)

    def _with(self, function: Callable[..., Any], *others: Any) -> Any:
        """Apply `function` to this and others, once they are known."""
        if any(isinstance(each, torch.Tensor) for each in others):
            (other,) = others
            return function(self.beside(other), other)
        return Number(function, (self, *others), self.book)

    @property
    def __class__(self) -> type:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The type of a known number, for isinstance; `type` says Number."""
        kind: Any = type
        return kind(self.compute()) if self.is_known else Number

    def __format__(self, spec: str) -> str:
        return self._text(spec, sys._getframe(1))  # pyright: ignore[reportPrivateUsage]

    def __str__(self) -> str:
        return self._text("", sys._getframe(1))  # pyright: ignore[reportPrivateUsage]

    def _text(self, spec: str, asking: FrameType) -> str:
        is_decided = self.is_known and self.book.texts.at_once
        if is_decided or not source.is_users_frame(asking):
            return format(self.at_once(), spec)
        if is_decided_by(asking):
            self.refuse(DECIDED)
        return self.written(spec)

    def written(self, spec: str) -> str:
        """Return what stands in a text for its own text."""
        return self.book.texts.standing_for(self.of(format, self, spec))

    def __round__(self, digits: int | None = None) -> Any:
        return self._with(round, digits)


def _forward(function: Callable[..., Any]) -> Callable[..., Any]:
    def computed(self: Number, *others: Any) -> Any:
        return self._with(function, *others)  # pyright: ignore[reportPrivateUsage]

    return computed


def _reflected(function: Callable[..., Any], a: Any, b: Any) -> Any:
    return function(b, a)


def with_tensors(arguments: Any) -> Any:
    """Return the arguments of a function of torch with tensors in place of numbers."""
    leaves = tree_leaves(arguments)
    if not any(type(leaf) is Number for leaf in leaves):
        return arguments
    other = next((leaf for leaf in leaves if isinstance(leaf, torch.Tensor)), None)

    def in_place(leaf: Any) -> Any:
        if type(leaf) is not Number:
            return leaf
        return leaf.plain() if other is None else leaf.beside(other)

    return tree_map(in_place, arguments)


def expect_tensors(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise TraceError if a function of torch needs the value of a number, where it takes no tensor."""
    given = [arg for arg in args if type(arg) is Number] if name.endswith(FILLS) else []
    given += [arg for key, arg in kwargs.items() if type(arg) is Number and key not in OPERANDS]
    given = [arg for arg in given if not arg.is_known]
    if given:
        given[0].refuse(
            f"gives {name}() a number that it has read from a tensor; multiply or add tensors instead"
        )


def _wide(part: Any, is_real: bool) -> Any:
    """Return a part in the type in which Python computes."""
    if isinstance(part, torch.Tensor) and (is_real or part.is_floating_point()):
        return part.double()
    return part


def held(place: KeptPlace) -> Any:
    """Return the number that a Python place held before the step."""
    return place.held


def _compared(function: Callable[..., Any]) -> Callable[..., Any]:
    def compared(self: Number, other: Any) -> Any:
        if not self.is_known or (type(other) is Number and not other.is_known):
            self.refuse()
        return (
            function(self.at_once(), other)
            if isinstance(other, torch.Tensor)
            else self.of(function, self, other)
        )

    return compared


def _needed(function: Callable[..., Any]) -> Callable[..., Any]:
    def needed(self: Number, *others: Any) -> Any:
        if not self.is_known and runs_percent(sys._getframe(1)):  # pyright: ignore[reportPrivateUsage]
            self.refuse(PERCENT)
        return function(self.at_once(), *others)

    return needed


def _as_array(value: Any, dtype: Any = None, **_: Any) -> Any:
    return np.asarray(value, dtype)


def _reduced(value: Any, protocol: Any) -> Any:
    return value.__reduce_ex__(protocol)


_REAL: list[Any] = [getattr(operator, name) for name in ("truediv", "pow")]
"""The functions that have floats as results, as the tensors have them."""

_OF_TENSORS: list[Any] = []
"""The functions that compute the same with tensors."""

for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
    _function: Any = getattr(operator, _name)
    _reversed: Any = partial(_reflected, _function)
    _OF_TENSORS.extend([_function, _reversed])
    if _function in _REAL:
        _REAL.append(_reversed)
    setattr(Number, f"__{_name}__", _forward(_function))
    setattr(Number, f"__r{_name}__", _forward(_reversed))
for _name in ("neg", "pos", "abs"):
    _function = getattr(operator, _name)
    _OF_TENSORS.append(_function)
    setattr(Number, f"__{_name}__", _forward(_function))
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(Number, f"__{_name}__", _compared(getattr(operator, _name)))
_at_once: dict[str, Any] = {
    **{kind.__name__: kind for kind in (bool, float, int, complex)},
    **{function.__name__: function for function in (repr, hash, iter, len)},
    **{name: getattr(math, name) for name in ("trunc", "floor", "ceil")},
    "index": operator.index,
    "array": _as_array,
    "contains": operator.contains,
    "reduce_ex": _reduced,
}
for _name, _function in _at_once.items():
    setattr(Number, f"__{_name}__", _needed(_function))


class NumberReads(TorchFunctionMode):
    """The tensors from which the code inside reads numbers, in the order in which a trace sees them: it runs no optimizer."""

    def __init__(self) -> None:
        super().__init__()
        self.tensors: list[torch.Tensor] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        code = sys._getframe(1).f_code  # pyright: ignore[reportPrivateUsage]
        is_drivers = code.co_filename.startswith(DRIVERS) and code.co_name != "get_scale"
        if args and not is_drivers:
            if function_name(func) in READ:
                self.tensors.append(args[0].detach().clone())
            elif function_name(func) == "tolist":  # which a trace reads number by number
                self.tensors.extend(args[0].detach().flatten().clone())
        return func(*args, **(kwargs or {}))
