"""Between which numbers the indices of a body are: what is small can be computed in 32 bits."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from aicf_mlir.kernels.kernel import Kernel

NARROW = 1 << 30
"""Numbers below it, and their negatives, are small."""


class Range(NamedTuple):
    """The least and the largest number that a value can be."""

    low: int
    high: int

    @property
    def is_narrow(self) -> bool:
        """True if each of them is small."""
        return self.low > -NARROW and self.high < NARROW


@cache
def narrow_values(kernel: Kernel) -> dict[int, Range]:
    """The i64 values of the body that are small, and are made of small ones alone."""
    body, found = kernel.body, dict[int, Range]()
    for number, line in enumerate(body.lines, len(body.args)):
        if line.type != "i64":
            continue
        if line.op == "arith.constant":
            assert isinstance(line.attr, int | float)
            made = Range(int(line.attr), int(line.attr))
        elif line.op == "scalar.index":
            assert isinstance(line.attr, int)
            made = Range(0, kernel.domain[line.attr] - 1)
        else:
            operands = line.args[1:] if line.op == "arith.select" else line.args
            if not all(operand in found for operand in operands):
                continue
            combined = of_operation(line.op, [found[operand] for operand in operands])
            if combined is None:
                continue
            made = combined
        if made.is_narrow:
            found[number] = made
    return found


def of_operation(op: str, given: list[Range]) -> Range | None:
    """What an operation of i64 makes of such numbers; None if nothing is known of it."""
    match op, given:
        case "arith.addi", [a, b]:
            return Range(a.low + b.low, a.high + b.high)
        case "arith.subi", [a, b]:
            return Range(a.low - b.high, a.high - b.low)
        case "arith.muli", [a, b]:
            ends = [x * y for x in a for y in b]
            return Range(min(ends), max(ends))
        case "arith.select", [a, b]:
            return Range(min(a.low, b.low), max(a.high, b.high))
        case "arith.minsi", [a, b]:
            return Range(min(a.low, b.low), min(a.high, b.high))
        case "arith.maxsi", [a, b]:
            return Range(max(a.low, b.low), max(a.high, b.high))
        case "arith.floordivsi" | "arith.divsi", [a, b] if b.low > 0:
            most = max(abs(a.low), abs(a.high))
            return Range(min(a.low, 0) if a.low < 0 else 0, most)
        case "arith.remsi", [a, b] if b.low > 0:
            most = b.high - 1
            return Range(-most if a.low < 0 else 0, most)
        case _:
            return None
