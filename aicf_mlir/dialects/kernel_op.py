"""The base of all launches: variadic operands and results, a kernel id, and rules that stand in C++ only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Self

from xdsl.dialects.builtin import IntegerAttr, IntegerType, StringAttr, TensorType
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import opt_prop_def, traits_def, var_operand_def, var_result_def
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.dialects import registry
from aicf_mlir.dialects.attributes import AttributeValue, from_attributes, to_attribute
from aicf_mlir.dialects.base import TensorOp, tensor_type
from aicf_mlir.dialects.element_types import element_name
from aicf_mlir.dialects.registry import TensorSpec
from aicf_mlir.dialects.verification import expect_tensors
from aicf_mlir.errors import VerifyError


def tensor_spec(value: SSAValue) -> TensorSpec:
    """Element type and shape of `value`, as the runtime names them."""
    type_ = tensor_type(value)
    return element_name(type_.get_element_type()), type_.get_shape()


class KernelOp(TensorOp):
    """One launch. Subclasses add only a name; the schema of that name in the runtime has the rules."""

    SUFFIXES: ClassVar = (("kernel_id", "id"), ("workspace", "workspace"))

    inputs = var_operand_def(TensorType)
    outputs = var_result_def(TensorType)
    kernel_id = opt_prop_def(StringAttr)
    workspace = opt_prop_def(IntegerAttr[IntegerType])
    """Bytes of scratch memory that the kernel needs; absent means none."""

    traits = traits_def(Pure())

    @classmethod
    def launch(
        cls,
        operands: Sequence[SSAValue | Operation],
        result_types: Sequence[Attribute],
        **attrs: AttributeValue,
    ) -> Self:
        """An op with the given attributes, in the order of their names."""
        attributes = {name: to_attribute(attrs[name]) for name in sorted(attrs)}
        return cls.build_op(operands, result_types, attributes=attributes)

    @property
    def op_name(self) -> str:
        """The name in the runtime, e.g. "gemm_epilogue"."""
        return self.name.removeprefix("kernel.")

    @property
    def attrs(self) -> dict[str, AttributeValue]:
        """The attributes of the launch. Names with a dot (`aicf.…`) are annotations and not among them."""
        return from_attributes({k: v for k, v in self.attributes.items() if "." not in k})

    @property
    def input_specs(self) -> list[TensorSpec]:
        """Element type and shape of each input."""
        return [tensor_spec(value) for value in self.operands]

    @property
    def output_specs(self) -> list[TensorSpec]:
        """Element type and shape of each output."""
        return [tensor_spec(value) for value in self.results]

    def verify_(self) -> None:
        expect_tensors(self)
        try:
            registry.check_op(self.op_name, self.input_specs, self.output_specs, self.attrs)
        except VerifyError as error:
            raise VerifyException(str(error)) from error
