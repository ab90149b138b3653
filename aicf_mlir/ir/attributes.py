"""Attributes and Python values: the one conversion, and how they are printed.

    bool <-> i1    int <-> i64    float <-> f64    str <-> string    Symbol <-> @name    list[int] <-> array<i64: ...>
    tuple of str <-> ["a", ...]    tuple of Symbol <-> [@a, ...]

Numbers of these types are printed without their type (`scale = 0.5`, not `5.000000e-01 : f64`), because the
parser supplies the very same types for numbers without one.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from xdsl.dialects.builtin import (
    ArrayAttr,
    BoolAttr,
    DenseArrayBase,
    FloatAttr,
    IntegerAttr,
    StringAttr,
    SymbolRefAttr,
    UnitAttr,
    f64,
    i1,
    i64,
)
from xdsl.ir import Attribute
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException


class Symbol(str):
    """The name of something else in the module."""


AttributeValue = bool | int | float | str | list[int] | tuple[str, ...]
"""The Python type of an attribute of a kernel op."""

AT_ONCE = "aicf.at_once"
"""A mark of an op that is computed in its place, because its operands are large: no other launch takes it in later."""


def to_attribute(value: bool | int | float | str | Sequence[int] | tuple[str, ...]) -> Attribute:
    """The attribute that stands for `value`."""
    match value:
        case bool():
            return BoolAttr.from_bool(value)
        case int():
            return IntegerAttr(value, i64)
        case float():
            return FloatAttr(value, f64)
        case Symbol():
            return SymbolRefAttr(value)
        case str():
            return StringAttr(value)
        case [str(), *_]:
            return ArrayAttr([to_attribute(item) for item in value])
        case _:
            return DenseArrayBase.from_list(i64, [int(item) for item in value])


def from_attribute(name: str, attribute: Attribute) -> AttributeValue:
    """The Python value of the attribute called `name`; refuses any other kind of attribute."""
    untyped: Any = attribute
    match attribute:
        case IntegerAttr() if untyped.type == i1:
            return bool(untyped.value.data)
        case IntegerAttr() if untyped.type == i64:
            return int(untyped.value.data)
        case FloatAttr() if untyped.type == f64:
            return float(untyped.value.data)
        case StringAttr():
            return attribute.data
        case SymbolRefAttr() if not attribute.nested_references.data:
            return Symbol(attribute.root_reference.data)
        case DenseArrayBase() if untyped.elt_type == i64:
            return [int(item) for item in untyped.get_values()]
        case ArrayAttr():
            found = [from_attribute(name, item) for item in untyped.data]
            texts = tuple(item for item in found if isinstance(item, str))
            if texts and len(texts) == len(found) and len(set(map(type, texts))) == 1:
                return texts
        case _:
            pass
    raise VerifyException(
        f"attribute {name!r} must be true, false, an integer, a float, a string, a symbol, a list of strings or of"
        f" symbols, or array<i64: ...>, got {attribute}"
    )


def symbols_of(values: Mapping[str, AttributeValue]) -> tuple[Symbol, ...]:
    """The symbols among attributes, in their order."""
    listed = (value if isinstance(value, tuple) else (value,) for value in values.values())
    return tuple(item for items in listed for item in items if isinstance(item, Symbol))


def from_attributes(attributes: Mapping[str, Attribute]) -> dict[str, AttributeValue]:
    """The Python values of an attribute dictionary, in the order of their names."""
    return {name: from_attribute(name, attributes[name]) for name in sorted(attributes)}


def format_float(value: float) -> str:
    """The shortest text that reads back as the f64 `value`; infinities and NaNs as their bits."""
    if not math.isfinite(value):
        return f"0x{struct.pack('>d', value).hex().upper()} : f64"
    mantissa, exponent, power = repr(value).partition("e")
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}{exponent}{power}"


def print_value(printer: Printer, attribute: Attribute) -> None:
    """Print `attribute`; numbers of type i64 and f64 without their type."""
    untyped: Any = attribute
    if isinstance(attribute, FloatAttr) and untyped.type == f64:
        printer.print_string(format_float(untyped.value.data))
    elif isinstance(attribute, IntegerAttr) and untyped.type == i64:
        printer.print_string(str(untyped.value.data))
    else:
        printer.print_attribute(untyped)


def print_dictionary(printer: Printer, attributes: Mapping[str, Attribute]) -> None:
    """Print ` {name = value, ...}` in the order of the mapping, or nothing if it is empty."""

    def print_entry(item: tuple[str, Attribute]) -> None:
        printer.print_identifier_or_string_literal(item[0])
        if not isinstance(item[1], UnitAttr):
            printer.print_string(" = ")
            print_value(printer, item[1])

    if attributes:
        printer.print_string(" ")
        with printer.in_braces():
            printer.print_list(attributes.items(), print_entry)
