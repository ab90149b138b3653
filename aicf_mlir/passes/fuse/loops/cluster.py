"""A cluster: members that become one launch, and the limits of one kernel."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from xdsl.ir import SSAValue

from aicf_mlir.ir.layouts import Layout
from aicf_mlir.passes.fuse.loops.members import LoopMember, constant_of

MOST_OPERANDS, MOST_LINES = 24, 240
"""The limits of one kernel: beyond them registers spill, and compiling takes long."""

FEW_ROWS, LARGE = 64, 1 << 14
"""Fewer rows of more elements than this together are reduced by many threads a row: nothing whole follows a reduction."""


@dataclass(eq=False)
class Cluster:
    """Members that become one launch."""

    members: list[LoopMember]
    anchor: int
    """The position of the cluster in the text."""
    whole: dict[SSAValue, LoopMember] = field(default_factory=dict)
    """Results that have the shape of the domain, and results that have the kept shape."""
    narrow: dict[SSAValue, LoopMember] = field(default_factory=dict)
    columns: dict[SSAValue, LoopMember] = field(default_factory=dict)
    """Sums over the kept dimensions, in a cluster of rows."""
    narrow_members: set[int] = field(default_factory=set)
    """Ids of members that walk the kept dimensions only."""

    @property
    def head(self) -> LoopMember:
        """The member that determines the reduced dimensions, rows before columns; the first one of a map."""
        order = [m for kind in ("rowwise", "colwise") for m in self.members if m.kind == kind]
        return order[0] if order else self.members[0]

    @property
    def kind(self) -> str:
        """The kind of the kernel."""
        return self.head.kind

    @property
    def domain(self) -> tuple[int, ...]:
        """The domain that every member walks."""
        return self.head.domain

    @property
    def values(self) -> set[SSAValue]:
        """All results of its members."""
        return {*self.whole, *self.narrow, *self.columns}

    @property
    def lines(self) -> int:
        """The number of operations in the cluster's body."""
        return sum(member.body.operations for member in self.members)

    def add(self, member: LoopMember, is_narrow: bool, is_column: bool = False) -> None:
        """Take `member` in."""
        self.members.append(member)
        if is_narrow:
            self.narrow_members.add(id(member))
        if is_column:
            self.columns.update((result, member) for result in member.results)
            return
        for number, result in enumerate(member.results):
            (self.narrow if is_narrow or member.narrow[number] else self.whole)[result] = member


def operands_of(cluster: Cluster) -> dict[tuple[SSAValue, Layout | None], None]:
    """The outside operands of the cluster, constants left out."""
    inside = cluster.values
    places: dict[tuple[SSAValue, Layout | None], None] = {}
    for member in cluster.members:
        for access in member.operands:
            if access.root not in inside and constant_of(access) is None:
                places[access.root, access.layout] = None
    return places


def why_not(cluster: Cluster) -> str:
    """The reason why no kernel of its kind should compute the cluster: whole values after sums of columns, or two levels with few
    rows.
    """
    if cluster.kind == "map":
        return ""
    stages = stages_of(cluster)
    if cluster.kind == "colwise":
        if any(stages[value] for value in cluster.whole) or any(s > 1 for s in stages.values()):
            return "it goes on, element by element, from what columns are reduced to, which is there behind the last row"
    elif reduces_few_rows(cluster):
        if cluster.columns:
            return "many blocks share each of the few rows, and none has what columns are summed of"
        if max(stages.values(), default=0) > 1:
            return "many blocks share each of the few rows, so that no reduction follows another"
    return ""


def reduces_few_rows(cluster: Cluster) -> bool:
    """True if many threads must share a row to be many; the one row of a whole sum always."""
    head = cluster.head
    few = not head.kept or (prod(head.kept) < FEW_ROWS and prod(head.domain) > LARGE)
    return head.kind == "rowwise" and few


def stages_of(cluster: Cluster) -> dict[SSAValue, int]:
    """For each result, the number of successive reductions on the way to it inside the cluster."""
    depths: dict[SSAValue, int] = {}
    for member in cluster.members:
        before = [depths.get(access.root, 0) for access in member.operands]
        own = member.body.stages
        for number, result in enumerate(member.results):
            value = member.body.results[number]
            depths[result] = max(before, default=0) + own[value]
    return depths
