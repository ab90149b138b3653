"""One step: arenas, slots and launches in the order in which they run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from xdsl.dialects.builtin import IntegerAttr, IntegerType, ModuleOp, StringAttr, i64
from xdsl.ir import Attribute, Block, Operation, Region
from xdsl.irdl import IRDLOperation, irdl_op_definition, opt_prop_def, prop_def, region_def, traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import IsolatedFromAbove, NoTerminator

from aicf_mlir.dialects.plan.launch import LaunchOp
from aicf_mlir.dialects.plan.memory import ArenaOp, SlotOp
from aicf_mlir.dialects.plan.rules import check_program
from aicf_mlir.dialects.plan.text import parse_other_attributes, print_other_attributes
from aicf_mlir.errors import PlanError


@irdl_op_definition
class ProgramOp(IRDLOperation):
    """One step: arenas, slots, launches in the order in which they run one after another."""

    name = "plan.program"

    sym_name = prop_def(StringAttr)
    target = prop_def(StringAttr)
    peak = opt_prop_def(IntegerAttr[IntegerType])
    body = region_def("single_block")

    traits = traits_def(IsolatedFromAbove(), NoTerminator())

    def __init__(self, name: str, target: str, ops: Sequence[Operation]):
        super().__init__(
            properties={"sym_name": StringAttr(name), "target": StringAttr(target)},
            regions=[Region(Block(ops))],
        )

    @property
    def symbol(self) -> str:
        """The name of the step."""
        return self.sym_name.data

    @property
    def arenas(self) -> dict[str, ArenaOp]:
        """The arenas by name."""
        return {op.symbol: op for op in self.body.block.ops if isinstance(op, ArenaOp)}

    @property
    def slots(self) -> dict[str, SlotOp]:
        """The slots by symbol."""
        return {op.symbol: op for op in self.body.block.ops if isinstance(op, SlotOp)}

    @property
    def launches(self) -> list[LaunchOp]:
        """The launches in the order in which they run."""
        return [op for op in self.body.block.ops if isinstance(op, LaunchOp)]

    @property
    def peak_bytes(self) -> int | None:
        """The sum of all arenas, once plan-memory has run."""
        return None if self.peak is None else self.peak.value.data

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_symbol_name(self.symbol)
        printer.print_string(" target ")
        printer.print_string_literal(self.target.data)
        if self.peak is not None:
            printer.print_string(f" peak {self.peak_bytes}")
        print_other_attributes(printer, self)
        printer.print_string(" ")
        printer.print_region(self.body, print_empty_block=False)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        properties: dict[str, Attribute] = {"sym_name": parser.parse_symbol_name()}
        parser.parse_keyword("target")
        properties["target"] = StringAttr(parser.parse_str_literal(': a target such as "cpu" or "sm_90"'))
        if parser.parse_optional_keyword("peak") is not None:
            properties["peak"] = IntegerAttr(parser.parse_integer(allow_boolean=False), i64)
        attributes = parse_other_attributes(parser)
        region = parser.parse_region()
        if not region.blocks:
            region.add_block(Block())
        return cls.create(properties=properties, attributes=attributes, regions=[region])

    def verify_(self) -> None:
        check_program(self)


def find_program(module: ModuleOp | ProgramOp) -> ProgramOp:
    """The one plan.program of `module`; PlanError if there is not exactly one."""
    if isinstance(module, ProgramOp):
        return module
    programs = [op for op in module.ops if isinstance(op, ProgramOp)]
    if len(programs) != 1:
        raise PlanError(f"expected a module with one plan.program, got {len(programs)}")
    return programs[0]
