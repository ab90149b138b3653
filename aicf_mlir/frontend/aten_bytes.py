"""Bytes (uint8) of a batch, images say: in the step they are int32, which has all their numbers.

So ops that return another type, or move numbers, are right. Of sums, products and bits the last eight bits are taken:
200 + 100 is 44. Other ops that compute in bytes are refused.
"""

from __future__ import annotations

import torch
from torch.fx import Node

from aicf_mlir.frontend.aten_table import COMPARISONS, POINTWISE

MOVED = frozenset(
    f"aten.{name}"
    for name in (
        *("view.default", "_unsafe_view.default", "reshape.default", "view_as.default"),
        *("flatten.using_ints", "unflatten.int", "unsqueeze.default"),
        *("squeeze.default", "squeeze.dim", "squeeze.dims", "transpose.int", "mT.default", "t.default"),
        *("numpy_T.default", "permute.default", "split.Tensor", "split.sizes", "split_with_sizes.default"),
        *("chunk.default", "tensor_split.sections", "unbind.int", "select.int", "narrow.default"),
        *("slice.Tensor", "expand.default", "expand_as.default", "broadcast_to.default", "repeat.default"),
        *("clone.default", "contiguous.default", "alias.default", "detach.default"),
        *("flip.default", "roll.default", "pad.default", "constant_pad_nd.default", "unfold.default"),
    )
)
"""Ops whose results have numbers of their operand, or a number of Python."""

CONVERTED = frozenset({"aten._to_copy.default", "aten.to.dtype"})

BITS = [
    f"{before}{bits}{after}"
    for bits in ("and", "or", "xor")
    for before, after in (("bitwise_", ""), ("__", "__"))
]
WRAPPED = frozenset(
    [
        *(f"aten.{name}.{kind}" for name in ("add", "sub", "mul", *BITS) for kind in ("Tensor", "Scalar")),
        *("aten.masked_fill.Scalar", "aten.where.self", "aten.where.ScalarOther"),
    ]
)
"""Ops whose last eight bits follow from those of their operands."""

HINT = "arithmetic on bytes (uint8); convert them before, as by .float() or .long()"


def refusal(node: Node, name: str) -> str | None:
    """Return the reason why the op `name` cannot have a tensor of bytes among its operands; None if it can, or has none."""
    if not any(is_bytes(operand) for operand in node.all_input_nodes) or name in MOVED:
        return None
    if is_bytes(node) and name in WRAPPED:
        return None
    if is_bytes(node) or (name not in POINTWISE and name not in CONVERTED):
        return HINT
    if name in {f"aten.{each}.Scalar" for each in COMPARISONS}:
        number = node.args[1]
        if isinstance(number, int) and not 0 <= number <= 255:
            return f"bytes (uint8) compared with {number}, which is none; convert them before, as by .long()"
    return None


def is_bytes(node: Node) -> bool:
    """True if the one result of `node` is a tensor of uint8."""
    made = node.meta.get("val")
    return isinstance(made, torch.Tensor) and made.dtype is torch.uint8
