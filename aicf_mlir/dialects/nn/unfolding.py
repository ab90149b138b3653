"""The body of a generated op as ops of the dialect: a fused gradient is written so where it is differentiated again."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from xdsl.builder import Builder
from xdsl.dialects.builtin import TensorType
from xdsl.ir import SSAValue
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.dialects.nn import pointwise
from aicf_mlir.dialects.nn.broadcasting import BroadcastToOp, SumOp
from aicf_mlir.dialects.nn.common import ValueOp
from aicf_mlir.dialects.nn.reductions import GRADIENTS as REDUCTION_GRADIENTS
from aicf_mlir.dialects.nn.reductions import REDUCTIONS, ReductionGradOp
from aicf_mlir.dialects.nn.running import ScanOp
from aicf_mlir.dialects.nn.shape import CastOp, ConstantOp, ReshapeOp, TransposeOp, as_element
from aicf_mlir.ir.body import CASTS, Line
from aicf_mlir.ir.dtypes import ELEMENT_TYPES
from aicf_mlir.ir.generated import GeneratedInterface
from aicf_mlir.ir.tensor_op import element_type, shape_of

REDUCED: Mapping[str, Callable[..., ValueOp]] = {
    "scalar.sum": SumOp,
    "scalar.prod": REDUCTIONS["prod"],
    "scalar.max": REDUCTIONS["amax"],
    "scalar.min": REDUCTIONS["amin"],
}
"""The ops that reduce some dimensions as a body does."""

NAMES: Mapping[str, str] = {
    **dict.fromkeys(("arith.addf", "arith.addi"), "add"),
    **dict.fromkeys(("arith.subf", "arith.subi"), "sub"),
    **dict.fromkeys(("arith.mulf", "arith.muli"), "mul"),
    **dict.fromkeys(("arith.maximumf", "arith.maxsi", "arith.maxui"), "maximum"),
    **dict.fromkeys(("arith.minimumf", "arith.minsi", "arith.minui"), "minimum"),
    **dict.fromkeys(("math.absf", "math.absi"), "abs"),
    "arith.divf": "div",
    "arith.negf": "neg",
    "arith.select": "where",
    "arith.andi": "bitwise_and",
    "arith.ori": "bitwise_or",
    "arith.xori": "bitwise_xor",
    "math.powf": "pow",
    "math.roundeven": "round",
}
"""The pointwise op that computes an operation; others have the operation's own name."""

COMPARED: Mapping[str, tuple[str, bool]] = {
    **{
        f"{prefix}{name}": (name, False)
        for prefix in ("o", "s", "")
        for name in ("eq", "lt", "le", "gt", "ge")
    },
    "une": ("ne", False),
    "ne": ("ne", False),
    "ult": ("ge", True),
    "ule": ("gt", True),
    "ugt": ("le", True),
    "uge": ("lt", True),
}
"""The comparison for a predicate, and True if its result is negated."""


def unfold(op: GeneratedInterface, builder: Builder) -> Sequence[SSAValue]:
    """Emit the body of `op` line by line, on whole tensors; return a value for each result, of its type.

    Raises VerifyException for an operation that no op of the dialect computes.
    """
    if isinstance(op, REDUCTION_GRADIENTS["prod_grad"]):
        return [product_of_others(op, builder)]
    body, unfolded = op.body(), Unfolded(op, builder)
    values = [
        unfolded.argument(value, dims, type_)
        for (value, dims), type_ in zip(op.arguments, body.args, strict=True)
    ]
    for line in body.lines:
        values.append(unfolded.line(line, [values[arg] for arg in line.args]))
    return [
        unfolded.result(values[number], result, is_whole)
        for number, result, is_whole in zip(body.results, op.results, op.whole_results, strict=True)
    ]


def product_of_others(op: ReductionGradOp, builder: Builder) -> SSAValue:
    """The gradient of a product as running products from both ends: its derivatives are right where elements are 0, too."""
    shape, dims = shape_of(op.x), list(op.dims.get_values())
    order = [d for d in range(len(shape)) if d not in dims] + dims
    ordered = [shape[d] for d in order]
    rows = builder.insert(TransposeOp(op.x, order)).result
    rows = builder.insert(
        ReshapeOp(rows, [*ordered[: len(shape) - len(dims)], math.prod(shape[d] for d in dims)])
    ).result
    product = builder.insert(BroadcastToOp(op.dy, shape)).result
    for reverse in (False, True):
        scan = builder.insert(ScanOp(rows, len(shape_of(rows)) - 1, "prod", reverse=reverse))
        others = builder.insert(ReshapeOp(scan.moved(builder, scan.result, 1, 1.0), ordered)).result
        others = builder.insert(TransposeOp(others, [order.index(d) for d in range(len(shape))])).result
        product = builder.insert(pointwise.CLASSES["mul"](product, others)).result
    return product


