"""Whether a member walks the domain of a cluster, or what the cluster keeps of it."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from aicf_mlir.dialects import kernel
from aicf_mlir.ir.layouts import Layout, dense_strides
from aicf_mlir.passes.fuse.loops.cluster import Cluster
from aicf_mlir.passes.fuse.loops.members import Member


def fit(cluster: Cluster, member: Member) -> tuple[list[Member], bool] | None:
    """The members of both over one domain, and whether the new one walks the kept dimensions only."""
    tables = (access.root for access in member.operands if access.layout is None)
    if any(kernel.block_of(root) in cluster.values for root in tables):  # whole before anything reads it
        return None
    for made in (_whole(cluster, member), _narrow(cluster, member)):
        if made is not None:
            return made
    return None


def _whole(cluster: Cluster, member: Member) -> tuple[list[Member], bool] | None:
    """As a member of the whole domain: every value of the cluster is read where it is, or repeated along the rows."""
    if "map" not in (cluster.kind, member.kind) and cluster.kind != member.kind:
        return None
    made = member.over(cluster.domain)
    members = list(cluster.members)
    if made is None or (
        made.kind != "map" and cluster.kind != "map" and made.reduced != cluster.head.reduced
    ):
        if cluster.kind != "map" or cluster.narrow:
            return None
        moved = [each.over(member.domain) for each in cluster.members]
        if any(each is None for each in moved):
            return None
        members, made = [each for each in moved if each is not None], member
    kind = made.kind if cluster.kind == "map" else cluster.kind
    reduced = made.reduced if made.kind != "map" else cluster.head.reduced
    domain = made.domain
    for access in made.operands:
        if access.root in cluster.whole:
            if access.layout is None or not is_same(access.layout, domain):
                return None
        elif access.root in cluster.narrow and (
            access.layout is None or not is_repeated(access.layout, domain, reduced, kind)
        ):
            return None
    return [*members, made], False


def _narrow(cluster: Cluster, member: Member) -> tuple[list[Member], bool] | None:
    """As a map of the kept dimensions: it reads what the cluster has reduced."""
    if cluster.kind == "map" or member.kind != "map" or member.body.dims:
        return None
    kept = cluster.head.kept
    made = member.over(kept)
    if made is None or not any(access.root in cluster.narrow for access in made.operands):
        return None
    for access in made.operands:
        if access.root in cluster.whole or (
            access.root in cluster.narrow and (access.layout is None or not is_same(access.layout, kept))
        ):
            return None
    return [*cluster.members, made], True


def is_same(layout: Layout, domain: Sequence[int]) -> bool:
    """Whether a value that has the shape of `domain` is read where it is."""
    return layout.is_dense and layout.count == prod(domain)


def is_repeated(layout: Layout, domain: Sequence[int], reduced: int, kind: str) -> bool:
    """Whether a value of the kept dimensions is read once for each point of what is reduced."""
    rank = len(domain)
    kept = domain[reduced:] if kind == "colwise" else domain[: rank - reduced]
    zeros, dense = (0,) * reduced, dense_strides(kept)
    strides = (*zeros, *dense) if kind == "colwise" else (*dense, *zeros)
    return (
        layout.shape == tuple(domain)
        and layout.significant == Layout(tuple(domain), strides).significant
        and layout.offset == 0
    )
