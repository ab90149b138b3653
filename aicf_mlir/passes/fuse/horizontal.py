"""Horizontal fusion: independent launches of a small step become one on a GPU, with their blocks next to each other in one grid.

A step whose launches have a few blocks each waits for one launch after the other, and parallel branches in the graph cost edges.
So each generated launch joins the latest launch that can stand at a place for both. The place is after all that both read, before
all that read them, and after every other reader of a value that an update of theirs replaces. A launch that is too early for that
moves down. This holds only if the updates of a step are the epilogues of its products (small_updates.py): a large launch has a
grid of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from aicf_mlir.codegen.cuda.horizontal import part_of
from aicf_mlir.dialects import kernel
from aicf_mlir.dialects.generated import GeneratedOp, Selection
from aicf_mlir.dialects.kernel_op import KernelOp
from aicf_mlir.dialects.scalar import Bodies
from aicf_mlir.ir.attributes import AT_ONCE, Symbol
from aicf_mlir.ir.body import is_table
from aicf_mlir.ir.locations import common_location
from aicf_mlir.ir.signature import ArgumentIndex, argument_labels, result_labels, return_op
from aicf_mlir.kernels.horizontal import KINDS, Member, joined, text_of
from aicf_mlir.kernels.kernel import Kernel
from aicf_mlir.passes.fuse.views import sink

MOST_BLOCKS = 8 * 132
"""The most blocks of one launch: as many as a large chip runs at the same time."""
LOOK_BACK = 4
"""The number of groups that are tried for a launch."""


@dataclass(eq=False)
class LaunchGroup:
    """Launches that become one, at the place `anchor`."""

    ops: list[KernelOp]
    anchor: int
    blocks: int


class HorizontalFusion:
    """The launches of one function that become one with others."""

    def __init__(self, module: ModuleOp, function: FuncOp, bodies: Bodies, target: str):
        self.function, self.bodies = function, bodies
        self.block = function.body.block
        self.selection = Selection(module, target)
        self.ops = list(self.block.ops)
        self.position: dict[Operation, int] = {op: at for at, op in enumerate(self.ops)}
        """The place of each op; for an op in a group, the place of the group."""
        self.kernels: dict[KernelOp, Kernel] = {}
        self.replaced = dict(self._replaced())
        """The arguments that the results of each launch replace."""

    def run(self) -> None:
        """Write the launches."""
        groups: list[LaunchGroup] = []
        for op in self.ops:
            if isinstance(op, GeneratedOp) and (blocks := self.blocks_of(op)):
                self.place(op, blocks, groups)
        for group in groups:
            if len(group.ops) > 1:
                self.write(group)

    def blocks_of(self, op: GeneratedOp) -> int:
        """The number of blocks of a launch that could be a member; 0 for another."""
        if op.op_name not in KINDS or AT_ONCE in op.attributes or op.ins.get("table"):
            return 0
        found = self.selection.generated(op.use)
        if found is None or any(map(is_table, found.body.args)) or isinstance(part := part_of(found), str):
            return 0
        if found.reduced and not found.operands:
            return 0  # a member's domain is that of its operands
        self.kernels[op] = found
        return part.blocks if part.blocks <= MOST_BLOCKS else 0

    def place(self, op: KernelOp, blocks: int, groups: list[LaunchGroup]) -> None:
        """Place a launch in the latest group that takes it, or in one of its own."""
        at = self.position[op]
        for group in reversed(groups[-LOOK_BACK:]):
            if group.blocks + blocks > MOST_BLOCKS:
                continue
            if not self.stands([op], group, group.anchor):
                if not self.stands(group.ops, group, at) or not self.stands([op], group, at):
                    continue
                self.move(group, at)
            group.ops.append(op)
            group.blocks += blocks
            self.position[op] = group.anchor
            return
        groups.append(LaunchGroup([op], at, blocks))

    def stands(self, ops: Iterable[KernelOp], group: LaunchGroup, place: int) -> bool:
        """True if launches may stand at a place of the text, as parts of a group."""
        for op in ops:
            made = (self.made(value) for value in op.operands)
            if any(where >= place for where in made):
                return False
            if any(
                self.where(reader, group) <= place for result in op.results for reader in readers_of(result)
            ):
                return False
            for argument in self.replaced.get(op, ()):
                others = [reader for reader in readers_of_casts(argument) if reader is not op]
                if any(reader in group.ops or self.position[reader] >= place for reader in others):
                    return False
            for argument in {origin for value in op.operands for origin in origins_of(value)}:
                writer = self.writer(argument)
                if (
                    writer is not None
                    and writer is not op
                    and (writer in group.ops or self.position[writer] <= place)
                ):
                    return False
        return True

    def where(self, reader: Operation, group: LaunchGroup) -> int:
        """The place of a reader of a group; a reader within the group counts as never after it."""
        return -1 if reader in group.ops else self.position[reader]

    def made(self, value: SSAValue) -> int:
        """The place at which a value is made; arguments and constants come before everything."""
        op = kernel.block_of(value).owner
        return -1 if isinstance(op, Block | kernel.ConstantOp) else self.position[op]

    def writer(self, argument: SSAValue) -> Operation | None:
        """The launch that replaces an argument."""
        return next((op for op, arguments in self.replaced.items() if argument in arguments), None)

    def _replaced(self) -> Iterator[tuple[Operation, list[BlockArgument]]]:
        index, found = ArgumentIndex(argument_labels(self.function)), dict[Operation, list[BlockArgument]]()
        given = zip(return_op(self.function).operands, result_labels(self.function), strict=True)
        for value, label in given:
            op = kernel.block_of(value).owner
            if label.role == "update" and isinstance(op, Operation):
                found.setdefault(op, []).append(self.function.args[index.updated_by(label)[0]])
        yield from found.items()

    def move(self, group: LaunchGroup, place: int) -> None:
        """Move a group further down."""
        group.anchor = place
        for op in group.ops:
            self.position[op] = place

    def write(self, group: LaunchGroup) -> None:
        """Write one launch in place of these, after the views that it reads."""
        anchor = self.ops[group.anchor]
        seen: dict[SSAValue, SSAValue] = {}
        operands = [self.seen_at(anchor, value, seen) for op in group.ops for value in op.operands]
        names = dict.fromkeys(str(op.attrs["body"]) for op in group.ops)
        launch = kernel.HorizontalOp.launch(
            {"x": operands},
            {"y": [result.type for op in group.ops for result in op.results]},
            body=Symbol(
                self.bodies.symbol(joined([self.kernels[op].body for op in group.ops]), "_and_".join(names))
            ),
            members=text_of(member_of(op, self.kernels[op]) for op in group.ops),
        )
        launch.location = common_location(group.ops)
        self.block.insert_op_before(launch, anchor)
        old = [result for op in group.ops for result in op.results]
        for value, result in zip(old, launch.results, strict=True):
            result.name_hint = value.name_hint
            value.replace_all_uses_with(result)
            sink(result, launch, anchor)
        self.ops[group.anchor] = launch
        for op in group.ops:
            op.detach()
            op.erase()
        for value in reversed(seen):  # ops that a value is seen through were written before it
            if isinstance(value.owner, Operation) and not list(value.uses):
                value.owner.detach()
                value.owner.erase()

    def seen_at(self, anchor: Operation, value: SSAValue, seen: dict[SSAValue, SSAValue]) -> SSAValue:
        """`value` as it can be read before `anchor`: ops that rename memory are written there again, because others read them
        too.
        """
        op = view_at(value)
        if op is None:
            return value
        if value not in seen:
            source = op.operands[0]
            copy = op.clone({source: self.seen_at(anchor, source, seen)})
            copy.location = op.location
            self.block.insert_op_before(copy, anchor)
            copy.results[0].name_hint = value.name_hint
            seen[value] = copy.results[0]
        return seen[value]


def view_at(value: SSAValue) -> Operation | None:
    """The op that renames memory for a launch; None if a launch or an argument gives it."""
    return value.owner if isinstance(value.owner, kernel.ReshapeOp | kernel.ViewOp) else None


def member_of(op: KernelOp, made: Kernel) -> Member:
    """The member that stands for a launch."""
    flags = tuple(name for name in ("trans_a", "trans_b", "allow_tf32") if op.attrs.get(name) is True)
    return Member(made.kind, len(op.operands), len(op.results), made.reduced, flags)


def readers_of(value: SSAValue) -> Iterator[Operation]:
    """The ops that read `value`, also through ops that move no memory; the return op is left out."""
    for use in value.uses:
        if isinstance(use.operation, kernel.VIEWS):
            yield from readers_of(use.operation.results[0])
        elif not isinstance(use.operation, ReturnOp):
            yield use.operation


def readers_of_casts(value: SSAValue) -> Iterator[Operation]:
    """The ops that read `value` or a cast of it: an update before them could not write the cast too (persistent_weights.py)."""
    for reader in readers_of(value):
        yield reader
        for operand, result in pairs_of(reader):
            if kernel.block_of(operand) is value:
                yield from readers_of(result)


def origins_of(value: SSAValue) -> Iterator[SSAValue]:
    """The memory of `value`, and, if that is a cast, its source."""
    memory = kernel.block_of(value)
    yield memory
    if isinstance(memory.owner, Operation):
        yield from (
            kernel.block_of(operand) for operand, result in pairs_of(memory.owner) if result is memory
        )


def pairs_of(op: Operation) -> Iterator[tuple[SSAValue, SSAValue]]:
    """Pairs of operand and result for a launch that may cast."""
    if isinstance(op, kernel.MultiTensorMapOp | kernel.CopyOp) and len(op.operands) == len(op.results):
        yield from zip(op.operands, op.results, strict=True)


def fuse_horizontally(module: ModuleOp, function: FuncOp, bodies: Bodies, target: str) -> None:
    """Write several launches of `function` as one if possible."""
    HorizontalFusion(module, function, bodies, target).run()
