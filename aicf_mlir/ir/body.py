"""The body of a generated kernel: scalar operations on the elements of its operands, as plain data.

A `Body` is the content of a `scalar.body` op, without the cost of IR: passes compose bodies, generators print them,
interpreters run them. Its operations are those of `arith` and `math` on scalars, and those of the scalar dialect:

    scalar.sum %x          the sum over the dimensions that the kernel reduces; max, min and prod alike
    scalar.column_sum %x   the sum over the dimensions that a rowwise kernel keeps, of a value that follows no reduction, or of
                           a result
    scalar.index {dim}     the position of this element in a dimension of the domain, an i64
    scalar.load %t[%i, …]  an element of a whole operand, a table; each index is clamped into the table
    scalar.philox          a random word of 32 bits, an i64: of a seed, a step, a site and an element

Operands of f16 and bf16 are widened to f32 when they are read; results are rounded once when they are written.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from xdsl.utils.exceptions import VerifyException

from aicf_mlir.ir.element_types import NARROW

Attr = float | int | str | None
"""The attribute of an operation besides its operands: a constant, a predicate, a dimension."""

SCALARS = ("f32", "f64", "i64", "i32", "i1")
"""The types that bodies compute in."""

COMPUTE: Mapping[str, str] = {name: name for name in SCALARS} | {"f16": "f32", "bf16": "f32"}
"""The type that the elements of a tensor have in a body, by the element type of the tensor."""

REDUCTIONS = ("scalar.sum", "scalar.prod", "scalar.max", "scalar.min")
COLUMN_SUM = "scalar.column_sum"
PHILOX = "scalar.philox"

CMPF = (
    *("false", "oeq", "ogt", "oge", "olt", "ole", "one", "ord"),
    *("ueq", "ugt", "uge", "ult", "ule", "une", "uno", "true"),
)
CMPI = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")
"""Predicates in MLIR's order."""

FLOAT_UNARY = frozenset({
    "arith.negf",
    *(
        f"math.{name}"
        for name in (
            *("absf", "acos", "acosh", "asin", "asinh", "atan", "atanh", "cbrt", "ceil", "cos", "cosh", "erf", "exp"),
            *("exp2", "expm1", "floor", "log", "log10", "log1p", "log2", "round", "roundeven", "rsqrt", "sin"),
            *("sinh", "sqrt", "tan", "tanh", "trunc"),
        )
    ),
})  # fmt: skip
FLOAT_BINARY = frozenset({
    *(f"arith.{name}" for name in ("addf", "subf", "mulf", "divf", "maximumf", "minimumf", "maxnumf", "minnumf")),
    *("math.atan2", "math.copysign", "math.powf"),
})  # fmt: skip
POWER_OF_INTEGER = "math.fpowi"
"""A float to the power of an integer, by repeated squares on GPUs: some bits less exact than powf, in less of their time."""
INTEGER_UNARY = frozenset({"math.absi"})
INTEGER_BINARY = frozenset(
    f"arith.{name}"
    for name in (
        *("addi", "subi", "muli", "divsi", "remsi", "floordivsi", "minsi", "maxsi", "minui", "maxui"),
        *("andi", "ori", "xori", "shli", "shrsi", "shrui"),
    )
)
CASTS = frozenset(
    f"arith.{name}"
    for name in ("extf", "truncf", "sitofp", "uitofp", "fptosi", "extsi", "extui", "trunci", "bitcast")
)
TRANSCENDENTAL = frozenset(
    name
    for name in (*FLOAT_UNARY, *FLOAT_BINARY)
    if name.startswith("math.")
    and name.removeprefix("math.")
    not in ("absf", "ceil", "copysign", "floor", "round", "roundeven", "rsqrt", "sqrt", "trunc")
) | {POWER_OF_INTEGER}
"""Operations so expensive that no kernel computes one twice."""

PHILOX_OPERATIONS = 130
"""The number of integer operations that make a random word."""

CHOICES: Mapping[str, slice] = {
    **dict.fromkeys(("arith.maximumf", "arith.minimumf", "arith.maxnumf", "arith.minnumf"), slice(0, None)),
    **dict.fromkeys(("arith.negf", "math.absf"), slice(0, None)),
    "arith.select": slice(1, None),
}
"""The operands that may be the result of an operation, perhaps with another sign, for operations that choose an operand."""

EXTREMES = ("scalar.max", "scalar.min")
CHOOSING = frozenset((*CHOICES, *EXTREMES, "scalar.load", "arith.constant"))
"""Operations whose result is an operand or a constant, perhaps with another sign."""

BITS = {"f64": 64, "i64": 64, "f32": 32, "i32": 32, "f16": 16, "bf16": 16, "i1": 1}


def is_float(type_: str) -> bool:
    """True if a scalar type is one of floating point."""
    return "f" in type_


def table_type(element: str, rank: int) -> str:
    """The type of an argument that is a whole operand: `?x?xf32`, of the type that its elements are read as."""
    return "?x" * rank + COMPUTE[element]


