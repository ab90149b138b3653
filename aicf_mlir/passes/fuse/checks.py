"""Checks of a step's indices that follow each other are one launch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects.func import FuncOp

from aicf_mlir.dialects import kernel
from aicf_mlir.dialects.kernel_op import KernelOp
from aicf_mlir.dialects.scalar import Bodies
from aicf_mlir.passes.fuse.alike import Group, numbers_of, replace
from aicf_mlir.passes.fuse.rule import FusionRule
from aicf_mlir.passes.fuse.segments import SMALL, SMALL_ON_GPU

NOT_IGNORED = 0
"""An index that is a class: to ignore it changes nothing."""


@dataclass(frozen=True)
class FuseChecksPass(FusionRule):
    """Write checks of indices that follow each other as one launch.

    The first target that fails still gives the status.
    """

    name = "fuse-checks"

    def fuse(self, function: FuncOp, bodies: Bodies) -> None:
        most = SMALL if self.is_cpu else SMALL_ON_GPU
        ops = list(function.body.block.ops)
        position = {op: at for at, op in enumerate(ops)}
        runs: list[Group] = []
        for op in ops:
            if isinstance(op, kernel.CheckIndexOp):
                if not runs or not follows(runs[-1].members[-1], op) or not runs[-1].keeps_little(op):
                    runs.append(Group(position, most))
                runs[-1].add(op)
        for run in runs:
            write_check(run.members)


def follows(first: KernelOp, then: kernel.CheckIndexOp) -> bool:
    """True if `then` takes the status and the next code of `first`, whose status nothing else reads."""
    (status,) = then.ins["status"]
    (made,) = first.results
    codes = [numbers_of(op, "code")[0] for op in (first, then)]
    return status is made and made.has_one_use() and codes[1] == codes[0] + len(first.ins["target"])


def write_check(run: Sequence[KernelOp]) -> None:
    """Write one check in the place of the last."""
    if len(run) < 2:
        return
    attrs: dict[str, list[int]] = {"classes": [n for op in run for n in numbers_of(op, "classes")]}
    if any("ignore_index" in op.attrs for op in run):
        attrs["ignore_index"] = [
            n for op in run for n in (numbers_of(op, "ignore_index") or [NOT_IGNORED] * len(op.ins["target"]))
        ]
    merged = kernel.CheckIndexOp.launch(
        {"status": run[0].ins["status"], "target": [value for op in run for value in op.ins["target"]]},
        {"status": [run[-1].results[0].type]},
        code=numbers_of(run[0], "code")[0],
        **attrs,
    )
    replace(run, merged, list(merged.results))
