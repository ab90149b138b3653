"""Optimizer updates: one launch a tensor; fuse makes one of all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from xdsl.ir import Operation

from aicf_mlir.dialects import kernel, optim
from aicf_mlir.ir.properties import is_true

Item = TypeVar("Item")


def named(names: Sequence[str], items: Sequence[Item]) -> dict[str, Item]:
    """The first items by name; the last names are of optional ones."""
    return dict(zip(names, items, strict=False))


def lower_advance(op: optim.AdvanceOp) -> Sequence[Operation]:
    """The step counter and what follows from it."""
    names = ("step", "beta1", "beta2", "bc1_pin", "bc2_pin")
    results = ("step", "bc1_inv", "bc2_inv")
    operands = named(names, op.operands)
    return [kernel.AdvanceOp.launch(operands, named(results, op.result_types))]


def flags(op: Operation, *names: str) -> dict[str, bool]:
    """The boolean properties among `names` that are true."""
    return {name: True for name in names if is_true(getattr(op, name))}


def lower_sgd(op: optim.SgdOp) -> Sequence[Operation]:
    """One tensor in one group."""
    names = ("p", "g", "lr", "weight_decay", "buf", "momentum", "dampening", "step")
    operands = named(names, op.operands)
    results = named(("p", "buf"), op.result_types)
    place = {} if op.index is None else {"indices": [op.index.value.data]}
    given = flags(op, "nesterov", "maximize")
    return [kernel.SgdStepOp.launch(operands, results, groups=[0], **place, **given)]


def lower_adam(op: optim.AdamOp) -> Sequence[Operation]:
    """One tensor in one group; with amsgrad also the maximum."""
    names = ("p", "g", "m", "v", "lr", "beta1", "beta2", "eps", "weight_decay", "bc1_inv", "bc2_inv", "vmax")
    operands = named(names, op.operands)
    results = named(("p", "m", "v", "vmax"), op.result_types)
    place = {"groups": [0], "indices": [op.index.value.data]}
    return [kernel.AdamStepOp.launch(operands, results, **place, **flags(op, "decoupled", "maximize"))]


RULES = {optim.AdvanceOp: lower_advance, optim.SgdOp: lower_sgd, optim.AdamOp: lower_adam}
