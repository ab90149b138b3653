"""Collectives: values of every rank of a group. One moves bytes; `sum-ranks` writes a sum as that and additions in the order
of ranks.

Every rank runs the same text, so every rank is at the same collective. A collective begins once its operands `after` are there:
with the one in front of it among them, all have one order.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.builder import Builder
from xdsl.dialects.builtin import IntegerAttr, StringAttr, TensorType, i64
from xdsl.ir import SSAValue
from xdsl.irdl import (
    irdl_op_definition,
    operand_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.dialects.nn.common import NNOp, ValueOp
from aicf_mlir.ir.expect import Value, expect_float, expect_type, with_shape
from aicf_mlir.ir.interfaces import DifferentiableInterface, NotDifferentiable
from aicf_mlir.ir.signature import STATUS_TYPE
from aicf_mlir.ir.tensor_op import AnyTensor, shape_of

__all__ = ["GATHERS", "AllGatherOp", "AllGatherStatusOp", "SumOfRanksOp"]


@irdl_op_definition
class AllGatherOp(ValueOp):
    """x of every rank, in their order: a first dimension with an element for each rank."""

    name = "nn.all_gather"

    x = operand_def(TensorType)
    after = var_operand_def(TensorType)
    group = prop_def(StringAttr)
    ranks = prop_def(IntegerAttr.constr(i64))

    traits = traits_def(NotDifferentiable("it is put in where gradients are known already"))

    def __init__(self, x: Value, group: str, ranks: int, after: Sequence[Value] = ()):
        """`group`: its name; `ranks`: how many it has; `after`: values that must be there before."""
        super().__init__(
            operands=[x, list(after)],
            properties={"group": StringAttr(group), "ranks": IntegerAttr(ranks, i64)},
            result_types=[with_shape(x, [ranks, *shape_of(x)])],
        )

    def inferred_type(self) -> AnyTensor:
        return with_shape(self.x, [expect_group(self.group, self.ranks), *shape_of(self.x)])


@irdl_op_definition
class AllGatherStatusOp(NNOp):
    """x and the status of every rank, in their order, as one exchange: the status costs no exchange of its own."""

    name = "nn.all_gather_status"

    x = operand_def(TensorType)
    status = operand_def(TensorType)
    after = var_operand_def(TensorType)
    group = prop_def(StringAttr)
    ranks = prop_def(IntegerAttr.constr(i64))
    gathered = result_def(TensorType)
    statuses = result_def(TensorType)

    traits = traits_def(NotDifferentiable("it is put in where gradients are known already"))

    def __init__(self, x: Value, status: Value, group: str, ranks: int, after: Sequence[Value] = ()):
        """`group`: its name; `ranks`: how many it has; `after`: values that must be there before."""
        super().__init__(
            operands=[x, status, list(after)],
            properties={"group": StringAttr(group), "ranks": IntegerAttr(ranks, i64)},
            result_types=[with_shape(x, [ranks, *shape_of(x)]), statuses_of(ranks)],
        )

    def inferred_types(self) -> Sequence[AnyTensor]:
        expect_type("status", self.status, STATUS_TYPE)
        ranks = expect_group(self.group, self.ranks)
        return [with_shape(self.x, [ranks, *shape_of(self.x)]), statuses_of(ranks)]


GATHERS = (AllGatherOp, AllGatherStatusOp)
"""The ops that exchange bytes."""


@irdl_op_definition
class SumOfRanksOp(ValueOp, DifferentiableInterface):
    """The sum of x over all ranks, in their order; every rank has it.

    The loss of each rank depends on x of every rank, and training minimizes the mean of all losses. So the gradient of x is the
    sum of the gradients that the ranks have for the result.
    """

    name = "nn.sum_of_ranks"

    x = operand_def(TensorType)
    group = prop_def(StringAttr)
    ranks = prop_def(IntegerAttr.constr(i64))

    def __init__(self, x: Value, group: str, ranks: int):
        """`group`: its name; `ranks`: how many it has."""
        super().__init__(
            operands=[x],
            properties={"group": StringAttr(group), "ranks": IntegerAttr(ranks, i64)},
            result_types=[with_shape(x, shape_of(x))],
        )

    def inferred_type(self) -> AnyTensor:
        expect_group(self.group, self.ranks)
        expect_float("x", self.x)
        return with_shape(self.x, shape_of(self.x))

    def vjp(self, builder: Builder, cotangents: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        (g,) = cotangents
        return [builder.insert(SumOfRanksOp(g, self.group.data, self.ranks.value.data)).result]


def statuses_of(ranks: int) -> AnyTensor:
    """The type of the statuses of so many ranks."""
    return TensorType(i64, [ranks, *STATUS_TYPE.get_shape()])


def expect_group(group: StringAttr, ranks: IntegerAttr) -> int:
    """Return the number of ranks. Raises VerifyException for less than one, and for a group without a name."""
    if ranks.value.data < 1:
        raise VerifyException(f"expected 1 rank or more, got {ranks.value.data}")
    if not group.data:
        raise VerifyException("expected the name of a group, got none")
    return ranks.value.data
