"""Sums of the gradients of many embeddings are one launch on a GPU, where a launch on one table costs more than its bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation
from xdsl.rewriter import InsertPoint, Rewriter

from aicf_mlir.dialects import kernel
from aicf_mlir.dialects.kernel_op import KernelOp, tensor_spec
from aicf_mlir.dialects.scalar import Bodies
from aicf_mlir.errors import SelectionError
from aicf_mlir.ir import registry
from aicf_mlir.ir.locations import common_location
from aicf_mlir.passes.fuse.alike import Group
from aicf_mlir.passes.fuse.rule import FusionRule
from aicf_mlir.passes.fuse.segments import SMALL_ON_GPU
from aicf_mlir.passes.fuse.views import sink


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
        given = [result for op in group for result in op.results]
        for old, new in zip(given, merged.results, strict=True):
            new.name_hint = old.name_hint
            old.replace_all_uses_with(new)
            sink(new, merged, anchor)
        for op in group:
            Rewriter.erase_op(op)


def joined(group: Sequence[KernelOp]) -> KernelOp:
    """One launch on the tensors of all."""
    return type(group[0]).launch(
        {name: [value for op in group for value in op.ins[name]] for name in group[0].ins},
        {name: [value.type for op in group for value in op.outs[name]] for name in group[0].outs},
    )


@dataclass(frozen=True)
class FuseScattersPass(FusionRule):
    """Write sums of rows by an index as one launch over many matrices."""

    name = "fuse-scatters"
    DEVICES: ClassVar = ("cuda",)

    def fuse(self, function: FuncOp, bodies: Bodies) -> None:
        ScatterFusion(function, self.target, SMALL_ON_GPU).run()
