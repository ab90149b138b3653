"""The text form shared by the tensor dialects: one line an op, read aloud from left to right.

    %r = nn.gelu %x {approximate = "tanh"} : tensor<64x256xf32>
    %y = kernel.gemm a(%a) b(%b) id "gemm_f32_naive" : (tensor<64x8xf32>, tensor<8x4xf32>) -> tensor<64x4xf32>

A single type after the colon stands for every operand and the one result. Numbers of type i64 and f64 are
printed without their type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Self

from xdsl.dialects.builtin import FunctionType, IntegerAttr, TensorType, i64
from xdsl.ir import Attribute, BlockArgument, Operation, OpResult, SSAValue
from xdsl.irdl import IRDLOperation
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer

from aicf_mlir.ir.attributes import print_dictionary, print_value

AnyTensor = TensorType[Attribute]

SEGMENT_SIZES = ("operandSegmentSizes", "resultSegmentSizes")
"""Properties that follow from how the operands are written."""


VALUES = (OpResult, BlockArgument)
"""All classes of values."""


def tensor_type(value: SSAValue | Operation) -> AnyTensor:
    """The type of `value`, narrowed: operands are only known as attributes. ValueError for any other type."""
    if isinstance(value, VALUES) and isinstance(type_ := value.type, TensorType):
        # As below, without the general check of a type hint and by exact classes: no check runs more often.
        return type_  # pyright: ignore[reportUnknownVariableType]
    return SSAValue.get(value, type=TensorType).type


def shape_of(value: SSAValue | Operation) -> tuple[int, ...]:
    """The static shape of `value`."""
    return tensor_type(value).get_shape()


def element_type(value: SSAValue | Operation) -> Attribute:
    """The element type of `value`."""
    return tensor_type(value).get_element_type()


class TensorOp(IRDLOperation):
    """An op whose operands and results are tensors, in the shared text form."""

    SUFFIXES: ClassVar[tuple[tuple[str, str], ...]] = ()
    """Optional properties printed after the attributes as ` keyword value`: pairs (property, keyword)."""

    def is_verified_by_form(self) -> bool:
        """True if `verify_` looks at the class, the types, the properties and the attributes only: at no other op and no use."""
        return True

    @classmethod
    def default_properties(cls) -> dict[str, Attribute]:
        """Properties of this op that have a default value."""
        return {
            name: definition.default_value
            for name, definition in cls.get_irdl_definition().properties.items()
            if definition.default_value is not None
        }

    @classmethod
    def build_op(
        cls,
        operands: Sequence[SSAValue | Operation],
        result_types: Sequence[Attribute],
        properties: Mapping[str, Attribute] | None = None,
        attributes: Mapping[str, Attribute] | None = None,
    ) -> Self:
        """An op from flat operand and result lists; absent properties take their defaults.

        Properties are in the order in which the class defines them, in any order of the text.
        """
        given = {**cls.default_properties(), **(properties or {})}
        order = cls.get_irdl_definition().properties
        return cls.create(
            operands=[SSAValue.get(operand) for operand in operands],
            result_types=list(result_types),
            properties={name: given[name] for name in [*order, *given] if name in given},
            attributes=dict(attributes or {}),
        )

    def print_operands(self, printer: Printer) -> None:
        """Print the text between the name of the op and its attributes."""
        if self.operands:
            printer.print_string(" ")
            printer.print_list(self.operands, printer.print_operand)

    @classmethod
    def parse_operands(cls, parser: Parser) -> tuple[list[UnresolvedOperand], dict[str, Attribute]]:
        """The reverse: the operands, and properties that follow from how they are written."""
        operands = parser.parse_optional_undelimited_comma_separated_list(
            parser.parse_optional_unresolved_operand, parser.parse_unresolved_operand
        )
        return list(operands or ()), {}

    @classmethod
    def properties_of_results(cls, properties: Mapping[str, Attribute], count: int) -> dict[str, Attribute]:
        """Properties that follow from how many results are written."""
        del properties, count
        return {}

    def print(self, printer: Printer) -> None:
        self.print_operands(printer)
        defaults = self.default_properties()
        shown = {
            name: value
            for name, value in self.properties.items()
            if name not in (*dict(self.SUFFIXES), *SEGMENT_SIZES) and defaults.get(name) != value
        }
        print_dictionary(printer, {**shown, **self.attributes})
        for name, keyword in self.SUFFIXES:
            if (value := self.properties.get(name)) is not None:
                printer.print_string(f" {keyword} ")
                print_value(printer, value)
        printer.print_string(" : ")
        types: set[Attribute] = {*self.operand_types, *self.result_types}
        if len(self.results) == 1 and len(types) == 1:
            printer.print_attribute(self.results[0].type)
        else:
            printer.print_function_type(self.operand_types, self.result_types)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        operands, properties = cls.parse_operands(parser)
        attributes = parser.parse_optional_attr_dict()
        known: set[str] = set(cls.get_irdl_definition().properties).difference(SEGMENT_SIZES)
        properties |= {name: value for name, value in attributes.items() if name in known}
        rest = {name: value for name, value in attributes.items() if name not in known}
        for name, keyword in cls.SUFFIXES:
            if parser.parse_optional_keyword(keyword) is not None:
                # Not parse_attribute: it would take the colon after a number for the number's own type.
                number = parser.parse_optional_integer(allow_boolean=False)
                properties[name] = parser.parse_attribute() if number is None else IntegerAttr(number, i64)
        position = parser.pos
        parser.parse_punctuation(":")
        written: Attribute = parser.parse_type()
        inputs: list[Attribute]
        outputs: list[Attribute]
        if isinstance(written, FunctionType):
            inputs, outputs = list(written.inputs.data), list(written.outputs.data)
        elif isinstance(written, TensorType):
            inputs, outputs = [written] * len(operands), [written]
        else:
            parser.raise_error("expected a tensor type, or (operand types) -> (result types)", position)
        values = parser.resolve_operands(operands, inputs, position)
        properties |= cls.properties_of_results(properties, len(outputs))
        return cls.build_op(values, outputs, properties, rest)
