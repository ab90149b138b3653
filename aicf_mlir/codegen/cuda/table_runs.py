"""Neighbours that a map looks up in a table: those that follow each other in memory are read as one vector."""

from __future__ import annotations

from collections.abc import Callable

from aicf_mlir.codegen.cuda.access import ACCESS, Coordinates, index_of, size_of
from aicf_mlir.codegen.cuda.scalars import TYPES
from aicf_mlir.codegen.cuda.text import Scope, Text, line_of
from aicf_mlir.ir.body import Line, is_table
from aicf_mlir.kernels.kernel import Axis, Kernel


class TableRuns:
    """The lookups of `count` neighbours along the last axis of a place that find neighbours of a table.

    Their rows, and all else that is the same for these neighbours, is computed once.
    """

    def __init__(self, kernel: Kernel, place: Coordinates, count: int):
        self._kernel, self._place, self._count = kernel, place, count
        self._lines = list(enumerate(kernel.body.lines, len(kernel.body.args)))
        self._alike = alike(kernel, place.axes[-1]) if count > 1 else set[int]()
        self._runs = {
            value: index for value, line in self._lines if (index := self._moving(line)) is not None
        }
        """By the value of a lookup: the value of its one index that goes with the neighbours."""

    def _moving(self, line: Line) -> int | None:
        """The one index that goes with the neighbours, if each of their vectors is inside the table and aligned."""
        if line.op != "scalar.load" or self._count == 1:
            return None
        table, axis = self._kernel.operands[line.args[0]], self._place.axes[-1]
        moving = [(d, arg) for d, arg in enumerate(line.args[1:]) if arg not in self._alike]
        if len(moving) != 1 or table.alignment % min(self._count * size_of(table.element), ACCESS):
            return None
        ((along, index),) = moving
        made = line_of(self._kernel, index)
        if made is None or made.op != "scalar.index" or axis.dims != (made.attr,) or axis.step != 1:
            return None
        inside = self._kernel.domain[axis.dims[0]] <= table.shape[along]
        others = (stride for d, stride in enumerate(table.strides) if d != along and table.shape[d] > 1)
        rows = table.strides[along] == 1 and all(stride % self._count == 0 for stride in others)
        return index if inside and rows else None

    def read(self, text: Text, element: Callable[[int], str]) -> Scope | None:
        """Read the vectors `t5`, `t7`, … of these lookups; the scope of what is the same for all neighbours. None without any."""
        if not self._runs:
            return None
        kernel, place = self._kernel, self._place
        scope = Scope(text, kernel, element, lambda dim: index_of(dim, "", place))
        different = (line for value, line in self._lines if value not in self._alike)
        scope.need(arg for line in different for arg in line.args if arg in self._alike)
        first = index_of(place.axes[-1].dims[0], "", place)
        for value, line in self._lines:
            if value in self._runs:
                offset = scope.offset(line, {self._runs[value]: first})
                text.add(f"const auto t{value} = load<{self._count}>(a{line.args[0]} + ({offset}));")
        return scope

    def take(self, text: Text, scope: Scope) -> None:
        """Name the element `j` of each vector in the scope of one neighbour."""
        for value in self._runs:
            text.add(f"const {TYPES[self._kernel.body.type(value)]} v{value} = element_of(t{value}, j);")
            scope.names[value] = f"v{value}"


def alike(kernel: Kernel, axis: Axis) -> set[int]:
    """The values of the body of a map that are the same at all points along an axis."""
    body = kernel.body
    found = {n for n, type_ in enumerate(body.args) if is_table(type_) or not axis.strides[n]}
    for value, line in enumerate(body.lines, len(body.args)):
        if line.attr not in axis.dims if line.op == "scalar.index" else found.issuperset(line.args):
            found.add(value)
    return found - {n for n, type_ in enumerate(body.args) if is_table(type_)}