@dataclass(frozen=True)
class Unfolded:
    """The ops that replace one generated op. Their values have a size of the domain or 1 in each dimension, or are 0-d."""

    op: GeneratedInterface
    builder: Builder

    def insert(self, op: ValueOp) -> SSAValue:
        """Emit an op."""
        return self.builder.insert(op).result

    def argument(self, value: SSAValue, dims: Sequence[int] | None, type_: str) -> SSAValue:
        """An operand, with the dimensions of the domain."""
        if dims is None:
            raise VerifyException(f"{self.op.name} reads an operand as a table")
        domain, own = [1] * len(self.op.domain), shape_of(value)
        if list(dims) != sorted(dims):
            raise VerifyException(f"{self.op.name} reads an operand in another order of dimensions")
        for dim, size in zip(dims, own, strict=True):
            domain[dim] = size
        value = self.shaped(value, domain if own else ())
        return as_element(self.builder, value, ELEMENT_TYPES[type_])

    def shaped(self, value: SSAValue, shape: Sequence[int]) -> SSAValue:
        """The same elements in another shape."""
        return value if shape_of(value) == tuple(shape) else self.insert(ReshapeOp(value, shape))

    def whole(self, value: SSAValue, dims: Sequence[int]) -> SSAValue:
        """A value repeated along these dimensions of the domain."""
        domain = self.op.domain
        value = self.shaped(value, shape_of(value) or [1] * len(domain))
        shape = [domain[d] if d in dims else size for d, size in enumerate(shape_of(value))]
        return value if shape_of(value) == tuple(shape) else self.insert(BroadcastToOp(value, shape))

    def line(self, line: Line, args: Sequence[SSAValue]) -> SSAValue:
        """The value of one operation."""
        name = line.op.partition(".")[2]
        if line.op == "arith.constant":
            assert isinstance(line.attr, float | int)
            return self.insert(ConstantOp(float(line.attr), TensorType(ELEMENT_TYPES[line.type], [])))
        if line.op in REDUCED:
            reduced = REDUCED[line.op]
            return self.insert(reduced(self.whole(args[0], self.op.reduced_dims), self.op.reduced_dims, True))
        if line.op in CASTS and name != "bitcast":
            return self.insert(CastOp(args[0], ELEMENT_TYPES[line.type]))
        if line.op == "math.fma":
            return self.insert(
                pointwise.CLASSES["add"](self.insert(pointwise.CLASSES["mul"](*args[:2])), args[2])
            )
        if name in ("cmpf", "cmpi"):
            return self.comparison(str(line.attr), args)
        made = pointwise.CLASSES.get(NAMES.get(line.op, name))
        if made is None or line.op.startswith("scalar."):
            raise VerifyException(f"{self.op.name} computes {line.op}, which no op of the dialect does")
        return self.insert(made(*args))

    def comparison(self, predicate: str, args: Sequence[SSAValue]) -> SSAValue:
        """An i1 for each element."""
        if predicate == "uno":
            nans = [self.insert(pointwise.CLASSES["isnan"](arg)) for arg in dict.fromkeys(args)]
            return nans[0] if len(nans) == 1 else self.insert(pointwise.CLASSES["bitwise_or"](*nans))
        if predicate not in COMPARED:
            raise VerifyException(f"{self.op.name} compares by {predicate}, which no op of the dialect does")
        name, is_negated = COMPARED[predicate]
        found = self.insert(pointwise.CLASSES[name](*args))
        return self.insert(pointwise.CLASSES["bitwise_not"](found)) if is_negated else found

    def result(self, value: SSAValue, result: SSAValue, is_whole: bool) -> SSAValue:
        """A value as the result of the op."""
        kept = [d for d in range(len(self.op.domain)) if is_whole or d not in self.op.reduced_dims]
        value = self.shaped(self.whole(value, kept), shape_of(result))
        return as_element(self.builder, value, element_type(result))
