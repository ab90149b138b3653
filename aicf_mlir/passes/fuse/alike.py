"""Launches of one kind whose kernel takes as many tensors as there are: those that need nothing of each other are one launch.

The checks of a step's indices are one, and so are the sums of many embeddings' gradients on a GPU, where a launch on one table
costs more than its bytes. A merged launch stands at the place of the last one. Of what it reads only a few bytes may stay in
memory for it alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from aicf_mlir.dialects.kernel_op import KernelOp
from aicf_mlir.ir.locations import common_location
from aicf_mlir.passes.elide_copies import is_move
from aicf_mlir.passes.fuse.segments import bytes_of
from aicf_mlir.passes.fuse.views import readers_of


@dataclass
class Group:
    """Launches that become one at the place of the last."""

    position: Mapping[Operation, int]
    most: int
    """The bytes that may stay in memory for it alone."""
    members: list[KernelOp] = field(default_factory=list[KernelOp])
    last_read: dict[SSAValue, int] = field(default_factory=dict[SSAValue, int])
    """The place of the last reader of each value that a member reads."""
    first_read: int | None = None
    """The place of the first reader of a result."""

    def is_read_before(self, op: KernelOp) -> bool:
        """True if `op` or one before it reads a result."""
        return self.first_read is not None and self.first_read <= self.position[op]

    def keeps_little(self, op: KernelOp) -> bool:
        """True if only a few bytes stay in memory for the group alone, if it is at the place of `op`."""
        place = self.position[op]
        kept = {root for root, last in self.last_read.items() if last < place} - set(roots_of(op))
        return sum(map(bytes_of, kept)) <= self.most

    def add(self, op: KernelOp) -> None:
        """Add a launch after the others."""
        self.members.append(op)
        for root in roots_of(op):
            places = [self.position[reader] for reader in readers_of(root)]
            self.last_read[root] = max(self.position[op], *places)
        readers = [self.position[reader] for result in op.results for reader in readers_of(result)]
        if readers:
            self.first_read = min(readers if self.first_read is None else [self.first_read, *readers])


def numbers_of(op: KernelOp, name: str) -> list[int]:
    """The numbers of an attribute; none if it is absent."""
    found = op.attrs.get(name, [])
    return [each for each in (found if isinstance(found, list) else [found]) if isinstance(each, int)]


def replace(run: Sequence[KernelOp], merged: KernelOp, last_results: Sequence[SSAValue]) -> None:
    """Put `merged` in the place of the last of `run`, whose results are `last_results`; nothing reads the others."""
    merged.location = common_location(run)
    for old, new in zip(run[-1].results, last_results, strict=True):
        new.name_hint = old.name_hint
        old.replace_all_uses_with(new)
    Rewriter.insert_op(merged, InsertPoint.before(run[-1]))
    for op in reversed(run):
        Rewriter.erase_op(op)


def roots_of(op: KernelOp) -> Iterator[SSAValue]:
    """The values of launches that `op` reads, also by copies that elide-copies may remove; not a status, which it updates."""
    for value in (each for name, values in op.ins.items() if name != "status" for each in values):
        while is_move(value.owner):
            assert isinstance(value.owner, Operation)
            value = value.owner.operands[0]
        if isinstance(value.owner, KernelOp):
            yield value
