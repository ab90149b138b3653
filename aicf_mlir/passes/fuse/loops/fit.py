"""The fit of a member in a cluster: it walks the domain of the cluster, or the kept dimensions of it; if not, the reason.

A reason is a sentence of which the member is the subject, and the cluster "the other"; it is empty if this way to
fit is none for launches of these kinds.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from aicf_mlir.dialects import kernel
from aicf_mlir.ir.body import REDUCTIONS
from aicf_mlir.ir.layouts import Layout, dense_strides
from aicf_mlir.passes.fuse.loops.cluster import Cluster, stages_of
from aicf_mlir.passes.fuse.loops.members import Access, LoopMember

Fit = tuple[list[LoopMember], bool]
"""The members of both over one domain, and True if the new one walks the kept dimensions only."""

OTHER_WALK = "it does not go through the elements of the other in their order"
OTHER_PLACES = "it reads what the other gives in another order, in part, or more than once"


def fit(cluster: Cluster, member: LoopMember) -> Fit | str:
    """The fit of a member in a cluster, or the reason why it does not fit."""
    tables = (access.root for access in member.operands if access.layout is None)
    if any(kernel.block_of(root) in cluster.values for root in tables):  # whole before anything reads it
        return "it looks elements up in what the other gives"
    if any(access.root in cluster.columns for access in member.operands):
        return "it reads sums of columns, which are there behind the last row"
    reasons: list[str] = []
    for way in (_whole, _narrow, _beside):
        made = way(cluster, member)
        if not isinstance(made, str):
            return made
        reasons.append(made)
    return next(filter(None, reversed(reasons)), "")


def _whole(cluster: Cluster, member: LoopMember) -> Fit | str:
    """The fit as a member of the whole domain: every value of the cluster is read in place, or repeated along the rows."""
    if "map" not in (cluster.kind, member.kind) and cluster.kind != member.kind:
        return ""
    made = member.over(cluster.domain)
    members = list(cluster.members)
    if made is None or (
        made.kind != "map" and cluster.kind != "map" and made.reduced != cluster.head.reduced
    ):
        if cluster.kind != "map" or cluster.narrow:
            return OTHER_WALK if made is None else "the other reduces more or fewer dimensions"
        moved = [each.over(member.domain) for each in cluster.members]
        if any(each is None for each in moved):
            return OTHER_WALK
        members, made = [each for each in moved if each is not None], member
    kind = made.kind if cluster.kind == "map" else cluster.kind
    reduced = made.reduced if made.kind != "map" else cluster.head.reduced
    domain = made.domain
    for access in made.operands:
        if access.root in cluster.whole:
            if access.layout is None or not is_same(access.layout, domain):
                return OTHER_PLACES
        elif access.root in cluster.narrow and (
            access.layout is None or not is_repeated(access.layout, domain, reduced, kind)
        ):
            return "it reads what the other reduces to, but not once for each of its rows or columns"
    if kind == "rowwise" and walks_apart(members, made):
        return "its neighbours in memory are in other rows than those of the other"
    return [*members, made], False


def walks_apart(members: Sequence[LoopMember], member: LoopMember) -> bool:
    """True if `member` and the others that walk its domain would be read and written along different dimensions.

    One of them would then move whole lines of memory for single elements.
    """
    others = set[int]().union(*(along(each) for each in members if each.domain == member.domain))
    own = along(member)
    return bool(own) and bool(others) and own.isdisjoint(others)


def along(member: LoopMember) -> set[int]:
    """The dimensions along which neighbours lie in tensors that are as large as the domain."""
    long = [dim for dim, size in enumerate(member.domain) if size != 1]
    found = set[int]() if all(member.narrow) else set(long[-1:])
    for access in member.operands:
        layout = access.layout
        if layout is not None and layout.shape == member.domain and all(layout.strides[dim] for dim in long):
            found.update(dim for dim in long if layout.strides[dim] == 1)
    return found


def _narrow(cluster: Cluster, member: LoopMember) -> Fit | str:
    """The fit as a map of the kept dimensions: it reads the values that the cluster has reduced."""
    if cluster.kind == "map" or member.kind != "map" or member.body.dims:
        return ""
    kept = cluster.head.kept
    made = member.over(kept)
    if made is None or not any(access.root in cluster.narrow for access in made.operands):
        return ""
    for access in made.operands:
        if access.root in cluster.whole or (
            access.root in cluster.narrow and (access.layout is None or not is_same(access.layout, kept))
        ):
            return OTHER_PLACES
    return [*cluster.members, made], True


def _beside(cluster: Cluster, member: LoopMember) -> Fit | str:
    """The fit of sums of columns with rows, or of rows with such sums: common operands are read once.

    The sums take values that follow no reduction, and no more than a sum is left of their columns.
    """
    if {cluster.kind, member.kind} != {"rowwise", "colwise"}:
        return ""
    made = member.over(cluster.domain)
    if made is None:
        return OTHER_WALK
    members = [*cluster.members, made]
    rows = next(each for each in members if each.kind == "rowwise")
    sums = [each for each in members if each.kind == "colwise"]
    if not all(each.reduced + rows.reduced == len(each.domain) and is_sum(each) for each in sums):
        return "beside rows stand only sums of what is left of their columns"
    if cluster.kind == "colwise" and cluster.narrow_members:
        return "the other goes on from what it reduces columns to"
    if all(isinstance(each.op, kernel.ReduceSumOp) for each in members):
        return "sums alone stay what they are"
    stages = stages_of(cluster)
    for access in made.operands:
        if access.root in cluster.narrow:
            return "one reduces rows and the other columns, and it reads what the other reduces to"
        if access.root in cluster.whole and (
            access.layout is None
            or not is_same(access.layout, made.domain)
            or (member.kind == "colwise" and stages[access.root])
        ):
            return "sums of columns beside rows take what follows no reduction, where it is"
    before = {(a.root, a.layout) for each in cluster.members for a in each.operands if is_wide(a)}
    shared = any(a.root in cluster.whole or (a.root, a.layout) in before for a in made.operands if is_wide(a))
    return (
        (members, False) if shared else "one reduces rows and the other columns, and they share nothing large"
    )


def is_sum(member: LoopMember) -> bool:
    """True if a colwise member gives sums of its columns and nothing of the domain's shape."""
    ops = {line.op for line in member.body.lines if line.op in REDUCTIONS}
    return all(member.narrow) and ops <= {"scalar.sum"}


def is_wide(access: Access) -> bool:
    """True if an operand has an element of its own for each point, and is no small part of the read bytes."""
    layout = access.layout
    return layout is not None and all(
        stride or size == 1 for size, stride in zip(layout.shape, layout.strides, strict=True)
    )


def is_same(layout: Layout, domain: Sequence[int]) -> bool:
    """True if a value that has the shape of `domain` is read in place."""
    return layout.is_dense and layout.count == prod(domain)


def is_repeated(layout: Layout, domain: Sequence[int], reduced: int, kind: str) -> bool:
    """True if a value of the kept dimensions is read once for each point of the reduced ones."""
    rank = len(domain)
    kept = domain[reduced:] if kind == "colwise" else domain[: rank - reduced]
    zeros, dense = (0,) * reduced, dense_strides(kept)
    strides = (*zeros, *dense) if kind == "colwise" else (*dense, *zeros)
    return (
        layout.shape == tuple(domain)
        and layout.significant == Layout(tuple(domain), strides).significant
        and layout.offset == 0
    )
