"""The resources that one text may use in the parser in total, counted as it is read: no bomb is looked for by name.

A unit is a token (a long one counts more), an attribute that an alias stands for, or four elements of a `dense`
literal. A text may use `FREE_UNITS`, and more for each operation and each argument that has been read, so that
lists, aliases and literals stay in proportion to a program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr
from xdsl.ir import Attribute, Data, ParametrizedAttribute

from aicf_mlir.text.limits import MAX_NESTING

MAX_OPERATIONS = 1 << 16
"""Operations of one text; a step of 1,000 layers has about 20,000."""

MAX_ARGUMENTS = 1 << 14
"""Block arguments of one text; the parser takes a time that grows with their square."""

FREE_UNITS = 3 << 15
"""The parser takes about a second for as many tokens in lists."""

UNITS_PER_OPERATION, UNITS_PER_ARGUMENT = 256, 64
"""Launches with their types and attributes take about 100 tokens, an argument with its label 25."""

CHARACTERS_PER_UNIT, ELEMENTS_PER_UNIT = 16, 4

MAX_DEPTH = 2 * MAX_NESTING + 8
"""Attributes inside attributes, aliases expanded: a bracket is up to two levels."""


class Budget:
    """Counts the resources that one parser uses; `refuse` gets a message when they are too much, and raises."""

    def __init__(self, refuse: Callable[[str], NoReturn]):
        self._refuse = refuse
        self._operations = self._arguments = 0
        self._units = 0
        self._limit = FREE_UNITS
        self._known: dict[int, tuple[int, int]] = {}

    def operation(self) -> None:
        """Count an operation."""
        self._operations += 1
        self._limit += UNITS_PER_OPERATION
        if self._operations > MAX_OPERATIONS:
            self._refuse(f"more than {MAX_OPERATIONS:,} operations; split the program into several files")

    def argument(self) -> None:
        """Count a block argument."""
        self._arguments += 1
        if self._arguments > MAX_ARGUMENTS:
            self._refuse(f"more than {MAX_ARGUMENTS:,} arguments; pass fewer, larger tensors")

    def allow_argument(self) -> None:
        """Allow for the label of an argument that is about to come."""
        self._limit += UNITS_PER_ARGUMENT

    def token(self, characters: int) -> None:
        """Count a token."""
        self.spend(1 + characters // CHARACTERS_PER_UNIT)

    def literal(self, elements: int) -> None:
        """Count the elements of a `dense` literal."""
        self.spend(elements // ELEMENTS_PER_UNIT)

    def spend(self, units: int) -> None:
        """Count `units`."""
        self._units += units
        if self._units > self._limit:
            self._refuse(
                f"{self._operations:,} operations and more than {self._limit:,} tokens, attributes of aliases and"
                " pieces of literals beside them; pass large tensors as arguments and shorten lists"
            )

    def define(self, name: str, value: Attribute) -> None:
        """Remember the value of the alias `name`; the caller keeps `value` alive."""
        size, depth = self._measure(value, 0)
        if depth > MAX_DEPTH:
            self._refuse(f"alias {name} expands to {size:,} attributes, nested {depth} levels deep")
        self._known[id(value)] = size, depth

    def use(self, value: Attribute) -> None:
        """Count a use of `value` if an alias stands for it."""
        self.spend(self._known.get(id(value), (0, 0))[0])

    def _measure(self, attribute: Attribute, level: int) -> tuple[int, int]:
        """Attributes and levels that `attribute` expands to."""
        if (known := self._known.get(id(attribute))) is not None:
            return known
        size = depth = 0
        for child in _children(attribute):
            child_size, child_depth = self._measure(child, level + 1)
            size, depth = size + child_size, max(depth, child_depth)
        return size + 1, depth + 1


def _children(attribute: Attribute) -> Iterator[Attribute]:
    untyped: Any = attribute
    match attribute:
        case ArrayAttr():
            yield from untyped.data
        case DictionaryAttr():
            yield from untyped.data.values()
        case ParametrizedAttribute():
            yield from untyped.parameters
        case _:
            assert isinstance(attribute, Data)
