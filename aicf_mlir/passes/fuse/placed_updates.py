"""Updates in the epilogues of products stand where their operands are known and the old values have been read, on a CPU.

The sooner a gradient is used, the sooner its operands may go; and its weight is still in the cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, SSAValue

from aicf_mlir.dialects import kernel
from aicf_mlir.dialects.kernel_op import KernelOp
from aicf_mlir.dialects.scalar import Bodies
from aicf_mlir.passes.fuse.rule import FusionRule
from aicf_mlir.passes.fuse.views import readers_of

Place = tuple[int, ...]
"""Where an op stands: its number in the text, and behind it what has been moved there, the latest first."""


@dataclass(frozen=True)
class FusePlacedUpdatesPass(FusionRule):
    """Move each product whose epilogue is an update up to the place after which all it reads is known.

    Nothing reads the values that it replaces after that place.
    """

    name = "fuse-placed-updates"
    DEVICES: ClassVar = ("cpu",)

    def fuse(self, function: FuncOp, bodies: Bodies) -> None:
        places: dict[Operation, Place] = {op: (at,) for at, op in enumerate(function.body.block.ops)}
        for number, launch in enumerate(list(places)):
            if isinstance(launch, kernel.GemmMapOp) and is_only_returned(launch):
                place(launch, function.body.block, places, number)


def is_only_returned(launch: KernelOp) -> bool:
    """True if nothing in the step reads the results of `launch`."""
    return all(isinstance(op, ReturnOp) for value in launch.results for op in readers_of(value))


def place(launch: KernelOp, block: Block, places: dict[Operation, Place], number: int) -> None:
    """Move one launch up, with the views that it reads; `number` grows from launch to launch."""
    views, known = list[Operation](), list[SSAValue]()
    waiting = list(launch.operands)
    while waiting:
        op = (value := waiting.pop()).owner
        if isinstance(op, kernel.VIEWS):
            views.append(op)
            waiting += op.operands
        else:
            known.append(value)
    before = [op for value in known if isinstance(op := value.owner, Operation)]
    replaced = [value for value in known if isinstance(value.owner, Block)]
    readers = [op for value in replaced for op in readers_of(value)]
    before += [op for op in readers if op in places and places[op] < places[launch]]
    if not before:
        return
    last = max(before, key=places.__getitem__)
    moved = [*(op for op in dict.fromkeys(reversed(views)) if places[op] > places[last]), launch]
    for at, op in enumerate(moved):
        op.detach()
        places[op] = (*places[last], -number, at)  # before what has been moved there earlier
    block.insert_ops_after(moved, last)
