"""What ops with an index share: the rules of its type, and the numbers of the elements that it names."""

from __future__ import annotations

import math
from collections.abc import Sequence

from xdsl.builder import Builder
from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, TensorType, i64
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, traits_def
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.dialects.nn.common import ValueOp
from aicf_mlir.dialects.nn.shape import ReshapeOp
from aicf_mlir.ir.body import Body
from aicf_mlir.ir.expect import Value, expect_element, expect_rank
from aicf_mlir.ir.formula import Scalar, select, trace
from aicf_mlir.ir.generated import GeneratedInterface
from aicf_mlir.ir.interfaces import NotDifferentiable
from aicf_mlir.ir.layouts import dense_strides
from aicf_mlir.ir.properties import ints_attr
from aicf_mlir.ir.tensor_op import AnyTensor, shape_of, tensor_type

__all__ = ["ElementNumberOp"]

INDICES = frozenset({"i64"})


def expect_index_of(index: Value, x: Value, dim: int) -> None:
    """Refuse an index that is not of i64, and a dimension that x does not have or that is empty."""
    expect_element("index", index, INDICES)
    shape = expect_rank("x", x, at_least=1)
    if not 0 <= dim < len(shape):
        raise VerifyException(f"expected dim in 0..{len(shape) - 1}, got {dim}")
    if not shape[dim] and math.prod(shape_of(index)):
        raise VerifyException(f"expected a dimension that is not empty, got dim {dim} of {tensor_type(x)}")


def expect_beside(index: Value, shape: Sequence[int], dim: int) -> None:
    """Refuse an index that is larger than `shape` in a dimension other than `dim`."""
    own = shape_of(index)
    pairs = zip(own, shape, strict=False)
    if len(own) != len(shape) or any(d != dim and a > b for d, (a, b) in enumerate(pairs)):
        raise VerifyException(
            f"expected an index of rank {len(shape)}, beside dimension {dim} within {list(shape)}, got"
            f" {tensor_type(index)}"
        )


def at(index: Scalar, rank: int, dim: int) -> list[Scalar]:
    """The place in the domain, with `index` in the dimension `dim`."""
    return [index if d == dim else index.builder.index(d) for d in range(rank)]


def reshaped(builder: Builder, value: SSAValue, shape: Sequence[int]) -> SSAValue:
    """`value` in another shape of as many elements."""
    return value if shape_of(value) == tuple(shape) else builder.insert(ReshapeOp(value, shape)).result


@irdl_op_definition
class ElementNumberOp(ValueOp, GeneratedInterface):
    """The number in row-major order that each element of a gather has in a tensor of `shape`.

    For an index outside of `dim` the number is -1, which is the index of no element.
    """

    name = "nn.element_number"

    index = operand_def(TensorType)
    shape = prop_def(DenseArrayBase.constr(i64))
    dim = prop_def(IntegerAttr.constr(i64))

    traits = traits_def(NotDifferentiable("its result is an index"))

    def __init__(self, index: Value, shape: Sequence[int], dim: int):
        super().__init__(
            operands=[index],
            properties={"shape": ints_attr(shape), "dim": IntegerAttr(dim, i64)},
            result_types=[tensor_type(index)],
        )

    def inferred_type(self) -> AnyTensor:
        shape, dim = self.shape.get_values(), self.dim.value.data
        expect_element("index", self.index, INDICES)
        if not 0 <= dim < len(shape):
            raise VerifyException(f"expected dim in 0..{len(shape) - 1}, got {dim}")
        expect_beside(self.index, shape, dim)
        return tensor_type(self.index)

    def body(self) -> Body:
        shape, dim = self.shape.get_values(), self.dim.value.data
        strides = dense_strides(shape)

        def formula(index: Scalar) -> Scalar:
            total = index * strides[dim]
            for d, place in enumerate(at(index, len(shape), dim)):
                if d != dim and shape[d] > 1:
                    total = total + place * strides[d]
            return select((index >= 0) & (index < shape[dim]), total, -1)

        return trace(self.compute_types, formula)
