"""The origin of an op: the user's file and line, and the layer of the model, in MLIR's own locations.

    loc("model.py":12:1)                                   a line outside of any layer, such as one of the loss
    loc("encoder.3.attn: Linear"("model.py":12:1))         the layer that computes, by its path in the model
    loc(fused["0: Linear"(…), "1: ReLU"(…)])               a launch that stands for several ops, the main one first

Passes propagate locations: a gradient has that of its op, a launch that of the ops that it computes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import cast

from xdsl.dialects.builtin import (
    ArrayAttr,
    FileLineColLoc,
    FusedLoc,
    IntAttr,
    LocationAttr,
    NameLoc,
    NoneAttr,
    StringAttr,
    UnknownLoc,
)
from xdsl.ir import Attribute, Operation

MAX_FUSED = 8
"""A launch that does the work of a whole model, as the optimizer's does, names no more lines than these."""


@dataclass(frozen=True)
class SourceLocation:
    """A line of the user's code, and the layer that ran there."""

    file: str
    line: int
    layer: str = ""
    """Path and type, `encoder.3.attn: Linear`; the type alone for the model itself; empty outside of it."""
    column: int = 1
    """The column; the first if it is not known: Python has lines only."""

    def __str__(self) -> str:
        """`model.py:12, layer encoder.3.attn: Linear`."""
        return f"{self.file_and_line}, layer {self.layer}" if self.layer else self.file_and_line

    @property
    def file_and_line(self) -> str:
        """`model.py:12`."""
        return f"{self.file}:{self.line}"

    @property
    def attribute(self) -> LocationAttr:
        """The location of an op."""
        line = FileLineColLoc(StringAttr(self.file), IntAttr(self.line), IntAttr(self.column))
        return NameLoc(StringAttr(self.layer), line) if self.layer else line


def location_attribute(location: SourceLocation | None) -> LocationAttr:
    """The op location of `location`, or MLIR's unknown location."""
    return UnknownLoc() if location is None else location.attribute


def origins(op: Operation) -> list[SourceLocation]:
    """The lines and layers that `op` stands for, the main one first; none if they are not known."""
    return _leaves_of([op])


def origin(op: Operation) -> SourceLocation | None:
    """The line and layer that `op` stands for before all others; None if they are not known."""
    return next(_leaves(op.location, ""), None)


def fused_location(*ops: Operation) -> LocationAttr:
    """The location of an op that stands for `ops`, the main one first."""
    return _fused(_leaves_of(ops))


def common_location(ops: Iterable[Operation]) -> LocationAttr:
    """The location of an op that does the work of all `ops`, none before the others: a layer only if it is theirs."""
    found = _leaves_of(ops)
    if len({location.layer for location in found}) > 1:
        found = _distinct(replace(location, layer="") for location in found)
    return _fused(found[:MAX_FUSED])


def _fused(found: list[SourceLocation]) -> LocationAttr:
    if len(found) > 1:
        return FusedLoc(tuple(location.attribute for location in found), NoneAttr())
    return found[0].attribute if found else UnknownLoc()


def _leaves_of(ops: Iterable[Operation]) -> list[SourceLocation]:
    return _distinct(location for op in ops for location in _leaves(op.location, ""))


def _distinct(locations: Iterable[SourceLocation]) -> list[SourceLocation]:
    return list(dict.fromkeys(locations))


def _leaves(location: Attribute, layer: str) -> Iterator[SourceLocation]:
    match location:
        case FileLineColLoc():
            yield SourceLocation(location.filename.data, location.line.data, layer, location.column.data)
        case NameLoc():
            yield from _leaves(location.location, location.desc.data)
        case FusedLoc():
            for part in cast(ArrayAttr[Attribute], location.locations):
                yield from _leaves(part, layer)
        case _:
            pass


def in_unicode(text: str) -> str:
    """`text` as C++ takes it: bytes of a path that the locale could not read are read as UTF-8, or else escaped."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
