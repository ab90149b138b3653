"""Collectives: values of every rank of a group. They move bytes; sums are other ops, in the order that the text has.

Every rank runs the same text, so every rank is at the same collective. A collective begins once its operands `after` are there:
with the one in front of it among them, all have one order.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import IntegerAttr, StringAttr, TensorType, i64
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, traits_def, var_operand_def
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.dialects.nn.common import ValueOp
from aicf_mlir.ir.expect import Value, with_shape
from aicf_mlir.ir.interfaces import NotDifferentiable
from aicf_mlir.ir.tensor_op import AnyTensor, shape_of

__all__ = ["AllGatherOp"]


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
        ranks = self.ranks.value.data
        if ranks < 1:
            raise VerifyException(f"expected 1 rank or more, got {ranks}")
        if not self.group.data:
            raise VerifyException("expected the name of a group, got none")
        return with_shape(self.x, [ranks, *shape_of(self.x)])
