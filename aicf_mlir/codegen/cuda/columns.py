"""A colwise kernel: threads own columns and walk down some rows; where rows are many, blocks hand partial rows on.

The number of blocks follows from the shapes. A second phase adds their partial rows from first to last.
"""

from __future__ import annotations

from aicf_mlir.codegen.cuda.access import (
    Coordinates,
    begin,
    fetch,
    find,
    index_of,
    integer,
    pointer,
    put,
    reach,
    signature,
)
from aicf_mlir.codegen.cuda.column_schedules import THREADS, WARP, ColumnSchedule, reductions, schedule
from aicf_mlir.codegen.cuda.scalars import STORED, TYPES, stored
from aicf_mlir.codegen.cuda.text import Scope, Text, closure, line_of, reduction
from aicf_mlir.ir.body import is_table
from aicf_mlir.ir.layouts import ALIGNMENT
from aicf_mlir.kernels.kernel import Code, Kernel, Phase

PARTS_IN_FLIGHT = 8
"""Partial rows that a thread of the second phase reads before it adds them."""


def places(kernel: Kernel, items: int) -> tuple[list[int], int]:
    """The start of each reduction's partial results in the workspace, with `items` for each, and the bytes of all."""
    starts: list[int] = []
    used = 0
    for value in reductions(kernel):
        starts.append(used)
        used += -(-items * reduction(kernel, value).bytes // ALIGNMENT) * ALIGNMENT
    return starts, used


def workspace(kernel: Kernel) -> int:
    """Bytes of partial rows."""
    plan = schedule(kernel)
    return places(kernel, plan.parts * plan.breadth)[1] if plan.parts > 1 else 0


def code(kernel: Kernel) -> Code:
    """The text of a colwise kernel and its one or two launches."""
    plan = schedule(kernel)
    text = Text()
    first = kernel.symbol if plan.parts == 1 else f"{kernel.symbol}_rows"
    with text.block(signature(kernel, first, THREADS)):
        ColumnWriter(kernel, plan, text).write()
    phases = [Phase(first, plan.tiles * plan.parts, threads=THREADS)]
    if plan.parts > 1:
        second = f"{kernel.symbol}_columns"
        threads = WARP * strands(kernel)
        with text.block(signature(kernel, second, threads)):
            add_parts(text, kernel, plan)
        phases.append(Phase(second, -(-plan.breadth // WARP), threads=threads))
    return Code(str(text), tuple(phases), workspace(kernel))


class ColumnWriter:
    """Prints the first phase: sums of some rows, and results of the domain's shape."""

    def __init__(self, kernel: Kernel, plan: ColumnSchedule, text: Text):
        self.kernel, self.plan, self.text = kernel, plan, text
        self.reductions = reductions(kernel)
        self.whole = [n for n in range(len(kernel.results)) if kernel.is_whole(n)]
        body = kernel.body
        targets = [reduction(kernel, v).argument for v in self.reductions]
        targets += [body.results[n] for n in self.whole]
        needed = closure(kernel, targets)
        self.streams = [n for n in needed if n < len(body.args) and kernel.wide[n]]
        used = {
            *targets,
            *(a for v in needed if kernel.wide[v] and (line := line_of(kernel, v)) for a in line.args),
        }
        self.narrow = sorted(v for v in used if not kernel.wide[v] and not self._free(v))
        last = (
            []
            if plan.parts > 1
            else [body.results[n] for n in range(len(body.results)) if n not in self.whole]
        )
        self.fixed = sorted(
            n
            for n in closure(kernel, [*self.narrow, *last])
            if n < len(body.args) and not kernel.wide[n] and not is_table(body.args[n])
        )

    def _free(self, value: int) -> bool:
        """True if a value is a table or a constant, which needs no register."""
        line = line_of(self.kernel, value)
        return is_table(self.kernel.body.type(value)) if line is None else line.op == "arith.constant"

    def write(self) -> None:
        """Write the statements of the function."""
        text, plan = self.text, self.plan
        begin(text)
        text.add(
            f"const unsigned across = threadIdx.x % {plan.across}u, down = threadIdx.x / {plan.across}u;"
        )
        text.add(f"const unsigned part = blockIdx.x / {max(plan.tiles, 1)}u;")
        text.add(f"const unsigned column = blockIdx.x % {max(plan.tiles, 1)}u * {plan.across}u + across;")
        ragged = plan.vectors % plan.across != 0
        if ragged:
            text.add(f"const bool inside = column < {plan.vectors}u;")
        kind = integer(max(reach(plan.columns), plan.breadth))
        self.column = find(text, plan.columns, "column", "e", kind, plan.width)
        self._accumulators()
        with text.block("if (inside)" if ragged else ""):
            self._fixed()
            self._rows()
        if plan.down > 1 and self.reductions:
            self._combine()
        with text.block(f"if (down == 0{' && inside' if ragged else ''})"):
            if plan.parts > 1:
                self._hand_on()
            else:
                self._finish()

    def _accumulators(self) -> None:
        for value in self.reductions:
            of = reduction(self.kernel, value)
            self.text.add(f"{of.type} s{value}[{self.plan.width}];")
            with self.text.each("j", self.plan.width):
                self.text.add(f"s{value}[j] = {of.identity};")
        for number in self.fixed:
            self.text.add(f"Vec<{self._stored(number)}, {self._neighbours(number)}> x{number};")

    def _stored(self, operand: int) -> str:
        return STORED[self.kernel.operands[operand].element]

    def _neighbours(self, operand: int) -> int:
        columns = self.plan.columns
        return self.plan.width if columns and columns[-1].strides[operand] else 1

    def _element(self, operand: int, where: str = "") -> str:
        return f"element_of(x{operand}{where}, {'j' if self._neighbours(operand) > 1 else '0'})"

    def _fixed(self) -> None:
        """Read and compute once the values that are the same for all rows."""
        text, kernel, plan = self.text, self.kernel, self.plan
        for number in self.fixed:
            fetch(text, kernel, self.column, number, plan.width, f"x{number}")
        lines = [v for v in self.narrow if v not in self.fixed]
        for value in lines:
            text.add(f"{TYPES[kernel.body.type(value)]} h{value}[{plan.width}];")
        if lines:
            with text.each("j", plan.width):
                scope = Scope(text, kernel, self._element, lambda dim: index_of(dim, "j", self.column))
                for value in lines:
                    text.add(f"h{value}[j] = {scope[value]};")

    def _rows(self) -> None:
        """Write the rows of this thread, some at a time."""
        text, plan = self.text, self.plan
        if not plan.height or not (self.reductions or self.whole):
            return
        counter = "unsigned" if plan.height < 1 << 30 else "unsigned long long"
        each = -(-plan.height // plan.parts)
        text.add(f"const {counter} begin = static_cast<{counter}>(part) * {each}u;")
        text.add(
            f"const {counter} end = begin + {each}u < {plan.height}u ? begin + {each}u : {plan.height}u;"
        )
        step = plan.down * plan.batch
        with text.block(f"for ({counter} first = begin + down; first < end; first += {step}u)"):
            for number in self.streams:
                text.add(f"Vec<{self._stored(number)}, {self._neighbours(number)}> x{number}[{plan.batch}];")
            for work in (self._read, self._add):
                with text.each("u", plan.batch):
                    text.add(f"const {counter} row = first + u * {plan.down}u;")
                    with text.block("if (row < end)"):
                        work(self._point())

    def _point(self) -> Coordinates:
        plan = self.plan
        kind = integer(max(reach([*plan.rows, *plan.columns]), plan.height))
        row = find(self.text, plan.rows, "row", "o", kind)
        return Coordinates((*row.axes, *self.column.axes), (*row.names, *self.column.names))

    def _read(self, place: Coordinates) -> None:
        for number in self.streams:
            fetch(self.text, self.kernel, place, number, self.plan.width, f"x{number}[u]")

    def _add(self, place: Coordinates) -> None:
        """Emit one row: its results, and its share of the reductions."""
        text, kernel, plan = self.text, self.kernel, self.plan
        for number in self.whole:
            text.add(f"Vec<{STORED[kernel.results[number].element]}, {plan.width}> y{number};")
        with text.each("j", plan.width):

            def element(operand: int) -> str:
                return self._element(operand, "[u]" if operand in self.streams else "")

            neighbour = "j" if plan.columns else ""
            scope = Scope(text, kernel, element, lambda dim: index_of(dim, neighbour, place))
            for value in self.narrow:
                if value not in self.fixed:
                    scope.names[value] = f"h{value}[j]"
            for value in self.reductions:
                of = reduction(kernel, value)
                text.add(f"s{value}[j] = {scope.added(f's{value}[j]', of.argument, of.combine)};")
            for number in self.whole:
                value = scope[kernel.body.results[number]]
                text.add(f"y{number}.at[j] = {stored(kernel.results[number].element, value)};")
        for number in self.whole:
            put(text, kernel, place, number, plan.width)

    def _combine(self) -> None:
        """Combine over the threads of a column, in halves; the uppermost has the result."""
        text, plan = self.text, self.plan
        sizes = [reduction(self.kernel, value).bytes for value in self.reductions]
        text.add(f"__shared__ uint4 shared[{max(sizes) * THREADS * plan.width // 16}];")
        for value in self.reductions:
            of = reduction(self.kernel, value)
            with text.block(""):
                text.add(f"{of.type}* const mine = reinterpret_cast<{of.type}*>(shared) + threadIdx.x;")
                with text.each("j", plan.width):
                    text.add(f"mine[j * {THREADS}] = s{value}[j];")
                text.add("__syncthreads();")
                text.add("#pragma unroll")
                with text.block(f"for (unsigned half = {plan.down // 2}u; half > 0; half /= 2)"):
                    with text.block("if (down < half)"), text.each("j", plan.width):
                        other = f"mine[j * {THREADS} + half * {plan.across}u]"
                        text.add(f"mine[j * {THREADS}] = {of.combine}{{}}(mine[j * {THREADS}], {other});")
                    text.add("__syncthreads();")
                with text.each("j", plan.width):
                    text.add(f"s{value}[j] = mine[j * {THREADS}];")
                text.add("__syncthreads();")

    def _hand_on(self) -> None:
        """Write the sums of this block to the workspace."""
        text, plan = self.text, self.plan
        starts, _ = places(self.kernel, plan.parts * plan.breadth)
        for start, value in zip(starts, self.reductions, strict=True):
            of = reduction(self.kernel, value)
            target = f"partial<{of.type}>(workspace, {start}ll)"
            at = f"static_cast<long long>(part) * {plan.breadth} + column * {plan.width}u + j"
            with text.each("j", plan.width):
                text.add(f"{target}[{at}] = s{value}[j];")

    def _finish(self) -> None:
        """Compute the values that follow from the reductions, if this block has all rows."""
        with self.text.each("j", self.plan.width):
            scope = Scope(self.text, self.kernel, self._element, lambda dim: index_of(dim, "j", self.column))
            scope.names.update({value: f"s{value}[j]" for value in self.reductions})
            write_columns(self.text, self.kernel, scope, self.column, "j")


def write_columns(text: Text, kernel: Kernel, scope: Scope, column: Coordinates, neighbour: str) -> None:
    """Write the results without the reduced dimensions at a column, `neighbour` columns after that of the place."""
    for number, tensor in enumerate(kernel.results):
        if kernel.is_whole(number):
            continue
        value = scope[kernel.body.results[number]]
        which = len(kernel.operands) + number
        stride = column.axes[-1].strides[which] if column.axes and neighbour else 0
        behind = f" + {neighbour} * {stride}" if stride else ""
        text.add(
            f"{pointer(kernel, which)}[{column.offset(which)}{behind}] = {stored(tensor.element, value)};"
        )


def strands(kernel: Kernel) -> int:
    """The threads that share a column in the second phase; their results are in shared memory."""
    return 32 if sum(reduction(kernel, value).bytes for value in reductions(kernel)) <= 16 else 16


def add_parts(text: Text, kernel: Kernel, plan: ColumnSchedule) -> None:
    """Write the second phase: a warp's width of columns a block; each strand adds partial rows with a fixed stride, then the
    strands are added.
    """
    begin(text)
    text.add(f"const unsigned lane = threadIdx.x % {WARP}u, strand = threadIdx.x / {WARP}u;")
    text.add(f"const unsigned column = blockIdx.x * {WARP}u + lane;")
    text.add(f"const bool inside = column < {plan.breadth}u;")
    starts, _ = places(kernel, plan.parts * plan.breadth)
    values, count = reductions(kernel), strands(kernel)
    found = [(value, start, reduction(kernel, value)) for start, value in zip(starts, values, strict=True)]
    for value, _, of in found:
        text.add(f"{of.type} s{value} = {of.identity};")
    batch = min(PARTS_IN_FLIGHT, -(-plan.parts // count))
    head = f"for (unsigned first = strand; inside && first < {plan.parts}u; first += {count * batch}u)"
    with text.block(head):
        for value, _, of in found:
            text.add(f"{of.type} x{value}[{batch}];")
        with text.each("u", batch):
            text.add(f"const unsigned part = first + u * {count}u;")
            for value, start, of in found:
                at = f"static_cast<long long>(part) * {plan.breadth} + column"
                read = f"partial<{of.type}>(workspace, {start}ll)[{at}]"
                text.add(f"x{value}[u] = part < {plan.parts}u ? {read} : {of.identity};")
        with text.each("u", batch):
            for value, _, of in found:
                text.add(f"s{value} = {of.combine}{{}}(s{value}, x{value}[u]);")
    for value, _, of in found:
        text.add(f"__shared__ {of.type} w{value}[{count}][{WARP}];", f"w{value}[strand][lane] = s{value};")
    text.add("__syncthreads();", "if (strand != 0 || !inside) return;")
    for value, _, of in found:
        with text.each("other", count):
            text.add(f"if (other > 0) s{value} = {of.combine}{{}}(s{value}, w{value}[other][lane]);")
    column = find(text, plan.columns, "column", "e", integer(max(reach(plan.columns), plan.breadth)))

    def element(operand: int) -> str:
        return f"widen({pointer(kernel, operand)}[{column.offset(operand)}])"

    scope = Scope(text, kernel, element, lambda dim: index_of(dim, "", column))
    scope.names.update({value: f"s{value}" for value in values})
    write_columns(text, kernel, scope, column, "")
