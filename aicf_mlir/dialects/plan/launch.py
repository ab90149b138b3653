"""The launch op: one kernel on named slots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

from xdsl.dialects.builtin import (
    ArrayAttr,
    DenseArrayBase,
    DictionaryAttr,
    IntegerAttr,
    IntegerType,
    StringAttr,
    SymbolRefAttr,
    i64,
)
from xdsl.ir import Attribute
from xdsl.irdl import IRDLOperation, irdl_op_definition, opt_prop_def, prop_def, traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer

from aicf_mlir.dialects.plan.text import (
    InProgram,
    expect_flat,
    names_of,
    parse_other_attributes,
    parse_reference,
    print_other_attributes,
    print_references,
    references,
)
from aicf_mlir.ir import registry
from aicf_mlir.ir.attributes import (
    AttributeValue,
    Symbol,
    from_attributes,
    print_dictionary,
    symbols_of,
    to_attribute,
)
from aicf_mlir.ir.registry import Counts, Operand, Schema, segments
from aicf_mlir.ir.renamed import now_called
from aicf_mlir.ir.segments import count_properties, counts_of, parse_segments, print_segments

COUNTS = ("input_counts", "output_counts")
"""Properties with the number of slots of each operand and each result."""


@irdl_op_definition
class LaunchOp(IRDLOperation):
    """`plan.launch @k0 "relu_cpu" relu x(@x) -> y(@y) {...} workspace @w after @k1`: one kernel on named slots.

    `predicate not @failed` names a status: if its code is not 0 the launch does nothing. `branch 1` is the branch of a captured
    graph that it is on; launches of one branch run in the order of the text. `after` names the earlier launches that must be
    complete before this one starts; implied ones are left out.
    """

    name = "plan.launch"

    sym_name = prop_def(StringAttr)
    kernel_id = prop_def(StringAttr)
    op = prop_def(StringAttr)
    inputs = prop_def(ArrayAttr[SymbolRefAttr])
    outputs = prop_def(ArrayAttr[SymbolRefAttr])
    input_counts = opt_prop_def(DenseArrayBase[IntegerType])
    output_counts = opt_prop_def(DenseArrayBase[IntegerType])
    """The number of slots for each operand and each result of the schema; absent if each has one."""
    attrs = prop_def(DictionaryAttr)
    workspace = opt_prop_def(SymbolRefAttr)
    predicate = opt_prop_def(SymbolRefAttr)
    branch = opt_prop_def(IntegerAttr[IntegerType])
    """Absent on branch 0."""
    after = opt_prop_def(ArrayAttr[SymbolRefAttr])

    traits = traits_def(InProgram())

    def __init__(
        self,
        name: str,
        kernel_id: str,
        op: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        attrs: Mapping[str, AttributeValue],
        counts: Counts | None = None,
        workspace: str | None = None,
        predicate: str | None = None,
    ):
        """`op` is the name in the kernel dialect without its prefix; the others are symbols of slots."""
        super().__init__(
            properties={
                "sym_name": StringAttr(name),
                "kernel_id": StringAttr(kernel_id),
                "op": StringAttr(op),
                "inputs": references(inputs),
                "outputs": references(outputs),
                **count_properties(counts, COUNTS),
                "attrs": DictionaryAttr({key: to_attribute(value) for key, value in attrs.items()}),
                "workspace": None if workspace is None else SymbolRefAttr(workspace),
                "predicate": None if predicate is None else SymbolRefAttr(predicate),
            }
        )

    @property
    def symbol(self) -> str:
        """The name of the launch."""
        return self.sym_name.data

    @property
    def schema(self) -> Schema | None:
        """The runtime's declaration of the op; None for an op that it does not have."""
        return registry.schemas().get(self.op.data)

    @property
    def counts(self) -> Counts | None:
        """The number of slots for each operand and each result; None if each has one."""
        return counts_of(self.input_counts, self.output_counts)

    @property
    def values(self) -> dict[str, AttributeValue]:
        """The attributes of the op."""
        return from_attributes(self.attrs.data)

    @property
    def bodies(self) -> tuple[Symbol, ...]:
        """The symbols of the scalar.bodies that a generated kernel computes; none for a kernel of the registry."""
        return symbols_of(self.values)

    @property
    def reads(self) -> list[str]:
        """The input slots."""
        return names_of(self.inputs)

    @property
    def writes(self) -> list[str]:
        """The output slots."""
        return names_of(self.outputs)

    @property
    def ins(self) -> dict[str, Sequence[str]]:
        """The input slots by operand."""
        rows = self.schema.inputs if self.schema is not None else ()
        return segments(rows, self.counts and self.counts[0], self.reads)

    @property
    def outs(self) -> dict[str, Sequence[str]]:
        """The output slots by result."""
        rows = self.schema.outputs if self.schema is not None else ()
        return segments(rows, self.counts and self.counts[1], self.writes)

    @property
    def scratch(self) -> str | None:
        """The workspace slot."""
        return None if self.workspace is None else self.workspace.root_reference.data

    @property
    def predicate_slot(self) -> str | None:
        """The slot of the status that the launch is predicated on: it runs if nothing has failed."""
        return None if self.predicate is None else self.predicate.root_reference.data

    @property
    def touched(self) -> list[str]:
        """Every slot that the launch uses, each once, in the order of the text."""
        others = [name for name in (self.scratch, self.predicate_slot) if name is not None]
        return list(dict.fromkeys([*self.reads, *self.writes, *others]))

    @property
    def waits_for(self) -> list[str]:
        """The launches named by `after`."""
        return names_of(self.after)

    @property
    def branch_number(self) -> int:
        """The branch that it is on; 0 where the text names none."""
        return 0 if self.branch is None else self.branch.value.data

    def set_branch(self, number: int) -> None:
        """Set the branch of the launch."""
        self.branch = IntegerAttr(number, i64) if number else None

    def set_after(self, names: Sequence[str]) -> None:
        """Set the launches that must be complete before this one."""
        self.after = references(names) if names else None

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_symbol_name(self.symbol)
        printer.print_string(" ")
        printer.print_string_literal(self.kernel_id.data)
        printer.print_string(f" {self.op.data}")
        print_segments(printer, self.ins, printer.print_symbol_name)
        printer.print_string(" ->")
        print_segments(printer, self.outs, printer.print_symbol_name)
        print_dictionary(printer, self.attrs.data)
        if self.scratch is not None:
            printer.print_string(" workspace ")
            printer.print_symbol_name(self.scratch)
        if self.predicate_slot is not None:
            printer.print_string(" predicate not ")
            printer.print_symbol_name(self.predicate_slot)
        if self.branch is not None:
            printer.print_string(f" branch {self.branch_number}")
        if self.after is not None:
            printer.print_string(" after ")
            print_references(printer, self.after)
        print_other_attributes(printer, self)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        def parse_slots(rows: Sequence[Operand]) -> dict[str, list[SymbolRefAttr]]:
            return parse_segments(parser, op, rows, lambda: parse_reference(parser))

        properties: dict[str, Attribute] = {
            "sym_name": parser.parse_symbol_name(),
            "kernel_id": StringAttr(parser.parse_str_literal(": a kernel id")),
        }
        position = parser.pos
        op = parser.parse_identifier(": the op that the kernel computes")
        if (schema := registry.schemas().get(op)) is None:
            advice = now_called(op) or f"known are {', '.join(registry.schemas())}"
            parser.raise_error(f"there is no op '{op}'; {advice}", position)
        properties["op"] = StringAttr(op)
        inputs = parse_slots(schema.inputs)
        parser.parse_punctuation("->")
        outputs = parse_slots(schema.outputs)
        properties["inputs"] = ArrayAttr([slot for slots in inputs.values() for slot in slots])
        properties["outputs"] = ArrayAttr([slot for slots in outputs.values() for slot in slots])
        if not schema.fixed:
            properties |= count_properties(
                (
                    tuple(len(inputs.get(row.name, ())) for row in schema.inputs),
                    tuple(len(outputs.get(row.name, ())) for row in schema.outputs),
                ),
                COUNTS,
            )
        properties["attrs"] = DictionaryAttr(parser.parse_optional_attr_dict())
        if parser.parse_optional_keyword("workspace") is not None:
            properties["workspace"] = parse_reference(parser)
        position = parser.pos
        if parser.parse_optional_keyword("unless") is not None:
            parser.raise_error(f"`unless` is unknown; {now_called('unless')}", position)
        if parser.parse_optional_keyword("predicate") is not None:
            parser.parse_keyword("not")
            properties["predicate"] = parse_reference(parser)
        if parser.parse_optional_keyword("branch") is not None:
            properties["branch"] = IntegerAttr(parser.parse_integer(allow_boolean=False), i64)
        if parser.parse_optional_keyword("after") is not None:
            properties["after"] = ArrayAttr(
                parser.parse_comma_separated_list(parser.Delimiter.NONE, lambda: parse_reference(parser))
            )
        return cls.create(properties=properties, attributes=parse_other_attributes(parser))

    def verify_(self) -> None:
        _ = self.values
        expect_flat([*self.inputs, *self.outputs, *(self.after or ()), self.workspace, self.predicate])
