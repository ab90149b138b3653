"""Small copies that need nothing of each other become one launch on a GPU, where all sources are made and nothing is read yet.

What is left after elide-copies moves elements into a layout that a kernel needs, or puts tensors side by side: weights of
convolutions before the first of them, their gradients before the update. Each is a launch of a few blocks, which costs more than
its bytes. Casts of floats to another layout are such copies too.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from aicf_mlir.dialects import kernel
from aicf_mlir.dialects.kernel_op import tensor_spec
from aicf_mlir.ir.body import is_float
from aicf_mlir.ir.layouts import layout_of
from aicf_mlir.ir.locations import common_location
from aicf_mlir.ir.signature import argument_labels
from aicf_mlir.ir.tensor_op import tensor_type
from aicf_mlir.passes.elide_copies import is_move
from aicf_mlir.passes.fuse.segments import bytes_of, is_returned, readers_of
from aicf_mlir.passes.target import TargetPass

MOST_TENSORS = 15
"""The tensors of one launch, whose shapes are parameters of its kernel."""
MOST_BYTES = 1 << 22
"""The bytes of a tensor above which its copy fills a chip."""
MOVED = (*kernel.VIEWS, kernel.CopyOp, kernel.ConstantOp)
"""Ops that may get another place here."""
MOST_KEPT = 1 << 24
"""The bytes that one launch writes, and that are held from there on."""


@dataclass
class Group:
    """Copies from one element type to one, which become one launch: after all `made` and before any `read`."""

    first: int
    made: int
    read: int
    members: list[kernel.CopyOp] = field(default_factory=list[kernel.CopyOp])
    bytes: int = 0

    def place(self, ops: Sequence[Operation]) -> Operation:
        """The op before which the launch stands: the first copy, or one behind it, but no view that moves with its reader."""
        at = max(self.first, self.made + 1)
        while at < self.read and isinstance(ops[at], MOVED):
            at += 1
        return ops[at]

    def takes(self, copy: kernel.CopyOp, made: int, read: int) -> bool:
        """True if there is room for a copy whose source is made at a place, and that is read at another."""
        fits = self.bytes + bytes_of(copy.results[0]) <= MOST_KEPT
        return max(made, self.made) < min(read, self.read) and len(self.members) < MOST_TENSORS and fits

    def add(self, copy: kernel.CopyOp, made: int, read: int) -> None:
        """Take the copy."""
        self.members.append(copy)
        self.bytes += bytes_of(copy.results[0])
        self.made, self.read = max(made, self.made), min(read, self.read)


@dataclass(frozen=True)
class MergeCopiesPass(TargetPass):
    """Write copies that need nothing of each other as one launch, on a GPU.

    Options:
      target: "cpu" (the default), or a compute capability such as "sm_90"
    """

    name = "merge-copies"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.is_cpu:
            return
        for function in op.ops:
            if isinstance(function, FuncOp) and not function.is_declaration:
                ops = list(function.body.block.ops)
                found = [(group.members, group.place(ops)) for group in groups(function)]
                for members, place in found:
                    write(members, place)
                for copy in (copy for members, _ in found for copy in members):
                    Rewriter.erase_op(copy)


def groups(function: FuncOp) -> Iterator[Group]:
    """The copies of a function that become one launch each, those of a group in the order of the text.

    Copies of the batch stay among themselves: a replay runs them in its first step only.
    """
    ops = list(function.body.block.ops)
    position = {op: at for at, op in enumerate(ops)}
    labels = zip(function.body.block.args, argument_labels(function), strict=True)
    batch = {argument for argument, label in labels if label.role == "input"}
    found: dict[tuple[str, str, bool], list[Group]] = {}
    for op in ops:
        if not isinstance(op, kernel.CopyOp) or not is_candidate(op):
            continue
        root = source_of(op)
        if is_moved(root.owner):
            continue
        made = -1 if isinstance(root.owner, Block | kernel.ConstantOp) else position[root.owner]
        made = max(made, block_begins(op, position))
        read = min((position[reader] for reader in readers_of(op.results[0])), default=len(ops))
        types = tensor_spec(op.operands[0])[0], tensor_spec(op.results[0])[0]
        own = found.setdefault((*types, is_of(batch, op)), [])
        group = next((each for each in own if each.takes(op, made, read)), None)
        if group is None:
            own.append(group := Group(position[op], made, read))
        group.add(op, made, read)
    yield from (group for same in found.values() for group in same if len(group.members) > 1)


def block_begins(copy: kernel.CopyOp, position: Mapping[Operation, int]) -> int:
    """Where a large block is first written that a copy, to a small part of it, need not hold before; -1 if there is none."""
    join = kernel.join_of(copy.results[0])
    if join is None or bytes_of(join.output) <= MOST_BYTES:
        return -1
    first = min(
        (position[part.owner] for part in join.inputs if isinstance(part.owner, Operation)), default=-1
    )
    return first if first != position[copy] else -1


def is_moved(op: Operation | Block) -> bool:
    """True for a copy, and for copies side by side: they may get another place."""
    return isinstance(op, kernel.CopyOp) or (
        isinstance(op, kernel.JoinOp) and any(isinstance(part.owner, kernel.CopyOp) for part in op.operands)
    )


def is_candidate(copy: kernel.CopyOp) -> bool:
    """True for one small tensor whose place bufferize chooses freely."""
    return (
        (is_move(copy) or moves_and_casts(copy))
        and copy.kernel_id is None
        and bytes_of(copy.results[0]) <= MOST_BYTES
        and not is_returned(copy.results[0])
    )


def moves_and_casts(copy: kernel.CopyOp) -> bool:
    """True for a cast between floats in which the order of elements changes; others are left to fusion and persistent-weights."""
    (x,), (y,) = copy.operands, copy.results
    floats = all(is_float(tensor_spec(value)[0]) for value in (x, y))
    return floats and layout_of(tensor_type(x)) != layout_of(tensor_type(y))


def is_of(batch: Container[SSAValue], copy: kernel.CopyOp) -> bool:
    """True if it moves an entry of the batch, and all beside which it puts it are such moves too."""
    (result,) = copy.results
    wholes = [use.operation for use in result.uses if isinstance(use.operation, kernel.JoinOp)]
    beside = [result, *(part for whole in wholes for part in whole.operands)]
    return all(isinstance(part.owner, kernel.CopyOp) and source_of(part.owner) in batch for part in beside)


def source_of(copy: kernel.CopyOp) -> SSAValue:
    """The value that views lead to."""
    value = copy.operands[0]
    while isinstance(op := value.owner, kernel.ReshapeOp | kernel.ViewOp):
        value = op.input
    return value


def write(members: list[kernel.CopyOp], place: Operation) -> None:
    """Write one launch before `place`."""
    for copy in members:
        hoist(copy.operands[0], place)
    merged = kernel.MultiTensorCopyOp.launch(
        {"x": [copy.operands[0] for copy in members]}, {"x": [copy.results[0].type for copy in members]}
    )
    merged.location = common_location(members)
    Rewriter.insert_op(merged, InsertPoint.before(place))
    for copy, result in zip(members, merged.results, strict=True):
        result.name_hint = copy.results[0].name_hint
        copy.results[0].replace_all_uses_with(result)
        sink(result, place)


def hoist(value: SSAValue, place: Operation) -> None:
    """Move the views that make a value, or the constant, in front of `place`, if they are behind it."""
    op = value.owner
    if isinstance(op, kernel.ReshapeOp | kernel.ViewOp | kernel.ConstantOp) and not op.is_before_in_block(
        place
    ):
        for operand in op.operands:
            hoist(operand, place)
        op.detach()
        Rewriter.insert_op(op, InsertPoint.before(place))


def sink(value: SSAValue, place: Operation) -> None:
    """Move the views of a value behind it, in front of `place`, if they are before."""
    for use in [*value.uses]:
        if isinstance(op := use.operation, kernel.VIEWS) and op.is_before_in_block(place):
            op.detach()
            Rewriter.insert_op(op, InsertPoint.before(place))
            sink(op.results[0], place)
