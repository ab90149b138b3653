"""Updates become epilogues of the products that make their gradients: for large weights on a CPU, in small steps on a GPU."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.func import FuncOp

from aicf_mlir.dialects.scalar import Bodies
from aicf_mlir.passes.fuse.rule import FusionRule, mark_small
from aicf_mlir.passes.fuse.small_updates import SmallUpdateFusion
from aicf_mlir.passes.fuse.update import UpdateFusion


@dataclass(frozen=True)
class FuseUpdatesPass(FusionRule):
    """Write the optimizer's update of a weight as the epilogue of the product that makes its gradient.

    On a CPU this is done for weights that its caches do not keep. On a GPU it is done if all products are small. The step is a
    small one then, and the rules after this one write it in as few launches as they can.
    """

    name = "fuse-updates"

    def fuse(self, function: FuncOp, bodies: Bodies) -> None:
        if self.is_cpu:
            UpdateFusion(function, bodies).write()
        else:
            (small := SmallUpdateFusion(function, bodies, self.target)).write()
            if small.launches:
                mark_small(function)
