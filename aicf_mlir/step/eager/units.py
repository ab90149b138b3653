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
        allowed = op.properties.get("allow_tf32")
        if is_cuda and isa(allowed, BoolAttr) and allowed.value.data:
            units.add(TF32)
    return max(units)
