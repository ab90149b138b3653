"""The updates of a small model on a GPU: each is computed by the launch that makes its gradient.

In a step with small products, time goes to launches and not to arithmetic, and every launch saved is worth some two microseconds.
The update of a weight becomes the epilogue of the product that makes its gradient. The update of a bias becomes the epilogue of
the sum that makes its gradient, written as a product with ones. The step is counted by a map as well, so that it is one launch
with the values that all updates share. This is done only if all products of a function are small. An update of another gradient
keeps its launch, which runs beside the others. A gradient of f16 or bf16 is rounded to that type, as if it were written
and read.
"""

from __future__ import annotations

from math import prod
from typing import ClassVar

from xdsl.dialects.builtin import FloatAttr, TensorType, f64
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, OpResult, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from aicf_mlir.codegen.cuda.products import Matrix, ProductProblem, tile_of
from aicf_mlir.codegen.cuda.products import is_small_product as has_small_tile
from aicf_mlir.dialects import kernel
from aicf_mlir.dialects.kernel_op import KernelOp, tensor_spec
from aicf_mlir.dialects.scalar import Bodies
from aicf_mlir.errors import SelectionError
from aicf_mlir.ir.attributes import Symbol
from aicf_mlir.ir.body import COMPUTE
from aicf_mlir.ir.element_types import NARROW
from aicf_mlir.ir.formula import Scalar, integer_power, select, trace
from aicf_mlir.ir.layouts import Layout
from aicf_mlir.ir.locations import fused_location
from aicf_mlir.ir.remarks import remark
from aicf_mlir.ir.tensor_op import element_type, shape_of
from aicf_mlir.optimizers import UPDATES
from aicf_mlir.optimizers.advance import CORRECTIONS
from aicf_mlir.optimizers.op import GRADIENT
from aicf_mlir.passes.fuse.update import UpdateFusion, reshaped, view_of

LONGEST = 1024
"""Terms of an element of a product; of longer ones the prebuilt kernels divide the sums among blocks."""


