"""Collectives: values of every rank of a group. Two move bytes, and one makes the mean of numbers; `sum-ranks` writes a sum
as a gather and additions in the order of ranks.

Every rank has the same collectives, so every rank is at the same one. A collective begins once its operands `after` are there:
with the one in front of it among them, all have one order.

The loss of each rank may depend on values of every rank, and training minimizes the mean of all losses. So the gradient of what
a rank gives is the sum of the gradients that the ranks have for it.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence

from xdsl.builder import Builder
from xdsl.dialects.builtin import IntegerAttr, StringAttr, TensorType, f32, f64, i64
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

from aicf_mlir.dialects.nn.broadcasting import SumOp
from aicf_mlir.dialects.nn.common import NNOp, ValueOp
from aicf_mlir.ir.expect import Value, expect_float, expect_type, with_shape
from aicf_mlir.ir.interfaces import DifferentiableInterface, NotDifferentiable
from aicf_mlir.ir.signature import STATUS_TYPE
from aicf_mlir.ir.tensor_op import AnyTensor, element_type, shape_of

__all__ = [
    "COLLECTIVES",
    "WITH_STATUS",
    "AllGatherOp",
    "AllGatherStatusOp",
    "AllReduceOp",
    "AllReduceStatusOp",
    "AllToAllOp",
    "CollectiveOp",
    "CollectiveStatusOp",
    "SumOfRanksOp",
]


class CollectiveOp(ValueOp, abc.ABC):
    """What all ranks have of x."""

    x = operand_def(TensorType)
    after = var_operand_def(TensorType)
    group = prop_def(StringAttr)
    ranks = prop_def(IntegerAttr.constr(i64))

    def __init__(self, x: Value, group: str, ranks: int, after: Sequence[Value] = ()):
        """`group`: its name; `ranks`: how many it has; `after`: values that must be there before."""
        super().__init__(
            operands=[x, list(after)],
            properties={"group": StringAttr(group), "ranks": IntegerAttr(ranks, i64)},
            result_types=[self.of_ranks(x, ranks)],
        )

    def inferred_type(self) -> AnyTensor:
        return self.of_ranks(self.x, expect_group(self.group, self.ranks))

    @staticmethod
    @abc.abstractmethod
    def of_ranks(x: Value, ranks: int) -> AnyTensor:
        """The type of what so many ranks have."""


class CollectiveStatusOp(NNOp, abc.ABC):
    """The same, and the status of every rank, in their order, as one exchange: the status costs no exchange of its own."""

    x = operand_def(TensorType)
    status = operand_def(TensorType)
    after = var_operand_def(TensorType)
    group = prop_def(StringAttr)
    ranks = prop_def(IntegerAttr.constr(i64))
    result = result_def(TensorType)
    statuses = result_def(TensorType)

    traits = traits_def(NotDifferentiable("it is put in where gradients are known already"))

    def __init__(self, x: Value, status: Value, group: str, ranks: int, after: Sequence[Value] = ()):
        """`group`: its name; `ranks`: how many it has; `after`: values that must be there before."""
        super().__init__(
            operands=[x, status, list(after)],
            properties={"group": StringAttr(group), "ranks": IntegerAttr(ranks, i64)},
            result_types=[self.of_ranks(x, ranks), statuses_of(ranks)],
        )

    def inferred_types(self) -> Sequence[AnyTensor]:
        expect_type("status", self.status, STATUS_TYPE)
        ranks = expect_group(self.group, self.ranks)
        return [self.of_ranks(self.x, ranks), statuses_of(ranks)]

    @staticmethod
    @abc.abstractmethod
    def of_ranks(x: Value, ranks: int) -> AnyTensor:
        """The type of what so many ranks have."""


def gathered_type(x: Value, ranks: int) -> AnyTensor:
    """Each rank's x."""
    return with_shape(x, [ranks, *shape_of(x)])


def rows_type(x: Value, ranks: int) -> AnyTensor:
    """As many rows as x has. Raises VerifyException for x without a row of each rank."""
    shape = shape_of(x)
    if not shape or shape[0] != ranks:
        raise VerifyException(f"x: expected a row for each of {ranks} ranks, got {with_shape(x, shape)}")
    return with_shape(x, shape)


def reduced_type(x: Value, ranks: int) -> AnyTensor:
    """A mean, in the type in which numbers are added up. Raises VerifyException for x that are no floats."""
    del ranks
    expect_float("x", x)
    return TensorType(f64 if element_type(x) == f64 else f32, shape_of(x))


@irdl_op_definition
class AllGatherOp(CollectiveOp, DifferentiableInterface):
    """x of every rank, in their order: a first dimension with an element for each rank."""

    name = "nn.all_gather"

    of_ranks = staticmethod(gathered_type)

    def vjp(self, builder: Builder, cotangents: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        (g,) = cotangents
        for_this = builder.insert(AllToAllOp(g, self.group.data, self.ranks.value.data)).result
        return [builder.insert(SumOp(for_this, [0])).result, *[None] * len(self.after)]


@irdl_op_definition
class AllToAllOp(CollectiveOp, DifferentiableInterface):
    """Row i of x goes to rank i: of every rank, in their order, the row that it has for this one."""

    name = "nn.all_to_all"

    of_ranks = staticmethod(rows_type)

    def vjp(self, builder: Builder, cotangents: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        (g,) = cotangents
        back = builder.insert(AllToAllOp(g, self.group.data, self.ranks.value.data)).result
        return [back, *[None] * len(self.after)]


@irdl_op_definition
class AllGatherStatusOp(CollectiveStatusOp):
    """x and the status of every rank, in their order."""

    name = "nn.all_gather_status"

    of_ranks = staticmethod(gathered_type)


@irdl_op_definition
class AllReduceOp(CollectiveOp):
    """The mean of x over all ranks, which are added up in their order; every rank has it.

    Sums and the mean are f32, or f64 if x is: those of 16-bit numbers are not rounded to 16 bits.
    """

    name = "nn.all_reduce"

    traits = traits_def(NotDifferentiable("it is put in where gradients are known already"))

    of_ranks = staticmethod(reduced_type)


@irdl_op_definition
class AllReduceStatusOp(CollectiveStatusOp):
    """The mean of x over all ranks, as of `AllReduceOp`, and the status of every rank."""

    name = "nn.all_reduce_status"

    of_ranks = staticmethod(reduced_type)


COLLECTIVES = (AllGatherOp, AllGatherStatusOp, AllReduceOp, AllReduceStatusOp, AllToAllOp)
"""The ops that exchange bytes."""

WITH_STATUS: dict[type[CollectiveOp], type[CollectiveStatusOp]] = {
    AllGatherOp: AllGatherStatusOp,
    AllReduceOp: AllReduceStatusOp,
}
"""The op that exchanges a status too, by the one that does not."""


@irdl_op_definition
class SumOfRanksOp(ValueOp, DifferentiableInterface):
    """The sum of x over all ranks, in their order; every rank has it."""

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
