"""The kernel dialect: one op, one launch. The schemas in C++ declare the ops; their classes are made of them.

Attributes of a launch are ordinary attributes; `id` and `workspace` follow from select-kernels. What each op
computes is in interpreters/kernel.py. kernel.constant and kernel.reshape are no launches: they become a slot
with a value and an alias.
"""

from __future__ import annotations

import math

from xdsl.dialects.builtin import Float64Type, FloatAttr, TensorType
from xdsl.ir import Dialect
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, result_def, traits_def
from xdsl.traits import ConstantLike, Pure
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.dialects.kernel_op import KernelOp, tensor_spec
from aicf_mlir.ir import registry
from aicf_mlir.ir.expect import expect_tensors
from aicf_mlir.ir.registry import TensorSpec
from aicf_mlir.ir.tensor_op import TensorOp


@irdl_op_definition
class ConstantOp(TensorOp):
    """A tensor that holds `value` everywhere."""

    name = "kernel.constant"

    value = prop_def(FloatAttr[Float64Type])
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


def _launches() -> dict[str, type[KernelOp]]:
    """An op class for each schema of the runtime: the class `GemmEpilogueOp` is the op `kernel.gemm_epilogue`."""
    classes: dict[str, type[KernelOp]] = {}
    for schema in registry.schemas().values():
        class_name = "".join(word.capitalize() for word in schema.name.split("_")) + "Op"
        namespace = {"name": f"kernel.{schema.name}", "__doc__": schema.doc, "__module__": __name__}
        classes[class_name] = irdl_op_definition(type(class_name, (KernelOp,), namespace))
    return classes


_CLASSES = _launches()

LAUNCHES: tuple[type[KernelOp], ...] = tuple(_CLASSES.values())
"""Every op that is a launch, in the order of the runtime."""


def __getattr__(name: str) -> type[KernelOp]:
    try:
        return _CLASSES[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None


Kernel = Dialect("kernel", [ConstantOp, ReshapeOp, *LAUNCHES], [])
