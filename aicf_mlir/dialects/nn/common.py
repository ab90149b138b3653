"""What all nn ops share: one result, whose type operands and attributes imply."""

from __future__ import annotations

import abc

from xdsl.dialects.builtin import TensorType
from xdsl.irdl import result_def, traits_def
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.dialects.base import AnyTensor, TensorOp
from aicf_mlir.dialects.verification import expect_tensors


class NNOp(TensorOp, abc.ABC):
    """A pure op on statically shaped tensors; operands and attributes imply the type of its one result."""

    result = result_def(TensorType)

    traits = traits_def(Pure())

    @abc.abstractmethod
    def inferred_type(self) -> AnyTensor:
        """The only legal result type; raises VerifyException for illegal operands or attributes."""

    def verify_(self) -> None:
        expect_tensors(self)
        expected = self.inferred_type()
        if self.result.type != expected:
            raise VerifyException(f"expected result type {expected}, got {self.result.type}")
