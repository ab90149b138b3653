"""The largest or smallest along a dimension together with its index, which alone has the gradient."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import ClassVar

from xdsl.builder import Builder
from xdsl.dialects.builtin import BoolAttr, IntegerAttr, TensorType, i64
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, result_def
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.dialects.nn.broadcasting import SumOp, reduced_type
from aicf_mlir.dialects.nn.common import NNOp, ValueOp
from aicf_mlir.dialects.nn.pointwise import NeOp, WhereOp
from aicf_mlir.dialects.nn.reductions import extreme, first
from aicf_mlir.dialects.nn.rows.row import NUMBERS
from aicf_mlir.dialects.nn.shape import ConstantOp, ReshapeOp
from aicf_mlir.ir.body import Body
from aicf_mlir.ir.expect import Value, expect_element, expect_float, expect_type, scalar_of
from aicf_mlir.ir.formula import Scalar, row_max, row_min, select, trace
from aicf_mlir.ir.generated import GeneratedInterface
from aicf_mlir.ir.interfaces import DifferentiableInPartsInterface, DifferentiableInterface
from aicf_mlir.ir.properties import bool_attr, is_true
from aicf_mlir.ir.tensor_op import AnyTensor, shape_of, tensor_type

__all__ = ["AtIndexOp", "MaxWithIndexOp", "MinWithIndexOp"]


@irdl_op_definition
class AtIndexOp(ValueOp, DifferentiableInterface, GeneratedInterface):
    """dy at the given index of dimension `dim`, elsewhere 0; dy and index have that dimension with size 1."""

    name = "nn.at_index"

    dy = operand_def(TensorType)
    index = operand_def(TensorType)
    dim = prop_def(IntegerAttr.constr(i64))

    def __init__(self, dy: Value, index: Value, dim: int, size: int):
        type_ = tensor_type(dy)
        shape = [size if d == dim else n for d, n in enumerate(type_.get_shape())]
        super().__init__(
            operands=[dy, index],
            properties={"dim": IntegerAttr(dim, i64)},
            result_types=[TensorType(type_.get_element_type(), shape)],
        )

    def inferred_type(self) -> AnyTensor:
        expect_float("dy", self.dy)
        wide, dim = tensor_type(self.result), self.dim.value.data
        kept = reduced_type(self.result, [dim], keepdim=True)
        expect_type("dy", self.dy, kept)
        expect_type("index", self.index, TensorType(i64, kept.get_shape()))
        return wide

    @property
    def domain(self) -> tuple[int, ...]:
        """The shape of the result."""
        return shape_of(self.result)

    def body(self) -> Body:
        dim = self.dim.value.data

        def formula(g: Scalar, index: Scalar) -> Scalar:
            return select(index.equal(index.builder.index(dim)), g, 0.0)

        return trace(self.compute_types, formula)

    def vjp(self, builder: Builder, cotangents: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        dim = self.dim.value.data
        chosen = AtIndexOp(
            builder.insert(ConstantOp(1.0, tensor_type(self.dy))).result,
            self.index,
            dim,
            shape_of(self.result)[dim],
        )
        (g,) = cotangents
        zero = builder.insert(ConstantOp(0.0, scalar_of(g))).result
        is_chosen = builder.insert(NeOp(builder.insert(chosen).result, zero)).result
        alone = builder.insert(WhereOp(is_chosen, g, zero)).result
        return [builder.insert(SumOp(alone, [dim], keepdim=True)).result, None]


class WithIndexBase(NNOp, DifferentiableInPartsInterface, GeneratedInterface, abc.ABC):
    """The extreme values of x along `dim` and the index of the first of each; a NaN is the extreme."""

    LARGEST: ClassVar[bool]
    """True for the op of the largest element, False for the smallest."""

    x = operand_def(TensorType)
    dim = prop_def(IntegerAttr.constr(i64))
    keepdim = prop_def(BoolAttr, default_value=bool_attr(False))
    values = result_def(TensorType)
    indices = result_def(TensorType)

    def __init__(self, x: Value, dim: int, keepdim: bool = False):
        type_ = reduced_type(x, [dim], keepdim, NUMBERS)
        super().__init__(
            operands=[x],
            properties={"dim": IntegerAttr(dim, i64), "keepdim": bool_attr(keepdim)},
            result_types=[type_, TensorType(i64, type_.get_shape())],
        )

    def inferred_types(self) -> Sequence[AnyTensor]:
        expect_element("x", self.x, NUMBERS)
        dim, shape = self.dim.value.data, shape_of(self.x)
        if not 0 <= dim < len(shape) or not shape[dim]:
            raise VerifyException(f"expected a dimension of {self.x.type} that is not empty, got dim {dim}")
        type_ = reduced_type(self.x, [dim], is_true(self.keepdim), NUMBERS)
        return [type_, TensorType(i64, type_.get_shape())]

    @property
    def reduced_dims(self) -> tuple[int, ...]:
        return (self.dim.value.data,)

    @property
    def whole_results(self) -> tuple[bool, ...]:
        return (False, False)

    def body(self) -> Body:
        def formula(x: Scalar) -> tuple[Scalar, Scalar]:
            value = row_max(x) if self.LARGEST else row_min(x)
            return value, first(extreme(x, value), self.dim.value.data)

        return trace(self.compute_types, formula)

    def vjp_in_parts(
        self, builder: Builder, cotangents: Sequence[SSAValue | None]
    ) -> Sequence[SSAValue | None]:
        g, dim = cotangents[0], self.dim.value.data
        if g is None:
            return [None]
        kept = reduced_type(self.x, [dim], keepdim=True).get_shape()
        dy, index = (
            value if shape_of(value) == kept else builder.insert(ReshapeOp(value, kept)).result
            for value in (g, self.indices)
        )
        return [builder.insert(AtIndexOp(dy, index, dim, shape_of(self.x)[dim])).result]


@irdl_op_definition
class MaxWithIndexOp(WithIndexBase):
    """The largest along `dim`, and its first index."""

    name = "nn.max_with_index"
    LARGEST: ClassVar = True


@irdl_op_definition
class MinWithIndexOp(WithIndexBase):
    """The smallest along `dim`, and its first index."""

    name = "nn.min_with_index"
    LARGEST: ClassVar = False
