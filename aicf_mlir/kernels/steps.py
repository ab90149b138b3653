"""How far apart neighbours along an axis are in memory, also those that a body looks up in a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from aicf_mlir.ir.body import REDUCTIONS, is_table
from aicf_mlir.kernels.kernel import Axis, Kernel


def steps_of(kernel: Kernel, values: Sequence[int], axis: Axis) -> list[int | None]:
    """How much each of these i64 of the body grows from one point of `axis` to the next; None where that is not known."""
    body, found = kernel.body, dict[int, int | None]()

    def step(value: int) -> int | None:
        if value not in found:
            found[value] = computed(value)
        return found[value]

    def computed(value: int) -> int | None:
        if value < len(body.args):
            return None if axis.strides[value] else 0
        line = body.lines[value - len(body.args)]
        if line.op == "scalar.index":
            if line.attr not in axis.dims:
                return 0
            return axis.step if len(axis.dims) == 1 else None
        if line.op in REDUCTIONS:
            return None
        steps = [step(arg) for arg in line.args if not is_table(body.type(arg))]
        if not any(steps) and None not in steps:
            return 0
        if line.op in ("arith.addi", "arith.subi") and None not in steps:
            left, right = (one or 0 for one in steps)
            return left + right if line.op == "arith.addi" else left - right
        return None

    return [step(value) for value in values]


def lookups(kernel: Kernel, axis: Axis) -> Iterator[tuple[str, int | None]]:
    """For each place where the body reads a table: the table's element type, and how many elements of memory the place moves from
    one point of `axis` to the next.
    """
    for line in kernel.body.lines:
        if line.op != "scalar.load":
            continue
        table = kernel.operands[line.args[0]]
        steps = steps_of(kernel, line.args[1:], axis)
        known = [s * t for s, t in zip(steps, table.strides, strict=True) if s is not None]
        yield table.element, sum(known) if len(known) == len(steps) else None
