"""What all nn ops share: results whose types operands and attributes imply."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute
from xdsl.irdl import operand_def, result_def, traits_def
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.ir.expect import Value, expect_float, expect_tensors
from aicf_mlir.ir.interfaces import DifferentiableInterface
from aicf_mlir.ir.tensor_op import AnyTensor, TensorOp, tensor_type


class NNOp(TensorOp, abc.ABC):
    """A pure op on statically shaped tensors; operands and attributes imply the types of its results."""

    LAUNCH: ClassVar[str | None] = None
    """The kernel op that is the same op, where it has another name than this one (`dialects/launches.py`)."""

    traits = traits_def(Pure())

    @abc.abstractmethod
    def inferred_types(self) -> Sequence[AnyTensor]:
        """The only legal result types; raises VerifyException for illegal operands or attributes."""

    def verify_(self) -> None:
        expect_tensors(self)
        expected = self.inferred_types()
        for index, (wanted, got) in enumerate(zip(expected, self.result_types, strict=True)):
            if got != wanted:
                which = f" of result {index}" if len(expected) > 1 else ""
                raise VerifyException(f"expected result type {wanted}{which}, got {got}")


class ValueOp(NNOp, abc.ABC):
    """An op with one result, as nearly all are."""

    result = result_def(TensorType)

    @abc.abstractmethod
    def inferred_type(self) -> AnyTensor:
        """The only legal result type; raises VerifyException for illegal operands or attributes."""

    def inferred_types(self) -> Sequence[AnyTensor]:
        return [self.inferred_type()]


class UnaryOp(ValueOp, DifferentiableInterface, abc.ABC):
    """An op of one operand of floats, whose type its result has."""

    x = operand_def(TensorType)

    def __init__(self, x: Value, **properties: Attribute):
        super().__init__(operands=[x], properties=properties, result_types=[tensor_type(x)])

    def inferred_type(self) -> AnyTensor:
        expect_float("the operand", self.x)
        return tensor_type(self.x)
