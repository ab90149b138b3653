"""Reasons why launches stay apart: the remarks of `fuse`. They change nothing, and cost nothing if nobody listens."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from xdsl.ir import Operation

from aicf_mlir.dialects import kernel
from aicf_mlir.dialects.kernel_op import KernelOp
from aicf_mlir.ir import remarks
from aicf_mlir.ir.attributes import AttributeValue
from aicf_mlir.ir.remarks import Note, remark
from aicf_mlir.ir.tensor_op import shape_of

Kind = tuple[str, tuple[str, ...], tuple[tuple[str, AttributeValue], ...], str]
"""The properties that updates must share to be one launch: op, present operands, attributes, element type."""

PRODUCTS = (kernel.GemmOp, kernel.GemmEpilogueOp)


def read_by(readers: Iterable[Operation]) -> list[Note]:
    """A note for each reader."""
    return [(reader, f"read by {reader.name}") for reader in dict.fromkeys(readers)]


def missed_bias_gradient(op: KernelOp, gemm: KernelOp | None) -> None:
    """Report why `op` is no second result of `gemm`, or of any product that reads its operand."""
    (summed,) = op.operands
    products = [use for use in summed.uses if isinstance(use.operation, PRODUCTS)]
    if not remarks.wanted() or not products:
        return
    rank, dims, divisor = len(shape_of(summed)), op.attrs["dims"], op.attrs.get("divisor", 1.0)
    conditions = {
        "no kernel.gemm reads the summed value as its left operand with trans_a": gemm is None,
        f"it sums a value of rank {rank}, a bias gradient one of rank 2": rank != 2,
        f"it sums over dims {dims}, a bias gradient over [0]": dims != [0],
        f"it divides the sum by {divisor}, a bias gradient does not": divisor != 1.0,
        "an operand of the product is made after the sum, and the sum is read before the product": True,
    }
    reason = next(condition for condition, holds in conditions.items() if holds)
    shown = [(gemm, "the product")] if gemm is not None else []
    shown = shown or [(u.operation, f"read by {u.operation.name} as operand {u.index}") for u in products]
    remark(op, f"is not fused into a product: {reason}", *shown)


def missed_updates(
    updates: Sequence[KernelOp], free: Collection[KernelOp], order: Mapping[Operation, int]
) -> None:
    """Report the `updates` that are not `free` to be merged into the last of them: their new values are read before."""
    last = updates[-1]
    for update in updates if remarks.wanted() else ():
        if update not in free:
            readers = [use.operation for result in update.results for use in result.uses]
            early = sorted((op for op in readers if order[op] <= order[last]), key=order.__getitem__)
            reason = "is not merged with the other updates: a new value is read before the last of them"
            remark(update, reason, (last, "the last update"), *read_by(early))


def missed_kinds(kinds: Mapping[Kind, Sequence[KernelOp]]) -> None:
    """Report the differences that keep the updates of each further kind from being one launch with those of the first."""
    for kind in list(kinds)[1:] if remarks.wanted() else ():
        first = next(iter(kinds))
        own, there = _facts(kind), _facts(first)
        keys = [key for key in {**there, **own} if own.get(key) != there.get(key)]
        told = ", ".join(f"{key} is {_shown(own.get(key))}, there {_shown(there.get(key))}" for key in keys)
        remark(
            kinds[kind][0], f"is not merged with {kinds[first][0].name}: {told}", (kinds[first][0], "there")
        )


def _facts(kind: Kind) -> dict[str, AttributeValue]:
    name, operands, attrs, element = kind
    states = ", ".join(operands)
    return {"the op": name, "operands": states, "the element type": element, **dict(attrs)}


def _shown(value: AttributeValue | None) -> str:
    return "not set" if value is None else str(value).lower()
