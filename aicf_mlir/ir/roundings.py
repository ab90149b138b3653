"""A value has one value: a result of f16 or bf16 is rounded in every later use in its body.

A body computes in f32, and a launch rounds a result to its element type when it writes it. Readers of that result in memory read
it rounded; so must each line of the body that continues with it. The rounding is in the text then, a truncf and an extf. An
operation that only chooses among numbers (`CHOICES`) may read the unrounded value if its own result is rounded.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.utils.exceptions import VerifyException

from aicf_mlir.ir.body import CHOICES, Body, Line
from aicf_mlir.ir.element_types import NARROW
from aicf_mlir.ir.formula import Builder


def written(body: Body, operands: Sequence[str], results: Sequence[str]) -> Body:
    """`body` with results that hold to the rule; `operands` and `results` are element types, that of a sum is "".

    A result that the body reads unrounded, such as a mean that is a part of its variance, is another value than the rounded one
    that the launch gives: the body itself rounds it.
    """
    if not any(element in NARROW for element in results):
        return body
    builder = Builder(body.args, operands)
    given = builder.inline(body, range(len(body.args)))
    rounded = [
        builder.scalar(value).rounded(element).value if element in NARROW else value
        for value, element in zip(given, results, strict=True)
    ]
    explicit = builder.finish(rounded)
    reads = _Reads(explicit, results)
    shorter = [reads.as_stored(number, element) for number, element in enumerate(results)]
    if shorter == list(explicit.results):
        return explicit
    again = Builder(explicit.args, operands)
    again.inline(Body(explicit.args, explicit.lines, ()), range(len(explicit.args)))
    return again.finish(shorter)


def read_unrounded(body: Body, operands: Sequence[str], results: Sequence[str]) -> int | None:
    """The number of the first result that the body uses without its rounding; None if it follows the rule.

    A result of another element type takes a value unrounded, like a line. An f32 and the bf16 that it is cast to, or the other
    way round, are the same value only if the text says so.
    """
    if not any(element in NARROW for element in results):
        return None
    reads = _Reads(body, results)
    for number, (value, element) in enumerate(zip(body.results, results, strict=True)):
        exact = element not in NARROW or is_exact(body, operands, value, element)
        if not exact and not reads.are_rounded(value, element):
            return number
    return None


def check_read(body: Body, operands: Sequence[str], results: Sequence[str], name: str = "result ") -> None:
    """Raise VerifyException unless the body reads its results on as the launch gives them."""
    number = read_unrounded(body, operands, results)
    if number is not None:
        raise VerifyException(
            f"{name}{number}: the body reads it on with more digits than {results[number]} has; read it through an"
            f" arith.truncf to {results[number]} and an arith.extf, or give the rounded value"
        )


def is_exact(body: Body, operands: Sequence[str], value: int, element: str) -> bool:
    """True if a value is known to be one of the element type."""
    if value < len(body.args):
        return value < len(operands) and operands[value] == element
    line = body.lines[value - len(body.args)]
    if line.op == "arith.extf":
        return body.type(line.args[0]) == element
    chosen = CHOICES.get(line.op)
    return chosen is not None and all(is_exact(body, operands, arg, element) for arg in line.args[chosen])


class _Reads:
    """The readers of each value of a body."""

    def __init__(self, body: Body, elements: Sequence[str]):
        self.body = body
        self.lines: dict[int, list[tuple[int, Line]]] = {}
        for number, line in enumerate(body.lines, len(body.args)):
            for arg in dict.fromkeys(line.args):
                self.lines.setdefault(arg, []).append((number, line))
        self.given: dict[int, set[str]] = {}
        for value, element in zip(body.results, elements, strict=True):
            self.given.setdefault(value, set()).add(element)

    def are_rounded(self, value: int, element: str) -> bool:
        """True if all uses of a value, lines and results, take it rounded to the element type."""
        return not self.given.get(value, set()) - {element} and self.lines_round(value, element)

    def lines_round(self, value: int, element: str) -> bool:
        """True if the lines that read a value take it as the element type has it."""
        for number, line in self.lines.get(value, ()):
            if line.op == "arith.truncf" and line.type == element:
                continue
            chosen = CHOICES.get(line.op)
            tested = chosen is None or value in line.args[: chosen.start]
            if tested or not (self.goes_on(number) and self.are_rounded(number, element)):
                return False
        return True

    def goes_on(self, value: int) -> bool:
        """True if anything takes a value."""
        return value in self.lines or value in self.given

    def as_stored(self, number: int, element: str) -> int:
        """The value that result `number` can be: the one before its rounding, if nothing else would take that unrounded."""
        value = self.body.results[number]
        first = len(self.body.args)
        if value < first or (wide := self.body.lines[value - first]).op != "arith.extf":
            return value
        narrow = self.body.lines[wide.args[0] - first] if wide.args[0] >= first else wide
        if (narrow.op, narrow.type) != ("arith.truncf", element):
            return value
        (before,) = narrow.args
        return before if self.are_rounded(before, element) else value


def is_read_as(body: Body, value: int, result: int, element: str) -> bool:
    """True if `value` is what is read of a result of this element type that holds the value `result`."""
    if element not in NARROW:
        return value == result
    wide = _line_of(body, value)
    narrow = _line_of(body, wide.args[0]) if wide is not None and wide.op == "arith.extf" else None
    rounds = narrow is not None and (narrow.op, narrow.type) == ("arith.truncf", element)
    return rounds and narrow is not None and result in (value, narrow.args[0])


def _line_of(body: Body, value: int) -> Line | None:
    """The operation that gives a value; None for an operand."""
    return None if value < len(body.args) else body.lines[value - len(body.args)]
