"""Chains of maps and reductions become one launch each.

Launches are taken in the order of the text. Each joins the latest cluster that walks the same domain and that it reads from or
shares operands with, if the whole can still stand at one place of the text. In a cluster nothing is computed twice, and values
that only its members read are never written. Constants, broadcasts and transposes cost nothing: they describe how a member reads.
Cheap ops that need no more memory to be read are computed again in two cases: a member cannot join the launch it reads, or a
cluster has all their operands. A transcendental function is never computed again. Sums of columns join rows if they share large
operands, and take the members that follow no reduction: common operands are read once.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from xdsl.dialects.func import FuncOp

from aicf_mlir.dialects import kernel
from aicf_mlir.dialects.kernel_formulas import FORMULAS
from aicf_mlir.dialects.scalar import Bodies
from aicf_mlir.ir import remarks
from aicf_mlir.ir.dtypes import element_name
from aicf_mlir.ir.element_types import NARROW
from aicf_mlir.ir.tensor_op import element_type
from aicf_mlir.passes.fuse.loops.clusters import Clustering, clusters_of, lies_across
from aicf_mlir.passes.fuse.loops.emit import replace
from aicf_mlir.passes.fuse.loops.members import Access, LoopMember
from aicf_mlir.passes.fuse.rule import FusionRule, is_small

LARGE = 1 << 21
"""The elements from which on a generated map of 16-bit floats, or of rows with one number each, is faster on a GPU: a thread
moves 16 bytes at once, one of a prebuilt kernel 4.
"""


def is_large(member: LoopMember) -> bool:
    """True for a pointwise op of which a GPU moves more bytes in the same time if it is generated."""
    narrow = any(element_name(element_type(value)) in NARROW for value in member.results)
    moved = narrow or any(map(is_by_row, member.operands))
    return member.op.op_name in FORMULAS and moved and prod(member.domain) >= LARGE


def sums_across(member: LoopMember) -> bool:
    """True for a sum over dimensions in the middle, whose neighbours in memory are terms of other sums.

    The generated kernel reads as many of them at once as divide their number, the prebuilt one 16 bytes or single elements.
    """
    return isinstance(member.op, kernel.ReduceSumOp) and (
        member.kind == "rowwise" and any(map(lies_across, member.operands))
    )


def is_by_row(access: Access) -> bool:
    """True if an operand has one number for each row, which repeats along it."""
    if access.layout is None:
        return False
    *outer, last = access.layout.significant or [(1, 1)]
    return last[1] == 0 and any(stride for _, stride in outer)


@dataclass(frozen=True)
class FuseLoopsPass(FusionRule):
    """Write chains of maps and reductions as one launch each.

    Options:
      early: maps join no sums of all their elements, for a product may take them as its epilogue
    """

    name = "fuse-loops"

    early: bool = False

    def fuse(self, function: FuncOp, bodies: Bodies) -> None:
        alone = is_generated
        if self.early or self.is_cpu:
            alone = never
        elif is_small(function):
            alone = always
        while clusters := clusters_of(function, bodies, not self.early, alone):
            replace(function, clusters, bodies)


def is_generated(member: LoopMember) -> bool:
    """True for a launch that a GPU generates though nothing joins it."""
    return is_large(member) or sums_across(member)


def always(_: LoopMember) -> bool:
    """Each launch is generated, so that it can be one with others."""
    return True


def never(_: LoopMember) -> bool:
    """A launch that nothing joins stays as it is."""
    return False


def tell_apart(function: FuncOp, bodies: Bodies) -> None:
    """Report why each pair of launches that could be parts of one is not; for the end, when nothing changes any more."""
    if not remarks.wanted():
        return
    clustering = Clustering(function, bodies, last=True)
    clustering.run()
    for op, source, reason in clustering.apart():
        remarks.remark(op, f"is not fused with {source.name}: {reason}", (source, "makes what it reads"))