def is_table(type_: str) -> bool:
    """True if an argument is a whole operand."""
    return type_.startswith("?x")


class Line(NamedTuple):
    """One operation. Its operands are numbers of values: first the arguments of the body, then the lines."""

    op: str
    """The operation with its dialect: "arith.addf"."""
    args: tuple[int, ...]
    type: str
    """The type of the result."""
    attr: Attr = None


def exact_line(line: Line) -> Line:
    """A line that equals only a line of the same bits."""
    return line._replace(attr=line.attr.hex()) if isinstance(line.attr, float) else line


@dataclass(frozen=True)
class Body:
    """Scalar operations in SSA form; equal bodies compute the same."""

    args: tuple[str, ...]
    """Types: `f32`, or `?x?xf32` for a table."""
    lines: tuple[Line, ...]
    results: tuple[int, ...]
    """Numbers of values."""

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other or not isinstance(other, Body):
            return self is other
        return self._hash == other._hash and self._key == other._key

    @cached_property
    def _hash(self) -> int:
        return hash(self._key)

    @cached_property
    def _key(self) -> tuple[object, ...]:
        """All of it, with numbers by their bits: 0.0 and -0.0 are two constants, a NaN is one."""
        floats = any(isinstance(line.attr, float) for line in self.lines)
        lines = tuple(map(exact_line, self.lines)) if floats else self.lines
        return self.args, lines, self.results

    def type(self, value: int) -> str:
        """The type of a value."""
        return self.args[value] if value < len(self.args) else self.lines[value - len(self.args)].type

    @property
    def result_types(self) -> tuple[str, ...]:
        """The types of the results."""
        return tuple(self.type(value) for value in self.results)

    @cached_property
    def stages(self) -> tuple[int, ...]:
        """For each value, the number of successive reductions on the way to it from operands or column sums."""
        found = [0] * len(self.args)
        for line in self.lines:
            before = max((found[arg] for arg in line.args), default=0) if line.op != COLUMN_SUM else 0
            found.append(before + (line.op in REDUCTIONS))
        return tuple(found)

    @cached_property
    def operations(self) -> int:
        """The number of operations that it computes, without roundings to 16 bits, which the width of a type decides."""
        counted = [line for line in self.lines if line.type not in NARROW and not self._widens(line)]
        draws = {line.args for line in counted if line.op == PHILOX}  # four words are of one draw
        return PHILOX_OPERATIONS * len(draws) + sum(line.op != PHILOX for line in counted)

    def _widens(self, line: Line) -> bool:
        return line.op == "arith.extf" and self.type(line.args[0]) in NARROW

    @property
    def reduces(self) -> bool:
        """True if it has a reduction."""
        return any(line.op in (*REDUCTIONS, COLUMN_SUM) for line in self.lines)

    @cached_property
    def behind_columns(self) -> tuple[bool, ...]:
        """For each value, True if it follows a column sum."""
        found = [False] * len(self.args)
        for line in self.lines:
            found.append(line.op == COLUMN_SUM or any(found[arg] for arg in line.args))
        return tuple(found)

    @cached_property
    def beside_columns(self) -> frozenset[int]:
        """The values that results after column sums are computed from, down to these sums."""
        found: set[int] = set()
        waiting = [value for value in self.results if self.behind_columns[value]]
        while waiting:
            value = waiting.pop()
            if value in found:
                continue
            found.add(value)
            line = self.lines[value - len(self.args)] if value >= len(self.args) else None
            if line is not None and line.op != COLUMN_SUM:
                waiting += line.args
        return frozenset(found)

    @cached_property
    def late_sums(self) -> frozenset[int]:
        """The column sums of values that follow a reduction."""
        lines = enumerate(self.lines, len(self.args))
        return frozenset(n for n, line in lines if line.op == COLUMN_SUM and self.stages[line.args[0]])

    @cached_property
    def late_columns(self) -> tuple[int, ...]:
        """The numbers of the results that follow such sums."""
        found = set(self.late_sums)
        for number, line in enumerate(self.lines, len(self.args)):
            if found.intersection(line.args):
                found.add(number)
        return tuple(number for number, value in enumerate(self.results) if value in found)

    @cached_property
    def compared(self) -> frozenset[int]:
        """The operands that are compared as they are; all of them where nothing but choices is made, as of a largest element."""
        first, found = len(self.args), set[int]()
        waiting = [arg for line in self.lines if line.op == "arith.cmpf" for arg in line.args]
        if any(line.op in CHOICES or line.op in EXTREMES for line in self.lines) and not any(
            is_float(line.type) and line.op not in CHOOSING for line in self.lines
        ):
            waiting += range(first)
        while waiting:
            value = waiting.pop()
            if value < first:
                found.add(value)
            elif (line := self.lines[value - first]).op in CHOICES or line.op in EXTREMES:
                waiting += line.args
            elif line.op == "scalar.load":
                waiting.append(line.args[0])
        return frozenset(found)

    @property
    def dims(self) -> frozenset[int]:
        """The dimensions whose index it uses."""
        return frozenset(
            line.attr for line in self.lines if line.op == "scalar.index" and isinstance(line.attr, int)
        )

    @cached_property
    def digest(self) -> str:
        """A name for its computation, the same on every machine."""
        text = repr(
            (
                self.args,
                [(line.op, line.args, line.type, repr(line.attr)) for line in self.lines],
                self.results,
            )
        )
        return hashlib.sha256(text.encode()).hexdigest()

    def verify(self) -> None:
        """Raise VerifyException at the first line whose operands or result do not fit its operation."""
        for number, line in enumerate(self.lines):
            if any(not 0 <= arg < len(self.args) + number for arg in line.args):
                raise VerifyException(f"{line.op}: expected operands from above, got {line.args}")
            check_line(line, [self.type(arg) for arg in line.args])
        if any(not 0 <= value < len(self.args) + len(self.lines) for value in self.results):
            raise VerifyException(f"expected results of this body, got {self.results}")
        for value in self.results:
            if self.type(value) not in SCALARS:
                raise VerifyException(f"expected results of {', '.join(SCALARS)}, got {self.type(value)}")


