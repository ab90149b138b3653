"""The base of all launches: operands and results by the names of the schema, a kernel id, rules that are in C++ only.

    %z = kernel.bias_add x(%y) bias(%b) : (tensor<4x2xf32>, tensor<2xf32>) -> tensor<4x2xf32>
    %a, %z = kernel.gemm_epilogue a(%x) b(%w) -> out, pre {act = "relu"} : tensor<4x4xf32>, …

An operand of many tensors lists them; an optional one that is absent is left out. The results are named if a use chooses among
them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, IntegerType, StringAttr, TensorType
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.irdl import opt_prop_def, traits_def, var_operand_def, var_result_def
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.errors import VerifyError
from aicf_mlir.ir import registry
from aicf_mlir.ir.attributes import AttributeValue, from_attributes, to_attribute
from aicf_mlir.ir.dtypes import element_name
from aicf_mlir.ir.expect import expect_tensors
from aicf_mlir.ir.layouts import layout_of, shares_block
from aicf_mlir.ir.registry import Counts, OperandSpec, Schema, TensorSpec, Use
from aicf_mlir.ir.segments import count_properties, counts_of, parse_segments, print_segments
from aicf_mlir.ir.tensor_op import SEGMENT_SIZES, AnyTensor, TensorOp, tensor_type

Value = SSAValue | Operation
Values = Value | Sequence[Value]
"""The value of one operand of an op: a tensor, or as many as it takes."""
Types = Attribute | Sequence[Attribute]

JOIN = "kernel.join"


def tensor_spec(value: SSAValue) -> TensorSpec:
    """Element type and shape of `value`, as the runtime names them."""
    type_ = tensor_type(value)
    return element_name(type_.get_element_type()), type_.get_shape()


def spec_of_type(type_: AnyTensor) -> OperandSpec:
    """Element type and shape, and the strides of a layout if there is one."""
    element = element_name(type_.get_element_type())
    if not shares_block(type_):
        return element, type_.get_shape()
    return layout_of(type_).spec(element)


def operand_spec(value: SSAValue) -> OperandSpec:
    """The spec of `tensor_spec`, with the strides of a value that has a layout."""
    return spec_of_type(tensor_type(value))


class KernelOp(TensorOp):
    """One launch. Subclasses add only a name; the schema of that name in the runtime has the rules."""

    SUFFIXES: ClassVar = (("kernel_id", "id"), ("workspace", "workspace"))

    inputs = var_operand_def(TensorType)
    outputs = var_result_def(TensorType)
    input_counts = opt_prop_def(DenseArrayBase[IntegerType], prop_name="operandSegmentSizes")
    output_counts = opt_prop_def(DenseArrayBase[IntegerType], prop_name="resultSegmentSizes")
    """The number of tensors for each operand and each result of the schema; absent if each has one."""
    kernel_id = opt_prop_def(StringAttr)
    workspace = opt_prop_def(IntegerAttr[IntegerType])
    """Bytes of scratch memory that the kernel needs; absent means none."""

    traits = traits_def(Pure())

    @classmethod
    def launch(
        cls,
        operands: Sequence[Value] | Mapping[str, Values],
        result_types: Sequence[Attribute] | Mapping[str, Types],
        **attrs: AttributeValue,
    ) -> Self:
        """An op with the given attributes, in the order of their names.

        Operands and results by their names in the schema, absent ones left out; or in order, if each is one.
        """
        schema = cls.schema_of()
        properties: dict[str, Attribute] = {}
        if isinstance(operands, Mapping):
            assert isinstance(result_types, Mapping)
            given = {name: _listed(value) for name, value in operands.items()}
            types: dict[str, list[Any]] = {name: _listed(type_) for name, type_ in result_types.items()}
            counts = schema.counts(
                {name: len(values) for name, values in given.items()},
                {name: len(listed) for name, listed in types.items()},
            )
            properties = count_properties(None if schema.fixed else counts, SEGMENT_SIZES)
            operands = [value for row in schema.inputs for value in given.get(row.name, ())]
            result_types = [type_ for row in schema.outputs for type_ in types.get(row.name, ())]
        assert not isinstance(result_types, Mapping)
        attributes = {name: to_attribute(attrs[name]) for name in sorted(attrs)}
        return cls.build_op(operands, result_types, properties, attributes)

    @classmethod
    def schema_of(cls) -> Schema:
        """The runtime's declaration of the op."""
        return registry.schemas()[cls.name.removeprefix("kernel.")]

    @property
    def op_name(self) -> str:
        """The name in the runtime, e.g. "gemm_epilogue"."""
        return self.name.removeprefix("kernel.")

    @property
    def counts(self) -> Counts | None:
        """The number of tensors for each operand and each result; None if each has one."""
        return counts_of(self.input_counts, self.output_counts)

    @property
    def ins(self) -> dict[str, Sequence[SSAValue]]:
        """The operands by name."""
        rows = self.schema_of().inputs
        counts = self.counts
        return registry.segments(rows, counts and counts[0], self.operands)

    @property
    def outs(self) -> dict[str, Sequence[SSAValue]]:
        """The results by name."""
        rows = self.schema_of().outputs
        counts = self.counts
        return registry.segments(rows, counts and counts[1], self.results)

    @property
    def attrs(self) -> dict[str, AttributeValue]:
        """The attributes of the launch. Names with a dot (`aicf.…`) are annotations and not among them."""
        return from_attributes({k: v for k, v in self.attributes.items() if "." not in k})

    @property
    def output_specs(self) -> list[TensorSpec]:
        """Element type and shape of each output."""
        return [tensor_spec(value) for value in self.results]

    @property
    def use(self) -> Use:
        """The use for queries to the runtime."""
        inputs = [operand_spec(value) for value in self.operands]
        outputs = [operand_spec(value) for value in self.results]
        return Use.of(self.op_name, inputs, outputs, self.attrs, self.counts)

    def is_verified_by_form(self) -> bool:
        """A tensor with a layout has its memory from another op."""
        return not any(map(shares_block, (*self.operand_types, *self.result_types)))

    def verify_(self) -> None:
        expect_tensors(self, strided=True)
        for value in self.operands:
            if shares_block(value.type) and isinstance(value.owner, Block):
                raise VerifyException(
                    f"expected a dense argument, got {value.type}; make a kernel.view of it"
                )
        for value in self.results:
            if shares_block(value.type) and all(use.operation.name != JOIN for use in value.uses):
                raise VerifyException(f"expected a {JOIN} that gives {value.type} its memory")
        try:
            registry.check_op(self.use)
        except VerifyError as error:
            raise VerifyException(str(error)) from error

    def print_operands(self, printer: Printer) -> None:
        schema = self.schema_of()
        print_segments(printer, self.ins, printer.print_operand)
        if schema.chooses_results:
            present = [name for name, values in self.outs.items() if values]
            printer.print_string(f" -> {', '.join(present)}")

    @classmethod
    def parse_operands(cls, parser: Parser) -> tuple[list[UnresolvedOperand], dict[str, Attribute]]:
        schema = cls.schema_of()
        values = parse_segments(parser, schema.name, schema.inputs, parser.parse_unresolved_operand)
        results: list[str] = []
        if schema.chooses_results:
            parser.parse_punctuation("->")
            known = [row.name for row in schema.outputs]
            while True:
                position = parser.pos
                results.append(name := parser.parse_identifier(": a result"))
                if name not in known:
                    parser.raise_error(
                        f"{schema.name} has no result '{name}'; it has {', '.join(known)}", position
                    )
                if parser.parse_optional_punctuation(",") is None:
                    break
        counts = schema.counts(
            {name: len(listed) for name, listed in values.items()}, dict.fromkeys(results, 1)
        )
        flat = [value for listed in values.values() for value in listed]
        return flat, count_properties(None if schema.fixed else counts, SEGMENT_SIZES)


def _listed(value: Any) -> list[Any]:
    return [value] if isinstance(value, SSAValue | Operation | Attribute) else list(value)
