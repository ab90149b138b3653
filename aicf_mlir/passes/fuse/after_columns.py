"""What follows, element by element, from sums of columns is a part of their launch, such as a norm over images and positions.

Loop fusion ends a launch where columns are reduced: what comes next is there behind the last row. Here it goes on. The launch
walks down its columns once more, and where a chip holds all its blocks at once, they wait for each other and keep in shared
memory what they read again (codegen/cuda/across_rows.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from xdsl.dialects.func import FuncOp

from aicf_mlir.dialects.nn.statistics import MANY_ROWS
from aicf_mlir.dialects.scalar import Bodies
from aicf_mlir.ir.body import is_table
from aicf_mlir.passes.fuse.loops.cluster import Cluster
from aicf_mlir.passes.fuse.loops.clusters import Clustering
from aicf_mlir.passes.fuse.loops.emit import replace
from aicf_mlir.passes.fuse.loops.fit import is_wide
from aicf_mlir.passes.fuse.loops.members import COSTLY, LoopMember
from aicf_mlir.passes.fuse.rule import FusionRule, is_small


class GoingOn(Clustering):
    """Clusters of sums of columns and what follows from them over the same elements; everything else stays alone."""

    def __init__(self, function: FuncOp, bodies: Bodies):
        super().__init__(function, bodies, last=True)
        if not self.ends:  # a step without updates
            self.updating.clear()

    def why_not(self, cluster: Cluster) -> str:
        """Nothing: a launch may go on."""
        return ""

    def place(self, member: LoopMember) -> None:
        """Place a member in the launch of the columns that it follows from, or in one of its own."""
        for cluster in self.candidates(member):
            if self.follows(cluster, member):
                joined = self.joined(cluster, member)
                if isinstance(joined, Cluster) and id(joined.members[-1]) not in joined.narrow_members:
                    self.clusters.remove(cluster)
                    self.take(joined)
                    return
        own = Cluster([], self.position[member.op])
        own.add(member, is_narrow=False)
        self.take(own)

    def follows(self, cluster: Cluster, member: LoopMember) -> bool:
        """True if a member goes through the elements of a cluster again, and what it needs of them costs little or is stored."""
        if cluster.kind != "colwise" or member.kind not in ("map", "colwise") or member.op in self.updating:
            return False
        if prod(cluster.domain[: cluster.head.reduced]) < MANY_ROWS:
            return False
        if any(is_table(type_) for each in (*cluster.members, member) for type_ in each.body.args):
            return False
        roots = {access.root for access in member.operands}
        if roots.isdisjoint(cluster.narrow):
            return False
        if not all(lies_across(each, cluster.head.reduced) for each in (*cluster.members, member)):
            return False
        own = {each.op for each in cluster.members} | {member.op}
        return not any(
            is_costly(cluster.whole[root]) and own.issuperset(self.readers(root))
            for root in roots & cluster.whole.keys()
        )


def is_costly(member: LoopMember) -> bool:
    """True if a body has operations that are not done twice."""
    return any(line.op in COSTLY for line in member.body.lines)


def lies_across(member: LoopMember, reduced: int) -> bool:
    """True if all that a member reads of the domain's size has its neighbours along the last dimension, which is kept."""
    if len(member.domain) <= reduced:
        return False
    wide = [access.layout for access in member.operands if is_wide(access)]
    return all(layout is not None and layout.strides[-1] == 1 for layout in wide)


@dataclass(frozen=True)
class FuseAfterColumnsPass(FusionRule):
    """Let the launch of sums of columns go on with what follows from them for each element.

    Not in a small step.
    """

    name = "fuse-after-columns"
    DEVICES: ClassVar = ("cuda",)

    def fuse(self, function: FuncOp, bodies: Bodies) -> None:
        if not is_small(function):
            clusters = GoingOn(function, bodies).run()
            replace(function, [cluster for cluster in clusters if len(cluster.members) > 1], bodies)
