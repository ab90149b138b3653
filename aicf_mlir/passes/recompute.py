"""Values that generated launches compute again instead of reading them, on a GPU.

A value that the forward pass writes for the gradient alone takes memory until then, a write and a read. If it follows by a few
operations from values that are in memory in any case, its readers compute it again: the norm of a row from the row, its mean and
its deviation; a gate's activation from what was activated; a cast to more bytes. No launch reads more bytes in all than it did
with the value.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, OpResult, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from aicf_mlir.dialects import kernel
from aicf_mlir.dialects.generated import GeneratedOp
from aicf_mlir.dialects.kernel_op import tensor_spec
from aicf_mlir.dialects.scalar import Bodies
from aicf_mlir.ir.attributes import Symbol
from aicf_mlir.ir.body import COLUMN_SUM, PHILOX, REDUCTIONS, TRANSCENDENTAL, Body, is_table
from aicf_mlir.ir.dtypes import element_name
from aicf_mlir.ir.element_types import NARROW, byte_size
from aicf_mlir.ir.formula import Builder
from aicf_mlir.ir.layouts import Layout, dense_strides
from aicf_mlir.ir.registry import architecture
from aicf_mlir.ir.roundings import is_exact, written
from aicf_mlir.ir.tensor_op import element_type, shape_of
from aicf_mlir.kernels.kernel import Kernel, Tensor
from aicf_mlir.passes.fuse import drop_unread_bodies
from aicf_mlir.passes.fuse.loops.cluster import MOST_LINES, MOST_OPERANDS
from aicf_mlir.passes.fuse.loops.emit import operand_at, type_of
from aicf_mlir.passes.fuse.loops.members import Access, LoopMember, compares_elements, member_of
from aicf_mlir.passes.fuse.rounding import element_of
from aicf_mlir.passes.fuse.sums_of_results import is_one_walk
from aicf_mlir.passes.target import TargetPass

LARGE = 1 << 20
"""Bytes of a value from which on it is computed again."""
SMALL = 16
"""A tensor of so many times fewer bytes than the value costs nothing in addition to it."""
FEW_LINES = 12
"""Operations that take no longer than to read an element."""
FIXED = {*REDUCTIONS, COLUMN_SUM, PHILOX, "scalar.index", "scalar.load"}
"""Operations that are not computed again: they need other elements, or the place of this one."""
LOOPS = ("map", "rowwise", "colwise")


class Source(NamedTuple):
    """A value as a function of others: a body of one result, and where it reads its arguments, over the domain of the value."""

    body: Body
    operands: tuple[Access, ...]


@dataclass(frozen=True)
class RecomputePass(TargetPass):
    """Compute values of generated launches again where they are read, if that moves fewer bytes and keeps none for longer.

    Options:
      target: "cpu" (the default), where nothing is, or a compute capability such as "sm_90"
    """

    name = "recompute"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.is_cpu:
            return
        bodies = Bodies(op)
        for function in op.ops:
            if isinstance(function, FuncOp) and not function.is_declaration:
                for each in list(function.body.block.ops):
                    if isinstance(each, GeneratedOp) and each.op_name in LOOPS and each.parent is not None:
                        recompute(each, bodies, self.target)
        drop_unread_bodies(op)


def recompute(op: GeneratedOp, bodies: Bodies, target: str) -> None:
    """Have the readers of each large result of `op` compute it, where all can."""
    member = member_of(op, bodies)
    if member is None:
        return
    unread = set[int]()
    for number, result in enumerate(member.results):
        if member.narrow[number] or bytes_of(result) < LARGE:
            continue
        readers = readers_of(result)
        if not readers or op in readers:
            continue
        source = source_of(member, number, unread)
        if source is None or any(
            rewritten(reader, result, source, bodies, target) is None for reader in readers
        ):
            continue
        if not saves(result, readers, source, bodies):
            continue
        for reader in readers:  # of which one may read what another gives
            if (new := rewritten(reader, result, source, bodies, target)) is not None:
                replace(reader, new, bodies)
        erase_unread(result)
        unread.add(number)
    if len(unread) == len(op.results):
        erase(op)
    elif unread:
        drop_results(op, unread, bodies)


def bytes_of(value: SSAValue) -> int:
    """The size of a tensor."""
    return byte_size(*tensor_spec(value))


def readers_of(value: SSAValue) -> list[GeneratedOp] | None:
    """The generated launches that read `value`, through views; None if anything else does."""
    found: dict[GeneratedOp, None] = {}
    for use in value.uses:
        op = use.operation
        if isinstance(op, kernel.ReshapeOp | kernel.ViewOp):
            behind = readers_of(op.results[0])
            if behind is None:
                return None
            found |= dict.fromkeys(behind)
        elif isinstance(op, GeneratedOp) and op.op_name in LOOPS:
            found[op] = None
        else:
            return None
    return list(found)


def source_of(member: LoopMember, number: int, unread: set[int]) -> Source | None:
    """Result `number` of a launch, as a function of its operands and of its other results; None if it follows from a reduction
    alone, or by too many operations.
    """
    body, first = member.body, len(member.body.args)
    elements = [element_of(access.root) for access in member.operands]
    given: dict[int, int] = {}
    for at, value in enumerate(body.results):
        element, shape = element_of(member.results[at]), shape_of(member.results[at])
        exact = element not in NARROW or is_exact(body, elements, value, element)
        if at != number and at not in unread and exact and shape in (member.domain, member.kept):
            given.setdefault(value, at)
    top = body.results[number]
    if top in given or (top < first and not is_widened(member.operands[top], member.results[number])):
        return None
    needed: set[int] = set()
    leaves: dict[int, Access] = {}
    todo = [top]
    while todo:
        value = todo.pop()
        if value in needed or value in leaves:
            continue
        if value < first:
            if is_table(body.args[value]):
                return None
            leaves[value] = member.operands[value]
        elif value in given:
            leaves[value] = access_of(member, given[value])
        elif (line := body.lines[value - first]).op in FIXED:
            return None
        else:
            needed.add(value)
            todo += line.args
    lines = [body.lines[value - first] for value in sorted(needed)]
    costly = sum(line.op in TRANSCENDENTAL for line in lines)
    if len(lines) > FEW_LINES or costly > 1 or not leaves:
        return None
    order = sorted(leaves)
    builder = Builder([type_of(leaves[value]) for value in order])
    values = {value: at for at, value in enumerate(order)}
    for value in sorted(needed):
        line = body.lines[value - first]
        values[value] = builder.line(line.op, [values[arg] for arg in line.args], line.type, line.attr)
    made = values[top]
    if (element := element_of(member.results[number])) in NARROW:
        made = builder.scalar(made).rounded(element).value
    return Source(builder.finish([made]), tuple(leaves[value] for value in order))


def is_widened(access: Access, result: SSAValue) -> bool:
    """True if `result` has the elements of an operand in their order, in more bytes."""
    if access.layout is None or not access.layout.is_dense or access.layout.count != prod(shape_of(result)):
        return False
    return bytes_of(access.root) < bytes_of(result) and element_of(access.root) in NARROW


def access_of(member: LoopMember, number: int) -> Access:
    """A result, read at each point of the domain of its launch."""
    result = member.results[number]
    if not member.narrow[number]:
        return Access(result, Layout.dense(member.domain))
    kept, zeros = dense_strides(member.kept), (0,) * member.reduced
    strides = (*zeros, *kept) if member.kind == "colwise" else (*kept, *zeros)
    return Access(result, Layout(member.domain, strides).normal())


def rewritten(
    reader: GeneratedOp, value: OpResult, source: Source, bodies: Bodies, target: str
) -> LoopMember | None:
    """`reader` with `source` in the place of its operands that are `value`; None where it cannot read so."""
    member = member_of(reader, bodies, columns=True)
    if member is None or any(is_view_of(access.root, value) for access in member.operands):
        return None
    operands: dict[Access, str] = {}
    places: list[Access | list[Access]] = []
    for index, (type_, access) in enumerate(zip(member.body.args, member.operands, strict=True)):
        if access.root is not value:
            operands.setdefault(access, type_)
            places.append(access)
            continue
        if access.layout is None or compares_elements(member, index):
            return None
        moved: list[Access] = []
        for type_, leaf in zip(source.body.args, source.operands, strict=True):
            layout = None if leaf.layout is None else leaf.layout.then(access.layout)
            if layout is None:
                return None
            moved.append(Access(leaf.root, layout))
            operands.setdefault(moved[-1], type_)
        places.append(moved)
    ordered = sorted(operands, key=lambda access: is_table(operands[access]))
    at = {access: number for number, access in enumerate(ordered)}
    elements = [element_name(element_type(access.root)) for access in ordered]
    builder = Builder([operands[access] for access in ordered], elements)
    args = [
        at[place]
        if isinstance(place, Access)
        else builder.inline(source.body, [at[access] for access in place])[0]
        for place in places
    ]
    body = builder.finish(builder.inline(member.body, args))
    body = written(body, elements, [element_of(result) for result in member.results])
    if len(ordered) > MOST_OPERANDS or body.operations > MOST_LINES:
        return None
    made = dataclasses.replace(member, body=body, operands=tuple(ordered))
    return made if not any(body.behind_columns) or has_one_walk(made, target) else None


def has_one_walk(member: LoopMember, target: str) -> bool:
    """True if one walk of a GPU has the rows with their column sums."""
    operands = [
        Tensor(element_of(access.root), access.layout.shape, access.layout.strides)
        for access in member.operands
        if access.layout is not None
    ]
    results = [
        Tensor(element_of(value), shape_of(value), dense_strides(shape_of(value))) for value in member.results
    ]
    made = Kernel(
        member.kind,
        architecture(target),
        member.body,
        member.domain,
        member.reduced,
        tuple(operands),
        tuple(results),
    )
    return len(operands) == len(member.operands) and is_one_walk(made)


def is_view_of(value: SSAValue, tensor: SSAValue) -> bool:
    """True if views, one or more, lead from `value` to `tensor`: it is a table then, or of a layout that no strides express."""
    while isinstance(op := value.owner, kernel.ReshapeOp | kernel.ViewOp):
        value = op.operands[0]
        if value is tensor:
            return True
    return False


def saves(value: OpResult, readers: Sequence[GeneratedOp], source: Source, bodies: Bodies) -> bool:
    """True if far fewer bytes are moved, and no more are held in the place of `value`."""
    roots = {access.root for access in source.operands if SMALL * bytes_of(access.root) > bytes_of(value)}
    more = 0
    for reader in readers:
        member = member_of(reader, bodies, columns=True)
        assert member is not None
        read = {access.root for access in member.operands}
        if any(
            not isinstance(access.root, OpResult) and access.root not in read for access in source.operands
        ):
            return False  # an argument, which an update may be about to replace
        more += sum(map(bytes_of, roots - read))
    last = max(readers, key=lambda op: position(op))
    held = sum(bytes_of(root) for root in roots if not is_read_from(root, last))
    return 2 * more <= (1 + len(readers)) * bytes_of(value) and held <= bytes_of(value)


def position(op: Operation) -> int:
    """The place of an op in its block."""
    assert op.parent is not None
    return op.parent.get_operation_index(op)


def is_read_from(value: SSAValue, last: Operation) -> bool:
    """True if `value` is an argument, or read by `last` or after it."""
    if not isinstance(value, OpResult):
        return True
    for use in value.uses:
        op = use.operation
        if isinstance(op, kernel.ReshapeOp | kernel.ViewOp):
            if is_read_from(op.results[0], last):
                return True
        elif op is last or last.is_before_in_block(op):
            return True
    return False


def replace(reader: GeneratedOp, new: LoopMember, bodies: Bodies) -> None:
    """Write `new` in the place of `reader`."""
    assert reader.parent is not None
    values = [operand_at(reader.parent, access.root, access.layout, reader) for access in new.operands]
    scalars = [value for value, type_ in zip(values, new.body.args, strict=True) if not is_table(type_)]
    tables = [value for value, type_ in zip(values, new.body.args, strict=True) if is_table(type_)]
    write(reader, new.body, {"x": scalars, "table": tables}, range(len(new.results)), bodies)


def write(
    op: GeneratedOp,
    body: Body,
    ins: Mapping[str, Sequence[SSAValue]],
    kept: Sequence[int],
    bodies: Bodies,
) -> None:
    """Put a launch with another body in the place of `op`, with some of its results."""
    attrs = {**op.attrs, "body": Symbol(bodies.symbol(body, f"{op.attrs['body']}_again"))}
    made = type(op).launch(ins, {"y": [op.results[number].type for number in kept]}, **attrs)
    made.location = op.location
    Rewriter.insert_op(made, InsertPoint.before(op))
    for number, result in zip(kept, made.results, strict=True):
        result.name_hint = op.results[number].name_hint
        op.results[number].replace_all_uses_with(result)
    erase(op)


def erase(op: Operation) -> None:
    """Erase an op of which nothing is read, and the views that it alone reads."""
    old = list(op.operands)
    Rewriter.erase_op(op)
    for value in old:
        erase_way(value)


def erase_way(value: SSAValue) -> None:
    """Erase the views that make a value which nothing reads."""
    op = value.owner
    if isinstance(op, kernel.ReshapeOp | kernel.ViewOp) and value.first_use is None:
        source = op.operands[0]
        Rewriter.erase_op(op)
        erase_way(source)


def erase_unread(value: SSAValue) -> None:
    """Erase the views of a value that nothing reads."""
    for use in [*value.uses]:
        if isinstance(op := use.operation, kernel.ReshapeOp | kernel.ViewOp):
            erase_unread(op.results[0])
            if op.results[0].first_use is None:
                Rewriter.erase_op(op)


def drop_results(op: GeneratedOp, unread: set[int], bodies: Bodies) -> None:
    """Leave out results that nothing reads any more."""
    kept = [number for number in range(len(op.results)) if number not in unread]
    body = bodies[op.body_symbol]
    builder = Builder(body.args)
    values = builder.inline(body, range(len(body.args)))
    ins = {name: list(values) for name, values in op.ins.items()}
    write(op, builder.finish(values[number] for number in kept), ins, kept, bodies)
