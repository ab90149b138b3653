"""Small copies that need nothing of each other become one launch on a GPU, at the place of the first.

What is left after elide-copies moves elements into a layout that a kernel needs, or puts tensors side by side. Each is a launch
of a few blocks, which costs more than its bytes.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass, field

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter

from aicf_mlir.dialects import kernel
from aicf_mlir.dialects.kernel_op import tensor_spec
from aicf_mlir.ir import registry
from aicf_mlir.ir.locations import common_location
from aicf_mlir.ir.signature import argument_labels
from aicf_mlir.passes.elide_copies import is_move
from aicf_mlir.passes.fuse.segments import bytes_of, is_returned

MOST_TENSORS = 15
"""The tensors of one launch, whose shapes are parameters of its kernel."""
MOST_BYTES = 1 << 20
"""The bytes of a tensor above which its copy fills a chip."""
MOST_KEPT = 1 << 24
"""The bytes that one launch writes, and that are held from there on."""


@dataclass
class Group:
    """Copies of one element type that become one launch, at `place`."""

    place: int
    members: list[kernel.CopyOp] = field(default_factory=list[kernel.CopyOp])
    bytes: int = 0

    def takes(self, copy: kernel.CopyOp, made: int) -> bool:
        """True if there is room for a copy whose source is made at a place."""
        fits = self.bytes + bytes_of(copy.results[0]) <= MOST_KEPT
        return made < self.place and len(self.members) < MOST_TENSORS and fits


@dataclass(frozen=True)
class MergeCopiesPass(ModulePass):
    """Write copies that need nothing of each other as one launch, on a GPU.

    Options:
      target: "cpu" (the default), or a compute capability such as "sm_90"
    """

    name = "merge-copies"

    target: str = "cpu"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        registry.check_target(self.target)
        if registry.architecture(self.target) == "cpu":
            return
        for function in op.ops:
            if isinstance(function, FuncOp) and not function.is_declaration:
                for group in groups(function):
                    write(group.members)


def groups(function: FuncOp) -> Iterator[Group]:
    """The copies of a function that become one launch each, those of a group in the order of the text.

    Copies of the batch stay among themselves: a replay runs them in its first step only.
    """
    ops = list(function.body.block.ops)
    position = {op: at for at, op in enumerate(ops)}
    labels = zip(function.body.block.args, argument_labels(function), strict=True)
    batch = {argument for argument, label in labels if label.role == "input"}
    found: dict[tuple[str, bool], list[Group]] = {}
    for op in ops:
        if not isinstance(op, kernel.CopyOp) or not is_candidate(op):
            continue
        root = source_of(op)
        made = -1 if isinstance(root.owner, Block | kernel.ConstantOp) else position[root.owner]
        own = found.setdefault((tensor_spec(op.results[0])[0], is_of(batch, op)), [])
        group = next((each for each in own if each.takes(op, made)), None)
        if group is None:
            own.append(group := Group(position[op]))
        group.members.append(op)
        group.bytes += bytes_of(op.results[0])
    yield from (group for same in found.values() for group in same if len(group.members) > 1)


def is_candidate(copy: kernel.CopyOp) -> bool:
    """True for one small tensor whose place bufferize chooses freely."""
    return (
        is_move(copy)
        and copy.kernel_id is None
        and bytes_of(copy.results[0]) <= MOST_BYTES
        and not is_returned(copy.results[0])
    )


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


def write(members: list[kernel.CopyOp]) -> None:
    """Write one launch in the place of the first."""
    first = members[0]
    for copy in members[1:]:
        hoist(copy.operands[0], first)
    merged = kernel.MultiTensorCopyOp.launch(
        {"x": [copy.operands[0] for copy in members]}, {"x": [copy.results[0].type for copy in members]}
    )
    merged.location = common_location(members)
    Rewriter.insert_op(merged, InsertPoint.before(first))
    for copy, result in zip(members, merged.results, strict=True):
        result.name_hint = copy.results[0].name_hint
        copy.results[0].replace_all_uses_with(result)
        Rewriter.erase_op(copy)


def hoist(value: SSAValue, place: Operation) -> None:
    """Move the views that make a value in front of `place`, if they are behind it."""
    op = value.owner
    if isinstance(op, kernel.ReshapeOp | kernel.ViewOp) and not op.is_before_in_block(place):
        hoist(op.operands[0], place)
        op.detach()
        Rewriter.insert_op(op, InsertPoint.before(place))
