"""Write clusters as launches: one body of all members, and views of their operands."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Operation, OpResult, SSAValue
from xdsl.rewriter import Rewriter

from aicf_mlir.dialects import kernel
from aicf_mlir.dialects.kernel_op import KernelOp
from aicf_mlir.dialects.scalar import Bodies
from aicf_mlir.ir.attributes import Symbol
from aicf_mlir.ir.body import COLUMN_SUM, COMPUTE, Body, is_table, table_type
from aicf_mlir.ir.dtypes import element_name
from aicf_mlir.ir.expect import with_shape
from aicf_mlir.ir.formula import Builder
from aicf_mlir.ir.layouts import Layout, shares_block, with_layout
from aicf_mlir.ir.locations import fused_location
from aicf_mlir.ir.roundings import written
from aicf_mlir.ir.tensor_op import element_type, shape_of, tensor_type
from aicf_mlir.passes.fuse.loops.cluster import Cluster
from aicf_mlir.passes.fuse.loops.clusters import MOVES
from aicf_mlir.passes.fuse.loops.members import Access, LoopMember, constant_of
from aicf_mlir.passes.fuse.rounding import as_read, element_of
from aicf_mlir.passes.fuse.views import in_place_of

Key = tuple[SSAValue, Layout | None]


class Emission:
    """The launches of the clusters of one function."""

    def __init__(self, function: FuncOp, bodies: Bodies):
        self.function = function
        self.bodies = bodies
        self.block: Block = function.body.block
        self.position = {op: at for at, op in enumerate(self.block.ops)}
        self.current: dict[SSAValue, SSAValue] = {}
        """The current replacement of each value that a cluster computes."""
        self.readers: dict[SSAValue, set[Cluster]] = {}
        """The clusters that read a value: not always as the text has them, since they compute some values again."""
        self.members: set[Operation] = set()
        """The launches that the clusters replace."""

    def run(self, clusters: Sequence[Cluster]) -> None:
        """Replace the members of every cluster."""
        ops = list(self.block.ops)
        for cluster in clusters:
            for member in cluster.members:
                self.members.add(member.op)
                for access in member.operands:
                    self.readers.setdefault(access.root, set()).add(cluster)
        for cluster in sorted(clusters, key=lambda cluster: cluster.anchor):
            self.replace(cluster, ops[cluster.anchor])
        erase_unread(self.block)

    def replace(self, cluster: Cluster, anchor: Operation) -> None:
        """Write the launch of `cluster` before `anchor`, one of its members."""
        inside = cluster.values
        operands: dict[Key, tuple[str, SSAValue]] = {}
        for member in cluster.members:
            for type_, access in zip(member.body.args, member.operands, strict=True):
                if access.root in inside or (constant_of(access) is not None and not is_table(type_)):
                    continue
                key = self.key(cluster, member, access)
                if key not in operands:
                    operands[key] = (type_of(access), self.operand(cluster, member, access, anchor))
        ordered = sorted(operands, key=lambda key: is_table(operands[key][0]))  # scalars, then tables
        elements = [element_name(element_type(root)) for root, _ in ordered]
        builder = Builder([operands[key][0] for key in ordered], elements)
        number = {key: at for at, key in enumerate(ordered)}
        values: dict[SSAValue, int] = {}
        for member in cluster.members:
            args: list[int] = []
            for type_, access in zip(member.body.args, member.operands, strict=True):
                constant = None if is_table(type_) else constant_of(access)
                if access.root in values:
                    args.append(as_read(builder, access.root, values[access.root], member.op))
                elif constant is not None:
                    args.append(builder.constant(constant, type_).value)
                else:
                    args.append(number[self.key(cluster, member, access)])
            made = self.inline(cluster, builder, member, args)
            values |= zip(member.results, made, strict=True)
        kept = [
            value
            for value in values
            if self.readers.get(value, set()) - {cluster} or self.is_read_outside(value)
        ]
        if not kept:
            return
        body = builder.finish(values[value] for value in kept)
        body = written(body, elements, [element_of(value) for value in kept])
        groups = [
            [operands[key][1] for key in ordered if is_table(operands[key][0]) == tables]
            for tables in (False, True)
        ]
        launch = self.launch(cluster, body, groups, kept)
        self.block.insert_op_before(launch, anchor)
        for value, result in zip(kept, launch.results, strict=True):
            self.hand_over(value, result, anchor)

    def is_read_outside(self, value: SSAValue) -> bool:
        """True if any op that stays reads `value`: no member of a cluster, which `readers` knows, and no op that the members
        look through.
        """
        for use in value.uses:
            op = use.operation
            if op in self.members:
                continue
            moved = op.results[0] if isinstance(op, MOVES) else None
            if moved is None or moved in self.readers or self.is_read_outside(moved):
                return True
        return False

    def launch(
        self, cluster: Cluster, body: Body, groups: Sequence[Sequence[SSAValue]], kept: Sequence[SSAValue]
    ) -> KernelOp:
        """The op, with results in the order of `kept`."""
        head, symbol = cluster.head, self.bodies.symbol(body, body_name(cluster))
        shapes = {
            **dict.fromkeys(cluster.whole, head.domain),
            **dict.fromkeys(cluster.narrow, head.kept),
            **dict.fromkeys(cluster.columns, head.domain[len(head.kept) :]),
        }
        types = [with_shape(value, shapes[value]) for value in kept]
        made = getattr(kernel, f"{cluster.kind.capitalize()}Op").launch(
            {"x": groups[0], "table": groups[1]},
            {"y": types},
            body=Symbol(symbol),
            shape=list(head.domain),
            **({"reduced": head.reduced} if cluster.kind != "map" else {}),
        )
        made.location = fused_location(*(member.op for member in cluster.members))
        for value, result in zip(kept, made.results, strict=True):
            result.name_hint = value.name_hint
        return made

    def inline(
        self, cluster: Cluster, builder: Builder, member: LoopMember, args: Sequence[int]
    ) -> list[int]:
        """The results of the body of `member`; its dimensions are those of the cluster."""
        shift = (
            cluster.head.reduced if id(member) in cluster.narrow_members and cluster.kind == "colwise" else 0
        )
        values = list(args)
        columns = member.kind == "colwise" and cluster.kind == "rowwise"
        for line in member.body.lines:
            attr, op = line.attr, COLUMN_SUM if columns and line.op == "scalar.sum" else line.op
            if line.op == "scalar.index":
                assert isinstance(attr, int)
                attr = attr + shift
            values.append(builder.line(op, [values[arg] for arg in line.args], line.type, attr))
        return [values[value] for value in member.body.results]

    def key(self, cluster: Cluster, member: LoopMember, access: Access) -> Key:
        """Equal for operands that are read alike."""
        if access.layout is None:
            return access.root, None
        return access.root, self.layout(cluster, member, access.layout)

    def layout(self, cluster: Cluster, member: LoopMember, layout: Layout) -> Layout:
        """The layout over the domain of the cluster: an operand over the kept dimensions is repeated along the others."""
        if id(member) not in cluster.narrow_members:
            return layout
        head = cluster.head
        zeros = (0,) * head.reduced
        strides = (*zeros, *layout.strides) if head.kind == "colwise" else (*layout.strides, *zeros)
        return Layout(head.domain, strides, layout.offset).normal()

    def operand(self, cluster: Cluster, member: LoopMember, access: Access, anchor: Operation) -> SSAValue:
        """The value that the launch reads: the root, or a view of it, written before `anchor`."""
        root = self.current.get(access.root, access.root)
        layout = None if access.layout is None else self.layout(cluster, member, access.layout)
        return operand_at(self.block, root, layout, anchor)

    def hand_over(self, value: SSAValue, result: OpResult, anchor: Operation) -> None:
        """Have everybody outside read `result` in the place of `value`."""
        new = in_place_of(value, result, anchor)
        value.replace_all_uses_with(new)
        self.current[value] = new
        self.sink(new, anchor)

    def sink(self, value: SSAValue, anchor: Operation) -> None:
        """Move the ops that only move or rename `value`, now before `anchor`, to after it."""
        end = len(self.position)
        for use in list(value.uses):
            op = use.operation
            if isinstance(op, MOVES) and self.position.get(op, end) < self.position[anchor]:
                op.detach()
                self.block.insert_op_before(op, anchor)
                self.sink(op.results[0], anchor)


def type_of(access: Access) -> str:
    """The type of the body's argument."""
    element = element_name(element_type(access.root))
    return table_type(element, len(shape_of(access.root))) if access.layout is None else COMPUTE[element]


