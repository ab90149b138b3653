"""Values that a cluster computes again from others that are fewer bytes to read, or are in memory in any case.

A batch norm reads the 16-bit result of a convolution in each of its launches, and never writes it in f32, centred or scaled; its
gradient writes what arrives in 16 bits, and not its f32 multiples. What is in memory in any case are results of launches that no
loop and no epilogue can join. Arguments are not meant: updates of all parameters shall stay one launch.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import NamedTuple

from xdsl.ir import Operation, SSAValue

from aicf_mlir.dialects.kernel_op import KernelOp, tensor_spec
from aicf_mlir.ir.element_types import byte_size
from aicf_mlir.passes.fuse.loops.cluster import MOST_LINES, MOST_OPERANDS, Cluster, operands_of, why_not
from aicf_mlir.passes.fuse.loops.members import LoopMember, composed, constant_of, is_cheap

IN_MEMORY = ("convolution", "convolution_input_grad", "convolution_weight_grad")
"""Ops whose results are written whatever reads them."""
SMALL = 16
"""A value of so many times fewer bytes than another one costs nothing in addition to it."""
DEEPEST = 12
"""Steps from a value to those in memory."""

Members = Mapping[Operation, LoopMember]


def recomputed(cluster: Cluster, members: Members) -> Cluster | None:
    """`cluster` with what it computes again; None where that is nothing, or too much for one kernel."""
    read = {root for root, _ in operands_of(cluster)}
    again: set[SSAValue] = set()
    for root in read:
        way = way_to(root, members, read)
        again |= set() if way is None else way
    if not again:
        return None
    new = Cluster([], cluster.anchor)
    for member in cluster.members:
        made = inlined(member, again, members)
        if made is None:
            return None
        is_column = any(result in cluster.columns for result in member.results)
        new.add(made, id(member) in cluster.narrow_members, is_column)
    fits = len(operands_of(new)) <= MOST_OPERANDS and new.lines <= MOST_LINES and not why_not(new)
    return new if fits else None


def inlined(member: LoopMember, again: set[SSAValue], members: Members) -> LoopMember | None:
    """`member` with the computation of the values `again` in it; None if no strides express it."""
    for _ in range(DEEPEST):
        index = next((i for i, access in enumerate(member.operands) if access.root in again), None)
        if index is None:
            return member
        root = member.operands[index].root
        assert isinstance(root.owner, Operation)
        made = composed(member, index, members[root.owner], root)
        if made is None:
            return None
        member = made
    return None


def way_to(root: SSAValue, members: Members, read: set[SSAValue]) -> set[SSAValue] | None:
    """The values to compute again so that `root` need not be read; None where that is not worth it."""
    maker = maker_of(root, members)
    if maker is None:
        return None
    parts = [Cut.of(operand, members, read, DEEPEST) for operand in passed(maker, root)]
    total, own = sum(part.bytes for part in parts), bytes_of(root)
    if total < own or (total == own and all(part.is_in_memory for part in parts)):
        return {root}.union(*(part.again for part in parts))
    return None


class Cut(NamedTuple):
    """What is read in the place of a value, the fewest bytes, and the values that are computed again from it."""

    bytes: float
    again: frozenset[SSAValue]
    is_in_memory: bool

    @staticmethod
    def of(value: SSAValue, members: Members, read: set[SSAValue], depth: int) -> Cut:
        """Of a value: itself, unless what makes it reads less."""
        if value in read and is_in_memory(value):
            return Cut(0, frozenset(), is_in_memory=True)
        made = isinstance(value.owner, Operation) and value.owner in members
        own = Cut(bytes_of(value) if made or is_in_memory(value) else inf, frozenset(), is_in_memory(value))
        maker = maker_of(value, members)
        if maker is None or not depth:
            return own
        parts = [Cut.of(operand, members, read, depth - 1) for operand in passed(maker, value)]
        total = sum(part.bytes for part in parts)
        if total >= own.bytes and not (total == own.bytes and all(part.is_in_memory for part in parts)):
            return own
        again = frozenset({value}).union(*(part.again for part in parts))
        return Cut(total, again, all(part.is_in_memory for part in parts))


def maker_of(value: SSAValue, members: Members) -> LoopMember | None:
    """The cheap map that makes it; None if there is none."""
    member = members.get(value.owner) if isinstance(value.owner, Operation) else None
    return member if member is not None and value in member.results and is_cheap(member) else None


def passed(member: LoopMember, root: SSAValue) -> set[SSAValue]:
    """The operands of `member` that are not small beside its result."""
    roots = {access.root for access in member.operands if constant_of(access) is None}
    return {operand for operand in roots if bytes_of(operand) * SMALL > bytes_of(root)}


def is_in_memory(value: SSAValue) -> bool:
    """True for a value that is in memory whatever reads it."""
    return isinstance(value.owner, KernelOp) and value.owner.op_name in IN_MEMORY


def bytes_of(value: SSAValue) -> int:
    """The size of a tensor."""
    return byte_size(*tensor_spec(value))
