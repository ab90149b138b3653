"""The scalar dialect: bodies of generated kernels, as text that can be read, edited and run.

    scalar.body @softmax(%x: f32) -> f32 {
      %largest = scalar.max %x : f32
      %shifted = arith.subf %x, %largest : f32
      %e = math.exp %shifted : f32
      %total = scalar.sum %e : f32
      %y = arith.divf %e, %total : f32
      scalar.yield %y : f32
    }

A body is in the module of the functions and plans whose launches name it: `kernel.rowwise x(%a) {body = @softmax, …}`. ir/body.py
defines its operations; this dialect is their form as IR, with xDSL's `arith` and `math`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Self, cast

from xdsl.dialects import arith, math
from xdsl.dialects.arith import FastMathFlagsAttr
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    FloatAttr,
    IntegerAttr,
    MemRefType,
    ModuleOp,
    StringAttr,
    SymbolNameConstraint,
    i64,
)
from xdsl.ir import Attribute, Block, Dialect, Operation, Region, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    prop_def,
    region_def,
    traits_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import IsolatedFromAbove, SymbolOpInterface
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.dialects.scalar_ops import (
    ColumnSumOp,
    IndexOp,
    LoadOp,
    MaxOp,
    MinOp,
    PhiloxOp,
    ProdOp,
    SumOp,
    YieldOp,
)
from aicf_mlir.ir.body import CMPF, CMPI, PHILOX, REDUCTIONS, Attr, Body, Line, is_float, is_table
from aicf_mlir.ir.dtypes import ELEMENT_TYPES, element_name

PREDICATES = {"arith.cmpf": CMPF, "arith.cmpi": CMPI}
NUMBERED = {"scalar.index": "dim", PHILOX: "word"}
"""The attribute that numbers an operation."""


def scalar_type(type_: str) -> Attribute:
    """The type of a value of a body as an attribute."""
    if not is_table(type_):
        return ELEMENT_TYPES[type_]
    return MemRefType(ELEMENT_TYPES[type_.rpartition("x")[2]], [DYNAMIC_INDEX] * type_.count("?"))


def type_name(type_: Attribute) -> str:
    """The type of a value of a body by name; VerifyException for one that bodies do not have."""
    if type(type_) is not MemRefType:
        return element_name(type_)
    element, rank = type_.get_element_type(), type_.get_num_dims()
    if type_ != MemRefType(element, [DYNAMIC_INDEX] * rank):
        raise VerifyException(f"expected a table such as memref<?x?xf32>, got {type_}")
    return "?x" * rank + element_name(element)


@irdl_op_definition
class BodyOp(IRDLOperation):
    """A body under a name."""

    name = "scalar.body"

    sym_name = prop_def(SymbolNameConstraint())
    region = region_def("single_block")

    traits = traits_def(SymbolOpInterface(), IsolatedFromAbove())

    @staticmethod
    def of(symbol: str, body: Body) -> BodyOp:
        """`body` as IR."""
        block = Block(arg_types=[scalar_type(type_) for type_ in body.args])
        values: list[SSAValue] = list(block.args)
        for line in body.lines:
            op = _operation(line, values)
            block.add_op(op)
            values.append(op.results[0])
        block.add_op(YieldOp.create(operands=[values[value] for value in body.results]))
        return BodyOp.create(properties={"sym_name": StringAttr(symbol)}, regions=[Region(block)])

    @property
    def symbol(self) -> str:
        """The name of the body."""
        return self.sym_name.data

    def body(self) -> Body:
        """The body as plain data; VerifyException at an operation that bodies do not have."""
        block = self.region.block
        numbers = {id(arg): number for number, arg in enumerate(block.args)}
        lines: list[Line] = []
        results: tuple[int, ...] | None = None
        for op in block.ops:
            try:
                args = tuple([numbers[id(operand)] for operand in op.operands])
            except KeyError:
                message = f"{op.name} uses a value from outside @{self.symbol}, or from below"
                raise VerifyException(message) from None
            given = op.results
            if type(op) is YieldOp:
                results = args
                continue
            if len(given) != 1 or op.regions or results is not None:
                raise VerifyException(f"'{op.name}' is no operation of a body")
            numbers[id(given[0])] = len(block.args) + len(lines)
            lines.append(Line(op.name, args, type_name(given[0].type), _attr(op)))
        if results is None:
            raise VerifyException(f"expected @{self.symbol} to end in scalar.yield")
        return Body(tuple(type_name(arg.type) for arg in block.args), tuple(lines), results)

    def verify_(self) -> None:
        self.body().verify()

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_symbol_name(self.symbol)
        block, last = self.region.block, self.region.block.last_op
        with printer.in_parens():
            printer.print_list(block.args, printer.print_block_argument)
        printer.print_string(" -> ")
        types = [] if last is None else [value.type for value in last.operands]
        if len(types) == 1:
            printer.print_attribute(types[0])
        else:
            with printer.in_parens():
                printer.print_list(types, printer.print_attribute)
        printer.print_string(" ")
        printer.print_region(self.region, print_entry_block_args=False)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        symbol = parser.parse_symbol_name()

        def parse_argument() -> Parser.Argument:
            argument = parser.parse_argument()
            parser.parse_optional_location()
            return argument

        args = parser.parse_comma_separated_list(parser.Delimiter.PAREN, parse_argument)
        parser.parse_punctuation("->")
        position = parser.pos
        types = parser.parse_optional_comma_separated_list(parser.Delimiter.PAREN, parser.parse_type)
        types = [parser.parse_type()] if types is None else types
        region = parser.parse_region(args)
        block = region.blocks.first
        last = None if block is None else block.last_op
        if not isinstance(last, YieldOp) or [value.type for value in last.values] != list(types):
            parser.raise_error(f"expected @{symbol.data} to end in a scalar.yield of these types", position)
        return cls.create(properties={"sym_name": symbol}, regions=[region])


@cache
def _classes() -> Mapping[str, type[Operation]]:
    """The op classes of bodies by name."""
    return {op.name: op for op in (*arith.Arith.operations, *math.Math.operations, *Scalar.operations)}


@cache
def _has_flags(name: str) -> bool:
    """True if an operation has fast-math flags; bodies use none."""
    untyped: Any = _classes()[name]
    return "fastmath" in untyped.get_irdl_definition().properties


def _operation(line: Line, values: Sequence[SSAValue]) -> Operation:
    properties: dict[str, Attribute] = {}
    if line.op == "arith.constant":
        properties["value"] = _constant(line)
    elif line.op in PREDICATES:
        properties["predicate"] = IntegerAttr(PREDICATES[line.op].index(str(line.attr)), i64)
    elif line.op in NUMBERED:
        properties[NUMBERED[line.op]] = IntegerAttr(int(line.attr or 0), i64)
    if _has_flags(line.op):
        properties["fastmath"] = FastMathFlagsAttr("none")
    operands = [values[arg] for arg in line.args]
    return _classes()[line.op].create(
        operands=operands, result_types=[scalar_type(line.type)], properties=properties
    )


def _constant(line: Line) -> Attribute:
    element: Any = ELEMENT_TYPES[line.type]
    assert line.attr is not None and not isinstance(line.attr, str)
    made: Any = FloatAttr if is_float(line.type) else IntegerAttr
    return made((float if is_float(line.type) else int)(line.attr), element)


NO_FLAGS = FastMathFlagsAttr("none")


def _attr(op: Operation) -> Attr:
    properties = op.properties
    flags = properties.get("fastmath")
    if flags is not None and flags != NO_FLAGS:
        raise VerifyException(f"{op.name}: bodies compute without fast-math flags, got {flags}")
    match op.name:
        case "arith.constant":
            value = properties.get("value")
            if isinstance(value, FloatAttr):
                return float(value.value.data)
            if not isinstance(value, IntegerAttr):
                return None
            integer = cast("IntegerAttr[Any]", value)
            number = int(integer.value.data)
            return abs(number) if integer.type == ELEMENT_TYPES["i1"] else number
        case "arith.cmpf" | "arith.cmpi":
            return PREDICATES[op.name][cast("IntegerAttr[Any]", properties["predicate"]).value.data]
        case name if name in NUMBERED:
            return cast("IntegerAttr[Any]", properties[NUMBERED[name]]).value.data
        case _:
            return None


REDUCING = (SumOp, ProdOp, MaxOp, MinOp)
assert set(REDUCTIONS) == {op.name for op in REDUCING}
Scalar = Dialect("scalar", [BodyOp, YieldOp, *REDUCING, ColumnSumOp, IndexOp, LoadOp, PhiloxOp])


class Bodies:
    """The bodies of a module by symbol; new ones are written before everything else."""

    def __init__(self, module: ModuleOp):
        self._module = module
        self._by_symbol = {op.symbol: op.body() for op in module.ops if isinstance(op, BodyOp)}
        self._symbols = {body.digest: symbol for symbol, body in self._by_symbol.items()}
        self._last: Operation | None = None

    def __getitem__(self, symbol: str) -> Body:
        """The body with this name; VerifyException if there is none."""
        if (body := self._by_symbol.get(symbol)) is None:
            raise VerifyException(f"there is no scalar.body @{symbol} in this module")
        return body

    def symbol(self, body: Body, name: str) -> str:
        """The symbol of `body`, which is written to the module if it is not there: called `name`, or with a number."""
        if body.digest not in self._symbols:
            taken = {op.sym_name.data for op in self._module.ops if hasattr(op, "sym_name")}  # type: ignore
            symbol, number = name, 1
            while symbol in taken:
                symbol, number = f"{name}_{number}", number + 1
            op = BodyOp.of(symbol, body)
            first = (block := self._module.body.block).first_op
            block.add_op(op) if first is None else block.insert_op_before(op, first)
            self._by_symbol[symbol], self._symbols[body.digest] = body, symbol
        return self._symbols[body.digest]


def bodies_of(op: Operation) -> Bodies:
    """The bodies of the module that contains `op`; none if no module does."""
    module = op.parent_op()
    return Bodies(module if isinstance(module, ModuleOp) else ModuleOp([]))
