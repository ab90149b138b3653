"""The kernel dialect: one op, one launch. The schemas in C++ declare the ops; their classes are made of them.

Attributes of a launch are ordinary attributes; `id` and `workspace` follow from select-kernels. interpreters/kernel.py defines
the result of each op. kernel.constant, kernel.reshape, kernel.view and kernel.join are no launches: they become a slot with a
value, and aliases.

A tensor whose type has a layout, `tensor<4x2xf32, strided<[6, 1], offset: 2>>`, is a part of a block of memory. It
shares the block with the dense tensor that it is a view of, or with the result of the join that it is an operand of.
"""

from __future__ import annotations

import math
from typing import cast

from xdsl.dialects.builtin import Float64Type, FloatAttr, TensorType, UnitAttr
from xdsl.ir import Dialect, SSAValue
from xdsl.irdl import (
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.traits import ConstantLike, Pure
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.dialects.generated import GeneratedOp
from aicf_mlir.dialects.kernel_op import KernelOp, tensor_spec
from aicf_mlir.ir import registry
from aicf_mlir.ir.expect import expect_tensors
from aicf_mlir.ir.layouts import Layout, WrittenLayouts, layout_of, shares_block
from aicf_mlir.ir.registry import TensorSpec
from aicf_mlir.ir.tensor_op import TensorOp, tensor_type


@irdl_op_definition
class ConstantOp(TensorOp):
    """
    A tensor that holds `value` everywhere.

    With `data` launches read it from memory, so that those that differ in its number alone have one kernel; the number of
    any other may be written into the body of a launch.
    """

    name = "kernel.constant"

    value = prop_def(FloatAttr[Float64Type])
    data = opt_prop_def(UnitAttr)
    output = result_def(TensorType)

    traits = traits_def(Pure(), ConstantLike())

    @property
    def number(self) -> float:
        """The value."""
        return self.value.value.data

    @property
    def spec(self) -> TensorSpec:
        """Element type and shape."""
        return tensor_spec(self.output)

    def verify_(self) -> None:
        expect_tensors(self)


@irdl_op_definition
class ReshapeOp(TensorOp):
    """The same elements in the same order under another shape; no memory moves."""

    name = "kernel.reshape"

    input = operand_def(TensorType)
    output = result_def(TensorType)

    traits = traits_def(Pure())

    @property
    def spec(self) -> TensorSpec:
        """Element type and shape of the result."""
        return tensor_spec(self.output)

    def verify_(self) -> None:
        expect_tensors(self)
        (source, old), (target, new) = tensor_spec(self.input), tensor_spec(self.output)
        if source != target:
            raise VerifyException(
                f"a reshape keeps the element type, got {source} -> {target}; use kernel.copy to cast"
            )
        if math.prod(old) != math.prod(new):
            raise VerifyException(
                f"a reshape keeps the number of elements, got {list(old)} ({math.prod(old)})"
                f" -> {list(new)} ({math.prod(new)})"
            )


def block_of(value: SSAValue) -> SSAValue:
    """The tensor that owns the memory of `value`: itself, except for reshapes, views and parts of a join."""
    while True:
        match value.owner:
            case ReshapeOp() | ViewOp():
                value = value.owner.input
            case JoinOp():
                return value
            case _:
                join = join_of(value)
                return value if join is None else join.output


def join_of(value: SSAValue) -> JoinOp | None:
    """The join that `value`, the result of a launch, is a part of."""
    if not shares_block(value.type):
        return None
    return next((use.operation for use in value.uses if isinstance(use.operation, JoinOp)), None)


@irdl_op_definition
class ViewOp(TensorOp):
    """The elements of a dense tensor at the layout of the result; no memory moves.

    %q = kernel.view %x : (tensor<4x6xf32>) -> tensor<4x2xf32, strided<[6, 1], offset: 2>>
    """

    name = "kernel.view"

    input = operand_def(TensorType)
    output = result_def(TensorType)

    traits = traits_def(Pure())

    @property
    def layout(self) -> Layout:
        """The layout of the result's elements in the memory of the operand."""
        return layout_of(tensor_type(self.output))

    def verify_(self) -> None:
        expect_tensors(self, strided=True)
        (source, shape), (target, _) = tensor_spec(self.input), tensor_spec(self.output)
        if shares_block(self.input.type) or not shares_block(self.output.type):
            raise VerifyException(
                f"expected a view of a dense tensor with a layout, got {self.input.type} -> {self.output.type}"
            )
        if source != target:
            raise VerifyException(
                f"a view keeps the element type, got {source} -> {target}; use kernel.copy to cast"
            )
        if self.layout.end > math.prod(shape) and self.layout.count:
            raise VerifyException(
                f"expected a view inside the {math.prod(shape)} elements of {self.input.type}, got"
                f" {self.output.type}, which ends at {self.layout.end}"
            )


@irdl_op_definition
class JoinOp(TensorOp):
    """The dense tensor in whose memory the operands are, each at its layout; no memory moves.

        %qkv = kernel.join %q, %k : (tensor<4x2xf32, strided<[5, 1]>>, tensor<4x3xf32, strided<[5, 1], offset: 2>>)
            -> tensor<4x5xf32>

    Each operand is the result of a launch, which writes it there. Together they have every element once.
    """

    name = "kernel.join"

    inputs = var_operand_def(TensorType)
    output = result_def(TensorType)

    traits = traits_def(Pure())

    def is_verified_by_form(self) -> bool:
        """Return False: the verifier looks at the ops that write its operands, and at other joins of them."""
        return False

    def verify_(self) -> None:
        expect_tensors(self, strided=True)
        element, shape = tensor_spec(self.output)
        if shares_block(self.output.type):
            raise VerifyException(f"expected a dense result, got {self.output.type}")
        size, parts = math.prod(shape), WrittenLayouts()
        for value in self.inputs:
            layout = layout_of(tensor_type(value))
            if tensor_spec(value)[0] != element:
                raise VerifyException(
                    f"a join keeps the element type, got {value.type} -> {self.output.type}"
                )
            if not isinstance(value.owner, KernelOp) or not shares_block(value.type):
                raise VerifyException(
                    f"expected the results of launches at their places in {self.output.type}, got {value.type}"
                )
            if [use.operation for use in value.uses if isinstance(use.operation, JoinOp)] != [self]:
                raise VerifyException(f"expected a tensor to be joined once, got {value.type} more often")
            if layout.end > size or layout.overlaps_itself or parts.meets(layout):
                raise VerifyException(
                    f"expected operands inside {self.output.type} and apart from each other, got {value.type}"
                )
            parts.add(layout)
        if not parts.have(Layout.dense(shape), size):
            raise VerifyException(f"expected operands that fill {self.output.type} together")


VIEWS = (ReshapeOp, ViewOp, JoinOp)
"""Ops that are no launch: their result is memory of their operands."""


def _launches() -> dict[str, type[KernelOp]]:
    """An op class for each schema of the runtime: the class `GemmEpilogueOp` is the op `kernel.gemm_epilogue`."""
    classes: dict[str, type[KernelOp]] = {}
    for schema in registry.schemas().values():
        class_name = "".join(word.capitalize() for word in schema.name.split("_")) + "Op"
        namespace = {"name": f"kernel.{schema.name}", "__doc__": schema.doc, "__module__": __name__}
        base: type[KernelOp] = GeneratedOp if schema.generated else KernelOp
        made = cast(type[KernelOp], type(class_name, (base,), namespace))
        classes[class_name] = irdl_op_definition(made)
    return classes


_CLASSES = _launches()

LAUNCHES: tuple[type[KernelOp], ...] = tuple(_CLASSES.values())
"""Every op that is a launch, in the order of the runtime."""


def __getattr__(name: str) -> type[KernelOp]:
    try:
        return _CLASSES[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None


Kernel = Dialect("kernel", [ConstantOp, ReshapeOp, ViewOp, JoinOp, *LAUNCHES], [])
