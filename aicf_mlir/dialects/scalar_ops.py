"""The operations of the scalar dialect in a body, in addition to those of `arith` and `math`."""

from __future__ import annotations

from typing import Self, cast

from xdsl.dialects.builtin import IntegerAttr, MemRefType, i64
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import IsTerminator, Pure

from aicf_mlir.ir.body import COLUMN_SUM, PHILOX


class ScalarOp(IRDLOperation):
    """One operation of a body that neither arith nor math has."""

    traits = traits_def(Pure())


class ReductionOp(ScalarOp):
    """A reduction over dimensions of the kernel, in an order that the kernel fixes: those that it reduces, if no others are
    named.
    """

    x = operand_def()
    result = result_def()

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        operand = parser.parse_unresolved_operand()
        parser.parse_punctuation(":")
        type_ = parser.parse_type()
        return cls.create(operands=[parser.resolve_operand(operand, type_)], result_types=[type_])

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_operand(self.x)
        printer.print_string(" : ")
        printer.print_attribute(self.x.type)


@irdl_op_definition
class SumOp(ReductionOp):
    """The sum; 0 of nothing."""

    name = "scalar.sum"


@irdl_op_definition
class ProdOp(ReductionOp):
    """The product; 1 of nothing."""

    name = "scalar.prod"


@irdl_op_definition
class MaxOp(ReductionOp):
    """The largest, a NaN if there is one; the least number of the type of nothing."""

    name = "scalar.max"


@irdl_op_definition
class MinOp(ReductionOp):
    """The smallest, a NaN if there is one; the largest number of the type of nothing."""

    name = "scalar.min"


@irdl_op_definition
class ColumnSumOp(ReductionOp):
    """The sum over the dimensions that a rowwise kernel keeps; 0 of nothing."""

    name = COLUMN_SUM


@irdl_op_definition
class IndexOp(ScalarOp):
    """The position of this element in a dimension of the domain: `%i = scalar.index 0`."""

    name = "scalar.index"

    dim = prop_def(IntegerAttr)
    result = result_def()

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        dim = parser.parse_integer(allow_boolean=False, allow_negative=False)
        return cls.create(result_types=[i64], properties={"dim": IntegerAttr(dim, i64)})

    def print(self, printer: Printer) -> None:
        printer.print_string(f" {self.dim.value.data}")


@irdl_op_definition
class LoadOp(ScalarOp):
    """An element of a table, each index clamped into it: `%v = scalar.load %t[%i, %j] : memref<?x?xf32>`."""

    name = "scalar.load"

    table = operand_def(MemRefType)
    indices = var_operand_def()
    result = result_def()

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        table = parser.parse_unresolved_operand()
        indices = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_unresolved_operand)
        parser.parse_punctuation(":")
        type_ = parser.parse_type()
        if not isinstance(type_, MemRefType):
            parser.raise_error("expected a table such as memref<?x?xf32>")
        element = cast(MemRefType[Attribute], type_).get_element_type()
        operands: list[SSAValue] = [parser.resolve_operand(table, cast(Attribute, type_))]
        operands += [parser.resolve_operand(index, i64) for index in indices]
        return cls.create(operands=operands, result_types=[element])

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_operand(self.table)
        printer.print_string("[")
        printer.print_list(self.indices, printer.print_operand)
        printer.print_string("] : ")
        printer.print_attribute(self.table.type)


@irdl_op_definition
class PhiloxOp(ScalarOp):
    """
    A word of 32 bits, one of four, of Philox4x32-10: `%w = scalar.philox %seed, %step, %site, %element word 0`.

    The key is the seed, 64 bits; the counter is [element, element >> 32, site, step], of each its lower 32 bits.
    """

    name = PHILOX

    seed = operand_def(i64)
    step = operand_def(i64)
    site = operand_def(i64)
    element = operand_def(i64)
    word = prop_def(IntegerAttr)
    result = result_def(i64)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        position = parser.pos
        operands = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_unresolved_operand)
        if len(operands) != 4:
            parser.raise_error("expected a seed, a step, a site and an element", position)
        parser.parse_keyword("word")
        word = parser.parse_integer(allow_boolean=False, allow_negative=False)
        return cls.create(
            operands=[parser.resolve_operand(operand, i64) for operand in operands],
            result_types=[i64],
            properties={"word": IntegerAttr(word, i64)},
        )

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_list(self.operands, printer.print_operand)
        printer.print_string(f" word {self.word.value.data}")


@irdl_op_definition
class YieldOp(IRDLOperation):
    """The results of a body: `scalar.yield %y, %z : f32, i1`."""

    name = "scalar.yield"

    values = var_operand_def()

    traits = traits_def(IsTerminator())

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        operands = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_unresolved_operand)
        parser.parse_punctuation(":")
        types = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type)
        return cls.create(operands=parser.resolve_operands(operands, types, parser.pos))

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_list(self.values, printer.print_operand)
        printer.print_string(" : ")
        printer.print_list([value.type for value in self.values], printer.print_attribute)
