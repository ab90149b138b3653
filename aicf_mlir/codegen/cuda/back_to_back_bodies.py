"""The body of a link on the sums of a chain's product: on the pairs of neighbours that a thread has."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from aicf_mlir.codegen.cuda.access import pointer
from aicf_mlir.codegen.cuda.back_to_back_plan import ChainSchedule, Fetch, Flags, is_scalar
from aicf_mlir.codegen.cuda.back_to_back_products import format_of
from aicf_mlir.codegen.cuda.back_to_back_schedule import words
from aicf_mlir.codegen.cuda.text import Scope, Text
from aicf_mlir.ir.body import Body
from aicf_mlir.ir.element_types import NARROW
from aicf_mlir.kernels.back_to_back import BackToBackKernel, Link, Yield
from aicf_mlir.kernels.kernel import Kernel


class BodyWriter:
    """Prints the bodies of links."""

    def __init__(self, kernel: BackToBackKernel, plan: ChainSchedule, text: Text):
        self.kernel, self.plan, self.text = kernel, plan, text
        self.ragged = plan.ragged(kernel.rows)
        self.vectors = dict(plan.vectors)
        self.first_x = 1 + kernel.b_count

    def write(self, number: int, link: Link) -> None:
        """Write the body on all sums of this thread, 16 columns at a time."""
        text, kernel, plan = self.text, self.kernel, self.plan
        first = kernel.first_value(number)
        for i, made in enumerate(link.yields):
            if made.element in NARROW:
                text.add(f"unsigned y{first + i}[{link.n // 4}];")
            elif first + i in plan.kept:
                text.add(f"float y{first + i}[{link.n // 2}];")
            if made.element == "f32" and made.column_sum is not None:
                text.add(f"float c{first + i}[{link.n // 4}] = {{}};")
        for flags in plan.flags:
            if flags.value >= first and flags.value < first + len(link.yields):
                for line in flags.lines:
                    text.add(
                        f"unsigned {flag_name(flags.value, flags.link, line)}[{words(kernel, flags)}] = {{}};"
                    )
        fetches = plan.fetches_of(number)
        with text.each("s", link.n // 16):
            for fetch in fetches:
                if fetch.element != "f32":
                    text.add(f"unsigned t{fetch.operand}[4];")
                    text.add(f"{fetch.strip}::read(t{fetch.operand}, strip + {fetch.place}, s);")
            with text.each("q", 4):
                text.add("const int p = 4 * s + q, column = p / 2 * 8 + lane % 4 * 2;")
                self._pair(number, link, fetches)
        for flags in plan.flags:
            if first <= flags.value < first + len(link.yields):
                self.settle(flags)
        for i, made in enumerate(link.yields):
            if made.element == "f32" and made.column_sum is not None:
                text.add(f"aicf::chain::Fold<{link.n}>::add(s{first + i}, c{first + i});")

    def _pair(self, number: int, link: Link, fetches: Iterable[Fetch]) -> None:
        """Write two neighbours: their operands, the body, and the uses of its values."""
        text, kernel = self.text, self.kernel
        names = {fetch.operand: fetch for fetch in fetches}
        elements: dict[int, str] = {0: f"z{number}[2 * p + e]"}
        known: dict[int, str] = {}
        for argument, (kind, index) in enumerate(link.takes, 1):
            if kind == "y":
                flags = self.plan.flag(index, number, argument)
                if flags is None:
                    made = kernel.values[index][1]
                    elements[argument] = (
                        f"y{index}[2 * p + e]"
                        if made.element == "f32"
                        else f"aicf::chain::half_of<{format_of(made.element)}>(y{index}[p], e)"
                    )
                continue
            operand = self.first_x + index
            tensor = kernel.xs[index]
            if is_scalar(tensor):
                elements[argument] = f"n{operand}"
            elif operand in self.vectors:
                text.add(
                    f"const float2 x{argument} = *reinterpret_cast<const float2*>(shared + "
                    f"{self.vectors[operand]} + 4 * column);"
                )
                elements[argument] = f"(e == 0 ? x{argument}.x : x{argument}.y)"
            elif operand in names and tensor.element == "f32":
                fetch = names[operand]
                text.add(f"const float2 x{argument} = {fetch.strip}::read(strip + {fetch.place}, p);")
                elements[argument] = f"(e == 0 ? x{argument}.x : x{argument}.y)"
            elif operand in names:
                elements[argument] = f"aicf::chain::half_of<{format_of(tensor.element)}>(t{operand}[q], e)"
            else:
                elements[argument] = f"x{argument}[e]"
                self._elements(argument, operand)
        first = kernel.first_value(number)
        summed = {i: result for i, result in enumerate(link.body.results) if self._is_sum_only(first + i)}
        for i in range(len(link.yields)):
            if i not in summed:
                text.add(f"float w{first + i}[2];")
        with text.each("e", 2):
            for argument, take in enumerate(link.takes, 1):
                flags = self.plan.flag(take[1], number, argument) if take[0] == "y" else None
                for line in flags.lines if flags else ():
                    name = flag_name(take[1], number, line)
                    text.add(
                        f"const bool b{line} = ({name}[(2 * p + e) / 32] >> (2 * p + e) % 32 & 1u) != 0;"
                    )
                    known[line] = f"b{line}"
            scope = Scope(text, _map(kernel, link.body), elements.__getitem__, str)
            scope.names.update(known)
            others = {i: result for i, result in enumerate(link.body.results) if i not in summed}
            scope.need(others.values())
            for i, result in others.items():
                text.add(f"w{first + i}[e] = {scope[result]};")
            with text.block(self._inside) if summed else contextlib.nullcontext():
                for i, result in summed.items():
                    total = f"c{first + i}[p / 2 * 2 + e]"
                    text.add(f"{total} = {scope.added(total, result)};")
        for i in others:
            self._keep(first + i, link.yields[i], link.n)

    @property
    def _inside(self) -> str:
        """The condition that this thread's row is there."""
        return "if (lane / 4 + p % 2 * 8 < rows)" if self.ragged else ""

    def _is_sum_only(self, value: int) -> bool:
        """True if only the sum over all rows takes a value."""
        made, plan = self.kernel.values[value][1], self.plan
        is_read = value in plan.kept or any(flags.value == value for flags in plan.flags)
        return made.element == "f32" and made.column_sum is not None and made.wide is None and not is_read

    def _elements(self, argument: int, operand: int) -> None:
        """Read two neighbours of an operand with any layout, directly from memory; nothing is read for missing rows."""
        text, tensor = self.text, self.kernel.operands[operand]
        row, column = tensor.strides
        text.add(f"const long long row{argument} = row0 + lane / 4 + p % 2 * 8;")
        text.add(f"decltype(widen(*{pointer(self.kernel, operand)})) x{argument}[2] = {{}};")
        with text.block(f"if (row{argument} < {self.kernel.rows}ll)" if self.ragged else ""):
            for e in range(2):
                at = f"row{argument} * {row}ll + (column + {e}) * {column}ll"
                text.add(f"x{argument}[{e}] = widen({pointer(self.kernel, operand)}[{at}]);")

    def _keep(self, value: int, made: Yield, n: int) -> None:
        """Round two neighbours of a value; keep, write and add them."""
        text, plan = self.text, self.plan
        if made.element in NARROW:
            packed = f"{format_of(made.element)}::pack(w{value}[0], w{value}[1])"
            if self.ragged and value in self.kernel.multiplied:  # rows that are not there add nothing
                packed = f"lane / 4 + p % 2 * 8 < rows ? {packed} : 0u"
            text.add(f"y{value}[p] = {packed};")
        else:
            if value in plan.kept:
                text.add(f"y{value}[2 * p] = w{value}[0], y{value}[2 * p + 1] = w{value}[1];")
            with text.block(self._inside):
                if made.wide is not None:
                    at = f"{result_of(self.kernel, value)} + (row0 + lane / 4 + p % 2 * 8) * {n} + column"
                    text.add(f"*reinterpret_cast<float2*>({at}) = make_float2(w{value}[0], w{value}[1]);")
                if made.column_sum is not None:
                    text.add(f"c{value}[p / 2 * 2] += w{value}[0], c{value}[p / 2 * 2 + 1] += w{value}[1];")
        for flags in plan.flags:
            if flags.value == value:
                self._flag(flags, made)

    def _flag(self, flags: Flags, made: Yield) -> None:
        """Emit one bit of each truth value that a later link takes."""
        text, kernel = self.text, self.kernel
        body = kernel.links[flags.link].body
        rounded = (
            f"w{flags.value}[e]"
            if made.element == "f32"
            else f"aicf::chain::half_of<{format_of(made.element)}>(y{flags.value}[p], e)"
        )
        with text.each("e", 2):
            scope = Scope(text, _map(kernel, body), lambda _: rounded, str)
            scope.need(flags.lines)
            for line in flags.lines:
                name = flag_name(flags.value, flags.link, line)
                text.add(
                    f"{name}[(2 * p + e) / 32] |= static_cast<unsigned>({scope[line]}) << (2 * p + e) % 32;"
                )

    def settle(self, flags: Flags) -> None:
        """Keep the bits and the values that follow from them from moving across this line."""
        for line in flags.lines:
            self.text.add(f"aicf::chain::settle({flag_name(flags.value, flags.link, line)});")


def flag_name(value: int, link: int, line: int) -> str:
    """The bits of a truth value."""
    return f"f{value}_{link}_{line}"


def result_of(kernel: BackToBackKernel, value: int) -> str:
    """The address of the tensor that a value is written to."""
    number = kernel.places[value][0]
    assert number is not None
    return pointer(kernel, len(kernel.operands) + number)


def _map(kernel: BackToBackKernel, body: Body) -> Kernel:
    """A kernel of a link's body alone."""
    return Kernel("map", kernel.target, body, kernel.domain, 0, (), ())
