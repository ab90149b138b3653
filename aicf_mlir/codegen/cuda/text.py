"""Lines of CUDA C++, and the values of a body that have a name at a place of the text."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from aicf_mlir.codegen.cuda.scalars import REDUCERS, TYPES, expression, literal
from aicf_mlir.codegen.ranges import NARROW, narrow_values
from aicf_mlir.ir.body import BITS, Line
from aicf_mlir.kernels.kernel import Kernel


class Text:
    """Lines with their indentation."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._depth = 0

    def add(self, *lines: str) -> None:
        """Add lines at this depth; directives of the preprocessor are at the left."""
        for line in lines:
            self.lines.append(line if line.startswith("#") else "  " * self._depth + line)

    @contextmanager
    def block(self, head: str, close: str = "}") -> Generator[None]:
        """Put the lines that are added inside in braces after `head`; with an empty head in braces alone."""
        self.add(f"{head} {{" if head else "{")
        self._depth += 1
        yield
        self._depth -= 1
        self.add(close)

    def each(self, name: str, count: int) -> contextlib.AbstractContextManager[None]:
        """A loop that is written out by the compiler; its arrays stay in registers."""
        self.add("#pragma unroll")
        return self.block(f"for (int {name} = 0; {name} < {count}; ++{name})")

    def __str__(self) -> str:
        return "\n".join(self.lines) + "\n"


def line_of(kernel: Kernel, value: int) -> Line | None:
    """The line that makes a value; None for an operand."""
    number = value - len(kernel.body.args)
    return kernel.body.lines[number] if number >= 0 else None


def is_one_or_more(kernel: Kernel, value: int) -> bool:
    """True if a float is a constant of at least 1 and something more, or NaN."""
    line = line_of(kernel, value)
    if line is None or line.op not in ("arith.addf", "math.fma"):
        return False
    last = line_of(kernel, line.args[-1])
    if last is None or last.op != "arith.constant" or not isinstance(last.attr, float) or last.attr < 1.0:
        return False
    return all(is_not_negative(kernel, arg) for arg in line.args[:-1])


def is_not_negative(kernel: Kernel, value: int) -> bool:
    """True if a float is by its operation at least 0, or NaN."""
    line = line_of(kernel, value)
    if line is None:
        return False
    if line.op == "arith.constant":
        return isinstance(line.attr, float) and line.attr >= 0.0
    square = line.op == "arith.mulf" and line.args[0] == line.args[1]
    bounded = line.op == "arith.minimumf" and all(is_not_negative(kernel, arg) for arg in line.args)
    return square or bounded or line.op in ("math.exp", "math.exp2", "math.absf", "math.sqrt")


class ReductionText(NamedTuple):
    """A reduction of a body as CUDA C++."""

    argument: int
    """The value that is reduced."""
    combine: str
    type: str
    identity: str
    bytes: int


