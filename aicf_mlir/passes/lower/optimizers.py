"""Optimizer updates: one launch a tensor; fuse makes one of all."""

from __future__ import annotations

from xdsl.ir import Operation

from aicf_mlir.dialects import kernel, optim
from aicf_mlir.dialects.properties import is_true


def lower_advance(op: optim.AdvanceOp) -> list[Operation]:
    """The step counter and what follows from it."""
    return [kernel.AdvanceOp.launch(op.operands, op.result_types)]


def flags(op: Operation, *names: str) -> dict[str, bool]:
    """The boolean properties among `names` that are true."""
    return {name: True for name in names if is_true(getattr(op, name))}


def lower_sgd(op: optim.SgdOp) -> list[Operation]:
    """The tensors first, then the scalars of the group."""
    p, g, lr, weight_decay, *with_momentum = op.operands
    given = flags(op, "nesterov", "maximize")
    if op.index is None:
        operands = [p, g, lr, weight_decay]
        return [kernel.SgdStepOp.launch(operands, op.result_types, groups=[0], **given)]
    buf, momentum, dampening, step = with_momentum
    operands = [p, g, buf, lr, weight_decay, momentum, dampening, step]
    place = {"groups": [0], "indices": [op.index.value.data]}
    return [kernel.SgdStepOp.launch(operands, op.result_types, **place, momentum=True, **given)]


def lower_adam(op: optim.AdamOp) -> list[Operation]:
    """The tensors first (with amsgrad also the maximum), then the scalars of the group."""
    tensors, scalars, vmax = op.operands[:4], op.operands[4:11], op.operands[11:]
    given = flags(op, "amsgrad", "decoupled", "maximize")
    operands = [*tensors, *vmax, *scalars]
    place = {"groups": [0], "indices": [op.index.value.data]}
    return [kernel.AdamStepOp.launch(operands, op.result_types, **place, **given)]


RULES = {optim.AdvanceOp: lower_advance, optim.SgdOp: lower_sgd, optim.AdamOp: lower_adam}
