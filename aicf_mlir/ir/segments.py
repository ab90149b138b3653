"""Operands by name in text: ` p(%w0, %b0) g(%dw0, %db0) lr(%lr)`, in the order of the schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from xdsl.dialects.builtin import DenseArrayBase, IntegerType, i32
from xdsl.ir import Attribute
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.mlir_lexer import MLIRTokenKind

from aicf_mlir.ir.printing import print_words
from aicf_mlir.ir.registry import Counts, Operand

Item = TypeVar("Item")


def print_segments(
    printer: Printer, items: Mapping[str, Sequence[Item]], print_item: Callable[[Item], object]
) -> None:
    """Print ` name(item, …)` for each operand that is there."""

    def print_segment(segment: tuple[str, Sequence[Item]]) -> None:
        printer.print_string(segment[0])
        with printer.in_parens():
            printer.print_list(segment[1], print_item)

    print_words(printer, [segment for segment in items.items() if segment[1]], print_segment)


def counts_of(
    inputs: DenseArrayBase[IntegerType] | None, outputs: DenseArrayBase[IntegerType] | None
) -> Counts | None:
    """The number of items for each operand and each result; None if each has one."""
    if inputs is None or outputs is None:
        return None
    return tuple(inputs.get_values()), tuple(outputs.get_values())


def count_properties(counts: Counts | None, names: tuple[str, str]) -> dict[str, Attribute]:
    """The reverse, as properties called `names`; none if each has one."""
    if counts is None:
        return {}
    return {name: DenseArrayBase.from_list(i32, values) for name, values in zip(names, counts, strict=True)}


def parse_segments(
    parser: Parser, op: str, rows: Sequence[Operand], parse_item: Callable[[], Item]
) -> dict[str, list[Item]]:
    """The items of each operand of `op` that is there; errors at the name that is wrong or missing."""
    values: dict[str, list[Item]] = {}
    for row in rows:
        position = parser.pos
        if parser.parse_optional_keyword(row.name) is not None:
            values[row.name] = parser.parse_comma_separated_list(parser.Delimiter.PAREN, parse_item)
            if row.count not in ("many", "any") and len(values[row.name]) != 1:
                parser.raise_error(f"{op}: '{row.name}' is one tensor, got {len(values[row.name])}", position)
        elif row.count == "one":
            listing = ", ".join(f"{other.name}(…)" for other in rows)
            parser.raise_error(f"{op}: expected '{row.name}(…)'; its operands are {listing}", position)
    _refuse_others(parser, op, rows)
    return values


def _refuse_others(parser: Parser, op: str, rows: Sequence[Operand]) -> None:
    """Raise if another `name(` follows: one that the op does not have, has twice, or has earlier."""
    token = parser._current_token  # pyright: ignore[reportPrivateUsage]
    follows = token.span.input.at(token.span.end)
    if token.kind is MLIRTokenKind.BARE_IDENT and follows == "(" and token.text != "loc":
        listing = ", ".join(f"{row.name}(…)" for row in rows)
        parser.raise_error(f"{op} has no operand '{token.text}' here; it takes {listing}", parser.pos)
