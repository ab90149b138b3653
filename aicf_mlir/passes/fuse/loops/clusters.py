"""Clusters: launches that become one because their members walk one domain.

A cluster stands at its anchor, one place of the text. All its operands are made before the anchor, and all its readers come after
it: so clusters never depend on each other in a circle.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator

from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue

from aicf_mlir.dialects import kernel
from aicf_mlir.dialects.generated import GeneratedOp
from aicf_mlir.dialects.kernel_formulas import FORMULAS, ROWS
from aicf_mlir.dialects.scalar import Bodies
from aicf_mlir.ir.attributes import AT_ONCE
from aicf_mlir.ir.body import is_table
from aicf_mlir.passes.fuse.loops.cluster import (
    MOST_LINES,
    MOST_OPERANDS,
    Cluster,
    operands_of,
    reduces_few_rows,
    stages_of,
    why_not,
)
from aicf_mlir.passes.fuse.loops.fit import fit
from aicf_mlir.passes.fuse.loops.members import (
    FEW_LINES,
    Access,
    LoopMember,
    composed,
    constant_of,
    is_cheap,
    is_one_element,
    member_of,
    operands_with,
    resolve,
)
from aicf_mlir.passes.fuse.loops.recomputed import bytes_of, recomputed
from aicf_mlir.passes.fuse.updating import updates, updating

LOOK_BACK = 48
"""The number of earlier clusters that are tried for a member."""

MOVES = (kernel.ReshapeOp, kernel.ViewOp, kernel.CopyOp)


class Clustering:
    """The clusters of one function."""

    def __init__(self, function: FuncOp, bodies: Bodies, last: bool):
        self.function, self.last = function, last
        self.updating = set(updating(function)) if last else set[Operation]()
        self.ends = set(updates(function))
        self.ops = list(function.body.block.ops)
        self.position = {op: at for at, op in enumerate(self.ops)}
        self.clusters: list[Cluster] = []
        self.cluster_of: dict[Operation, Cluster] = {}
        self.members: dict[Operation, LoopMember] = {}
        self.again: dict[SSAValue, list[Operation]] = {}
        """The ops that read a value only because they compute an op again, where the text has them read that op."""
        self._readers: dict[SSAValue, list[Operation]] = {}
        self._composed: dict[tuple[int, int, int, int], tuple[object, LoopMember | None]] = {}
        self._cheap: dict[int, tuple[LoopMember, bool]] = {}
        loops = {op: member_of(op, bodies) for op in self.ops if AT_ONCE not in op.attributes}
        self.loops = {op: member for op, member in loops.items() if member is not None}
        self.roots = {access.root for member in self.loops.values() for access in member.operands}

    def run(self) -> list[Cluster]:
        """The clusters of more than one member, or of generated launches, in the order of the text."""
        for member in self.loops.values():
            self.place(member)
        for cluster in list(self.clusters):
            lighter = recomputed(cluster, self.loops)
            if lighter is not None and all(
                self.made_before(root, lighter) for root, _ in operands_of(lighter)
            ):
                self.clusters.remove(cluster)
                self.take(lighter)
        return self.clusters

    def place(self, member: LoopMember) -> None:
        """Place a member in the latest cluster that takes it, or in one of its own."""
        if self.join(member):
            return
        alone = member
        for again, roots in self.with_sources(member):
            if self.join(again, member):
                return
            alone = again if self.reads_alone(member, roots) else alone
        own = Cluster([], self.position[member.op])
        own.add(alone, is_narrow=False)
        self.take(own)

    def with_sources(self, member: LoopMember) -> Iterator[tuple[LoopMember, set[SSAValue]]]:
        """`member` with one operand after the other computed again, if that is cheap and one launch can read all operands; and
        the values that it need not read for that.
        """
        index, roots = 0, set[SSAValue]()
        while index < len(member.operands):
            root = member.operands[index].root
            source = self.cheap_source(root)
            again = None if source is None else self.composed(member, index, source, root)
            if again is None:
                index += 1
            elif len(again.operands) > MOST_OPERANDS:
                return
            else:
                member = again  # whose new operands come last
                roots.add(root)
                yield member, roots

    def cheap_source(self, root: SSAValue) -> LoopMember | None:
        """The member that makes `root`, if it is cheap to compute again."""
        source = self.members.get(root.owner) if isinstance(root.owner, Operation) else None
        if source is None or root not in source.results:
            return None
        if (known := self._cheap.get(id(source))) is None:
            known = self._cheap[id(source)] = source, is_cheap(source)
        return source if known[1] else None

    def composed(
        self, reader: LoopMember, index: int, source: LoopMember, root: SSAValue
    ) -> LoopMember | None:
        """The result of `members.composed`, computed once for the same arguments: a member is tried in one cluster after the
        other.
        """
        key = (id(reader), index, id(source), id(root))
        if (known := self._composed.get(key)) is None:
            made = composed(reader, index, source, root)
            known = self._composed[key] = (reader, source), made  # whose ids stay theirs
        return known[1]

    def versions(self, cluster: Cluster, member: LoopMember) -> Iterator[LoopMember]:
        """`member` with operands that are computed again from values that `cluster` has in any case, if possible; then
        unchanged.
        """
        there = cluster.values | {root for root, _ in operands_of(cluster)}
        given = there | {access.root for access in member.operands}
        again, index = member, 0
        while index < len(again.operands) and again.body.operations <= member.body.operations + FEW_LINES:
            root = again.operands[index].root
            source = None if root in there else self.cheap_source(root)
            if source is None:
                index += 1
            elif self.reads_more(source, given) and operands_with(again, index, source) is not None:
                break
            elif (made := self.composed(again, index, source, root)) is None:
                index += 1
            else:
                again = made  # whose new operands come last
        more = any(a.root not in given and constant_of(a) is None for a in again.operands)
        if again is not member and index == len(again.operands) and not more:
            yield again
        yield member

    def reads_more(self, source: LoopMember, given: Container[SSAValue]) -> bool:
        """True if `source` reads a value that is not given and cannot be computed again."""
        return any(
            access.root not in given
            and self.cheap_source(access.root) is None
            and constant_of(access) is None
            for access in source.operands
        )

    def moves_more(self, joined: Cluster, cluster: Cluster, plain: LoopMember) -> bool:
        """True if `joined`, with what `plain` reads computed again, moves more bytes than `cluster` and `plain` apart."""
        read = {root for root, _ in operands_of(joined)}
        before = {access.root for access in plain.operands if constant_of(access) is None}
        apart = {root for root, _ in operands_of(cluster)}
        unread = [
            root
            for root in before - read
            if root not in joined.values
            and all(reader is plain.op for reader in (*self.readers(root), *self.again.get(root, ())))
        ]  # which is not even written
        return sum(map(bytes_of, read)) > sum(map(bytes_of, [*apart, *before, *unread]))

    def reads_alone(self, member: LoopMember, roots: set[SSAValue]) -> bool:
        """True if nothing else reads `roots`, which `member` computes again, so that their launches disappear."""
        return all(
            reader is member.op or (reader.results and roots.issuperset(reader.results))
            for root in roots
            for reader in (*self.readers(root), *self.again.get(root, ()))
        )

    def join(self, member: LoopMember, plain: LoopMember | None = None) -> bool:
        """True if a cluster has taken it in; if it is `plain` with operands computed again, one with which no more is read."""
        has_cheap = any(self.cheap_source(access.root) for access in member.operands)
        for cluster in self.candidates(member):
            for version in self.versions(cluster, member) if has_cheap else (member,):
                if not isinstance(joined := self.joined(cluster, version), str):
                    if plain is not None and self.moves_more(joined, cluster, plain):
                        continue
                    self.clusters.remove(cluster)
                    self.take(joined)
                    return True
        return False

    def take(self, cluster: Cluster) -> None:
        """Remember a new cluster, in the order of anchors as they come."""
        self.clusters.append(cluster)
        for each in cluster.members:
            self.cluster_of[each.op] = cluster
            self.members[each.op] = each
            if each is not self.loops[each.op]:
                for access in each.operands:
                    readers = self.again.setdefault(access.root, [])
                    if each.op not in readers:
                        readers.append(each.op)

    def candidates(self, member: LoopMember) -> Iterator[Cluster]:
        """The clusters that the member reads, the latest first; then the clusters that share an operand of more than one element
        with it.
        """
        clusters: list[Cluster] = []
        for access in member.operands:
            op = access.root.owner
            if (
                isinstance(op, Operation)
                and (cluster := self.cluster_of.get(op)) is not None
                and cluster not in clusters
            ):
                clusters.append(cluster)
        clusters.sort(key=lambda cluster: -cluster.anchor)
        yield from clusters
        roots = {a.root for a in member.operands if constant_of(a) is None and not is_one_element(a)}
        for cluster in reversed(self.clusters[-LOOK_BACK:]):
            if cluster not in clusters and any(
                access.root in roots and not is_one_element(access)
                for other in cluster.members
                for access in other.operands
            ):
                yield cluster

    def joined(self, cluster: Cluster, member: LoopMember) -> Cluster | str:
        """`cluster` with `member`, at a place where both may stand, or the reason why there is no such cluster."""
        fitted = fit(cluster, member)
        if isinstance(fitted, str):
            return fitted
        made, is_narrow = fitted
        if is_narrow and member.op in self.ends:
            return "it writes what the step updates, in place in a launch of its own"
        anchor = self.anchor(cluster, made[-1])
        if anchor is None:
            return "another reader of what the other gives comes before what else it reads"
        new = Cluster([], anchor)
        rows = any(each.kind == "rowwise" for each in made)
        narrow = [m.op for m in cluster.members if id(m) in cluster.narrow_members]
        narrow += [member.op] if is_narrow else []
        for each in made:
            new.add(each, each.op in narrow, rows and each.kind == "colwise")
        if (read := len(operands_of(new))) > MOST_OPERANDS:
            return f"together they read {read} tensors, one launch at most {MOST_OPERANDS}"
        if new.lines > MOST_LINES:
            return f"together they have {new.lines} operations, one launch at most {MOST_LINES}"
        if reason := self.why_not(new):
            return reason
        if reduces_few_rows(new) and self.goes_on(new):
            return "many blocks share each of the few rows, and something else reads elements that follow a reduction"
        return new

    def why_not(self, cluster: Cluster) -> str:
        """The reason why no kernel of its kind should compute the cluster."""
        return why_not(cluster)

    def apart(self) -> Iterator[tuple[Operation, Operation, str]]:
        """Each launch that reads a result of another cluster's launch, the other launch, and the reason why they are not one."""
        for op, member in self.loops.items():
            own = self.cluster_of[op]
            for source in dict.fromkeys(access.root.owner for access in member.operands):
                if not isinstance(source, Operation) or (other := self.cluster_of.get(source)) in (None, own):
                    continue
                if isinstance(reason := self.joined(other, self.members[op]), str):
                    yield op, source, reason

    def goes_on(self, cluster: Cluster) -> bool:
        """True if anything but its members reads a value of the domain's shape that follows a reduction.

        A value that follows no reduction can be written on the way. But it may go to a product whose epilogue can compute it,
        which saves one phase between the product and its readers, so before the `last` run such values count too. Values that
        lead to updates always count: with others of the same body they may become one launch for all parameters.
        """
        own, stages = {member.op for member in cluster.members}, stages_of(cluster)
        return any(
            reader not in own
            for value, member in cluster.whole.items()
            if stages[value] or not self.last or member.op in self.updating
            for reader in (*self.readers(value), *self.again.get(value, ()))
        )

    def anchor(self, cluster: Cluster, member: LoopMember) -> int | None:
        """The place for both: at the cluster if all operands of `member` are made before, else at the member."""
        if all(self.made_before(access.root, cluster) for access in member.operands):
            return cluster.anchor
        at = self.position[member.op]
        for value in cluster.values:
            for reader in (*self.readers(value), *self.again.get(value, ())):
                where = self.cluster_of.get(reader)
                if where is not cluster and (self.position[reader] if where is None else where.anchor) < at:
                    return None
        return at

    def made_before(self, root: SSAValue, cluster: Cluster) -> bool:
        """True if `root` is a value of `cluster`, or there when it starts."""
        op = root.owner
        if not isinstance(op, Operation) or isinstance(op, kernel.ConstantOp):
            return True
        where = self.cluster_of.get(op)
        return where is cluster or (self.position[op] if where is None else where.anchor) < cluster.anchor

    def readers(self, value: SSAValue) -> list[Operation]:
        """Every op that reads `value`, also through copies and ops that move no memory."""
        if value not in self._readers:
            ops: list[Operation] = []
            for use in value.uses:
                op = use.operation
                ops.append(op)
                if isinstance(op, (kernel.ReshapeOp, kernel.ViewOp, kernel.CopyOp)):
                    ops += self.readers(op.results[0])
            # An op that only moves elements is read at the place of its reader, not at its own.
            self._readers[value] = [
                op
                for op in ops
                if not isinstance(op, (kernel.ReshapeOp, kernel.ViewOp)) and not self.is_free(op)
            ]
        return self._readers[value]

    def is_free(self, op: Operation) -> bool:
        """True if a copy moves elements for members only, which all look through it."""
        if not isinstance(op, kernel.CopyOp) or op.results[0] in self.roots or op in self.loops:
            return False
        return all(self.is_looked_through(use.operation) for use in op.results[0].uses)

    def is_looked_through(self, op: Operation) -> bool:
        """True if `op` is a member, or moves elements for members only."""
        if isinstance(op, kernel.ReshapeOp | kernel.ViewOp):
            return op.output not in self.roots and all(
                self.is_looked_through(use.operation) for use in op.output.uses
            )
        return op in self.loops or self.is_free(op)


