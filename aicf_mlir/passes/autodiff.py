"""Reverse-mode differentiation: one walk backwards over the block of a step; each op emits its own part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NoReturn, TypeGuard

from xdsl.builder import Builder
from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ArrayAttr, ModuleOp, StringAttr, TensorType, UnknownLoc, f32
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.transforms.common_subexpression_elimination import cse
from xdsl.utils.exceptions import PassFailedException, VerifyException

from aicf_mlir.dialects import nn
from aicf_mlir.dialects.optimizer_groups import OPTIMIZER
from aicf_mlir.dialects.train import TRAINED, BackwardOp, GradientOp, InputOp, UpdateOp
from aicf_mlir.ir.expect import is_float
from aicf_mlir.ir.interfaces import (
    DifferentiableInPartsInterface,
    DifferentiableInterface,
    NotDifferentiable,
    UnfoldableInterface,
)
from aicf_mlir.ir.names import name_after_op, name_gradient
from aicf_mlir.ir.properties import is_true
from aicf_mlir.ir.signature import (
    Label,
    append_argument,
    argument_keys,
    argument_labels,
    result_labels,
    return_op,
    set_results,
    steps,
)
from aicf_mlir.ir.tensor_op import element_type, shape_of, tensor_type

SCALE = "loss_scale"
"""The name, among the buffers, of the factor of a loss before it is differentiated."""

CUTS = (nn.DetachOp, BackwardOp, GradientOp, UpdateOp)
"""Ops that no gradient flows through."""


@dataclass(frozen=True)
class AutodiffPass(ModulePass):
    """Append the gradient of the result with the role "loss" to the results of every function that is not private.

    One result {aicf.role = "grad", aicf.name = NAME} per argument with the role "param" that reaches the loss, in argument order.
    New ops carry the location of the op that they differentiate; the gradient of %x is %dx. In a function with train.backward
    each of these is replaced by the gradients that it requests, and no result is appended. Each train.gradient is replaced by the
    ops that compute it: before the other gradients if they flow through it, else after them. An op of these that has no gradient
    of its own is written by others where it is differentiated again. Each nn.detach, nn.custom_gradient and train.input is no
    longer needed then, and is replaced by its operands.

    Options:
      scaled: differentiate the loss times a number, the new last argument, buffer "loss_scale", of f32
      inner: replace each train.gradient, and append no gradient: for a function that is not trained
    """

    name = "autodiff"

    scaled: bool = False
    inner: bool = False

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for function in steps(op):
            differentiate(function, self.scaled, self.inner)


def differentiate(function: func.FuncOp, scaled: bool = False, inner: bool = False) -> None:
    """Append the gradients to the results of one function; or put them where it requests them, as a loop body does."""
    while op := next(filter(is_differentiated, function.body.block.ops), None):
        replace_by_gradients(op)
        cse(function)  # of equal values only one is differentiated again
    if inner:
        function.attributes.pop(TRAINED, None)
    elif not updates_itself(function):
        differentiate_loss(function, scaled)
    elif scaled:
        refuse(
            function, f"@{function.sym_name.data} asks for its gradients itself; scale the loss in its body"
        )
    while asked := [op for op in function.body.block.ops if isinstance(op, (BackwardOp, GradientOp))]:
        replace_by_gradients(asked[-1])  # the earlier ones are still constants to it
    for op in list(function.body.block.ops):
        if isinstance(op, (nn.DetachOp, InputOp)):
            Rewriter.replace_op(op, [], [op.x])
        elif isinstance(op, nn.CustomGradientOp):
            Rewriter.replace_op(op, [], op.of)


def is_differentiated(op: Operation) -> TypeGuard[GradientOp]:
    """True for a gradient through which others flow."""
    return isinstance(op, GradientOp) and is_true(op.create_graph)


def updates_itself(function: func.FuncOp) -> bool:
    """True for a loop body: it takes the gradients of its losses, and updates parameters, itself."""
    asks = any(isinstance(op, (BackwardOp, UpdateOp)) for op in function.body.block.ops)
    return asks or function.attributes.get(OPTIMIZER) == ArrayAttr([])


def replace_by_gradients(op: BackwardOp | GradientOp) -> None:
    """Put the gradients in the place of an op that requests them."""
    assert op.parent is not None
    ops = list(op.parent.ops)
    before = ops[: ops.index(op)]
    wanted = [number for number, result in enumerate(op.gradients) if result.first_use]
    backward = Backward(op, values_depending_on([op.wrt[number] for number in wanted], before))
    backward.run(before, [op.loss] if isinstance(op, BackwardOp) else op.of, getattr(op, "seeds", None))
    for number in wanted:
        value = op.wrt[number]
        gradient = backward.cotangents.get(value)
        if gradient is None:
            gradient = backward.insert(nn.ConstantOp(0.0, tensor_type(value)))
        name_gradient(gradient, value)
        op.gradients[number].replace_all_uses_with(gradient)
    op.detach()
    op.erase()
    backward.erase_unused()
    backward.name()


def differentiate_loss(function: func.FuncOp, scaled: bool) -> None:
    """Append the gradients of the one loss to the results of a function."""
    labels = result_labels(function)
    loss = find_loss(function, list(zip(return_op(function).operands, labels, strict=True)))
    params = [
        (argument, label)
        for argument, label in zip(function.args, argument_labels(function), strict=True)
        if label.role == "param"
    ]
    trained = function.attributes.pop(TRAINED, None)
    if isinstance(trained, ArrayAttr):
        params = [(argument, label) for argument, label in params if StringAttr(label.name) in trained]
    forward = list(function.body.block.ops)[:-1]
    active = values_depending_on([argument for argument, _ in params], forward)
    if loss not in active and trained is None:
        refuse(
            function, f'the loss of @{function.sym_name.data} depends on no argument with aicf.role = "param"'
        )
    scale = scale_argument(function) if scaled else None
    backward = Backward(return_op(function), active)
    if scale is not None and scale.type != loss.type:
        scale = backward.insert(nn.CastOp(scale, element_type(loss)))
    backward.run(forward, [loss], None if scale is None else [scale])
    results = list(zip(return_op(function).operands, labels, strict=True))
    for argument, label in params:
        gradient = backward.cotangents.get(argument)
        if gradient is None and trained is not None:
            gradient = backward.insert(nn.ConstantOp(0.0, tensor_type(argument)))
        if gradient is not None:
            results.append((gradient, Label("grad", label.name)))
            name_gradient(gradient, argument)
    set_results(function, results)
    backward.erase_unused()
    backward.name()


def scale_argument(function: func.FuncOp) -> SSAValue:
    """A new argument: the factor of the loss."""
    if ("buffer", SCALE) in argument_keys(function):
        refuse(
            function,
            f'@{function.sym_name.data} has a buffer named "{SCALE}", which autodiff{{scaled}} adds; leave it out',
        )
    argument = append_argument(function, TensorType(f32, []), Label("buffer", SCALE))
    argument.name_hint = SCALE
    return argument


def find_loss(function: func.FuncOp, results: Sequence[tuple[SSAValue, Label]]) -> SSAValue:
    """The one result to differentiate: 0-d, of a floating-point type."""
    name = function.sym_name.data
    losses = [value for value, label in results if label.role == "loss"]
    if len(losses) != 1:
        refuse(function, f'expected one result of @{name} with aicf.role = "loss", got {len(losses)}')
    if any(label.role == "grad" for _, label in results):
        refuse(function, f"@{name} has gradients among its results: it is differentiated already")
    (loss,) = losses
    if not is_float(loss) or shape_of(loss) != ():
        refuse(function, f"expected a 0-d floating-point loss of @{name}, got {loss.type}")
    return loss


def values_depending_on(sources: Sequence[SSAValue], ops: Sequence[Operation]) -> set[SSAValue]:
    """The `sources` and all values that depend on them through floating-point values, so that a gradient reaches the sources.
    Callers only test membership in the set.
    """
    depending = set(sources)
    for op in ops:
        read = op.wrt if isinstance(op, nn.CustomGradientOp) else op.operands
        if not isinstance(op, CUTS) and any(operand in depending for operand in read):
            stopped = op.without_gradient if isinstance(op, DifferentiableInPartsInterface) else ()
            depending.update(result for result in op.results if is_float(result) and result not in stopped)
    return depending


def refuse(op: Operation, message: str) -> NoReturn:
    """Stop at `op`."""
    op.emit_error(message, PassFailedException(message))


@dataclass
class Backward:
    """A backward walk from before `end`: the cotangents so far, and the ops it has emitted there."""

    end: Operation
    active: set[SSAValue]
    cotangents: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])
    parts: dict[SSAValue, nn.DisjointParts] = field(default_factory=dict[SSAValue, nn.DisjointParts])
    """Cotangents that are sums of parts, and not written yet; `cotangents` has the first of each."""
    emitted: list[Operation] = field(default_factory=list[Operation])

    def run(
        self, forward: Sequence[Operation], outputs: Sequence[SSAValue], seeds: Sequence[SSAValue] | None
    ) -> None:
        """Fill `cotangents` for every active value that reaches `outputs`; theirs are `seeds`, or 1."""
        builder = self.builder()
        for number, output in enumerate(outputs):
            if output in self.active:
                if seeds is None:
                    self.add(output, builder.insert(nn.ConstantOp(1.0, tensor_type(output))).result, builder)
                else:
                    self.add(output, seeds[number], builder)
                self.locate(output.owner if isinstance(output.owner, Operation) else self.end, since=0)
        self.walk(forward, builder)
        for value in list(self.parts):
            self.cotangent(value, builder)

    def walk(self, forward: Sequence[Operation], builder: Builder) -> None:
        """Pass the cotangents of the results of these ops on, from the last op to the first."""
        for op in reversed(forward):
            if isinstance(op, CUTS) or not any(result in self.cotangents for result in op.results):
                continue
            if not any(operand in self.active for operand in op.operands):
                continue
            if isinstance(op, UnfoldableInterface):
                self.walk(self.unfolded(op), builder)
            else:
                since = len(self.emitted)
                self.differentiate(op, builder)
                self.locate(op, since)

    def unfolded(self, op: UnfoldableInterface) -> Sequence[Operation]:
        """The ops by which `op` is replaced, so that they can be differentiated."""
        made = list[Operation]()
        builder = Builder(InsertPoint.before(op))
        builder.operation_insertion_handler.append(made.append)
        try:
            values = op.unfold(builder)
        except VerifyException as error:
            refuse(op, f"'{op.name}' cannot be differentiated: {error}")
        for each in made:
            each.location = op.location
        self.active |= values_depending_on([value for value in op.operands if value in self.active], made)
        for result, value in zip(op.results, values, strict=True):
            if result in self.cotangents:
                self.cotangent(result, self.builder())
                self.add(value, self.cotangents.pop(result), self.builder())
            value.name_hint = value.name_hint or result.name_hint
        name_after_op(made)
        Rewriter.replace_op(op, [], values)
        return made

    def builder(self) -> Builder:
        """A builder that emits ops before `end`."""
        builder = Builder(InsertPoint.before(self.end))
        builder.operation_insertion_handler.append(self.emitted.append)
        return builder

    def insert(self, op: nn.ConstantOp | nn.CastOp) -> SSAValue:
        """Emit `op`, at the location of `end`."""
        result = self.builder().insert(op).result
        op.location = self.end.location
        return result

    def differentiate(self, op: Operation, builder: Builder) -> None:
        """Let `op` turn the cotangents of its results into cotangents of its operands, and add these up."""
        if not isinstance(op, DifferentiableInterface):
            declared = op.get_traits_of_type(NotDifferentiable)
            reason = declared[0].reason if declared else "it has no vector-Jacobian product"
            refuse(
                op, f"'{op.name}' is on the way from a parameter to the loss but has no gradient: {reason}"
            )
        if isinstance(op, DifferentiableInPartsInterface):
            gradients = op.vjp_in_parts(builder, [self.cotangent(result, builder) for result in op.results])
        else:
            gradients = op.vjp(builder, [self.arriving(result, builder) for result in op.results])
        for operand, cotangent in zip(op.operands, gradients, strict=True):
            if cotangent is not None and operand in self.active:
                self.add(operand, cotangent, builder)

    def add(self, value: SSAValue, cotangent: SSAValue, builder: Builder) -> None:
        """Add one more part of the cotangent of `value`."""
        if (partial := self.cotangents.get(value)) is not None:
            parts = self.parts.get(value)
            if parts is None and isinstance(partial.owner, nn.ConcatOp):
                parts = nn.DisjointParts(partial.owner)
            if parts is not None and parts.add(cotangent):
                self.parts[value] = parts
                return
            partial = self.cotangent(value, builder) or partial
            cotangent = builder.insert(nn.AddOp(partial, cotangent)).result
        self.cotangents[value] = cotangent

    def cotangent(self, value: SSAValue, builder: Builder) -> SSAValue | None:
        """The cotangent of `value`, if the outputs depend on it."""
        if (parts := self.parts.pop(value, None)) is not None:
            self.cotangents[value] = parts.write(builder)
        return self.cotangents.get(value)

    def arriving(self, result: SSAValue, builder: Builder) -> SSAValue:
        """The cotangent of `result`; zero where the loss does not depend on it."""
        if (cotangent := self.cotangent(result, builder)) is not None:
            return cotangent
        return builder.insert(nn.ConstantOp(0.0, tensor_type(result))).result

    def locate(self, source: Operation, since: int) -> None:
        """Give the ops emitted from `since` on the location of `source`, if they have none of their own."""
        for op in self.emitted[since:]:
            if isinstance(op.location, UnknownLoc):
                op.location = source.location

    def name(self) -> None:
        """Name the values without a name: cotangents after their values, everything else after its op."""
        for value, cotangent in self.cotangents.items():
            name_gradient(cotangent, value)
        name_after_op(self.emitted)

    def erase_unused(self) -> None:
        """Erase the ops that were emitted for operands that need no gradient."""
        for op in reversed(self.emitted):
            if not any(result.uses for result in op.results):
                op.detach()
                op.erase()
