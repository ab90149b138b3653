"""The train dialect: the requests of a training loop's body in the middle of a step.

A step of one loss and one optimizer needs no `train.backward` and no `train.update`: autodiff appends the gradients, and
apply-optimizer the updates. A loop body may take several gradients and update between them, so each is an op at its place.
`autodiff` puts the gradients in the place of `train.backward`, `apply-optimizer` the updates in the place of `train.update`. Any
step may compute with gradients that it takes itself, by `train.gradient`. A gradient that a user has written is the region of an
`nn.custom_gradient`, which ends with `train.yield`.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any

from xdsl.builder import Builder
from xdsl.dialects.builtin import ArrayAttr, BoolAttr, DenseArrayBase, StringAttr, TensorType, i1, i32
from xdsl.ir import Attribute, Dialect, Operation, SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    irdl_op_definition,
    operand_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer
from xdsl.traits import EffectInstance, IsTerminator, MemoryEffect, MemoryEffectKind, Pure
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.ir.expect import Value, expect_float, is_float
from aicf_mlir.ir.interfaces import DifferentiableInterface, NotDifferentiable
from aicf_mlir.ir.properties import bool_attr
from aicf_mlir.ir.registry import Operand, segments
from aicf_mlir.ir.segments import parse_segments, print_segments
from aicf_mlir.ir.tensor_op import SEGMENT_SIZES, TensorOp, shape_of, tensor_type

TRAINED = "aicf.trained"
"""The attribute of a function that takes gradients inside: the parameters to which torch gives a gradient of the loss, by name.

