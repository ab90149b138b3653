"""The base of the ops of the optim dialect: one per updated tensor, on immutable tensors.

A param group counts its steps in one vector, an element for each parameter. All values that follow from the count have the same
length, and the update of a parameter reads the element that its `index` names.

Hyperparameters are 0-d f64 operands, never attributes: the host may change them between steps. They are combined in f64 and
rounded once. Each op returns new values; the results of the function tell that they replace the old ones.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import ClassVar

from xdsl.dialects.builtin import Float32Type, IntegerAttr, TensorType, f64
from xdsl.ir import SSAValue
from xdsl.irdl import traits_def
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.ir.attributes import AttributeValue
from aicf_mlir.ir.expect import Value, expect_float, expect_type
from aicf_mlir.ir.interfaces import NotDifferentiable
from aicf_mlir.ir.registry import Schema, schemas
from aicf_mlir.ir.tensor_op import AnyTensor, TensorOp, element_type, shape_of, tensor_type

HYPERPARAMETER: AnyTensor = TensorType(f64, ())
"""The type of lr, beta1, ... and of the pins of the bias corrections."""
GRADIENT = "g"
"""The operand of every update that no result replaces, though each tensor has one."""
PER_TENSOR = ("groups", "indices", "copied")
"""The attributes of an optimizer's launch that have an entry for each tensor."""


class OptimOp(TensorOp, abc.ABC):
    """A pure op of the optimizer's update."""

    traits = traits_def(Pure(), NotDifferentiable("it belongs to the optimizer's update"))

    def expect_hyperparameters(self, **operands: Value) -> None:
        """Refuse a hyperparameter that is not a 0-d f64 tensor."""
        for name, value in operands.items():
            expect_type(name, value, HYPERPARAMETER)

    def expect_like_parameter(self, p: Value, **values: Value | None) -> None:
        """Refuse a gradient, state or result of another type than the parameter."""
        expect_float("p", p)
        for name, value in values.items():
            if value is not None:
                expect_type(name, value, tensor_type(p))


class LaunchedOp(OptimOp, abc.ABC):
    """
    A launch of one tensor in one group: its operands, results and flags have the names of the kernel's schema.

    So it lowers by rule, and its meaning is that of the launch.
    """

    LAUNCH: ClassVar[str]
    """The kernel op that it becomes, without the prefix of the dialect."""
    PARTS: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Groups of operands and results that are present together or not at all: the names of each group, by its common name."""

    @classmethod
    def schema(cls) -> Schema:
        """The runtime's declaration of the launch."""
        return schemas()[cls.LAUNCH]

    def ins(self) -> dict[str, SSAValue]:
        """The operands that are there, in their order, by the names of the schema."""
        return self._named([name for name, _ in self.get_irdl_definition().operands])

    def outs(self) -> dict[str, SSAValue]:
        """The same of the results: the result `next_p` replaces the operand p, and is called as it."""
        return self._named([name for name, _ in self.get_irdl_definition().results])

    def _named(self, names: list[str]) -> dict[str, SSAValue]:
        operands: dict[str, SSAValue] = {}
        for name in names:
            value = getattr(self, name)
            if name in self.PARTS:
                operands |= zip(self.PARTS[name], value, strict=False)
            elif value is not None:
                operands[name.removeprefix("next_")] = value
        return operands

    def launch_attributes(self) -> dict[str, AttributeValue]:
        """The attributes of the launch: its tensor is the first of the first group; flags that are false are left out."""
        attrs: dict[str, AttributeValue] = {}
        for row in self.schema().attrs:
            if row.name == "groups":
                attrs["groups"] = [0]
            elif row.name == "indices":
                if isinstance(index := self.properties.get("index"), IntegerAttr):
                    attrs["indices"] = [index.value.data]
            elif isinstance(flag := self.properties.get(row.name), IntegerAttr) and flag.value.data:
                attrs[row.name] = True
        return attrs


def tensors_of(schema: Schema) -> frozenset[str]:
    """The operands of an update's schema that have an entry for each tensor; the others have one for each group."""
    return frozenset({GRADIENT, *(row.name for row in schema.outputs)})


def corrections_of(step: Value) -> AnyTensor:
    """The type of the bias corrections for step counters: one f64 per parameter of the group."""
    return TensorType(f64, shape_of(step))


def expect_step(step: SSAValue) -> None:
    """Refuse step counters that are not one f32 per parameter of the group."""
    if len(shape_of(step)) != 1 or shape_of(step)[0] < 1 or not isinstance(element_type(step), Float32Type):
        raise VerifyException(f"expected step of type tensor<nxf32> with n > 0, got {tensor_type(step)}")


def expect_index(index: int, name: str, vector: Value) -> None:
    """Refuse an index of no element of `vector`, which is called `name`."""
    if not 0 <= index < shape_of(vector)[0]:
        raise VerifyException(f"expected index of an element of {name} {tensor_type(vector)}, got {index}")