class SmallUpdateFusion(UpdateFusion):
    """The updates of one function for a GPU."""

    WAITS: ClassVar = False
    LAST: ClassVar = False
    MAKES: ClassVar = "a small product or the sum of few rows"

    def __init__(self, function: FuncOp, bodies: Bodies, target: str):
        super().__init__(function, bodies)
        self.target = target
        self.ones: dict[tuple[Attribute, int], SSAValue] = {}
        """Columns of ones, by element type and length."""

    def write(self) -> None:
        """Replace the updates if all products are small."""
        found = [op for op in self.block.ops if isinstance(op, KernelOp) and op.op_name in UPDATES]
        if any(len(op.ins[GRADIENT]) != 1 for op in found):
            return  # text that is fused already
        gradients = [op.ins[GRADIENT][0] for op in found]
        products = [op.results[0] for op in self.block.ops if isinstance(op, kernel.GemmOp)]
        if (
            not found
            or not products
            or not all(is_small_product(product, self.target) for product in products)
        ):
            return
        fused = False
        for op, gradient in zip(found, gradients, strict=True):
            if reason := self.reason(op, gradient):
                remark(op, f"keeps its launch: {reason}")
                continue
            fused = True
            assert isinstance(gradient, OpResult) and isinstance(gradient.op, KernelOp)
            if isinstance(gradient.op, kernel.GemmOp):
                self.fuse(op, gradient.op)
            else:
                self.fuse_sum(op, gradient.op)
        if not fused:
            return
        for op in list(self.block.ops):
            if isinstance(op, kernel.AdvanceOp):
                self.count(op)

    def is_made(self, gradient: SSAValue) -> bool:
        return is_small_product(gradient, self.target) or is_small_sum(gradient)

    def has_types(self, update: KernelOp, gradient: SSAValue) -> bool:
        types = {
            tensor_spec(value)[0] for name, made in update.outs.items() if made for value in update.ins[name]
        }
        return types == {"f32"} and tensor_spec(gradient)[0] in ("f32", *NARROW)

    def fuse_sum(self, update: KernelOp, total: KernelOp) -> None:
        """Write the update of a bias as the epilogue of the sum of its gradient, which is a product with a column of ones."""
        (given,) = total.operands
        element, (*rows, columns) = element_type(given), shape_of(given)
        key = (element, prod(rows))
        if key not in self.ones:
            ones = kernel.ConstantOp.build_op(
                [], [TensorType(element, (prod(rows), 1))], {"value": FloatAttr(1.0, f64)}
            )
            ones.location = total.location
            Rewriter.insert_op(ones, InsertPoint.at_start(self.block))
            self.ones[key] = ones.results[0]
        views, (table,) = reshaped([given], (prod(rows), columns))
        Rewriter.insert_op(views, InsertPoint.before(update))
        launch = self.as_epilogue(update, (table, self.ones[key]), {"trans_a": True}, (columns, 1))
        launch.location = fused_location(total, update)
        Rewriter.erase_op(total)

    def count(self, advance: KernelOp) -> None:
        """Write the map that counts the step, and the values that follow from the count: those of `advance`, in the types that
        it has.
        """
        (step,) = advance.ins["step"]
        shape = shape_of(step)
        names = [name for name, values in advance.ins.items() if values]
        given = [values[0] for values in advance.ins.values() if values]
        views = [view_of(value, Layout(shape, (0,)).normal()) for value in given[1:]]

        def body(*values: Scalar) -> list[Scalar]:
            read = dict(zip(names, values, strict=True))
            following = read["step"] + 1.0
            made = [following]
            for row in CORRECTIONS if len(read) > 1 else ():
                free = 1.0 / (1.0 - integer_power(read[row.beta], following.cast("i64")))
                made.append(select(read[row.pin].is_nan(), free, read[row.pin]))
            return made

        types = [COMPUTE[tensor_spec(value)[0]] for value in given]
        launch = kernel.MapOp.launch(
            {"x": [step, *(view.output for view in views)], "table": []},
            {"y": [value.type for value in advance.results]},
            body=Symbol(self.bodies.symbol(trace(types, body), "advance")),
            shape=list(shape),
        )
        for op, name in zip((*views, launch), (*names[1:], None), strict=True):
            op.location = advance.location
            op.results[0].name_hint = name
        for new, old in zip(launch.results, advance.results, strict=True):
            new.name_hint = old.name_hint
        Rewriter.replace_op(advance, [*views, launch], launch.results)


def is_small_sum(gradient: SSAValue) -> bool:
    """True if a gradient is the sum of few rows."""
    op = gradient.owner
    if not isinstance(op, kernel.ReduceSumOp):
        return False
    (given,) = op.operands
    shape = shape_of(given)
    return (
        len(shape) > 1
        and op.attrs["dims"] == list(range(len(shape) - 1))
        and op.attrs.get("divisor", 1.0) == 1.0
        and prod(shape[:-1]) <= LONGEST
        and element_type(given) == element_type(gradient)
    )


def is_small_product(value: SSAValue, target: str) -> bool:
    """True if a value is a product that the tiles of small results compute."""
    op = value.owner
    if not isinstance(op, kernel.GemmOp) or len(shape_of(value)) != 2:
        return False
    trans_a, trans_b, rounds = (op.attrs.get(name) is True for name in ("trans_a", "trans_b", "allow_tf32"))
    (element, a), (_, b) = (tensor_spec(op.ins[name][0]) for name in ("a", "b"))
    m, n, k = *shape_of(value), a[-2 if trans_a else -1]
    matrices = Matrix(trans_a, a[-1]), Matrix(trans_b, b[-1])
    problem = ProductProblem(target, element, m, n, k, *matrices, allow_tf32=rounds)
    try:
        return k <= LONGEST and has_small_tile(tile_of(problem))
    except SelectionError:
        return False
