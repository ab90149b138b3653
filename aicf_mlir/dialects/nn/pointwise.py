"""The classes of the pointwise ops and of their gradients, made of the rows of one table (`rows`).

`nn.leaky_relu` is the class `LeakyReluOp`, its gradient `nn.leaky_relu_grad`. An op of several operands has a gradient for each
operand that needs one, `nn.prelu_grad_x` and `nn.prelu_grad_weight`. It takes dy, and the operands and the result y as needed.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence

from xdsl.builder import Builder
from xdsl.dialects.builtin import StringAttr, TensorType
from xdsl.ir import SSAValue
from xdsl.irdl import operand_def, traits_def
from xdsl.traits import Commutative
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.dialects.nn.broadcasting import sum_to_shape
from aicf_mlir.dialects.nn.common import Canonicalized, UnfoldsBody, ValueOp
from aicf_mlir.dialects.nn.gradient_rows import PASSES, Frozen, body_of, gradients
from aicf_mlir.dialects.nn.made import attributes_of, make_class, parameters_of
from aicf_mlir.dialects.nn.rows import ROWS, Pointwise
from aicf_mlir.dialects.nn.rows.row import Parameter
from aicf_mlir.dialects.nn.shape import ConstantOp
from aicf_mlir.ir.body import Body
from aicf_mlir.ir.dtypes import ELEMENT_TYPES, element_name
from aicf_mlir.ir.expect import Value, broadcast_shapes, expect_element, expect_one_of
from aicf_mlir.ir.generated import GeneratedInterface
from aicf_mlir.ir.interfaces import DifferentiableInterface, NotDifferentiable
from aicf_mlir.ir.tensor_op import AnyTensor, element_type, shape_of, tensor_type


def pointwise_type(row: Pointwise, operands: Sequence[Value]) -> AnyTensor:
    """The result type of an op of `row`: the shapes broadcast together, and one element type."""
    element: str | None = None
    for name, value in zip(row.operands, operands, strict=True):
        own = expect_element(name, value, {"i1"} if name in row.masks else row.takes)
        if name not in row.masks and own != (element := element or own):
            types = " and ".join(str(tensor_type(each)) for each in operands)
            raise VerifyException(f"expected one element type, got {types}; cast one of them")
    assert element is not None
    shape = broadcast_shapes(*(shape_of(value) for value in operands))
    return TensorType(ELEMENT_TYPES[row.result or element], shape)


class PointwiseOp(ValueOp, GeneratedInterface, Canonicalized, abc.ABC):
    """An op that computes each element of its result from those of its operands."""

    def __init__(self, *operands: Value, **parameters: Parameter):
        super().__init__(
            operands=operands,
            properties=attributes_of({**self.row().parameters, **parameters}),
            result_types=[pointwise_type(self.row(), operands)],
        )

    @classmethod
    def row(cls) -> Pointwise:
        """The row of the table for this op."""
        return TABLE[cls.name.removeprefix("nn.")]

    @property
    def parameters(self) -> dict[str, Parameter]:
        """The parameters by name."""
        return parameters_of(self, self.row().parameters)

    def inferred_type(self) -> AnyTensor:
        row = self.row()
        for name, words in row.words.items():
            attribute = self.properties[name]
            if isinstance(attribute, StringAttr):
                expect_one_of(name, attribute, words)
        return pointwise_type(row, self.operands)

    def body(self) -> Body:
        elements = tuple(element_name(element_type(operand)) for operand in self.operands)
        return body_of(self.row(), self.compute_types, elements, Frozen(self.parameters))


class DifferentiableOp(PointwiseOp, DifferentiableInterface, abc.ABC):
    """A pointwise op with a gradient."""

    def vjp(self, builder: Builder, cotangents: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        (g,) = cotangents
        name = self.row().name
        written = PARTIALS.get(name, _partials)(builder, self, g)
        return [
            None if partial is None else sum_to_shape(builder, partial, shape_of(operand))
            for partial, operand in zip(written, self.operands, strict=True)
        ]


Written = Callable[[Builder, DifferentiableOp, SSAValue], Sequence[SSAValue | None]]
"""Cotangents in the shape of the result, before they are summed over broadcast dimensions."""


def _partials(builder: Builder, op: DifferentiableOp, g: SSAValue) -> Sequence[SSAValue | None]:
    """The partial derivatives, by the gradient ops of the row."""
    row = op.row()
    known = {**dict(zip(row.operands, op.operands, strict=True)), "dy": g}
    known.setdefault("y", op.result)
    known["result"] = op.result
    found: list[SSAValue | None] = []
    for name, gradient in zip(row.operands, gradients(row), strict=True):
        if name in row.masks:
            found.append(None)
        elif isinstance(gradient, str):
            found.append(g if gradient == PASSES else builder.insert(ConstantOp(0.0, tensor_type(g))).result)
        else:
            operands = [known[needed] for needed in gradient.operands]
            found.append(builder.insert(CLASSES[gradient.name](*operands, **op.parameters)).result)
    return found


def _product(builder: Builder, op: DifferentiableOp, g: SSAValue) -> Sequence[SSAValue]:
    x, y = op.operands
    return [_insert(builder, "mul", g, y), _insert(builder, "mul", g, x)]


def _quotient(builder: Builder, op: DifferentiableOp, g: SSAValue) -> Sequence[SSAValue]:
    y = op.operands[1]
    slope = _insert(builder, "div", op.result, y)
    return [_insert(builder, "div", g, y), _insert(builder, "neg", _insert(builder, "mul", g, slope))]


def _insert(builder: Builder, name: str, *operands: SSAValue) -> SSAValue:
    return builder.insert(CLASSES[name](*operands)).result


PARTIALS: Mapping[str, Written] = {
    "add": lambda builder, op, g: [g, g],
    "sub": lambda builder, op, g: [g, _insert(builder, "neg", g)],
    "mul": _product,
    "div": _quotient,
    "neg": lambda builder, op, g: [_insert(builder, "neg", g)],
}
"""Gradients that are plain arithmetic are written as arithmetic ops, so that the rules for these apply to them."""


class PointwiseGradOp(PointwiseOp, UnfoldsBody, abc.ABC):
    """A gradient of a pointwise op."""


def _class(row: Pointwise) -> type[PointwiseOp]:
    """The op class of a row."""
    is_gradient = row.name in GRADIENTS
    is_step = not row.differentiable and not is_gradient
    traits = [NotDifferentiable("it is a step function")] if is_step else []
    namespace = {name: operand_def(TensorType) for name in row.operands}
    return make_class(
        row.name,
        PointwiseOp if is_step else PointwiseGradOp if is_gradient else DifferentiableOp,
        row.doc,
        row.parameters,
        traits=traits_def(*traits, *([Commutative()] if row.commutative else [])),
        **namespace,
    )


GRADIENTS: dict[str, Pointwise] = {
    gradient.name: gradient
    for row in ROWS.values()
    if row.differentiable and row.name not in PARTIALS
    for gradient in gradients(row)
    if isinstance(gradient, Pointwise)
}
"""The rows of gradients by name."""

TABLE: dict[str, Pointwise] = {**ROWS, **GRADIENTS}
"""Every row, including the rows of gradients."""

CLASSES: dict[str, type[PointwiseOp]] = {name: _class(row) for name, row in TABLE.items()}
"""Every op class by the name of its row."""

BY_CLASS_NAME: dict[str, type[PointwiseOp]] = {each.__name__: each for each in CLASSES.values()}


def __getattr__(name: str) -> type[PointwiseOp]:
    try:
        return BY_CLASS_NAME[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