The derivative of another one, or that of a gradient, may be 0 without torch computing it: the parameter then has no gradient.
"""

CUT = NotDifferentiable("what it gives is a constant to every gradient, as in torch")


@irdl_op_definition
class BackwardOp(TensorOp):
    """The gradients of `loss` with respect to `wrt`, any values that it depends on: one result each, of its type."""

    name = "train.backward"

    loss = operand_def(TensorType)
    wrt = var_operand_def(TensorType)
    gradients = var_result_def(TensorType)

    traits = traits_def(Pure(), CUT)

    def __init__(self, loss: Value, wrt: Sequence[Value]):
        super().__init__(operands=[loss, wrt], result_types=[[tensor_type(value) for value in wrt]])

    def verify_(self) -> None:
        if not is_float(self.loss) or shape_of(self.loss) != ():
            raise VerifyException(f"expected a 0-d floating-point loss, got {self.loss.type}")
        _expect_results(self.wrt, self.gradients)


@irdl_op_definition
class GradientOp(TensorOp):
    """The gradients of `of`, times `seeds`, with respect to `wrt`: any values of the step. One result each, of its type.

    With `create_graph` a later gradient flows through the results, as through the ops that compute them, else they are constants
    to it. Each value of `wrt` is an argument or a `train.input`.
    """

    name = "train.gradient"

    of = var_operand_def(TensorType)
    seeds = var_operand_def(TensorType)
    wrt = var_operand_def(TensorType)
    gradients = var_result_def(TensorType)
    create_graph = prop_def(BoolAttr, default_value=bool_attr(False))

    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    traits = traits_def(Pure(), NotDifferentiable("autodiff replaces it by the ops that compute it"))

    def __init__(
        self, of: Sequence[Value], seeds: Sequence[Value], wrt: Sequence[Value], create_graph: bool = False
    ):
        super().__init__(
            operands=[of, seeds, wrt],
            properties={"create_graph": bool_attr(create_graph)},
            result_types=[[tensor_type(value) for value in wrt]],
        )

    def print_operands(self, printer: Printer) -> None:
        sizes: Any = self.properties[SEGMENT_SIZES[0]]
        print_segments(
            printer, segments(OF_GRADIENT, sizes.get_values(), self.operands), printer.print_operand
        )

    @classmethod
    def parse_operands(cls, parser: Parser) -> tuple[list[UnresolvedOperand], dict[str, Attribute]]:
        values = parse_segments(parser, cls.name, OF_GRADIENT, parser.parse_unresolved_operand)
        sizes = [len(values.get(row.name, ())) for row in OF_GRADIENT]
        listed = [value for row in OF_GRADIENT for value in values.get(row.name, ())]
        return listed, {SEGMENT_SIZES[0]: DenseArrayBase.from_list(i32, sizes)}

    def verify_(self) -> None:
        if [tensor_type(value) for value in self.of] != [tensor_type(seed) for seed in self.seeds]:
            raise VerifyException("expected one seed for each value to differentiate, of its type")
        _expect_results(self.of, self.seeds)
        _expect_results(self.wrt, self.gradients)


OF_GRADIENT = [Operand(name, "many") for name in ("of", "seeds", "wrt")]
"""The operands of a gradient by name."""


class OwnIdentity(MemoryEffect):
    """Two equal ops are not one."""

    @classmethod
    def get_effects(cls, op: Operation) -> Set[EffectInstance]:
        """No effects, as if its results depended on nothing: the op is not merged, and is removed if it is unused."""
        return {EffectInstance(MemoryEffectKind.ALLOC, result) for result in op.results}


@irdl_op_definition
class InputOp(TensorOp, DifferentiableInterface):
    """x, with respect to which a gradient is taken: another value that is computed alike is not this one."""

    name = "train.input"

    x = operand_def(TensorType)
    result = result_def(TensorType)

    traits = traits_def(OwnIdentity())

    def __init__(self, x: Value):
        super().__init__(operands=[x], result_types=[tensor_type(x)])

    def verify_(self) -> None:
        _expect_results([self.x], [self.result])

    def vjp(self, builder: Builder, cotangents: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        return cotangents


@irdl_op_definition
class UpdateOp(TensorOp):
    """The parameters `params` after a step of their optimizer with the gradients `grads`; `names` are those of the arguments.

    The last operand may be a 0-d i1: where it is false, parameters and the state of the optimizer stay as they are.
    """

    name = "train.update"

    operands_ = var_operand_def(TensorType)
    updated = var_result_def(TensorType)
    names = prop_def(ArrayAttr[StringAttr])

    traits = traits_def(Pure(), CUT)

    def __init__(
        self,
        params: Sequence[Value],
        grads: Sequence[Value],
        names: Sequence[str],
        taken: Value | None = None,
    ):
        super().__init__(
            operands=[[*params, *grads, *([] if taken is None else [taken])]],
            properties={"names": ArrayAttr([StringAttr(name) for name in names])},
            result_types=[[tensor_type(value) for value in params]],
        )

    @property
    def params(self) -> list[SSAValue]:
        """The values before the step."""
        return list(self.operands_)[: len(self.names)]

    @property
    def grads(self) -> list[SSAValue]:
        """The gradients of the parameters, in the same order."""
        return list(self.operands_)[len(self.names) : 2 * len(self.names)]

    @property
    def taken(self) -> SSAValue | None:
        """True if the step is taken; None for one that always is."""
        return next(iter(list(self.operands_)[2 * len(self.names) :]), None)

    def verify_(self) -> None:
        if len(self.operands_) - 2 * len(self.names) not in (0, 1):
            raise VerifyException(
                f"expected a parameter and a gradient for each of {len(self.names)} names, got {len(self.operands_)} operands"
            )
        if self.taken is not None and tensor_type(self.taken) != TensorType(i1, []):
            raise VerifyException(f"expected a last operand of tensor<i1>, got {self.taken.type}")
        if len({name.data for name in self.names}) != len(self.names):
            raise VerifyException("expected names that differ")
        for param, gradient in zip(self.params, self.grads, strict=True):
            if tensor_type(param) != tensor_type(gradient):
                raise VerifyException(
                    f"expected a gradient of the type of its parameter, {tensor_type(param)}, got {tensor_type(gradient)}"
                )
        _expect_results(self.params, self.updated)


def _expect_results(values: Sequence[Value], results: Sequence[Value]) -> None:
    """Check that there is a result of the type of each value, which are floats."""
    if not values or len(values) != len(results):
        raise VerifyException(
            f"expected one result for each of one or more values, got {len(results)} for {len(values)}"
        )
    for index, (value, result) in enumerate(zip(values, results, strict=True)):
        expect_float(f"value {index}", value)
        if tensor_type(value) != tensor_type(result):
            raise VerifyException(
                f"expected result {index} to be {tensor_type(value)}, got {tensor_type(result)}"
            )


@irdl_op_definition
class YieldOp(TensorOp):
    """The end of a region: the gradients that it gives."""

    name = "train.yield"

    gradients = var_operand_def(TensorType)

    traits = traits_def(Pure(), IsTerminator())

    def __init__(self, gradients: Sequence[Value]):
        super().__init__(operands=[gradients])


Train = Dialect("train", [BackwardOp, GradientOp, InputOp, UpdateOp, YieldOp])
