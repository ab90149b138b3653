"""Insertion of ops of the dialect after or between others, each with a name and a place in the user's code."""

from __future__ import annotations

from xdsl.builder import Builder
from xdsl.dialects.builtin import LocationAttr, UnknownLoc, f32, f64
from xdsl.ir import Attribute, OpResult, SSAValue
from xdsl.rewriter import InsertPoint

from aicf_mlir.dialects.nn.common import ValueOp
from aicf_mlir.dialects.nn.shape import CastOp
from aicf_mlir.ir.tensor_op import element_type


class Emitter:
    """Inserts ops at one point."""

    def __init__(self, point: InsertPoint, location: LocationAttr):
        self.builder = Builder(point)
        self.location = location
        """The location of the ops that are emitted from now on."""

    def emit(self, op: ValueOp, name: str | None = None) -> SSAValue:
        """The result of `op`, called `name`, or after the op."""
        op.location = self.location
        result = self.builder.insert(op).results[0]
        result.name_hint = name or op.name.removeprefix("nn.")
        return result

    def cast(self, value: SSAValue, element: Attribute) -> SSAValue:
        """`value` in another element type; itself if it has that type."""
        return value if element_type(value) == element else self.emit(CastOp(value, element))


def summed_in(value: SSAValue) -> Attribute:
    """The type in which numbers of this type are added up, as in torch: f32 for 16-bit numbers."""
    return f64 if element_type(value) == f64 else f32


def location_of(value: SSAValue) -> LocationAttr:
    """The place in the user's code that a value is of."""
    return value.op.location if isinstance(value, OpResult) else UnknownLoc()
