"""The memory ops: arenas, and the slots in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from xdsl.dialects.builtin import (
    DenseArrayBase,
    Float64Type,
    FloatAttr,
    IntegerAttr,
    IntegerType,
    MemRefType,
    NoneAttr,
    StringAttr,
    SymbolRefAttr,
    f64,
    i64,
)
from xdsl.ir import Attribute
from xdsl.irdl import IRDLOperation, irdl_op_definition, opt_prop_def, prop_def, traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.dialects.plan.text import (
    InProgram,
    expect_flat,
    parse_other_attributes,
    parse_range,
    parse_reference,
    print_other_attributes,
)
from aicf_mlir.ir.attributes import print_value
from aicf_mlir.ir.dtypes import ELEMENT_TYPES, element_name
from aicf_mlir.ir.element_types import byte_size
from aicf_mlir.ir.layouts import Layout, layout_of
from aicf_mlir.ir.registry import OperandSpec, TensorSpec
from aicf_mlir.ir.roles import ROLES


@irdl_op_definition
class ArenaOp(IRDLOperation):
    """`plan.arena @param 526336`: one block of memory, named after the role of its slots."""

    name = "plan.arena"

    sym_name = prop_def(StringAttr)
    size = prop_def(IntegerAttr[IntegerType])

    traits = traits_def(InProgram())

    def __init__(self, name: str, size: int):
        super().__init__(properties={"sym_name": StringAttr(name), "size": IntegerAttr(size, i64)})

    @property
    def symbol(self) -> str:
        """The name of the arena."""
        return self.sym_name.data

    @property
    def nbytes(self) -> int:
        """The size in bytes."""
        return self.size.value.data

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_symbol_name(self.symbol)
        printer.print_string(f" {self.nbytes}")
        print_other_attributes(printer, self)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        op = cls(parser.parse_symbol_name().data, parser.parse_integer(allow_boolean=False))
        op.attributes = parse_other_attributes(parser)
        return op


def slot_type(element: str, shape: Sequence[int]) -> MemRefType[Attribute]:
    """The type of a dense slot."""
    return MemRefType(ELEMENT_TYPES[element], shape)


@irdl_op_definition
class SlotOp(IRDLOperation):
    """`plan.slot @x in @input[0] : memref<4x8xf32> input "x"`: a tensor with a place, a role and a name.

    `alias` names the slot whose memory this one sees in another shape; or, with a layout such as
    `memref<4x2xf32, strided<[8, 1], offset: 6>>` in elements, a part of which. `live a..b` are the first and last
    launch (counted from 0) that use a temporary; `const 1.0` is a tensor of that value everywhere.
    """

    name = "plan.slot"

    sym_name = prop_def(StringAttr)
    arena = opt_prop_def(SymbolRefAttr)
    offset = opt_prop_def(IntegerAttr[IntegerType])
    type = prop_def(MemRefType)
    role = prop_def(StringAttr)
    label = opt_prop_def(StringAttr)
    value = opt_prop_def(FloatAttr[Float64Type])
    alias = opt_prop_def(SymbolRefAttr)
    live = opt_prop_def(DenseArrayBase[IntegerType])

    traits = traits_def(InProgram())

    def __init__(
        self,
        name: str,
        type: MemRefType[Attribute],
        role: str,
        *,
        label: str | None = None,
        value: float | None = None,
        alias: str | None = None,
    ):
        """`label` is the user's name, `value` that of a constant, `alias` the slot that owns the memory."""
        super().__init__(
            properties={
                "sym_name": StringAttr(name),
                "type": type,
                "role": StringAttr(role),
                "label": None if label is None else StringAttr(label),
                "value": None if value is None else FloatAttr(value, f64),
                "alias": None if alias is None else SymbolRefAttr(alias),
            }
        )

    @property
    def symbol(self) -> str:
        """The name of the slot in the plan."""
        return self.sym_name.data

    @property
    def spec(self) -> TensorSpec:
        """Element type and shape."""
        memory: MemRefType[Attribute] = self.type
        return element_name(memory.get_element_type()), memory.get_shape()

    @property
    def layout(self) -> Layout | None:
        """The layout of the elements in the memory of the slot that owns it; None for a dense tensor at its start."""
        return None if isinstance(self.type.layout, NoneAttr) else layout_of(self.type)

    @property
    def operand_spec(self) -> OperandSpec:
        """The spec of `spec`, with the layout of a part."""
        return self.spec if (layout := self.layout) is None else layout.spec(self.spec[0])

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor."""
        return byte_size(*self.spec)

    @property
    def extent(self) -> tuple[int, int]:
        """The range of bytes of the elements, `(first, end)`, counted from the start of the owner."""
        if (layout := self.layout) is None:
            return 0, self.nbytes
        if not layout.count:  # a tensor without elements has no bytes
            return 0, 0
        size = byte_size(self.spec[0], ())
        return layout.offset * size, layout.end * size

    @property
    def root(self) -> str:
        """The slot that owns the memory: the alias, or this one."""
        return self.symbol if self.alias is None else self.alias.root_reference.data

    @property
    def place(self) -> tuple[str, int] | None:
        """Arena and offset, once plan-memory has run."""
        if self.arena is None or self.offset is None:
            return None
        return self.arena.root_reference.data, self.offset.value.data

    @property
    def live_range(self) -> tuple[int, int] | None:
        """First and last launch of a temporary, once plan-memory has run."""
        if self.live is None:
            return None
        first, last = self.live.get_values()
        return int(first), int(last)

    def set_place(self, arena: str, offset: int) -> None:
        """Give the slot its address."""
        self.arena, self.offset = SymbolRefAttr(arena), IntegerAttr(offset, i64)

    def set_live(self, first: int, last: int) -> None:
        """Set the launches during which the slot is in use."""
        self.live = DenseArrayBase.from_list(i64, [first, last])

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_symbol_name(self.symbol)
        if (place := self.place) is not None:
            printer.print_string(" in ")
            printer.print_symbol_name(place[0])
            printer.print_string(f"[{place[1]}]")
        printer.print_string(" : ")
        printer.print_attribute(self.type)
        printer.print_string(f" {self.role.data}")
        if self.label is not None:
            printer.print_string(" ")
            printer.print_string_literal(self.label.data)
        if self.value is not None:
            printer.print_string(" ")
            print_value(printer, self.value)
        if self.alias is not None:
            printer.print_string(" alias ")
            printer.print_symbol_name(self.alias.root_reference.data)
        if (live := self.live_range) is not None:
            printer.print_string(f" live {live[0]}..{live[1]}")
        print_other_attributes(printer, self)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        properties: dict[str, Attribute] = {"sym_name": parser.parse_symbol_name()}
        if parser.parse_optional_keyword("in") is not None:
            properties["arena"] = parse_reference(parser)
            parser.parse_punctuation("[")
            properties["offset"] = IntegerAttr(parser.parse_integer(allow_boolean=False), i64)
            parser.parse_punctuation("]")
        parser.parse_punctuation(":")
        properties["type"] = parser.parse_type()
        properties["role"] = StringAttr(parser.parse_identifier(f": a role, one of {', '.join(ROLES)}"))
        if (label := parser.parse_optional_str_literal()) is not None:
            properties["label"] = StringAttr(label)
        if (value := parser.parse_optional_builtin_int_or_float_attr()) is not None:
            properties["value"] = value
        if parser.parse_optional_keyword("alias") is not None:
            properties["alias"] = parse_reference(parser)
        if parser.parse_optional_keyword("live") is not None:
            properties["live"] = DenseArrayBase.from_list(i64, list(parse_range(parser)))
        return cls.create(properties=properties, attributes=parse_other_attributes(parser))

    def verify_(self) -> None:
        if (self.arena is None) != (self.offset is None):
            raise VerifyException("a slot has an arena and an offset, or neither")
        if self.live is not None and len(self.live.get_values()) != 2:
            raise VerifyException("`live` is the first and the last launch: two numbers")
        if any(size < 0 for size in self.spec[1]):
            raise VerifyException(f"expected a static shape, got {self.type}")
        memory: MemRefType[Attribute] = self.type
        if not isinstance(memory.memory_space, NoneAttr):
            plain = MemRefType(memory.element_type, memory.shape)
            raise VerifyException(
                f"expected a memref such as {plain}: slots have no memory spaces; got {memory}"
            )
        if self.layout is not None and self.alias is None:
            plain = MemRefType(memory.element_type, memory.shape)
            raise VerifyException(
                f"expected a dense memref such as {plain}: only an alias has a layout; got {memory}"
            )
        expect_flat([self.arena, self.alias])
