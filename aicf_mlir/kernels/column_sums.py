"""A rowwise kernel with column sums in parts that generators have code for.

    apart      a colwise kernel of the sums, then a rowwise one of everything else: any shape; both read the operands
    together   a rowwise kernel that names the values it feeds to sums as it walks, and the colwise kernel of these
               partial sums: one walk, in which the elements of a row stay near from one pass to the next

Separate sums come first, because the rows may take the place of an operand. Sums of what follows a reduction come last: what they
sum is a result, which they read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from aicf_mlir.ir.body import COLUMN_SUM, COMPUTE, Body
from aicf_mlir.ir.formula import Builder
from aicf_mlir.kernels.kernel import Kernel


@dataclass(frozen=True)
class PartKernel(Kernel):
    """A kernel whose functions are phases of the launch of another one, and take all addresses of that launch."""

    whole_id: str = ""
    """The symbol of the kernel that it is a part of."""
    places: tuple[int | None, ...] = ()

    @cached_property
    def symbol(self) -> str:
        """The name of the whole, and of the kind of the part."""
        return f"{self.whole_id}_{self.kind}"

    @property
    def launch_tensors(self) -> tuple[int | None, ...]:
        """For each operand and result of the launch, its number in this kernel; None for those of the other part."""
        return self.places


@dataclass(frozen=True)
class Together:
    """One walk over the rows, and the values that follow from the sums of their columns."""

    rows: PartKernel
    """The kernel of the rows, with all operands that the sums depend on."""
    columns: PartKernel
    fed: tuple[int, ...]
    """For each reduction of `columns`, the value of the body of `rows` that it takes."""


def has_column_sums(kernel: Kernel) -> bool:
    """True if `kernel` is one that this file has parts of."""
    return any(kernel.body.behind_columns)


def apart(kernel: Kernel) -> list[PartKernel]:
    """The sums, then the rows, then the sums that follow them."""
    late = set(kernel.body.late_columns)
    early = [number for number in _columns_of(kernel) if number not in late]
    parts = [_columns(kernel, early)[0]] if early else []
    parts.append(_rows(kernel, ())[0])
    return [*parts, _sums_of_results(kernel)] if late else parts


def together(kernel: Kernel) -> Together:
    """Both in one walk."""
    columns, taken = _columns(kernel, _columns_of(kernel))
    rows, fed = _rows(kernel, taken)
    return Together(rows, columns, fed)


def _columns_of(kernel: Kernel) -> list[int]:
    return [number for number in range(len(kernel.results)) if kernel.is_column(number)]


def _rows(kernel: Kernel, fed: Sequence[int]) -> tuple[PartKernel, tuple[int, ...]]:
    """All but the column sums, and the new numbers of the values `fed`."""
    body = kernel.body
    results = [number for number in range(len(body.results)) if not kernel.is_column(number)]
    builder = Builder(body.args)
    values = list(range(len(body.args)))
    for number, line in enumerate(body.lines):
        behind = body.behind_columns[len(body.args) + number]
        made = -1 if behind else builder.line(line.op, [values[a] for a in line.args], line.type, line.attr)
        values.append(made)
    made = builder.finish([*(values[body.results[n]] for n in results), *(values[v] for v in fed)])
    part = _part(kernel, "rowwise", kernel.reduced, made, results)
    named = part.body.results[len(results) :]
    return replace(part, body=replace(part.body, results=part.body.results[: len(results)])), named


def _columns(kernel: Kernel, results: Sequence[int]) -> tuple[PartKernel, list[int]]:
    """The column sums of these results with the values that follow from them, and by reduction the value of the body of `kernel`
    that it takes.

    A sum of what follows a reduction takes a constant here: only a walk over the rows has its terms.
    """
    body, first = kernel.body, len(kernel.body.args)
    needed = {body.results[number] for number in results}
    late = set(kernel.body.late_sums)
    for number in range(len(body.lines) - 1, -1, -1):
        if first + number in needed and first + number not in late:
            needed.update(body.lines[number].args)
    builder = Builder(body.args)
    values = list(range(first))
    taken: dict[int, int] = {}
    for number, line in enumerate(body.lines, first):
        op = "scalar.sum" if line.op == COLUMN_SUM else line.op
        given = number in needed  # a sum of a row must not be taken for one of a column
        args = [values[arg] for arg in line.args]
        if number in late:  # equal operations would be one
            args = [builder.line("arith.constant", (), line.type, float(number))]
        made = builder.line(op, args, line.type, line.attr) if given else -1
        values.append(made)
        if given and line.op == COLUMN_SUM:
            taken.setdefault(made, line.args[0])
    made = builder.finish(values[body.results[number]] for number in results)
    part = _part(kernel, "colwise", len(kernel.domain) - kernel.reduced, made, results)
    return part, [taken[value] for value in sorted(taken)]


def _sums_of_results(kernel: Kernel) -> PartKernel:
    """The column sums of what follows a reduction, which read it as the results that the rows have written."""
    body, first = kernel.body, len(kernel.body.args)
    written = [COMPUTE[tensor.element] for tensor in kernel.results]
    builder = Builder([*body.args, *written])
    values = list(range(first))
    for number, line in enumerate(body.lines, first):
        if number in kernel.body.late_sums:
            result = kernel.holding(line.args[0])
            assert result is not None  # of a verified kernel
            values.append(builder.line("scalar.sum", [first + result], line.type))
        else:
            there = line.op != COLUMN_SUM and all(values[arg] >= 0 for arg in line.args)
            known = there and not body.stages[number]
            args = [values[arg] for arg in line.args]
            values.append(builder.line(line.op, args, line.type, line.attr) if known else -1)
    made = builder.finish(values[body.results[number]] for number in kernel.body.late_columns)
    part = _part(kernel, "colwise", len(kernel.domain) - kernel.reduced, made, kernel.body.late_columns)
    return replace(part, whole_id=f"{kernel.symbol}_results")


def _part(kernel: Kernel, kind: str, reduced: int, body: Body, results: Sequence[int]) -> PartKernel:
    """A part with the operands that `body` reads, and these results of `kernel`; results of it may follow the operands."""
    count, tensors = len(body.args), (*kernel.operands, *kernel.results)
    used = sorted({v for v in (*body.results, *(a for line in body.lines for a in line.args)) if v < count})
    builder = Builder([body.args[number] for number in used])
    values = {number: at for at, number in enumerate(used)}
    for number, line in enumerate(body.lines):
        values[count + number] = builder.line(
            line.op, [values[arg] for arg in line.args], line.type, line.attr
        )
    named = {number: at for at, number in enumerate(used)}
    named |= {len(kernel.operands) + number: len(used) + at for at, number in enumerate(results)}
    return PartKernel(
        kind,
        kernel.target,
        builder.finish(values[value] for value in body.results),
        kernel.domain,
        reduced,
        tuple(tensors[number] for number in used),
        tuple(kernel.results[number] for number in results),
        whole_id=kernel.symbol,
        places=tuple(named.get(n) for n in range(len(kernel.operands) + len(kernel.results))),
    )
