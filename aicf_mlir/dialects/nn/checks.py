"""Checks on the values of a step: they compute a status, and a step whose status has failed updates nothing."""

from __future__ import annotations

import abc
from collections.abc import Sequence

from xdsl.builder import Builder
from xdsl.dialects.builtin import IntegerAttr, IntegerType, StringAttr, TensorType, i1, i64
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, prop_def, traits_def, var_operand_def
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.dialects.nn.common import ValueOp
from aicf_mlir.dialects.nn.value_rules import RULES, ValueRule
from aicf_mlir.ir.body import Body
from aicf_mlir.ir.expect import Value, expect_element, expect_float, expect_type
from aicf_mlir.ir.formula import trace
from aicf_mlir.ir.generated import GeneratedInterface
from aicf_mlir.ir.interfaces import DecomposableInterface, NotDifferentiable
from aicf_mlir.ir.signature import STATUS_TYPE
from aicf_mlir.ir.tensor_op import AnyTensor, element_type, shape_of, tensor_type

__all__ = ["CheckFiniteOp", "CheckIndexOp", "CheckOp", "CheckRanksOp", "CheckValueOp", "RefusedOp"]


class CheckOp(ValueOp, abc.ABC):
    """The status after one more check: the status before it if that has failed already, so that the first failure stays.

    A status is three numbers: a code, 0 if nothing failed; the position of the first element that made the check fail, counted in
    row-major order; and the value of this element. `code` identifies the check within a step.
    """

    code = prop_def(IntegerAttr.constr(i64))

    traits = traits_def(NotDifferentiable("it is a check, not a value"))

    @property
    def codes(self) -> range:
        """The codes that this check may leave."""
        return range(self.code.value.data, self.code.value.data + 1)

    def inferred_type(self) -> AnyTensor:
        expect_type("status", self.operands[0], STATUS_TYPE)
        if self.code.value.data < 1:
            raise VerifyException(f"expected a code of 1 or more, got {self.code.value.data}")
        self.expect_checked()
        return STATUS_TYPE

    @abc.abstractmethod
    def expect_checked(self) -> None:
        """Refuse operands or attributes that the check is not defined for."""


@irdl_op_definition
class CheckIndexOp(CheckOp):
    """Fails at an index that is neither in 0..classes-1 nor `ignore_index`; the status has its value.

    A target of booleans is the result of other checks: with one class, it fails at the first that is true.
    """

    name = "nn.check_index"

    status = operand_def(TensorType)
    target = operand_def(TensorType)
    classes = prop_def(IntegerAttr.constr(i64))
    ignore_index = opt_prop_def(IntegerAttr.constr(i64))

    def __init__(
        self, status: Value, target: Value, classes: int, code: int, ignore_index: int | None = None
    ):
        super().__init__(
            operands=[status, target],
            properties={
                "classes": IntegerAttr(classes, i64),
                "ignore_index": None if ignore_index is None else IntegerAttr(ignore_index, i64),
                "code": IntegerAttr(code, i64),
            },
            result_types=[STATUS_TYPE],
        )

    def expect_checked(self) -> None:
        if element_type(self.target) not in (i64, IntegerType(32), i1):
            raise VerifyException(
                f"expected target of element type i64, i32 or i1, got {tensor_type(self.target)}"
            )
        if self.classes.value.data < 1:
            raise VerifyException(f"expected classes of 1 or more, got {self.classes.value.data}")


@irdl_op_definition
class CheckFiniteOp(CheckOp):
    """A check that fails at a NaN or an infinity in any of the tensors x: with code `code + i` in the i-th of them.

    The reported value is 0 for NaN, 1 for infinity and -1 for -infinity.
    """

    name = "nn.check_finite"

    status = operand_def(TensorType)
    x = var_operand_def(TensorType)

    def __init__(self, status: Value, x: Sequence[Value], code: int):
        super().__init__(
            operands=[status, list(x)],
            properties={"code": IntegerAttr(code, i64)},
            result_types=[STATUS_TYPE],
        )

    @property
    def codes(self) -> range:
        """The codes, one for each tensor."""
        return range(self.code.value.data, self.code.value.data + len(self.x))

    def expect_checked(self) -> None:
        if not self.x:
            raise VerifyException("expected one value or more to check, got none")
        for index, value in enumerate(self.x):
            expect_float(f"value {index}", value)


def rule_of(op: CheckValueOp | RefusedOp) -> ValueRule:
    """The row of the table; refuses a name that is in none, and elements that it is not about."""
    if (rule := RULES.get(op.rule.data)) is None:
        raise VerifyException(f"expected a rule, one of {', '.join(RULES)}, got {op.rule.data!r}")
    expect_element("x", op.x, rule.takes)
    return rule


@irdl_op_definition
class RefusedOp(ValueOp, GeneratedInterface):
    """The elements of x that a rule of `value_rules` refuses."""

    name = "nn.refused"

    x = operand_def(TensorType)
    rule = prop_def(StringAttr)

    traits = traits_def(NotDifferentiable("it is a check, not a value"))

    def __init__(self, x: Value, rule: str):
        super().__init__(
            operands=[x],
            properties={"rule": StringAttr(rule)},
            result_types=[TensorType(i1, tensor_type(x).get_shape())],
        )

    def inferred_type(self) -> AnyTensor:
        rule_of(self)
        return TensorType(i1, shape_of(self.x))

    def body(self) -> Body:
        return trace(self.compute_types, rule_of(self).refuses)


@irdl_op_definition
class CheckValueOp(CheckOp, DecomposableInterface):
    """A check that fails at an element of x that the rule refuses; `of` is the user's function that requires it."""

    name = "nn.check_value"

    status = operand_def(TensorType)
    x = operand_def(TensorType)
    rule = prop_def(StringAttr)
    of = prop_def(StringAttr)

    def __init__(self, status: Value, x: Value, rule: str, of: str, code: int):
        super().__init__(
            operands=[status, x],
            properties={
                "rule": StringAttr(rule),
                "of": StringAttr(of),
                "code": IntegerAttr(code, i64),
            },
            result_types=[STATUS_TYPE],
        )

    def expect_checked(self) -> None:
        rule_of(self)

    def decompose(self, builder: Builder, target: str) -> Sequence[SSAValue]:
        """The status after a check that no element is refused: an index check of the booleans of RefusedOp."""
        refused = builder.insert(RefusedOp(self.x, self.rule.data)).result
        return [builder.insert(CheckIndexOp(self.status, refused, 1, self.code.value.data)).result]


@irdl_op_definition
class CheckRanksOp(CheckOp):
    """The status of the rank that failed at the first check, so that all ranks skip the step or none does.

    `of_ranks` has the status of each rank, a row each. The least code is that of the first check: what is not finite on one
    rank makes the mean not finite on all. The code of rank r grows by r times `code`, which is larger than all other codes.
    """

    name = "nn.check_ranks"

    status = operand_def(TensorType)
    of_ranks = operand_def(TensorType)

    def __init__(self, status: Value, of_ranks: Value, code: int):
        super().__init__(
            operands=[status, of_ranks],
            properties={"code": IntegerAttr(code, i64)},
            result_types=[STATUS_TYPE],
        )

    def expect_checked(self) -> None:
        shape = shape_of(self.of_ranks)
        if element_type(self.of_ranks) != i64 or len(shape) != 2 or shape[1] != 3:
            raise VerifyException(
                f"expected a status of i64[3] for each rank, got {tensor_type(self.of_ranks)}"
            )
