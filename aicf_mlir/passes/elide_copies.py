"""Remove copies that only move elements: launches read and write the elements in their original place.

A launch that reads a copy of a view reads the view itself. A launch whose result is copied to its place, as a part of a
kernel.join or transposed, writes it there. Both need a kernel of the target that takes the layout.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, OpResult, SSAValue
from xdsl.rewriter import Rewriter

from aicf_mlir.dialects import kernel
from aicf_mlir.dialects.generated import Selection
from aicf_mlir.dialects.kernel_op import KernelOp, operand_spec, spec_of_type, tensor_spec
from aicf_mlir.errors import SelectionError, VerifyError
from aicf_mlir.ir import registry
from aicf_mlir.ir.expect import with_shape
from aicf_mlir.ir.layouts import Layout, disjoint, layout_of, shares_block, with_layout
from aicf_mlir.ir.remarks import remark
from aicf_mlir.ir.tensor_op import AnyTensor, shape_of, tensor_type
from aicf_mlir.passes.target import TargetPass

MOVES = (kernel.ReshapeOp, kernel.ViewOp, kernel.CopyOp)
"""Ops whose result has elements of their operand."""


@dataclass(frozen=True)
class ElementSource:
    """The source of a value's elements: the elements of the dense tensor `base` at `layout`."""

    base: SSAValue
    layout: Layout


def is_move(op: object) -> bool:
    """True if `op` moves elements and computes nothing."""
    if isinstance(op, kernel.CopyOp):
        return tensor_spec(op.operands[0])[0] == tensor_spec(op.results[0])[0]
    return isinstance(op, MOVES)


def sources(value: SSAValue) -> Iterator[ElementSource]:
    """The dense tensors that `value` has its elements from, the nearest first, each one or more copies away."""
    base, layout, copied = value, Layout.dense(shape_of(value)), False
    while is_move(op := base.owner):
        assert isinstance(op, Operation)
        if isinstance(op, kernel.ViewOp):
            outer = op.layout.then(layout)
            if outer is None:
                return
            layout = outer
        copied = copied or isinstance(op, kernel.CopyOp)
        base = op.operands[0]
        if copied and not shares_block(base.type):
            yield ElementSource(base, layout)


def erase_way(op: Operation | Block) -> None:
    """Erase `op` and the ops that only it reads, as far as they move elements that nothing reads any more."""
    while (
        isinstance(op, Operation)
        and is_move(op)
        and op.parent is not None
        and op.results[0].first_use is None
    ):
        before = op.operands[0].owner
        op.detach()
        op.erase()
        op = before


