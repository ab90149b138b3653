"""The result of a loop body: tensors, numbers read from them and constants, in containers of the user's."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import torch

from aicf_mlir.frontend.loop_body.found import UNFIT
from aicf_mlir.frontend.loop_body.numbers import Number, Read, ReadTensor, held
from aicf_mlir.frontend.loop_body.texts import Texts
from aicf_mlir.frontend.model import free_name
from aicf_mlir.frontend.outcome import LOSS
from aicf_mlir.frontend.source import trace_error
from aicf_mlir.frontend.structure import DEEPEST
from aicf_mlir.ir.locations import SourceLocation

PLAIN = (type(None), bool, int, float, str, bytes, torch.dtype, torch.device)
"""Kinds of constants: they are the same after every step, as long as the guards of the step hold."""


@dataclass(frozen=True)
class Output:
    """A placeholder for a tensor: the step's output of this name."""

    name: str


@dataclass(frozen=True)
class Returned:
    """The object that a body returns, with outputs and numbers instead of its tensors and numbers."""

    template: Any = None
    numbers: Mapping[int, str] = field(default_factory=dict[int, str])
    """The output that each read of a number returns, by its place among the reads."""
    ways: Mapping[int, Callable[[torch.Tensor], Any]] = field(
        default_factory=dict[int, Callable[[torch.Tensor], Any]]
    )
    """The function that converts each output to a number."""

    def rebuilt(self, tensors: Callable[[str], torch.Tensor]) -> Any:
        """Return the object for one step; `tensors` maps the names of outputs."""

        def leaf(value: Any, path: str) -> Any:
            del path
            if isinstance(value, Output):
                return tensors(value.name)
            return value.compute(self.reads(tensors)) if isinstance(value, Number) else value

        return mapped(self.template, leaf)

    def is_like(self, other: Returned) -> bool:
        """True if both give the same objects for the same outputs."""
        return self.numbers == other.numbers and is_like(self.template, other.template)

    def reads(self, tensors: Callable[[str], torch.Tensor]) -> Read:
        """Return the numbers of a step."""
        return lambda place: self.ways[place](tensors(self.numbers[place]))

    def results(self, value: Any, read: list[torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return the tensors in the body's result, and copies of the tensors that it has `read`, by the names of outputs."""
        values = {name: read[place].detach().clone() for place, name in self.numbers.items()}

        def leaf(template: Any, other: Any) -> Any:
            if isinstance(template, Output):
                values[template.name] = other.detach().clone()

        together(self.template, value, leaf)
        return values


@dataclass
class Outputs:
    """Gathers the values that a body has returned."""

    loss: torch.Tensor
    read: list[ReadTensor]
    """The tensors that the body has read numbers from."""
    where: SourceLocation | None
    texts: Texts
    converted: Mapping[int, tuple[Any, Number]]
    """The numbers that Python numbers stand for, by their ids."""
    twin: Callable[[torch.Tensor], torch.Tensor]
    """The tracer's tensor that replaces a user's."""
    tensors: dict[str, torch.Tensor] = field(default_factory=dict[str, torch.Tensor])
    """The outputs by name."""
    numbers: dict[int, str] = field(default_factory=dict[int, str])
    constants: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """The values that are the same after each step: their place, and their text."""
    verb: str = "returns"
    """What the body does with the values."""

    def of(self, result: Any, called: str = "result") -> Returned:
        """Return the description of the result. Raises TraceError for a value that no step can return."""
        if isinstance(result, torch.Tensor):
            result = self._leaf(result, called)
        else:
            plain = "1." if is_pair(result) else ""  # (loss, {name: tensor}), as a loss function returns it
            result = mapped(result, lambda value, path: self._leaf(value, path.removeprefix(plain) or called))
        return Returned(result, dict(self.numbers), {place: self.read[place].way for place in self.numbers})

    def _leaf(self, value: Any, path: str) -> Any:
        if id(value) in self.converted:
            value = self.converted[id(value)][1]
        if type(value) is str:
            value = self.texts.resolved(value)
        if isinstance(value, torch.Tensor):
            return Output(self._name(self.twin(value), path))
        if isinstance(value, Number):
            for place in value.places:
                if place not in self.numbers:
                    self.numbers[place] = self._name(self.read[place].value, path)
            self.constants += [(path, repr(each)) for each in constants_of(value)]
        elif isinstance(value, PLAIN):
            self.constants.append((path, repr(value)))
        else:
            raise trace_error(
                f"the loop body {self.verb} {type(value).__name__}, expected tensors, numbers and constants in tuples, lists,"
                " dictionaries and data classes",
                self.where,
            )
        return value

    def _name(self, tensor: torch.Tensor, path: str) -> str:
        if tensor is self.loss:
            return LOSS
        name = free_name(
            UNFIT.sub("_", path).strip("_") if self.verb != "returns" else path, {LOSS, *self.tensors}
        )
        self.tensors[name] = tensor
        return name


def constants_of(number: Number) -> Iterator[Any]:
    """Yield the constants from which a number is computed."""
    for part in number.parts if number.function not in (None, held) else ():
        if isinstance(part, Number):
            yield from constants_of(part)
        elif isinstance(part, PLAIN):
            yield part


def is_like(one: Any, other: Any) -> bool:
    """True if two templates give the same objects."""
    if type(one) is not type(other):
        return False
    if isinstance(one, Number):
        return one.function == other.function and is_like(one.parts, other.parts)
    if isinstance(one, Output) or (found := members(one)) is None:
        return one is other or repr(one) == repr(other)
    others = cast(Any, members(other))[0]
    return [key for key, _ in found[0]] == [key for key, _ in others] and all(
        is_like(a, b) for (_, a), (_, b) in zip(found[0], others, strict=True)
    )


def is_pair(result: Any) -> bool:
    """True if it is a tuple of a value and a dictionary."""
    return type(result) is tuple and len(cast(Any, result)) == 2 and isinstance(result[1], Mapping)


def members(value: Any) -> tuple[list[tuple[str, Any]], Callable[[list[Any]], Any]] | None:
    """Return the members of a container, and a function that makes one from other members; None for anything else.

    The attributes of a distribution are members: policies of reinforcement learning keep their last one.
    """
    if isinstance(value, Mapping):
        entries = cast("Mapping[Any, Any]", value)
        return [(str(key), each) for key, each in entries.items()], lambda made: dict(
            zip(entries, made, strict=True)
        )
    if isinstance(value, (list, tuple)):
        each_of: list[Any] = list(cast("list[Any]", value))
        return [(str(number), each) for number, each in enumerate(each_of)], _of_kind(type(cast(Any, value)))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [each.name for each in dataclasses.fields(value)]
        kind: type = type(value)
        return [(name, getattr(value, name)) for name in names], lambda made: _remade(kind, names, made)
    if isinstance(value, torch.distributions.Distribution):
        of, own = type(value), dict(vars(value))
        return [*own.items()], lambda made: _remade(of, [*own], made)
    return None


def _of_kind(kind: Any) -> Callable[[list[Any]], Any]:
    """Return a function that makes a list or a tuple of a kind."""
    if hasattr(kind, "_fields"):
        return lambda made: kind(*made)
    if kind is torch.Size:
        return torch.Size
    return list if issubclass(kind, list) else tuple


def _remade(kind: type, names: list[str], made: list[Any]) -> Any:
    """Return an object of a data class or a distribution, without its `__init__`, which may compute."""
    other: Any = object.__new__(cast(Any, kind))
    for name, each in zip(names, made, strict=True):
        object.__setattr__(other, name, each)
    return other


def mapped(value: Any, leaf: Callable[[Any, str], Any], path: str = "", depth: int = 0) -> Any:
    """Return `value` with each entry that is no container replaced by `leaf` of it and its path."""
    found = None if depth == DEEPEST or isinstance(value, (Output, Number)) else members(value)
    if found is None:
        return leaf(value, path.rstrip("."))
    entries, make = found
    return make([mapped(each, leaf, f"{path}{key}.", depth + 1) for key, each in entries])


def together(one: Any, other: Any, leaf: Callable[[Any, Any], None]) -> None:
    """Call `leaf` with each entry of `one` and the corresponding entry of `other`."""
    found, others = None if isinstance(one, (Output, Number)) else members(one), members(other)
    if found is None or others is None:
        leaf(one, other)
        return
    for (_, a), (_, b) in zip(found[0], others[0], strict=True):
        together(a, b, leaf)
