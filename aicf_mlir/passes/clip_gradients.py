"""Limits on gradients, between differentiation and the optimizer: torch's clip_grad_value_ and clip_grad_norm_ in the step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp, TensorType, f32, f64
from xdsl.ir import Attribute, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.dialects import nn
from aicf_mlir.dialects.nn.emitter import Emitter, location_of, summed_in
from aicf_mlir.dialects.nn.reductions import REDUCTIONS
from aicf_mlir.dialects.optimizer_groups import OPTIMIZER, parse_groups
from aicf_mlir.ir.division import DividedGradients, gradient_names
from aicf_mlir.ir.signature import (
    Label,
    append_argument,
    argument_keys,
    result_keys,
    result_labels,
    return_op,
    set_results,
    steps,
)
from aicf_mlir.ir.tensor_op import element_type
from aicf_mlir.optimizers.op import HYPERPARAMETER
from aicf_mlir.optimizers.slots import OptimizerSlot
from aicf_mlir.passes.autodiff import refuse
from aicf_mlir.passes.numbers_of_ranks import known_to_all

MAX_NORM, MAX_VALUE = "clip_grad_norm", "clip_grad_value"
"""The names of the limits among the host scalars."""

EXAMPLES = {MAX_NORM: 1.0, MAX_VALUE: 1.0}
"""The limits that tools use if a text gives none: 0 would train nothing."""

NORM = "grad_norm"
"""The name of the norm among the outputs."""

EPSILON = 1e-6
"""The number that torch adds to a norm before it divides by the norm."""


@dataclass(frozen=True)
class ClipGradientsPass(ModulePass):
    """Put gradients within limits in the place of the gradients among the results of every function.

    Only gradients that the optimizer uses are limited: the ones of its param groups in `aicf.optimizer`, or all without that
    attribute. The limits are host scalars, new last arguments. With `value` each element is clamped to -clip_grad_value and
    clip_grad_value. With `norm`, after that, all gradients are multiplied by min(clip_grad_norm / (norm + 1e-6), 1). The norm is
    that of all their elements together, in f32, or in f64 if one of them is f64. It is a new result, the output "grad_norm". Of
    gradients that divide-gradients has left to other ranks it gathers the norms; the norm of these is made in the same order.

    Options:
      value: limit each element
      norm: the order of the norm to be limited, for example 2.0 or inf
      per-group: each param group has a norm and a limit of its own; those of group k > 0 end with `.k`
    """

    name = "clip-gradients"

    value: bool = False
    norm: float | None = None
    per_group: bool = False

    def __post_init__(self) -> None:
        if not self.value and self.norm is None:
            raise ValueError("expected value, norm or both")
        if self.norm is not None and not self.norm > 0:
            raise ValueError(f"expected a norm of an order above 0, got {self.norm}")
        if self.per_group and self.norm is None:
            raise ValueError("expected norm beside per-group")

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for function in steps(op):
            self.clip(function)

    def clip(self, function: func.FuncOp) -> None:
        """Limit the gradients of one function."""
        results = list(zip(return_op(function).operands, result_labels(function), strict=True))
        gradients = {label.name: value for value, label in results if label.role == "grad"}
        if not (known := gradient_names(function)):
            refuse(
                function, f"@{function.sym_name.data} has no gradients among its results; run autodiff first"
            )
        clipping = Clipping(function)
        groups = [[name for name in group if name in known] for group in groups_of(function, known)]
        if self.value:
            limit = clipping.limit(MAX_VALUE)
            for name in chain(*groups):
                if name in gradients:
                    gradients[name] = clipping.within(gradients[name], limit)
        if self.norm is not None:
            for index, names in enumerate(groups if self.per_group else [list(chain(*groups))]):
                if names:
                    norm = clipping.scale(gradients, names, self.norm, index)
                    results.append((norm, Label("output", OptimizerSlot(index, NORM).slot)))
        set_results(
            function,
            [(gradients[label.name] if label.role == "grad" else value, label) for value, label in results],
        )


def groups_of(function: func.FuncOp, gradients: Sequence[str]) -> list[list[str]]:
    """The parameters of each param group."""
    if (attribute := function.attributes.get(OPTIMIZER)) is None:
        return [list(gradients)]
    try:
        return [list(group.params) for group in parse_groups(attribute)]
    except VerifyException as error:
        refuse(function, str(error))


class Clipping(Emitter):
    """Emits arguments and ops at the end of a function."""

    def __init__(self, function: func.FuncOp):
        end = return_op(function)
        labels = result_labels(function)
        losses = [value for value, label in zip(end.operands, labels, strict=True) if label.role == "loss"]
        self.of_all = location_of(losses[0]) if losses else function.location
        """The place in the user's code of ops on all gradients."""
        super().__init__(InsertPoint.before(end), self.of_all)
        self.function = function
        keys = zip(argument_keys(function), function.args, strict=True)
        self.params: dict[str, SSAValue] = {
            name: argument for (role, name), argument in keys if role == "param"
        }

    def limit(self, name: str) -> SSAValue:
        """A new host scalar."""
        self.expect_new("a host_scalar", name, ("host_scalar", name) in argument_keys(self.function))
        argument = append_argument(self.function, HYPERPARAMETER, Label("host_scalar", name))
        argument.name_hint = name
        return argument

    def expect_new(self, what: str, name: str, is_there: bool) -> None:
        """Refuse a function that already has an item with this name."""
        if is_there:
            where = self.function.sym_name.data
            refuse(
                self.function, f'@{where} has {what} named "{name}", which clip-gradients adds; leave it out'
            )

    def within(self, gradient: SSAValue, limit: SSAValue) -> SSAValue:
        """`gradient` with each element between minus the limit and the limit; a NaN stays one."""
        self.location = location_of(gradient)
        bound = self.cast(limit, element_type(gradient))
        above = self.emit(nn.MaximumOp(gradient, self.emit(nn.NegOp(bound))))
        return self.emit(nn.MinimumOp(above, bound), named(gradient, "within"))

    def scale(
        self, gradients: dict[str, SSAValue], names: Sequence[str], order: float, group: int
    ) -> SSAValue:
        """Bring the gradients of these names under a limit of their norm; return the norm that they had."""
        limit, name = self.limit(OptimizerSlot(group, MAX_NORM).slot), OptimizerSlot(group, NORM).slot
        self.expect_new("an output", name, ("output", name) in result_keys(self.function))
        own = [name for name in names if name in gradients]
        wide = f64 if any(element_type(self.params[name]) == f64 for name in names) else f32
        of_own = {name: self.norm(gradients[name], order, wide) for name in own}
        self.location = self.of_all
        norms = known_to_all(self, DividedGradients.of(self.function), of_own, names, wide)
        norm = self.emit(
            REDUCTIONS["vector_norm"](self.emit(nn.ConcatOp(norms, 0)), ord=order),
            name,
        )
        # In torch a number over a tensor is the reciprocal of the tensor times the number.
        enlarged = self.emit(nn.AddOp(norm, self.emit(nn.ConstantOp(EPSILON, TensorType(wide, [])))))
        quotient = self.emit(nn.MulOp(self.emit(nn.ReciprocalOp(enlarged)), self.cast(limit, wide)))
        one = self.emit(nn.ConstantOp(1.0, TensorType(wide, [])))
        factor = self.emit(nn.MinimumOp(quotient, one), OptimizerSlot(group, "clip").slot)
        for name in own:
            gradients[name] = self.times(gradients[name], factor)
        return norm

    def norm(self, gradient: SSAValue, order: float, wide: Attribute) -> SSAValue:
        """The norm of all elements of one gradient, a vector of one element; 16-bit numbers are summed in f32."""
        self.location = location_of(gradient)
        norm = self.emit(REDUCTIONS["vector_norm"](self.cast(gradient, summed_in(gradient)), ord=order))
        return self.emit(nn.ReshapeOp(self.cast(norm, wide), [1]), named(gradient, "norm"))

    def times(self, gradient: SSAValue, factor: SSAValue) -> SSAValue:
        """Every element times a number, rounded once."""
        self.location = location_of(gradient)
        element = summed_in(gradient)
        product = self.emit(nn.MulOp(self.cast(gradient, element), self.cast(factor, element)))
        clipped = self.cast(product, element_type(gradient))
        clipped.name_hint = named(gradient, "clipped")
        return clipped


def named(gradient: SSAValue, suffix: str) -> str:
    """The name for a value made from a gradient: `dw.norm`."""
    return f"{gradient.name_hint}.{suffix}" if gradient.name_hint else suffix
