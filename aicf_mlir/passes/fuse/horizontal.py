"""Horizontal fusion: independent launches of a small step become one on a GPU, with their blocks next to each other in one grid.

A step whose launches have a few blocks each waits for one launch after the other, and parallel branches in the graph cost edges.
So the step is written level by level. The level of a launch is the number of launches that must end before it: those that make
what it reads, and, if it replaces an argument, all others that read that. Generated launches of one level are one launch. Those
that nothing waits for, as most updates are, stand with the last ones that leave room for them: until then they would only delay
what others wait for.
This holds only if updates of a step are the epilogues of its products (small_updates.py): a large launch has a grid of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Operation, SSAValue

from aicf_mlir.codegen.cuda.horizontal import part_of
from aicf_mlir.dialects import kernel
from aicf_mlir.dialects.generated import GeneratedOp, Selection
from aicf_mlir.dialects.kernel_op import KernelOp
from aicf_mlir.dialects.scalar import Bodies
from aicf_mlir.ir.attributes import AT_ONCE, Symbol
from aicf_mlir.ir.body import is_table
from aicf_mlir.ir.chips import chip_of
from aicf_mlir.ir.locations import common_location
from aicf_mlir.ir.signature import ArgumentIndex, argument_labels, result_labels, return_op
from aicf_mlir.kernels.horizontal import KINDS, Member, joined, text_of
from aicf_mlir.kernels.kernel import Kernel
from aicf_mlir.passes.fuse.rule import SMALL_STEP, FusionRule, is_small
from aicf_mlir.passes.fuse.small_batches import generate
from aicf_mlir.passes.fuse.small_updates import is_small_product
from aicf_mlir.passes.fuse.views import readers_of, sink

FIRST = -1
"""The level of a cast of arguments, which most steps keep from the step before."""


@dataclass(eq=False)
class LaunchGroup:
    """Launches of one level that become one."""

    ops: list[KernelOp]
    blocks: int


class HorizontalFusion:
    """The launches of one function that become one with others."""

    def __init__(self, function: FuncOp, bodies: Bodies, target: str):
        self.function, self.bodies = function, bodies
        self.block = function.body.block
        self.selection = Selection(function.parent_op(), target)
        self.at_once = chip_of(target).processors
        """The blocks of a launch that an update may join late: of more it takes longer by that."""
        self.most = 8 * self.at_once
        """The most blocks of one launch: as many as the chip runs at the same time."""
        self.kernels: dict[KernelOp, Kernel] = {}
        self.before = self._before()
        """What must end before each launch, in the order of the text."""
        self.position = {op: at for at, op in enumerate(self.before)}
        self.levels: dict[Operation, int] = {}

    def run(self) -> None:
        """Write the launches."""
        awaited = {op for before in self.before.values() for op in before}
        groups: dict[int, list[LaunchGroup]] = {}
        for op, before in self.before.items():
            first = FIRST if next(pairs_of(op), None) is not None else 0
            self.levels[op] = max((self.levels[each] + 1 for each in before), default=first)
        last = max(self.levels.values(), default=0)
        for op in sorted(self.levels, key=lambda op: (op not in awaited, -self.levels[op])):
            if not isinstance(op, GeneratedOp) or not (blocks := self.blocks_of(op)):
                continue
            own = self.levels[op]
            later = range(last, own, -1) if op not in awaited else ()
            if not any(join(op, blocks, groups.get(level, []), self.at_once) for level in later) and not join(
                op, blocks, groups.get(own, []), self.most
            ):
                groups.setdefault(own, []).append(LaunchGroup([op], blocks))
        self.levels |= {op: level for level, made in groups.items() for group in made for op in group.ops}
        self.sort()
        for group in (group for level in groups.values() for group in level):
            if len(group.ops) > 1:
                group.ops.sort(key=self.position.__getitem__)
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
        return part.blocks if part.blocks <= self.most else 0

    def _before(self) -> dict[Operation, list[Operation]]:
        """Each launch, and those that must end before it."""
        launches = {op: list[Operation]() for op in self.block.ops if is_launch(op)}
        for op, before in launches.items():
            before += (each for value in op.operands for each in makers_of(value))
        index = ArgumentIndex(argument_labels(self.function))
        given = zip(return_op(self.function).operands, result_labels(self.function), strict=True)
        for value, label in given:
            if label.role != "update":
                continue
            argument = self.function.args[index.updated_by(label)[0]]
            for writer in makers_of(value):
                for reader in readers_of_casts(argument):
                    if reader.is_before_in_block(writer):
                        launches[writer].append(reader)
                    elif reader is not writer:
                        launches[reader].append(writer)  # as it stands, with a copy of the argument
        return launches

    def sort(self) -> None:
        """Put the launches in the order of their levels, with what moves no memory after what it renames."""
        order: dict[Operation, tuple[int, bool]] = {}
        for op in self.block.ops:
            if op in self.levels:
                order[op] = self.levels[op], False
            elif not isinstance(op, ReturnOp):
                made = [self.levels[each] for value in op.operands for each in makers_of(value)]
                order[op] = max(made, default=FIRST - 1), True
        end = return_op(self.function)
        for op in sorted(order, key=order.__getitem__):
            op.detach()
            self.block.insert_op_before(op, end)

    def write(self, group: LaunchGroup) -> None:
        """Write one launch in place of these, after the views that it reads."""
        anchor = group.ops[0]
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


def is_launch(op: Operation) -> bool:
    """True for an op that takes time, or whose place matters."""
    return not isinstance(op, (*kernel.VIEWS, kernel.ConstantOp, ReturnOp))


def join(op: KernelOp, blocks: int, groups: Iterable[LaunchGroup], most: int) -> bool:
    """True if one of the groups has room for a launch, which is then a member of it."""
    for group in groups:
        if group.blocks + blocks <= most:
            group.ops.append(op)
            group.blocks += blocks
            return True
    return False


def view_at(value: SSAValue) -> Operation | None:
    """The op that renames memory for a launch; None if a launch or an argument gives it."""
    return value.owner if isinstance(value.owner, kernel.ReshapeOp | kernel.ViewOp) else None


def member_of(op: KernelOp, made: Kernel) -> Member:
    """The member that stands for a launch."""
    flags = tuple(name for name in ("trans_a", "trans_b", "allow_tf32") if op.attrs.get(name) is True)
    return Member(made.kind, len(op.operands), len(op.results), made.reduced, flags)


def makers_of(value: SSAValue) -> Iterator[Operation]:
    """The launches that make `value`, also through ops that move no memory."""
    op = value.owner
    if isinstance(op, kernel.VIEWS):
        for each in op.operands:
            yield from makers_of(each)
    elif isinstance(op, Operation) and is_launch(op):
        yield op


def launches_on(value: SSAValue) -> Iterator[Operation]:
    """The launches that read `value`."""
    return (op for op in readers_of(value) if not isinstance(op, ReturnOp))


def readers_of_casts(value: SSAValue) -> Iterator[Operation]:
    """The ops that read `value` or a cast of it: an update before them could not write the cast too (persistent_weights.py)."""
    for reader in launches_on(value):
        yield reader
        for operand, result in pairs_of(reader):
            if kernel.block_of(operand) is value:
                yield from launches_on(result)


def pairs_of(op: Operation) -> Iterator[tuple[SSAValue, SSAValue]]:
    """Pairs of operand and result for a launch that may cast."""
    if isinstance(op, kernel.MultiTensorMapOp | kernel.CopyOp) and len(op.operands) == len(op.results):
        yield from zip(op.operands, op.results, strict=True)


@dataclass(frozen=True)
class FuseHorizontalPass(FusionRule):
    """Write independent launches of a small step as one, their blocks next to each other in one grid.

    Its products are generated for that, those of small results.
    """

    name = "fuse-horizontal"
    DEVICES: ClassVar = ("cuda",)

    def fuse(self, function: FuncOp, bodies: Bodies) -> None:
        if not is_small(function):
            return
        del function.attributes[SMALL_STEP]
        for op in list(function.body.block.ops):
            if isinstance(op, kernel.GemmOp) and is_small_product(op.results[0], self.target):
                generate(op, bodies)
        HorizontalFusion(function, bodies, self.target).run()
