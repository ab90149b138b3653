"""Pieces of text that plan ops share: references `@a, @b`, ranges `0..4`, other attributes."""

from __future__ import annotations

import re
from collections.abc import Iterable

from xdsl.dialects.builtin import ArrayAttr, SymbolRefAttr
from xdsl.ir import Attribute, Operation
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import OpTrait
from xdsl.utils.exceptions import VerifyException

_RANGE = re.compile(r"(\d{1,18})\.\.(\d{1,18})")


class InProgram(OpTrait):
    """The trait of everything that a plan.program holds and that means nothing elsewhere."""

    def verify(self, op: Operation) -> None:
        parent = op.parent_op()
        if parent is not None and parent.name != "plan.program":
            raise VerifyException(f"'{op.name}' expects parent op 'plan.program'")


def references(names: Iterable[str]) -> ArrayAttr[SymbolRefAttr]:
    """An array of symbol references."""
    return ArrayAttr([SymbolRefAttr(name) for name in names])


def expect_flat(references: Iterable[SymbolRefAttr | None]) -> None:
    """Refuse `@a::@b`: slots, arenas and launches are names of one program."""
    for reference in references:
        if reference is not None and reference.nested_references.data:
            raise VerifyException(f"expected a name such as @a, got {reference}")


def names_of(array: ArrayAttr[SymbolRefAttr] | None) -> list[str]:
    """The symbols that `array` refers to; none for None."""
    return [] if array is None else [reference.root_reference.data for reference in array]


def print_references(printer: Printer, array: ArrayAttr[SymbolRefAttr]) -> None:
    """Print `@a, @b`."""
    printer.print_list(names_of(array), printer.print_symbol_name)


def parse_reference(parser: Parser) -> SymbolRefAttr:
    """Parse `@a`."""
    return SymbolRefAttr(parser.parse_symbol_name())


def parse_range(parser: Parser) -> tuple[int, int]:
    """Parse `0..4`.

    The lexer of MLIR takes `0.` for a float, so the text is matched here and the lexer is set to the position after it.
    """
    match = _RANGE.match(str(parser.lexer.input.content), parser.pos)
    if match is None:
        parser.raise_error("expected a range of launches such as 0..4")
    parser.lexer.pos = match.end()
    parser.parse_number()  # the current token, which began the range; the next one begins after it
    return int(match[1]), int(match[2])


def print_other_attributes(printer: Printer, op: Operation) -> None:
    """Print attributes that are not properties as ` attributes {...}`."""
    printer.print_op_attributes(op.attributes, print_keyword=True)


def parse_other_attributes(parser: Parser) -> dict[str, Attribute]:
    """Parse the output of `print_other_attributes`."""
    attributes = parser.parse_optional_attr_dict_with_keyword()
    return {} if attributes is None else dict(attributes.data)
