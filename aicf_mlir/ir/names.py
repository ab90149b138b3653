"""Names of values: their names in the text, and the names for unnamed ones."""

from __future__ import annotations

from collections.abc import Iterable

from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue


def name_gradient(gradient: SSAValue, value: SSAValue) -> None:
    """Name the gradient of %x %dx, unless it has a name already."""
    if value.name_hint and not gradient.name_hint:
        gradient.name_hint = f"d{value.name_hint}"


def name_after_op(ops: Iterable[Operation]) -> None:
    """Call every result without a name after its op: %reshape."""
    for op in ops:
        for result in op.results:
            if not result.name_hint:
                result.name_hint = op.name.rpartition(".")[2]


def printed_names(function: FuncOp) -> dict[SSAValue, str]:
    """The names that the text of `function` gives to its named values, all different: `x`, then `x_1`, …"""
    names: dict[SSAValue, str] = {}
    counts: dict[str, int] = {}
    block = function.body.block
    for value in (*block.args, *(result for op in block.ops for result in op.results)):
        if (hint := value.name_hint) is not None:
            count = counts.get(hint, 0)
            counts[hint] = count + 1
            names[value] = f"{hint}_{count}" if count else hint
    return names
