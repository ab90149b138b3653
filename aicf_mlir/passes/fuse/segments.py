"""Maps with one body, on tensors of any sizes, as one launch: the updates of a step, and the maps that lead only to them.

Reductions of whole tensors with one body, the norms of gradients, are treated alike. Most tensors of a model are small, and a
launch on one costs more than its arithmetic. A map joins the latest launch of its body and element types if one place of the text
is after all that both read and before all that read them. Other maps of the step do not move: a map of activations stays where
its operands are in the cache and memory is reused. Updates wait for each other, as those of SGD and Adam do. A launch takes only
a few results that need further memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, SSAValue

from aicf_mlir.dialects import kernel
from aicf_mlir.dialects.kernel_op import tensor_spec
from aicf_mlir.dialects.scalar import Bodies
from aicf_mlir.ir.attributes import AT_ONCE, Symbol
from aicf_mlir.ir.body import Body, is_table
from aicf_mlir.ir.element_types import byte_size
from aicf_mlir.ir.layouts import Layout
from aicf_mlir.ir.locations import common_location
from aicf_mlir.ir.remarks import remark
from aicf_mlir.ir.tensor_op import shape_of
from aicf_mlir.kernels.segments import MOST_ADDRESSES, steps_of
from aicf_mlir.passes.fuse.loops.emit import erase_unread, operand_at
from aicf_mlir.passes.fuse.loops.members import Access, LoopMember, member_of
from aicf_mlir.passes.fuse.rule import FusionRule
from aicf_mlir.passes.fuse.updating import updating
from aicf_mlir.passes.fuse.views import readers_of, sink

SMALL = 1 << 18
"""The bytes of results in further memory that the maps of one launch may have together."""
SMALL_ON_GPU = 1 << 24
"""The same limit for a GPU: it writes this number of bytes while it launches a few kernels."""
LOOK_BACK = 8
"""The number of launches of a body that are tried for a map."""
VECTOR = 16
"""The bytes that a thread reads at once if every tensor is aligned to them."""

Kind = tuple[str, Body, tuple[str, ...], bool]
"""The properties that the members of one launch share: kind, body, element types, and whether vectors of 16 bytes are aligned."""
LAUNCH_OF = {"map": kernel.MultiTensorMapOp, "rowwise": kernel.MultiTensorRowwiseOp}
"""The launch op for each kind of members."""


@dataclass(eq=False)
class Batch:
    """Maps that become one launch, at the place of its member `anchor`."""

    members: list[LoopMember]
    anchor: int
    steps: list[set[int]]
    """The steps of each operand: the union of `steps_of` for all members."""
    further: int
    """The bytes of results that are further memory."""


class SegmentFusion:
    """The maps of one function that become launches over many tensors."""

    def __init__(self, function: FuncOp, bodies: Bodies, most: int):
        self.function, self.bodies, self.most = function, bodies, most
        self.block = function.body.block
        self.ops = list(self.block.ops)
        self.position: dict[Operation, int] = {op: at for at, op in enumerate(self.ops)}
        """The place of each op; for an op in a batch, the place of the batch."""
        self.batch_of: dict[Operation, Batch] = {}
        self.current: dict[SSAValue, SSAValue] = {}
        """The current replacement of each value of a removed map."""

    def run(self) -> None:
        """Write the launches."""
        kinds: dict[Kind, list[Batch]] = {}
        for op in updating(self.function):
            member = member_of(op, self.bodies)
            if member is not None and is_candidate(member):
                self.place(member, kinds.setdefault(kind_of(member), []))
        batches = [batch for found in kinds.values() for batch in found if len(batch.members) > 1]
        for batch in sorted(batches, key=lambda batch: batch.anchor):
            most = most_segments(batch.members[0])
            for first in range(0, len(batch.members), most):
                self.write(batch.members[first : first + most], self.ops[batch.anchor])
        if batches:
            erase_unread(self.block)

    def place(self, member: LoopMember, batches: list[Batch]) -> None:
        """Place a member in the latest batch that takes it, or in one of its own."""
        at, steps = self.position[member.op], [steps_of(layout_of(access)) for access in member.operands]
        for batch in reversed(batches[-LOOK_BACK:]):
            common = [left & right for left, right in zip(batch.steps, steps, strict=True)]
            stays = self.is_made_before(member, batch.anchor)
            further = batch.further + self.further_bytes(member, batch.anchor if stays else at)
            if not all(common) or further > self.most:
                continue
            if not stays:
                if readers := list(self.early_readers(batch, at)):
                    notes = [(batch.members[0].op, "the other"), (readers[0], "reads what it gives")]
                    remark(
                        member.op,
                        "is not one launch with another of its body: that is read too early",
                        *notes,
                    )
                    continue
                self.move(batch, at)
            batch.members.append(member)
            batch.steps, batch.further = common, further
            self.batch_of[member.op], self.position[member.op] = batch, batch.anchor
            return
        self.batch_of[member.op] = own = Batch([member], at, steps, self.further_bytes(member, at))
        batches.append(own)

    def is_made_before(self, member: LoopMember, place: int) -> bool:
        """True if all operands of `member` exist before this place."""
        return all(self.made(access.root) < place for access in member.operands)

    def made(self, root: SSAValue) -> int:
        """The place at which a value is made; arguments and constants come before everything."""
        op = root.owner
        return -1 if isinstance(op, Block | kernel.ConstantOp) else self.position[op]

    def further_bytes(self, member: LoopMember, place: int) -> int:
        """The bytes of its results at this place that are neither returned nor in memory that it is the last to read."""
        made = sum(bytes_of(result) for result in member.op.results if not is_returned(result))
        free = 0
        for root in {access.root for access in member.operands if isinstance(access.root.owner, Operation)}:
            others = [reader for reader in readers_of(root) if reader is not member.op]
            if all(self.position[reader] < place for reader in others):
                free += bytes_of(root)
        return max(0, made - free)

    def early_readers(self, batch: Batch, place: int) -> Iterator[Operation]:
        """The ops that read a result of `batch` at this place or before."""
        for member in batch.members:
            for result in member.op.results:
                yield from (reader for reader in readers_of(result) if self.position[reader] <= place)

    def move(self, batch: Batch, place: int) -> None:
        """Move a batch further down."""
        batch.anchor = place
        for member in batch.members:
            self.position[member.op] = place

    def write(self, members: Sequence[LoopMember], anchor: Operation) -> None:
        """Write one launch before `anchor`, in place of these maps."""
        if len(members) < 2:
            return
        first = members[0]
        launch = LAUNCH_OF[first.kind].launch(
            {"x": [self.operand(access, anchor) for member in members for access in member.operands]},
            {"y": [result.type for member in members for result in member.op.results]},
            body=Symbol(self.bodies.symbol(first.body, str(first.op.attrs.get("body", first.op.op_name)))),
            segments=len(members),
        )
        launch.location = common_location([member.op for member in members])
        self.block.insert_op_before(launch, anchor)
        old = [result for member in members for result in member.op.results]
        for value, result in zip(old, launch.results, strict=True):
            result.name_hint = value.name_hint
            value.replace_all_uses_with(result)
            self.current[value] = result
            sink(result, launch, anchor)

    def operand(self, access: Access, anchor: Operation) -> SSAValue:
        """The value that a segment reads, before `anchor`."""
        return operand_at(self.block, self.current.get(access.root, access.root), access.layout, anchor)


def is_candidate(member: LoopMember) -> bool:
    """True if one text can walk it together with others: it looks nothing up, and its elements have no gaps.

    A candidate is a map, or a reduction of all elements to numbers.
    """
    whole = (
        member.kind == "rowwise"
        and not member.kept
        and not any(shape_of(result) for result in member.results)
        and max(member.body.stages, default=0) == 1
    )
    return (
        (member.kind == "map" or whole)
        and AT_ONCE not in member.op.attributes
        and not member.body.dims
        and not any(map(is_table, member.body.args))
        and all(steps_of(layout_of(access)) for access in member.operands)
    )


def layout_of(access: Access) -> Layout:
    """The layout by which an operand that is no table is read."""
    assert access.layout is not None
    return access.layout


def kind_of(member: LoopMember) -> Kind:
    """The kind of a member, which all members of one launch share."""
    values = (*(access.root for access in member.operands), *member.op.results)
    elements = tuple(tensor_spec(value)[0] for value in values)
    aligned = all(
        byte_size(element, (layout_of(access).offset,)) % VECTOR == 0
        for access, element in zip(member.operands, elements, strict=False)
        if 0 not in steps_of(layout_of(access))
    )
    return member.kind, member.body, elements, aligned


def bytes_of(value: SSAValue) -> int:
    """The number of bytes of a tensor without gaps."""
    element, shape = tensor_spec(value)
    return byte_size(element, (prod(shape),))


def is_returned(value: SSAValue) -> bool:
    """True if it has a slot of its own."""
    return any(isinstance(reader, ReturnOp) for reader in readers_of(value))


def most_segments(member: LoopMember) -> int:
    """The most segments of one launch of this map."""
    return MOST_ADDRESSES // (len(member.operands) + len(member.op.results))


@dataclass(frozen=True)
class FuseSegmentsPass(FusionRule):
    """Write maps with one body, or reductions of whole tensors, as one launch over many tensors.

    Of a step only updates and what leads to them alone.
    """

    name = "fuse-segments"

    def fuse(self, function: FuncOp, bodies: Bodies) -> None:
        SegmentFusion(function, bodies, SMALL if self.is_cpu else SMALL_ON_GPU).run()