def reduction(kernel: Kernel, value: int) -> ReductionText:
    """The text that makes `value`, a reduction."""
    line = line_of(kernel, value)
    assert line is not None
    row = REDUCERS[line.op]
    first = literal(row.identity[line.type], line.type)
    return ReductionText(line.args[0], row.combine, TYPES[line.type], first, max(BITS[line.type] // 8, 1))


def closure(kernel: Kernel, targets: Iterable[int], known: Collection[int] = ()) -> list[int]:
    """The values that `targets` depend on, themselves included, in the body's order.

    The search stops at reductions and at `known` values, which are left out themselves.
    """
    found: set[int] = set()
    waiting = list(targets)
    while waiting:
        value = waiting.pop()
        if value in found or value in known:
            continue
        line = line_of(kernel, value)
        if line is not None and line.op in REDUCERS:
            continue
        found.add(value)
        if line is not None:
            waiting.extend(line.args)
    return sorted(found)


class Scope:
    """Named values at one place of the text; a value that is computed in an inner scope is forgotten after it."""

    def __init__(
        self,
        text: Text,
        kernel: Kernel,
        element: Callable[[int], str],
        index: Callable[[int], str],
        outer: Scope | None = None,
    ):
        """`element` gives an operand's element at this point, widened; `index` the point's place in a dimension."""
        self.text, self.kernel, self._element, self._index = text, kernel, element, index
        self.names: dict[int, str] = dict(outer.names) if outer else {}
        self._narrow = narrow_values(kernel)
        self._short: dict[int, str] = dict(outer._short) if outer else {}
        """The names of values of i64 that have 32 bits here; `names` has them widened."""

    def need(self, values: Iterable[int]) -> None:
        """Compute the values among these that are not known yet."""
        for value in closure(self.kernel, values, self.names):
            self.names[value] = self._define(value)

    def __getitem__(self, value: int) -> str:
        if value not in self.names:
            self.need([value])
        return self.names[value]

    def is_zero(self, value: int) -> bool:
        """True if a value is 0 since a condition is known to be false here: a sum that begins with 0 has its bits without it."""
        line = line_of(self.kernel, value)
        if line is None or line.op != "arith.select" or self.names.get(line.args[0]) != "false":
            return False
        other = line_of(self.kernel, line.args[2])
        return other is not None and other.op == "arith.constant" and other.attr == 0

    def added(self, total: str, value: int, combine: str = "Sum") -> str:
        """`total` and one value more; a product that nothing else takes is added without being rounded before."""
        line = line_of(self.kernel, value)
        if combine == "Sum" and line is not None and line.op == "arith.mulf" and value not in self.names:
            body = self.kernel.body
            takers = [*body.results, *(arg for each in body.lines for arg in each.args)]
            if takers.count(value) == 1:
                return f"fma({', '.join(self[arg] for arg in line.args)}, {total})"
        return f"{combine}{{}}({total}, {self[value]})"

    def _define(self, value: int) -> str:
        kernel, line = self.kernel, line_of(self.kernel, value)
        if line is None:
            if kernel.body.args[value] not in TYPES:
                return f"a{value}"  # a table
            code, type_ = self._element(value), kernel.body.args[value]
        elif line.op == "arith.constant":
            assert isinstance(line.attr, int | float)
            if value in self._narrow:
                self._short[value] = literal(line.attr, "i32")
            return literal(line.attr, line.type)
        elif value in self._narrow:
            return self._define_short(value, line)
        else:
            type_ = line.type
            if line.op == "scalar.index":
                assert isinstance(line.attr, int)
                code = self._index(line.attr)
            elif line.op == "scalar.load":
                code = self._load(line)
            else:
                types = [kernel.body.type(arg) for arg in line.args]
                names = [self.names[arg] for arg in line.args]
                if line.op == "arith.cmpi" and all(arg in self._narrow for arg in line.args):
                    types, names = ["i32", "i32"], [self._shortened(arg) for arg in line.args]
                code = self._quotient(line, names) or expression(line, types, names)
        self.text.add(f"const {TYPES[type_]} v{value} = {code};")
        return f"v{value}"

    def _define_short(self, value: int, line: Line) -> str:
        """A value of i64 that is small: in 32 bits, and widened where something else reads it."""
        if line.op == "scalar.index":
            assert isinstance(line.attr, int)
            code = f"static_cast<int>({self._index(line.attr)})"
        else:
            types = ["i1" if self.kernel.body.type(arg) == "i1" else "i32" for arg in line.args]
            names = [self._shortened(arg) for arg in line.args]
            code = expression(line._replace(type="i32"), types, names)
        self.text.add(f"const int v{value} = {code};")
        self._short[value] = f"v{value}"
        return f"static_cast<long long>(v{value})"

    def _shortened(self, arg: int) -> str:
        """An operand in 32 bits, also one that another part of the text has made wide; a condition as it is."""
        is_wide = arg in self._narrow and arg not in self._short
        return f"static_cast<int>({self.names[arg]})" if is_wide else self._short.get(arg, self.names[arg])

    def _quotient(self, line: Line, names: list[str]) -> str:
        """A division as a reciprocal and a product: that of many elements by a value of a reduction or a row, and one by a sum of
        1 and what is not negative; else "".
        """
        wide = self.kernel.wide
        if line.op == "arith.divf" and line.type == "f32" and is_one_or_more(self.kernel, line.args[1]):
            return f"large_quotient({names[0]}, {names[1]})"
        shared = (
            line.op == "arith.divf" and line.type == "f32" and wide[line.args[0]] and not wide[line.args[1]]
        )
        return f"shared_quotient({names[0]}, {names[1]})" if shared else ""

    def _load(self, line: Line) -> str:
        """An element of a table; 0 if it has none."""
        if 0 in self.kernel.operands[line.args[0]].shape:
            return literal(0, line.type)
        return f"widen(a{line.args[0]}[{self.offset(line)}])"

    def offset(self, line: Line, inside: Mapping[int, str] | None = None) -> str:
        """The place of a looked up element in its table; `inside` are indices, by the value, that need no look at the bounds."""
        table, given = self.kernel.operands[line.args[0]], inside or {}
        places = list(zip(line.args[1:], table.shape, table.strides, strict=True))
        is_small = sum((size - 1) * abs(stride) for _, size, stride in places) < NARROW
        terms: list[str] = []
        for arg, size, stride in places:
            if size > 1 and stride:
                place = given.get(arg) or self._place(arg, size)
                if is_small and arg not in self._short:
                    place = f"static_cast<int>({place})"
                factor = f"{stride}" if is_small else f"{stride}ll"
                terms.append(place if stride == 1 else f"{place} * {factor}")
        return " + ".join(terms) or "0"

    def _place(self, arg: int, size: int) -> str:
        """An index of a dimension of a table: as it is where it cannot be outside."""
        known, short = self._narrow.get(arg), self._short.get(arg)
        if known is None or short is None:
            return f"clamped({self.names[arg]}, {size}ll)"
        return short if known.low >= 0 and known.high < size else f"clamped({short}, {size})"