class CopyElision:
    """The rewriting of one function for one target."""

    def __init__(self, function: FuncOp, target: str):
        self.function = function
        self.selection = Selection(function.parent_op(), target)
        self._views: dict[tuple[SSAValue, AnyTensor], SSAValue] = {}

    def run(self) -> None:
        """Readers first, from the first to the last; then writers, from the last: they see the whole way of a value."""
        if not any(isinstance(op, kernel.CopyOp) for op in self.function.body.block.ops):
            return
        for op in list(self.function.body.block.ops):
            if isinstance(op, KernelOp):
                for index in range(len(op.operands)):
                    self.read_in_place(op, index)
        for op in reversed(list(self.function.body.block.ops)):
            erase_way(op)
        for op in list(self.function.body.block.ops):
            if isinstance(op, kernel.JoinOp):
                self.write_parts(op)
        for op in reversed(list(self.function.body.block.ops)):
            if isinstance(op, kernel.CopyOp) and is_move(op):
                self.write_in_place(op)

    def read_in_place(self, op: KernelOp, index: int) -> None:
        """Have `op` read its operand where the elements come from, as far back as a kernel takes it."""
        operand = op.operands[index]
        for source in reversed(list(sources(operand))):
            type_ = self.type_at(source)
            if not (reason := self.reason(op, {operand: type_})):
                op.operands[index] = self.view(source, type_, op)
                return
            remark(op, f"reads a copy of {source.base.type}: {reason}")

    def type_at(self, source: ElementSource) -> AnyTensor:
        """The type of the value at `source`."""
        whole = source.layout.is_dense and source.layout.count == math.prod(shape_of(source.base))
        if whole:
            return with_shape(source.base, source.layout.shape)
        return with_layout(tensor_type(source.base), source.layout)

    def view(self, source: ElementSource, type_: AnyTensor, reader: KernelOp) -> SSAValue:
        """The value at `source`, from an op before `reader`; equal ones are one."""
        if source.base.type == type_:
            return source.base
        key = (source.base, type_)
        if key not in self._views:
            made = kernel.ViewOp if shares_block(type_) else kernel.ReshapeOp
            op = made.build_op([source.base], [type_])
            op.location = reader.location
            op.results[0].name_hint = op.name.rpartition(".")[2]
            self.function.body.block.insert_op_before(op, reader)
            self._views[key] = op.results[0]
        return self._views[key]

    def reason(self, op: KernelOp, types: Mapping[SSAValue, AnyTensor]) -> str:
        """The reason why no kernel runs `op` with these types in place of its values' own; empty if one does."""

        def specs(values: Sequence[SSAValue]) -> list[registry.OperandSpec]:
            return [spec_of_type(types[v]) if v in types else operand_spec(v) for v in values]

        use = registry.Use.of(op.op_name, specs(op.operands), specs(op.results), op.attrs, op.counts)
        wanted = op.kernel_id.data if op.kernel_id is not None else ""
        try:
            registry.check_op(use)
            self.selection.select(use, wanted)
        except (VerifyError, SelectionError) as error:
            return str(error)
        return ""

    def write_parts(self, join: kernel.JoinOp) -> None:
        """Have a launch write all results that are parts of `join` at once: one by one, many queries take long."""
        parts: dict[Operation, list[tuple[SSAValue, OpResult, Layout]]] = {}
        for value in join.inputs:
            copy = value.owner
            if not isinstance(copy, kernel.CopyOp) or not is_move(copy) or not value.has_one_use():
                continue
            found = writer_of(copy)
            if found is not None and found[0].has_one_use() and isinstance(found[0].op, KernelOp):
                parts.setdefault(found[0].op, []).append((value, *found[:2]))
        for writer, own in parts.items():
            assert isinstance(writer, KernelOp)
            written = {value for value, _, _ in own}
            places = [place for _, _, place in own]
            used = any(kernel.block_of(value) is join.output for value in (*writer.operands, *writer.results))
            meet = not all(disjoint(*pair) for pair in combinations(places, 2))
            others = [value for value in join.inputs if value not in written]
            types: dict[SSAValue, AnyTensor] = {
                result: with_layout(tensor_type(result), place) for _, result, place in own
            }
            moved = [place for value, _, place in own if not is_same(place, value)]
            if len(own) < 2 or used or meet or not all(apart(place, others) for place in moved):
                continue
            if self.reason(writer, types):
                continue  # some may do, one by one
            for value, result, _ in own:
                copy = value.owner
                value.replace_all_uses_with(Rewriter.replace_value_with_new_type(result, types[result]))
                erase_way(copy)

    def write_in_place(self, copy: KernelOp) -> None:
        """Have the launch that makes the source of `copy` write its result to the copy's place, if a kernel and all readers take
        that.
        """
        result = copy.results[0]
        join = kernel.join_of(result)
        if join is not None and not result.has_one_use():
            return
        if any(isinstance(use.operation, ReturnOp) for use in result.uses):
            return  # bufferize places it, in the slot of an argument if it updates one
        found = writer_of(copy)
        if found is None:
            return
        value, place, first = found
        if isinstance(value.op, kernel.JoinOp):
            parts = [(part, place.then(layout_of(tensor_type(part)))) for part in value.op.inputs]
            first = value.op
        else:
            parts = [(value, place)]
        moved: dict[SSAValue, Layout] = {}
        for part, there in parts:
            if there is None or not isinstance(part, OpResult):
                remark(copy, "moves parts of a join, whose places no strides express")
                return
            moved[part] = there
        if reason := self.stays(copy, moved, first):
            remark(copy, f"moves {reason}")
            return
        written = [
            Rewriter.replace_value_with_new_type(part, with_layout(tensor_type(part), there))
            for part, there in moved.items()
        ]
        if join is None:
            old = result
        else:
            old = join.output
            written = [each for value in join.inputs for each in (written if value is result else [value])]
        whole = kernel.JoinOp.build_op(written, [old.type])
        whole.location = copy.location
        whole.output.name_hint = old.name_hint
        self.function.body.block.insert_op_before(whole, copy if join is None else join)
        old.replace_all_uses_with(whole.output)
        if join is not None:
            join.detach()
            join.erase()
        erase_way(copy)
        if isinstance(first, kernel.JoinOp) and first.parent is not None and first.output.first_use is None:
            first.detach()
            first.erase()

    def stays(self, copy: KernelOp, moved: Mapping[SSAValue, Layout], first: Operation) -> str:
        """The reason why the launches that make `moved` cannot write them to these places; empty if they can."""
        join = kernel.join_of(copy.results[0])
        types = {part: with_layout(tensor_type(part), place) for part, place in moved.items()}
        if not all(disjoint(*pair) for pair in combinations(moved.values(), 2)):
            return "parts of a join: their places are not certainly apart from each other"
        for part, place in moved.items():
            writer = part.owner
            assert isinstance(writer, KernelOp)
            name = f"a result of {writer.name}"
            if reason := self.reason(writer, types):
                return f"{name}: {reason}"
            readers = [use.operation for use in part.uses if use.operation is not first]
            if join is not None and meet_in(join.output, place, writer, readers):
                return f"{name}: one launch would use two parts of the result"
            others = [] if join is None else [each for each in join.inputs if each is not copy.results[0]]
            if not is_same(place, copy.results[0]) and not apart(place, others):
                return f"{name}: its place is not certainly apart from other parts"
            if not all(isinstance(op, KernelOp) and not self.reason(op, types) for op in readers):
                return f"{name}, which others read"
        return ""


