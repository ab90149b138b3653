"""Maps of arguments with one body, on tensors of any sizes, as one launch before all their readers: casts of weights.

All operands of such a map exist from the beginning, so that only memory decides its place. A result that is read after the last
of the maps is in memory together with all the others at that point, wherever it was made. Other results are gone by then, as
casts are in a step without gradients: a launch takes only a few of them, in addition to the ones that stand at the beginning
already.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Operation, SSAValue

from aicf_mlir.dialects import kernel
from aicf_mlir.dialects.kernel_op import tensor_spec
from aicf_mlir.dialects.scalar import Bodies
from aicf_mlir.ir.element_types import byte_size
from aicf_mlir.ir.layouts import Layout
from aicf_mlir.ir.layouts import layout_of as of_type
from aicf_mlir.ir.tensor_op import tensor_type
from aicf_mlir.kernels.segments import steps_of
from aicf_mlir.passes.fuse.loops.emit import erase_unread
from aicf_mlir.passes.fuse.loops.members import LoopMember, member_of
from aicf_mlir.passes.fuse.rule import FusionRule
from aicf_mlir.passes.fuse.segments import (
    SMALL_ON_GPU,
    VECTOR,
    Kind,
    SegmentFusion,
    bytes_of,
    is_candidate,
    kind_of,
    layout_of,
    most_segments,
)
from aicf_mlir.passes.fuse.updating import is_loop
from aicf_mlir.passes.fuse.views import readers_of


@dataclass(frozen=True)
class FuseArgumentsPass(FusionRule):
    """Write maps of arguments with one body as one launch over many tensors, before all that read them."""

    name = "fuse-arguments"
    DEVICES: ClassVar = ("cuda",)

    def fuse(self, function: FuncOp, bodies: Bodies) -> None:
        fusion = SegmentFusion(function, bodies, most := SMALL_ON_GPU)
        kinds: dict[tuple[Kind, bool], list[LoopMember]] = {}
        for op in fusion.ops:
            member = member_of(op, bodies) if is_loop(op) else None
            if member is not None and is_candidate(member) and is_of_arguments(member) and not is_part(op):
                kinds.setdefault((kind_of(member), is_joined(op)), []).append(member)
        for members in kinds.values():
            together = alike(free(fusion, members, most))
            for first in range(0, len(together), count := most_segments(members[0])):
                fusion.write(together[first : first + count], together[0].op)
        erase_unread(function.body.block)


def is_of_arguments(member: LoopMember) -> bool:
    """True if `member` reads arguments of the function, and nothing else."""
    return all(isinstance(access.root.owner, Block) for access in member.operands)


def is_part(op: Operation) -> bool:
    """True if a result of `op` is only copied to a place in a join that a launch of many maps cannot write: with gaps, or where
    no vector begins. `elide-copies` has a launch of its own write it there.
    """
    for result in op.results:
        copy = copy_of(result)
        if copy is not None and kernel.join_of(copy.results[0]) is not None:
            layout, element = of_type(tensor_type(copy.results[0])), tensor_spec(copy.results[0])[0]
            has_gaps = layout.significant != Layout.dense(layout.shape).significant
            if has_gaps or byte_size(element, (layout.offset,)) % VECTOR:
                return True
    return False


def is_joined(op: Operation) -> bool:
    """True if a result of `op` may lie in a join: it has no memory of its own then, and its launch runs in each step. Casts that
    last from step to step keep away from it.
    """
    readers = (reader for result in op.results for reader in readers_of(result))
    return any(
        isinstance(reader, kernel.CopyOp) and kernel.join_of(reader.results[0]) is not None
        for reader in readers
    )


def copy_of(result: SSAValue) -> kernel.CopyOp | None:
    """The copy that alone reads a result, through reshapes; None if there is another reader."""
    chain = list(result.uses)
    while len(chain) == 1 and isinstance(chain[0].operation, kernel.ReshapeOp):
        chain = list(chain[0].operation.output.uses)
    copy = chain[0].operation if len(chain) == 1 else None
    return copy if isinstance(copy, kernel.CopyOp) else None


def free(fusion: SegmentFusion, members: list[LoopMember], most: int) -> list[LoopMember]:
    """The members that may move to the place of the first one, for at most `most` bytes of further memory."""
    first, last = (fusion.position[members[at].op] for at in (0, -1))
    ops, further = {member.op for member in members}, 0
    found: list[LoopMember] = []
    for member in members:
        between = fusion.ops[first : fusion.position[member.op]]
        moves = any(
            op not in ops and not isinstance(op, (*kernel.VIEWS, kernel.ConstantOp)) for op in between
        )
        if moves and not is_read_behind(fusion, member.op, last):
            size = sum(map(bytes_of, member.op.results))
            if further + size > most:
                continue
            further += size
        found.append(member)
    return found


def is_read_behind(fusion: SegmentFusion, op: Operation, place: int) -> bool:
    """True if all results of `op` are read at this place or after it, those of a part of a join with the whole."""
    for result in op.results:
        copy = copy_of(result)
        join = None if copy is None else kernel.join_of(copy.results[0])
        read = result if join is None else join.output
        if not any(fusion.position[reader] >= place for reader in readers_of(read)):
            return False
    return True


def alike(members: list[LoopMember]) -> list[LoopMember]:
    """The members that one text walks together with the first."""
    found: list[LoopMember] = []
    steps: list[set[int]] = []
    for member in members:
        own = [steps_of(layout_of(access)) for access in member.operands]
        common = [left & right for left, right in zip(steps or own, own, strict=True)]
        if all(common):
            found.append(member)
            steps = common
    return found