def clusters_of(
    function: FuncOp, bodies: Bodies, last: bool, alone: Callable[[LoopMember], bool]
) -> list[Cluster]:
    """The clusters of `function` that become generated launches; of one launch those that are `alone`, too."""

    def is_generated(member: LoopMember) -> bool:
        return _rewritten(member) or (not isinstance(member.op, GeneratedOp) and alone(member))

    made = Clustering(function, bodies, last).run()
    return [c for c in made if len(c.members) > 1 or any(map(is_generated, c.members))]


def _rewritten(member: LoopMember) -> bool:
    """True if a lone launch reads through a copy or a constant, walks over rows or reads what lies across: what is generated
    for this length and layout is at least as fast as the prebuilt kernel.
    """
    if member.op.op_name in ROWS or (
        member.op.op_name in FORMULAS and any(map(lies_across, member.operands))
    ):
        return True
    if len(member.operands) != len(member.op.operands) or {a.root for a in member.operands} - roots_of(
        member.op
    ):
        return True
    if not isinstance(member.op, GeneratedOp):
        return False
    for access, given, type_ in zip(member.operands, member.op.operands, member.body.args, strict=True):
        if not is_table(type_) and (constant_of(access) is not None or _is_copied(given, access.root)):
            return True
    return False


def lies_across(access: Access) -> bool:
    """True if neighbours of the domain are no neighbours in memory, though others are."""
    if access.layout is None:
        return False
    *outer, last = access.layout.significant or [(1, 1)]
    return last[1] > 1 and any(stride == 1 for _, stride in outer)


def roots_of(op: Operation) -> set[SSAValue]:
    """The values that the operands of `op` take their elements from."""
    return {resolve(value).root for value in op.operands} | set(op.operands)


def _is_copied(value: SSAValue, root: SSAValue) -> bool:
    """True if there is a copy between `root` and the value that is read."""
    while value is not root and isinstance(op := value.owner, MOVES):
        if isinstance(op, kernel.CopyOp):
            return True
        value = op.operands[0]
    return False