def meet_in(block: SSAValue, place: Layout, writer: Operation, readers: Sequence[Operation]) -> bool:
    """True if a launch would use two parts of `block` that may have an element in common, one of them to write.

    `place` is the memory that `writer` writes.
    """
    touched = [*writer.operands, *writer.results, *(result for op in readers for result in op.results)]
    inside = [value for value in touched if kernel.block_of(value) is block]
    return not all(disjoint(layout_of(tensor_type(value)), place) for value in inside)


def is_same(place: Layout, part: SSAValue) -> bool:
    """True if `place` is that of a part, which a join keeps apart from its others."""
    own = layout_of(tensor_type(part))
    return place.offset == own.offset and place.significant == own.significant


def apart(place: Layout, parts: Sequence[SSAValue]) -> bool:
    """True if `place` certainly has no element in common with the other parts."""
    return all(disjoint(place, layout_of(tensor_type(part))) for part in parts)


def writer_of(copy: KernelOp) -> tuple[OpResult, Layout, Operation] | None:
    """What `copy` moves, the layout it would need to be in place at once, and its first move.

    That is the result of a launch, or of a join that nothing else reads. None if the moves between leave elements out, or repeat
    some, or something else reads a value between.
    """
    place: Layout | None = layout_of(tensor_type(copy.results[0]))
    move: Operation = copy
    while True:
        value = move.operands[0]
        match move:
            case kernel.ReshapeOp():
                place = place.then(Layout.dense(shape_of(value)))
            case kernel.ViewOp():
                place = move.layout.inverse(shape_of(value), place)
            case _:
                pass
        if place is None:
            return None
        if not is_move(value.owner):
            break
        assert isinstance(value.owner, Operation)
        if not value.has_one_use():
            return None
        move = value.owner
    if not isinstance(value, OpResult) or shares_block(value.type):
        return None
    if isinstance(value.op, kernel.JoinOp):
        return (value, place, move) if value.has_one_use() else None
    return (value, place, move) if isinstance(value.op, KernelOp) else None


@dataclass(frozen=True)
class ElideCopiesPass(TargetPass):
    """Let launches read views, and write parts and transposes, if a kernel of the target takes their layout.

    Options:
      target: "cpu" (the default), or a compute capability such as "sm_90"
    """

    name = "elide-copies"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for function in op.ops:
            if isinstance(function, FuncOp) and not function.is_declaration:
                CopyElision(function, self.target).run()
