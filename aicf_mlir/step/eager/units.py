"""The relative size of a unit in the last place of a step's types: it follows from the text of the step alone."""

from __future__ import annotations

from xdsl.dialects.builtin import BoolAttr, ModuleOp
from xdsl.utils.hints import isa

from aicf_mlir.interpreters.numerics import FLOATS, NUMPY_TYPES, precision
from aicf_mlir.ir.dtypes import element_name
from aicf_mlir.ir.tensor_op import AnyTensor

TF32 = 2.0**-10
"""The unit of TF32, which no tensor has as its type."""


def unit_of(module: ModuleOp, is_cuda: bool) -> float:
    """Return the largest unit among the types of all values; a model in f32 that casts to bf16 inside is as exact as bf16."""
    units = {2.0**-52}
    for op in module.walk():
        for value in op.results:
            if isa(value.type, AnyTensor):
                name = element_name(value.type.get_element_type())
                units |= {precision(NUMPY_TYPES[name])[0]} if name in FLOATS else set[float]()
    return max(units | ({TF32} if is_cuda and allows_tf32(module) else set[float]()))


def allows_tf32(module: ModuleOp) -> bool:
    """True if a product of the step may round its operands to TF32 on a GPU."""
    marks = [op.properties.get("allow_tf32") for op in module.walk()]
    return any(isa(mark, BoolAttr) and bool(mark.value.data) for mark in marks)
