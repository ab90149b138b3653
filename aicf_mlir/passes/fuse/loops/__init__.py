"""Chains of maps and reductions become one launch each.

Launches are taken in the order of the text. Each joins the latest cluster that walks the same domain and that it
reads from, or reads beside, if the whole can still stand at one place of the text. In a cluster nothing is computed
twice, and values that only its members read are never written. Constants, broadcasts and transposes cost nothing:
they are how a member reads. What is cheap, and makes no more memory to read, is computed again where a member cannot
join what it reads, and where a cluster has all that it is made of: a transcendental function never is. Sums of columns
stand beside rows, where they share what is large and take what follows no reduction: what both read is read once.
"""

from __future__ import annotations

from xdsl.dialects.func import FuncOp

from aicf_mlir.dialects.scalar import Bodies
from aicf_mlir.ir import remarks
from aicf_mlir.passes.fuse.loops.clusters import Clustering, clusters_of
from aicf_mlir.passes.fuse.loops.emit import replace


def fuse_loops(function: FuncOp, bodies: Bodies, last: bool) -> bool:
    """Write the generated launches of `function` in the place of what they fuse; whether there were any.

    In the `last` run maps join the sums of all elements beside them; before, a product may take them as its epilogue.
    """
    changed = False
    while clusters := clusters_of(function, bodies, last):
        replace(function, clusters, bodies)
        changed = True
    return changed


def tell_apart(function: FuncOp, bodies: Bodies) -> None:
    """Say of each pair of launches that could be parts of one why they are not; for the end, when nothing changes any more."""
    if not remarks.wanted():
        return
    clustering = Clustering(function, bodies, last=True)
    clustering.run()
    for op, source, reason in clustering.apart():
        remarks.remark(op, f"is not fused with {source.name}: {reason}", (source, "makes what it reads"))
