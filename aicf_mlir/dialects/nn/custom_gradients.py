"""Values whose gradient is not the derivative of the ops that compute them: a user has written it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from xdsl.builder import Builder
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Region, SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    irdl_op_definition,
    region_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.dialects.nn.common import NNOp
from aicf_mlir.dialects.nn.shape import ConstantOp
from aicf_mlir.dialects.train import OwnIdentity, YieldOp
from aicf_mlir.ir.expect import Value, expect_float
from aicf_mlir.ir.interfaces import DecomposableInterface, DifferentiableInPartsInterface
from aicf_mlir.ir.tensor_op import AnyTensor, tensor_type

__all__ = ["CustomGradientOp"]


@irdl_op_definition
class CustomGradientOp(NNOp, DifferentiableInPartsInterface, DecomposableInterface):
    """The values of `of`, whose gradients flow to `wrt` alone, as the region computes them.

    The region takes the gradient of each result, zero if the loss does not depend on it, and yields one of each operand of `wrt`.
    If it has twice as many arguments, the others are the results: a backward that reads them depends on them.
    It may read any value that exists before this op. Differentiation puts it where the gradients are taken; nothing else runs it.
    Two equal ops stay two, since the gradient of a sum need not be the sum of the gradients.
    """

    name = "nn.custom_gradient"

    of = var_operand_def(TensorType)
    wrt = var_operand_def(TensorType)
    values = var_result_def(TensorType)
    gradient = region_def("single_block")

    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    traits = traits_def(OwnIdentity())

    def __init__(self, of: Sequence[Value], wrt: Sequence[Value], gradient: Region):
        super().__init__(
            operands=[of, wrt], regions=[gradient], result_types=[[tensor_type(value) for value in of]]
        )

    def inferred_types(self) -> Sequence[AnyTensor]:
        return [tensor_type(value) for value in self.of]

    def is_verified_by_form(self) -> bool:
        return False

    def verify_(self) -> None:
        super().verify_()
        block, last = self.gradient.block, self.gradient.block.last_op
        for kind, values in (("value", self.of), ("operand", self.wrt)):
            for index, value in enumerate(values):
                expect_float(f"{kind} {index}", value)
        if not isinstance(last, YieldOp):
            raise VerifyException("expected a region that ends with train.yield")
        for what, got, wanted in (
            (
                "arguments of the region",
                block.args,
                [*self.of, *self.of][: max(len(self.of), len(block.args))],
            ),
            ("yielded gradients", last.gradients, self.wrt),
        ):
            types = [tensor_type(value) for value in got], [tensor_type(value) for value in wanted]
            if types[0] != types[1]:
                listed = (", ".join(map(str, each)) or "none" for each in types)
                raise VerifyException("expected {1} as {what}, got {0}".format(*listed, what=what))

    def print(self, printer: Printer) -> None:
        super().print(printer)
        printer.print_string(" ")
        printer.print_region(self.gradient)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        op = super().parse(parser)
        op.add_region(parser.parse_region())
        return op

    def vjp_in_parts(
        self, builder: Builder, cotangents: Sequence[SSAValue | None]
    ) -> Sequence[SSAValue | None]:
        """The region at the place of `builder`."""
        block = self.gradient.block
        made: dict[SSAValue, SSAValue] = {}
        for argument, cotangent in zip(block.args, [*cotangents, *self.values], strict=False):
            made[argument] = (
                builder.insert(ConstantOp(0.0, tensor_type(argument))).result
                if cotangent is None
                else cotangent
            )
        for op in block.ops:
            if not isinstance(op, YieldOp):
                builder.insert(op.clone(made))
            else:
                return [*(None for _ in self.of), *(made.get(value, value) for value in op.gradients)]
        raise ValueError(f"{self.name} without train.yield")

    def decompose(self, builder: Builder, target: str) -> Sequence[SSAValue]:
        """Once no gradient is taken any more the op is the identity."""
        return self.of