def check_line(line: Line, types: Sequence[str]) -> None:
    """Raise VerifyException unless a line of this operation takes these types and gives its declared type."""
    expected = _expected(line, list(types))
    if expected is not None:
        raise VerifyException(
            f"{line.op}: expected {expected}, got ({', '.join(types)}) -> {line.type}"
            + ("" if line.attr is None else f" with {line.attr!r}")
        )


def _expected(line: Line, types: list[str]) -> str | None:
    """The expected form of the line; None if it is right."""
    op, result, attr = line.op, line.type, line.attr
    floats, integers = [t for t in types if is_float(t)], [t for t in types if t in ("i1", "i32", "i64")]
    same = len({*types, result}) == 1 and result in SCALARS
    if op == "arith.constant":
        right = not types and result in SCALARS and isinstance(attr, float if is_float(result) else int)
        return None if right else "a number of the type"
    if op in FLOAT_UNARY or op in FLOAT_BINARY:
        count = 1 if op in FLOAT_UNARY else 2
        return None if same and len(floats) == count else f"{count} of one float type"
    if op == "math.fma":
        return None if same and len(floats) == 3 else "3 of one float type"
    if op == POWER_OF_INTEGER:
        right = len(types) == 2 and types[0] == result in ("f32", "f64") and types[1] in ("i32", "i64")
        return None if right else "a float of the result's type and an integer"
    if op in INTEGER_UNARY or op in INTEGER_BINARY:
        count = 1 if op in INTEGER_UNARY else 2
        return None if same and len(integers) == count else f"{count} of one integer type"
    if op in ("arith.cmpf", "arith.cmpi"):
        kinds, predicates = (floats, CMPF) if op == "arith.cmpf" else (integers, CMPI)
        right = (
            len(kinds) == 2 == len(types) and len(set(types)) == 1 and result == "i1" and attr in predicates
        )
        return None if right else "two of one type, a predicate and an i1"
    if op == "arith.select":
        right = len(types) == 3 and types[0] == "i1" and types[1] == types[2] == result
        return None if right else "an i1 and two of the type of the result"
    if op in CASTS:
        return None if len(types) == 1 and _casts(op, types[0], result) else "a cast between such types"
    if op in (*REDUCTIONS, COLUMN_SUM):
        return None if same and len(types) == 1 else "one scalar"
    if op == "scalar.index":
        return (
            None if not types and result == "i64" and isinstance(attr, int) and attr >= 0 else "a dimension"
        )
    if op == PHILOX:
        right = types == ["i64"] * 4 and result == "i64" and attr in range(4)
        return None if right else "four i64, a word from 0 to 3 and an i64"
    if op == "scalar.load":
        right = types and is_table(types[0]) and types[0].count("?") == len(types) - 1
        right = right and all(t == "i64" for t in types[1:]) and types[0].endswith(f"?x{result}")
        return None if right else "a table and an i64 for each of its dimensions"
    return "an operation of arith, math or scalar"


def _casts(op: str, source: str, target: str) -> bool:
    if source not in BITS or target not in BITS:
        return False
    wider, floats = BITS[target] > BITS[source], (is_float(source), is_float(target))
    match op.removeprefix("arith."):
        case "extf":
            return floats == (True, True) and wider
        case "truncf":
            return floats == (True, True) and BITS[target] < BITS[source]
        case "sitofp" | "uitofp":
            return floats == (False, True)
        case "fptosi":
            return floats == (True, False) and target != "i1"
        case "extsi" | "extui":
            return floats == (False, False) and wider
        case "trunci":
            return floats == (False, False) and BITS[target] < BITS[source]
        case _:
            return BITS[target] == BITS[source] and source != target