def operand_at(block: Block, root: SSAValue, layout: Layout | None, anchor: Operation) -> SSAValue:
    """`root` as a table, or its elements at `layout`: `root` itself, or a view before `anchor`."""
    if layout is None:
        return root
    type_ = tensor_type(root)
    if shares_block(type_):
        return root
    if layout.is_dense and layout.count == prod(type_.get_shape()):
        if layout.shape == type_.get_shape():
            return root
        op: Operation = kernel.ReshapeOp.build_op([root], [with_shape(root, layout.shape)])
    else:
        op = kernel.ViewOp.build_op([root], [with_layout(type_, layout)])
    op.location = anchor.location
    op.results[0].name_hint = op.name.rpartition(".")[2]
    block.insert_op_before(op, anchor)
    return op.results[0]


def body_name(cluster: Cluster) -> str:
    """The name of the body: after its bodies and launches, three of them at most."""
    words = list(dict.fromkeys(str(m.op.attrs.get("body", m.op.op_name)) for m in cluster.members))
    return "_".join(words) if len(words) <= 3 else f"{words[0]}_{words[1]}_to_{words[-1]}"


def erase_unread(block: Block) -> None:
    """Erase launches and views that nothing reads any more."""
    for op in reversed(list(block.ops)):
        if isinstance(
            op, KernelOp | kernel.ReshapeOp | kernel.ViewOp | kernel.JoinOp | kernel.ConstantOp
        ) and not any(result.first_use is not None for result in op.results):
            Rewriter.erase_op(op)


def replace(function: FuncOp, clusters: Sequence[Cluster], bodies: Bodies) -> None:
    """Write the launches of `clusters` to `function`."""
    if clusters:
        Emission(function, bodies).run(clusters)
