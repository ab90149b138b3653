"""The values of a body at one place of the loops: on a scalar, or on lanes along one axis."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from aicf_mlir.codegen.llvm import memory
from aicf_mlir.codegen.llvm.memory import STORED
from aicf_mlir.codegen.llvm.operations import binary, operation
from aicf_mlir.codegen.llvm.text import Function, Value, constant, suffix
from aicf_mlir.ir.body import REDUCTIONS, Line, is_table
from aicf_mlir.kernels.kernel import Axis, Kernel, Tensor
from aicf_mlir.kernels.steps import steps_of


@dataclass(frozen=True)
class LoopPosition:
    """The state of the outer loops: the address of each operand and result, the index in each dimension."""

    pointers: tuple[str, ...]
    indices: Mapping[int, str] = field(default_factory=dict[int, str])

    @staticmethod
    def origin(kernel: Kernel) -> LoopPosition:
        """The position before any loop."""
        return LoopPosition(tuple(f"%a{number}" for number in range(len(tensors(kernel)))))

    def moved(
        self, function: Function, kernel: Kernel, axes: Sequence[Axis], at: Sequence[str]
    ) -> LoopPosition:
        """The position moved to these positions along `axes`."""
        pointers: list[str] = []
        for number, (tensor, pointer) in enumerate(zip(tensors(kernel), self.pointers, strict=True)):
            offset = "0"
            for axis, index in zip(axes, at, strict=True):
                step = function.multiply(index, axis.strides[number])
                offset = step if offset == "0" else function.add(offset, step)
            pointers.append(function.pointer(pointer, STORED[tensor.element], offset))
        found = {dim: index for axis, index in zip(axes, at, strict=True) for dim in axis.dims}
        return LoopPosition(tuple(pointers), {**self.indices, **found})


@dataclass(frozen=True)
class Lanes:
    """The `count` neighbours along an axis from `index` on; only the first `valid` exist, all if it is None."""

    axis: Axis
    index: str
    count: int
    valid: int | None = None


def tensors(kernel: Kernel) -> tuple[Tensor, ...]:
    """The operands, then the results."""
    return (*kernel.operands, *kernel.results)


def varying(kernel: Kernel, axis: Axis) -> tuple[bool, ...]:
    """For each value of the body, True if it may differ along an axis that is not reduced."""
    found = [not is_table(type_) and bool(axis.strides[n]) for n, type_ in enumerate(kernel.body.args)]
    for line in kernel.body.lines:
        if line.op == "scalar.index":
            found.append(line.attr in axis.dims)
        else:
            found.append(line.op in REDUCTIONS or any(found[arg] for arg in line.args))
    return tuple(found)


def needed(kernel: Kernel, roots: Iterable[int], known: Iterable[int]) -> list[int]:
    """The values that `roots` depend on, in order; the search stops at known values, which are left out."""
    body, seen, pending = kernel.body, set(known), list(roots)
    found: set[int] = set()
    while pending:
        value = pending.pop()
        if value in seen or is_table(body.type(value)):
            continue
        seen.add(value)
        found.add(value)
        if value >= len(body.args):
            pending += body.lines[value - len(body.args)].args
    return sorted(found)


class Point:
    """Values at a place, computed on demand and kept."""

    def __init__(
        self,
        function: Function,
        kernel: Kernel,
        place: LoopPosition,
        lanes: Lanes | None = None,
        outer: Point | None = None,
        splats: Mapping[int, Value] | None = None,
        saved: Mapping[int, str] | None = None,
    ) -> None:
        self.function, self.kernel, self.place, self.lanes, self.outer = function, kernel, place, lanes, outer
        self.known: dict[int, Value] = dict(splats or {})
        self.saved = saved or {}
        """The values that an earlier pass has left in memory, one after the other along the axis."""

    @property
    def count(self) -> int:
        """The number of lanes."""
        return 1 if self.lanes is None else self.lanes.count

    def evaluate(self, values: Iterable[int]) -> None:
        """Compute these values."""
        roots = list(values)
        for value in needed(self.kernel, roots, {*self.known, *self.saved}):
            self.known[value] = self._make(value)
        for value in roots:
            if value not in self.known and value in self.saved:
                self.known[value] = self._saved(value)

    def __getitem__(self, value: int) -> Value:
        if value not in self.known:
            self.known[value] = self._saved(value) if value in self.saved else self._make(value)
        return self.known[value]

    def _saved(self, value: int) -> Value:
        assert self.lanes is not None
        type_ = self.kernel.body.type(value)
        pointer = self.function.pointer(self.saved[value], STORED[type_], self.lanes.index)
        return memory.load(self.function, pointer, type_, self.count, self.lanes.valid)

    def save(self, value: int, pointer: str) -> None:
        """Leave a value in memory for a later pass."""
        assert self.lanes is not None
        type_ = self.kernel.body.type(value)
        pointer = self.function.pointer(pointer, STORED[type_], self.lanes.index)
        memory.store(self.function, self[value], pointer, type_, self.count, self.lanes.valid)

    def _make(self, value: int) -> Value:
        body = self.kernel.body
        if value < len(body.args):
            return self._operand(value)
        line = body.lines[value - len(body.args)]
        if line.op == "scalar.index":
            return self._index(line)
        if line.op == "scalar.load":
            return self._table(line)
        return operation(self.function, line, [self[arg] for arg in line.args], self.count)

    def _operand(self, number: int) -> Value:
        element, pointer = self.kernel.operands[number].element, self.place.pointers[number]
        if self.lanes is None:
            return memory.load(self.function, pointer, element)
        stride = self.lanes.axis.strides[number]
        if stride == 0:
            return self.function.splat(memory.load(self.function, pointer, element), self.count)
        start = self.function.multiply(self.lanes.index, stride)
        pointer = self.function.pointer(pointer, STORED[element], start)
        if stride == 1:
            return memory.load(self.function, pointer, element, self.count, self.lanes.valid)
        indices = memory.steps(stride, self.count, self.lanes.valid)
        return memory.gather(self.function, pointer, element, indices)

    def _index(self, line: Line) -> Value:
        assert isinstance(line.attr, int)
        if self.lanes is None or line.attr not in self.lanes.axis.dims:
            return self.function.splat(Value(self.place.indices[line.attr], "i64"), self.count)
        first = self.function.splat(Value(self.lanes.index, "i64"), self.count)
        return binary(self.function, "add", first, Value(memory.iota(self.count), "i64", self.count))

    def _table(self, line: Line) -> Value:
        table = self.kernel.operands[line.args[0]]
        pointer = self.place.pointers[line.args[0]]
        if 0 in table.shape:
            return constant(0, line.type, self.count)
        found = self._table_row(line, table) or self._table_run(line, table)
        if found is not None:
            return found
        offset = constant(0, "i64", self.count)
        for arg, size, stride in zip(line.args[1:], table.shape, table.strides, strict=True):
            offset = self._stepped(offset, self._clamped(self[arg], size), stride)
        return memory.gather(self.function, pointer, table.element, offset)

    def _clamped(self, index: Value, size: int) -> Value:
        name = suffix("i64", index.lanes)
        for intrinsic, limit in (("smax", 0), ("smin", size - 1)):
            bound = constant(limit, "i64", index.lanes)
            arguments = ((one.llvm, one.text) for one in (index, bound))
            text = self.function.call(f"llvm.{intrinsic}.{name}", index.llvm, *arguments)
            index = Value(text, "i64", index.lanes)
        return index

    def _stepped(self, offset: Value, index: Value, stride: int) -> Value:
        step = binary(self.function, "mul", index, constant(stride, "i64", index.lanes))
        return binary(self.function, "add", offset, step)

    def _table_row(self, line: Line, table: Tensor) -> Value | None:
        """The elements as one vector, where the last index is the position along the axis and no other has lanes."""
        if self.lanes is None or self.outer is None or len(line.args) < 2 or table.strides[-1] != 1:
            return None
        body, axis = self.kernel.body, self.lanes.axis
        *rows, last = line.args[1:]
        column = body.lines[last - len(body.args)] if last >= len(body.args) else None
        if column is None or column.op != "scalar.index" or axis.dims != (column.attr,):
            return None
        if axis.size > table.shape[-1] or any(row not in self.outer.known for row in rows):
            return None
        offset = Value(self.lanes.index, "i64")
        for row, size, stride in zip(rows, table.shape[:-1], table.strides[:-1], strict=True):
            offset = self._stepped(offset, self._clamped(self.outer[row], size), stride)
        pointer = self.function.pointer(self.place.pointers[line.args[0]], STORED[table.element], offset.text)
        return memory.load(self.function, pointer, table.element, self.count, self.lanes.valid)

    def _table_run(self, line: Line, table: Tensor) -> Value | None:
        """The elements as one vector, where one index goes with the lanes along neighbours, and no other has lanes."""
        if self.lanes is None or self.count == 1:
            return None
        steps = steps_of(self.kernel, line.args[1:], self.lanes.axis)
        moving = [d for d, step in enumerate(steps) if step != 0]
        if len(moving) != 1 or steps[moving[0]] != 1 or table.strides[moving[0]] != 1:
            return None
        offset = Value("0", "i64")
        for d, (arg, size, stride) in enumerate(zip(line.args[1:], table.shape, table.strides, strict=True)):
            if d != moving[0]:
                index = self[arg]
                first = Value(self.function.new(f"extractelement {index}, i64 0"), "i64")
                offset = self._stepped(offset, self._clamped(first, size), stride)
        row = self.function.pointer(self.place.pointers[line.args[0]], STORED[table.element], offset.text)
        indices = self[line.args[1 + moving[0]]]
        return memory.load_run(self.function, row, table.element, indices, table.shape[moving[0]])

    def store(self, result: int) -> None:
        """Write a result here."""
        number = len(self.kernel.operands) + result
        tensor, pointer = self.kernel.results[result], self.place.pointers[number]
        value = self[self.kernel.body.results[result]]
        if self.lanes is None:
            memory.store(self.function, value, pointer, tensor.element)
            return
        stride = self.lanes.axis.strides[number]
        start = self.function.multiply(self.lanes.index, stride)
        pointer = self.function.pointer(pointer, STORED[tensor.element], start)
        if stride == 1:
            memory.store(self.function, value, pointer, tensor.element, self.count, self.lanes.valid)
        else:
            memory.scatter(self.function, value, pointer, tensor.element, stride, self.lanes.valid)
