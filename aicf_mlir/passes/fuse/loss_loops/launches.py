"""Launches that a loss is written with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, SSAValue

from aicf_mlir.dialects import kernel
from aicf_mlir.dialects.kernel_op import tensor_spec
from aicf_mlir.dialects.scalar import Bodies
from aicf_mlir.ir.attributes import Symbol
from aicf_mlir.ir.body import COMPUTE
from aicf_mlir.ir.formula import trace
from aicf_mlir.ir.layouts import Layout, with_layout
from aicf_mlir.ir.tensor_op import tensor_type

Formula = Callable[..., Any]


def computed_in(value: SSAValue) -> str:
    """The element type in which a body computes elements of `value`."""
    return COMPUTE[tensor_spec(value)[0]]


def repeated(value: SSAValue, shape: Sequence[int], strides: Sequence[int]) -> kernel.ViewOp:
    """`value` at each point of `shape`."""
    type_ = with_layout(tensor_type(value), Layout(tuple(shape), tuple(strides)))
    return kernel.ViewOp.build_op([value], [type_])


def launch(
    bodies: Bodies,
    name: str,
    formula: Formula,
    operands: Sequence[SSAValue],
    results: Sequence[Attribute],
    shape: Sequence[int],
    reduced: int,
) -> kernel.MapOp | kernel.RowwiseOp:
    """A map, or with `reduced` dimensions a rowwise launch, of `formula` over `shape`; `results` are tensor types."""
    symbol = bodies.symbol(trace([computed_in(value) for value in operands], formula), name)
    kind = kernel.RowwiseOp if reduced else kernel.MapOp
    return kind.launch(
        {"x": list(operands), "table": []},
        {"y": list(results)},
        body=Symbol(symbol),
        shape=list(shape),
        **({"reduced": reduced} if reduced else {}),
    )


def tensor_of(element: Attribute, *shape: int) -> Attribute:
    """A dense tensor type."""
    return TensorType(element, shape)
