"""Launches of one kind whose kernel takes as many tensors as there are: those that need nothing of each other are one launch.

The checks of a step's indices are one, and so are the sums of many embeddings' gradients on a GPU, where a launch on one table
costs more than its bytes. A merged launch stands at the place of the last one. Of what it reads only a few bytes may stay in
memory for it alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from aicf_mlir.dialects import kernel
from aicf_mlir.dialects.kernel_op import KernelOp, tensor_spec
from aicf_mlir.errors import SelectionError
from aicf_mlir.ir import registry
from aicf_mlir.ir.locations import common_location
from aicf_mlir.passes.elide_copies import is_move
from aicf_mlir.passes.fuse.segments import bytes_of, readers_of
from aicf_mlir.passes.fuse.views import sink

NOT_IGNORED = 0
"""An index that is a class: to ignore it changes nothing."""


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


def fuse_checks(function: FuncOp, most: int) -> None:
    """Write checks of indices that follow each other as one, which keeps at most `most` bytes longer than one by one would: the
    first target that fails still gives the status.
    """
    ops = list(function.body.block.ops)
    position = {op: at for at, op in enumerate(ops)}
    runs: list[Group] = []
    for op in ops:
        if isinstance(op, kernel.CheckIndexOp):
            if not runs or not follows(runs[-1].members[-1], op) or not runs[-1].keeps_little(op):
                runs.append(Group(position, most))
            runs[-1].add(op)
    for run in runs:
        write_check(run.members)


def follows(first: KernelOp, then: kernel.CheckIndexOp) -> bool:
    """True if `then` takes the status and the next code of `first`, whose status nothing else reads."""
    (status,) = then.ins["status"]
    (made,) = first.results
    codes = [numbers_of(op, "code")[0] for op in (first, then)]
    return status is made and made.has_one_use() and codes[1] == codes[0] + len(first.ins["target"])


def write_check(run: Sequence[KernelOp]) -> None:
    """Write one check in the place of the last."""
    if len(run) < 2:
        return
    attrs: dict[str, list[int]] = {"classes": [n for op in run for n in numbers_of(op, "classes")]}
    if any("ignore_index" in op.attrs for op in run):
        attrs["ignore_index"] = [
            n for op in run for n in (numbers_of(op, "ignore_index") or [NOT_IGNORED] * len(op.ins["target"]))
        ]
    merged = kernel.CheckIndexOp.launch(
        {"status": run[0].ins["status"], "target": [value for op in run for value in op.ins["target"]]},
        {"status": [run[-1].results[0].type]},
        code=numbers_of(run[0], "code")[0],
        **attrs,
    )
    replace(run, merged, list(merged.results))


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


class ScatterFusion:
    """The scatters of a function that become launches over many matrices."""

    def __init__(self, function: FuncOp, target: str, most: int):
        self.target, self.most = target, most
        self.ops = list(function.body.block.ops)
        self.position: dict[Operation, int] = {op: at for at, op in enumerate(self.ops)}

    def run(self) -> None:
        """Write the launches: each takes what comes until a result of a member is read."""
        groups: dict[tuple[str, str], Group] = {}
        for op in self.ops:
            if not isinstance(op, kernel.ScatterAddOp) or op.ins.get("at"):
                continue
            if (kind := self.kind_of(op)) is None:
                continue
            group = groups.get(kind)
            if group is None or group.is_read_before(op) or not group.keeps_little(op):
                if group is not None:
                    self.write(group.members)
                group = groups[kind] = Group(self.position, self.most)
            group.add(op)
        for group in groups.values():
            self.write(group.members)

    def kind_of(self, op: KernelOp) -> tuple[str, str] | None:
        """The kernel and the element type; None for a launch that no kernel runs together with others."""
        twice = joined([op, op])
        try:
            kernels = [registry.select_kernel(each.use, self.target)[0] for each in (op, twice)]
        except SelectionError:
            return None
        finally:
            twice.erase()
        return (kernels[0], tensor_spec(op.results[0])[0]) if kernels[0] == kernels[1] else None

    def write(self, group: Sequence[KernelOp]) -> None:
        """Write one launch in the place of the last, if there are several."""
        if len(group) < 2:
            return
        merged, anchor = joined(group), group[-1]
        merged.location = common_location(group)
        Rewriter.insert_op(merged, InsertPoint.before(anchor))
        self.position[merged] = self.position[anchor]
        for op, new in zip(group, merged.results, strict=True):
            new.name_hint = op.results[0].name_hint
            op.results[0].replace_all_uses_with(new)
            sink(new, merged, anchor)
        for op in group:
            Rewriter.erase_op(op)


def joined(group: Sequence[KernelOp]) -> KernelOp:
    """One launch on the tensors of all."""
    return type(group[0]).launch(
        {name: [value for op in group for value in op.ins[name]] for name in group[0].ins},
        {name: [value.type for op in group for value in op.outs[name]] for name in group[0].outs},
    )


def roots_of(op: KernelOp) -> Iterator[SSAValue]:
    """The values of launches that `op` reads, also by copies that elide-copies may remove; not a status, which it updates."""
    for value in (each for name, values in op.ins.items() if name != "status" for each in values):
        while is_move(value.owner):
            assert isinstance(value.owner, Operation)
            value = value.owner.operands[0]
        if isinstance(value.owner, KernelOp):
            yield value


def fuse_scatters(function: FuncOp, target: str, most: int) -> None:
    """Write scatters of a kind as one launch, which keeps at most `most` bytes longer than one by one would."""
    ScatterFusion(function, target, most).run()
