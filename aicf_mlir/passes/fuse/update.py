"""The optimizer's update of a weight as the epilogue of the product that makes its gradient: one kernel.gemm_map.

The gradient is used where it is computed, and never written. The CPU fetches the update's other operands, the weight and its
moments, from memory while it multiplies (csrc/kernels/gemm/cpu_packed_gemm.h); a launch that only updates does little but wait
for them. So this is for the CPU, and for weights that its caches do not keep from step to step. A bias gradient, which the
product would compute too, is then a sum by itself, as fast.

An update that a failing check must skip stays a launch of its own, and so does one of a gradient that something else
reads, is rounded, or has more than one product.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from xdsl.dialects.builtin import TensorType, f32
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, OpResult, SSAValue
from xdsl.rewriter import Rewriter

from aicf_mlir.dialects import kernel
from aicf_mlir.dialects.kernel_op import KernelOp, tensor_spec
from aicf_mlir.dialects.scalar import Bodies
from aicf_mlir.ir.attributes import AttributeValue, Symbol
from aicf_mlir.ir.body import COMPUTE
from aicf_mlir.ir.formula import Scalar, trace
from aicf_mlir.ir.layouts import Layout, with_layout
from aicf_mlir.ir.locations import fused_location
from aicf_mlir.ir.remarks import remark
from aicf_mlir.ir.signature import STATUS, argument_labels
from aicf_mlir.ir.tensor_op import element_type, shape_of, tensor_type
from aicf_mlir.optimizers import LAUNCHES, UPDATES
from aicf_mlir.optimizers.op import GRADIENT, PER_TENSOR
from aicf_mlir.passes.fuse.constants import first_but_constants
from aicf_mlir.passes.fuse.optimizer import indices_of, scalars_of
from aicf_mlir.passes.fuse.product import attributes_of_product
from aicf_mlir.passes.fuse.views import viewed_as

LEAST = 1 << 17
"""Elements of a weight from which on it pays: with its moments it is larger than a cache of one core."""

Flags = Mapping[str, bool]


@dataclass(frozen=True)
class Combined:
    """The operands of updates other than their tensors, with an element for each parameter of the group, by name."""

    names: tuple[str, ...]
    values: Sequence[SSAValue]


class UpdateFusion:
    """The updates of one function."""

    WAITS: ClassVar = True
    """True if the fusion pays only for an update with further operands than the gradient."""
    LAST: ClassVar = True
    """True if nothing in the step may read what an update gives."""
    MAKES: ClassVar = "what one product gives"
    """The phrase for how a gradient is made."""

    def __init__(self, function: FuncOp, bodies: Bodies):
        self.function = function
        self.bodies = bodies
        self.block = function.body.block
        self.combined: dict[tuple[object, ...], Combined] = {}
        """The combined operands, by the values they are computed from."""
        self.launches: list[KernelOp] = []

    def write(self) -> None:
        """Replace the updates, and the products that are their gradients; before anything else joins those."""
        for op in list(self.block.ops):
            if not isinstance(op, KernelOp) or op.op_name not in UPDATES or len(op.ins[GRADIENT]) != 1:
                continue
            (gradient,) = op.ins[GRADIENT]
            if prod(shape_of(gradient)) < LEAST:
                continue
            if reason := self.reason(op, gradient):
                remark(op, f"is not fused into the product of its gradient: {reason}")
            else:
                assert isinstance(gradient, OpResult) and isinstance(gradient.op, kernel.GemmOp)
                self.fuse(op, gradient.op)

    def reason(self, update: KernelOp, gradient: SSAValue) -> str:
        """The reason why an update stays a launch; empty if its gradient is a product whose epilogue can be the update."""
        rule, uses = UPDATES[update.op_name], [use for value in update.results for use in value.uses]
        labels = argument_labels(self.function)
        counted = {value.owner for value in scalars_of(update)[0].values() if isinstance(value, OpResult)}
        conditions = {
            f"{rule.KIND} has no body": rule.UPDATED is None or rule.COMBINED is None,
            "it has no moments to wait for": self.WAITS and len(update.results) == 1,
            "a check that fails must skip it": any(label.role == STATUS for label in labels),
            f"its gradient is not {self.MAKES}": not self.is_made(gradient),
            "something else reads the gradient": not gradient.has_one_use(),
            "it is not of f32": not self.has_types(update, gradient),
            "a new value is read in the step": self.LAST
            and not all(isinstance(use.operation, ReturnOp) for use in uses),
            "its scalars are not known from the beginning": not all(map(is_of_arguments, counted)),
        }
        return next((reason for reason, holds in conditions.items() if holds), "")

    def is_made(self, gradient: SSAValue) -> bool:
        """True if a launch makes the gradient that can be one with the update."""
        return isinstance(gradient.owner, kernel.GemmOp)

    def has_types(self, update: KernelOp, gradient: SSAValue) -> bool:
        """True if bodies compute an update of these element types."""
        return tensor_spec(gradient)[0] == "f32"

    def fuse(self, update: KernelOp, product: KernelOp) -> None:
        """Write both as one launch in the place of the update."""
        factors, shape = (*product.ins["a"], *product.ins["b"]), shape_of(product.results[0])
        self.as_epilogue(update, factors, attributes_of_product(product), shape).location = fused_location(
            product, update
        )
        Rewriter.erase_op(product)

    def as_epilogue(
        self,
        update: KernelOp,
        factors: Sequence[SSAValue],
        attrs: Mapping[str, AttributeValue],
        shape: tuple[int, ...],
    ) -> KernelOp:
        """Write the update of one tensor in its place as the epilogue of a product of this shape, which is its gradient.

        The gradient has the digits that it had as a tensor. The op that makes it has no other reader then.
        """
        updated = UPDATES[update.op_name].UPDATED
        assert updated is not None
        results = [name for name, values in update.outs.items() if values]
        flags = {name: bool(value) for name, value in update.attrs.items() if name not in PER_TENSOR}
        combined = self.combine(update, flags)
        (index,), (gradient,) = indices_of(update) or [0], update.ins[GRADIENT]
        views = [view_of(value, Layout(shape, (0,) * len(shape), index)) for value in combined.values]
        tensors = {name: values[0] for name, values in update.ins.items() if name in results}
        names = (GRADIENT, *tensors, *combined.names)
        element = tensor_spec(gradient)[0]

        def body(first: Scalar, *others: Scalar) -> list[Scalar]:
            rest = dict(zip(names[1:], others, strict=True))
            made = updated(**{GRADIENT: first.rounded(element)}, **rest, **flags)
            return [made[name] for name in results]

        symbol = self.bodies.symbol(trace(["f32"] * len(names), body), f"{update.op_name}_of_product")
        before, read = reshaped(tensors.values(), shape)
        launch = kernel.GemmMapOp.launch(
            {
                "a": [factors[0]],
                "b": [factors[1]],
                "x": [*read, *(view.output for view in views)],
                "table": [],
            },
            {"y": [TensorType(element_type(value), shape) for value in update.results]},
            body=Symbol(symbol),
            **attrs,
        )
        behind, made = reshaped(launch.results, shape_of(update.results[0]))
        hints = [value.name_hint for value in update.results]
        for name, value in zip(tensors, read, strict=True):
            value.name_hint = value.name_hint or name
        for new in (*before, launch, *behind, *views):
            new.location = update.location
        Rewriter.replace_op(update, [*before, *views, launch, *behind], made)
        for new, value, hint in zip(launch.results, made, hints, strict=True):
            new.name_hint = value.name_hint = hint
        for view, name in zip(views, combined.names, strict=True):
            view.output.name_hint = name
        self.launches.append(launch)
        return launch

    def combine(self, update: KernelOp, flags: Flags) -> Combined:
        """The operands that all updates of a group share: a launch at the beginning, after the ops that make its operands."""
        (scalars,) = scalars_of(update)
        key = (update.op_name, *flags.items(), *scalars.items())
        if key in self.combined:
            return self.combined[key]
        combine = UPDATES[update.op_name].COMBINED
        assert combine is not None
        made: dict[str, Scalar] = {}

        def body(*values: Scalar) -> list[Scalar]:
            made.update(combine(**dict(zip(scalars, values, strict=True)), **flags))
            return [value.cast("f32") for value in made.values()]

        types = [COMPUTE[tensor_spec(value)[0]] for value in scalars.values()]
        symbol = self.bodies.symbol(trace(types, body), f"{update.op_name}_scalars")
        shape = max((shape_of(value) for value in scalars.values()), key=len) or (1,)
        owners = dict.fromkeys(value.owner for value in scalars.values())
        moved = [op for op in owners if isinstance(op, Operation)]
        views = {
            name: view_of(value, Layout(shape, (0,)).normal())
            for name, value in scalars.items()
            if not shape_of(value)
        }
        launch = kernel.MapOp.launch(
            {
                "x": [views[name].output if name in views else value for name, value in scalars.items()],
                "table": [],
            },
            {"y": [TensorType(f32, shape)] * len(made)},
            body=Symbol(symbol),
            shape=list(shape),
        )
        for op in moved:
            op.detach()
        first = first_but_constants(self.block)
        assert first is not None
        self.block.insert_ops_before([*moved, *views.values(), launch], first)
        for op in (*views.values(), launch):
            op.location = update.location
        for name, view in views.items():
            view.output.name_hint = name
        for name, value in zip(made, launch.results, strict=True):
            value.name_hint = name
        self.combined[key] = Combined(tuple(made), launch.results)
        return self.combined[key]


def reshaped(values: Iterable[SSAValue], shape: tuple[int, ...]) -> tuple[list[Operation], list[SSAValue]]:
    """The values in another shape, and the ops that reshape them; values that have the shape are returned."""
    ops, found = list[Operation](), list[SSAValue]()
    for value in values:
        views, same = viewed_as(value, TensorType(element_type(value), shape))
        ops += views
        found.append(same)
    return ops, found


def view_of(value: SSAValue, layout: Layout) -> kernel.ViewOp:
    """A view of `value`."""
    return kernel.ViewOp.build_op([value], [with_layout(tensor_type(value), layout)])


def is_of_arguments(op: Operation | Block) -> bool:
    """True if this is a launch of the optimizer that could stand at the beginning."""
    if not isinstance(op, KernelOp) or op.op_name not in LAUNCHES:
        return False
    return all(isinstance(value.owner, Block) for value in op.operands)
