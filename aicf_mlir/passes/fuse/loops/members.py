"""Launches as loops: the body, domain and operands of every launch that can be a part of a generated kernel."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

from xdsl.ir import Operation, OpResult, SSAValue

from aicf_mlir.dialects import kernel
from aicf_mlir.dialects.generated import GeneratedOp
from aicf_mlir.dialects.kernel_formulas import FORMULAS, ROWS
from aicf_mlir.dialects.kernel_op import KernelOp, tensor_spec
from aicf_mlir.dialects.scalar import Bodies
from aicf_mlir.ir import formula as f
from aicf_mlir.ir.body import COMPUTE, TRANSCENDENTAL, Body, is_float, is_table
from aicf_mlir.ir.formula import Builder, Scalar, rounded, trace
from aicf_mlir.ir.layouts import Layout, layout_of, shares_block
from aicf_mlir.ir.tensor_op import shape_of, tensor_type
from aicf_mlir.passes.fuse.rounding import read_type


@dataclass(frozen=True)
class Access:
    """An access to an operand: the elements of `root` at `layout`; the layout of a table is None."""

    root: SSAValue
    layout: Layout | None


@dataclass(frozen=True)
class LoopMember:
    """A launch as a loop over `domain`."""

    op: KernelOp
    kind: str
    body: Body
    domain: tuple[int, ...]
    reduced: int
    operands: tuple[Access, ...]
    results: tuple[OpResult, ...]
    narrow: tuple[bool, ...]
    """For each result, True if it has the shape of the kept dimensions."""

    @property
    def kept(self) -> tuple[int, ...]:
        """The domain without the reduced dimensions."""
        rank = len(self.domain)
        return self.domain[self.reduced :] if self.kind == "colwise" else self.domain[: rank - self.reduced]

    def over(self, domain: tuple[int, ...]) -> LoopMember | None:
        """The same over a domain of as many elements in the same order; None if no strides express it."""
        if domain == self.domain:
            return self
        if self.body.dims or prod(domain) != prod(self.domain) or self.kind == "colwise":
            return None
        if self.kind == "rowwise":
            rank = len(self.domain)
            if self.domain[rank - self.reduced :] != domain[len(domain) - self.reduced :]:
                return None
        moved: list[Access] = []
        for type_, access in zip(self.body.args, self.operands, strict=True):
            layout = access.layout
            if layout is not None and not is_table(type_):
                layout = layout.then(Layout.dense(domain))
                if layout is None:
                    return None
            moved.append(Access(access.root, layout))
        return replace(self, domain=domain, operands=tuple(moved))


def resolve(value: SSAValue) -> Access:
    """The source of the elements of `value`: through reshapes, views and copies that only move elements."""
    type_ = tensor_type(value)
    best = Access(value, layout_of(type_))
    root, layout = value, Layout.dense(shape_of(value))
    while isinstance(op := root.owner, Operation):
        match op:
            case kernel.ReshapeOp():
                root = op.input
            case kernel.ViewOp():
                inside = op.layout.then(layout)
                if inside is None:
                    return best
                root, layout = op.input, inside
            case kernel.CopyOp() if _moves(op):
                root = op.operands[0]
                if shares_block(root.type) and not isinstance(root.owner, kernel.ViewOp):
                    return best
            case _:
                break
        if not shares_block(root.type):
            best = Access(root, layout)
    return best


def _moves(op: KernelOp) -> bool:
    """True if a copy keeps the element type and gives a tensor of its own."""
    same = tensor_spec(op.operands[0])[0] == tensor_spec(op.results[0])[0]
    return same and not shares_block(op.results[0].type)


LOOPS = ("map", "rowwise", "colwise")
"""The generated launches that are loops over one domain."""


def member_of(op: Operation, bodies: Bodies, columns: bool = False) -> LoopMember | None:
    """`op` as a loop; None if it is none, or if no generated kernel can compute it. With `columns` it may have column sums, which
    are narrow results too.
    """
    if not isinstance(op, KernelOp) or op.kernel_id is not None:
        return None
    if any(shares_block(value.type) for value in op.results) or not all(
        prod(shape_of(v)) for v in (*op.operands, *op.results)
    ):
        return None
    if isinstance(op, GeneratedOp):
        return _generated(op, bodies, columns) if op.op_name in LOOPS else None
    name, types = op.op_name, [COMPUTE[tensor_spec(value)[0]] for value in op.operands]
    if len({*types, *(COMPUTE[tensor_spec(value)[0]] for value in op.results)}) > 1 and name != "copy":
        return None
    if name in FORMULAS:
        accesses = (repeated(resolve(value), shape_of(op.results[0])) for value in op.operands)
        return _map(op, trace(types, FORMULAS[name]), accesses)
    if name in ROWS and shape_of(op.results[0]):
        body, operands = trace(types, ROWS[name]), tuple(map(resolve, op.operands))
        return LoopMember(
            op, "rowwise", body, shape_of(op.results[0]), 1, operands, tuple(op.results), (False,)
        )
    if name == "copy":
        return _cast(op)
    if name == "reduce_sum":
        return _sum(op)
    return None


def _map(op: KernelOp, body: Body, operands: Iterable[Access]) -> LoopMember:
    results = tuple(op.results)
    return LoopMember(
        op, "map", body, shape_of(results[0]), 0, tuple(operands), results, (False,) * len(results)
    )


def _generated(op: GeneratedOp, bodies: Bodies, columns: bool) -> LoopMember | None:
    body, attrs = bodies[op.body_symbol], op.attrs
    if any(body.behind_columns) and not columns:
        return None
    shape, reduced = attrs["shape"], attrs.get("reduced", 0)
    assert isinstance(shape, list) and isinstance(reduced, int)
    operands = tuple(
        Access(value, None) if is_table(type_) else resolve(value)
        for type_, value in zip(body.args, op.operands, strict=True)
    )
    narrow = tuple(shape_of(result) != tuple(shape) for result in op.results)
    return LoopMember(op, op.op_name, body, tuple(shape), reduced, operands, tuple(op.results), narrow)


def repeated(access: Access, domain: Sequence[int]) -> Access:
    """An operand at each point of `domain`, repeated by NumPy's rules."""
    layout = access.layout
    assert layout is not None
    added = len(domain) - len(layout.shape)
    strides = (0 if size == 1 else stride for size, stride in zip(layout.shape, layout.strides, strict=True))
    return Access(access.root, Layout(tuple(domain), (*[0] * added, *strides), layout.offset).normal())


def _cast(op: KernelOp) -> LoopMember | None:
    """A copy to another element type; one that only moves elements is none: its readers look through it."""
    source, target = tensor_spec(op.operands[0])[0], tensor_spec(op.results[0])[0]
    if source == target:
        return None

    def cast(x: Scalar) -> Scalar:
        return x.cast(COMPUTE[target])

    body = trace([COMPUTE[source]], cast)
    return _map(op, body, [resolve(op.operands[0])])


def _sum(op: KernelOp) -> LoopMember | None:
    """A sum over the last or the first dimensions unchanged, over others with the kept ones first."""
    shape, given, divisor = shape_of(op.operands[0]), op.attrs["dims"], op.attrs.get("divisor", 1.0)
    assert isinstance(given, list) and isinstance(divisor, float)
    dims = [dim for dim in sorted(given) if shape[dim] != 1] or given
    element = COMPUTE[tensor_spec(op.operands[0])[0]]
    if not dims or not is_float(element):
        return None

    def total(x: Scalar) -> Scalar:
        return f.row_sum(x) if divisor == 1.0 else f.row_sum(x) / divisor

    body = trace([element], total)
    access = resolve(op.operands[0])
    assert access.layout is not None
    rank = len(shape)
    if dims == list(range(len(dims))) and len(dims) < rank:
        return LoopMember(op, "colwise", body, shape, len(dims), (access,), tuple(op.results), (True,))
    order = [dim for dim in range(rank) if dim not in dims] + dims
    layout = Layout(
        tuple(shape[d] for d in order), tuple(access.layout.strides[d] for d in order), access.layout.offset
    )
    operands = (Access(access.root, layout),)
    return LoopMember(op, "rowwise", body, layout.shape, len(dims), operands, tuple(op.results), (True,))


def composed(reader: LoopMember, index: int, source: LoopMember, value: SSAValue) -> LoopMember | None:
    """`reader` with the computation of `source` in the place of its operand `index`; None if `operands_with` gives none."""
    if (operands := operands_with(reader, index, source)) is None:
        return None
    result = source.results.index(value)  # type: ignore[arg-type]
    body = composed_body(reader.body, index, source.body, result, read_type(value, reader.op))
    return replace(reader, body=body, operands=operands)


def operands_with(reader: LoopMember, index: int, source: LoopMember) -> tuple[Access, ...] | None:
    """The operands of `reader` with those of `source`, a map, in the place of number `index`; None if no strides express it.

    None too if the reader compares elements of one tensor, as ranks do. All of them must be the same numbers, but on a GPU a
    quotient that is computed again may end in another digit than the one that is stored.
    """
    through = reader.operands[index].layout
    if through is None or source.kind != "map" or source.body.dims or compares_elements(reader, index):
        return None
    moved: list[Access] = []
    for type_, access in zip(source.body.args, source.operands, strict=True):
        layout = access.layout
        if not is_table(type_):
            layout = None if layout is None else layout.then(through)
            if layout is None:
                return None
        moved.append(Access(access.root, layout))
    return (*reader.operands[:index], *reader.operands[index + 1 :], *moved)


@lru_cache(maxsize=4096)  # a model repeats its layers
def composed_body(reader: Body, index: int, source: Body, result: int, element: str | None) -> Body:
    """`reader` with a result of `source`, rounded to `element` if there is one, in the place of its argument `index`.

    The arguments of `source` come last.
    """
    args = (*reader.args[:index], *reader.args[index + 1 :], *source.args)
    builder = Builder(args)
    first = len(reader.args) - 1
    given = builder.inline(source, range(first, len(args)))[result]
    given = given if element is None else builder.scalar(given).rounded(element).value
    own = [*range(index), given, *range(index, first)]
    return builder.finish(builder.inline(reader, own))


def compares_elements(reader: LoopMember, index: int) -> bool:
    """True if a body compares numbers and reads the tensor of its operand `index` in another place too."""
    root = reader.operands[index].root
    again = sum(access.root is root for access in reader.operands) > 1
    return again and any(line.op == "arith.cmpf" for line in reader.body.lines)


def is_cheap(member: LoopMember) -> bool:
    """True if computing it again costs no more than reading it: a few operations on two operands at most."""
    if member.kind != "map" or member.body.operations > FEW_LINES:
        return False
    read = {access.root for access in member.operands if constant_of(access) is None}
    return (
        len(read) <= 2
        and not any(line.op in COSTLY for line in member.body.lines)
        and not divides(member.body)
    )


def divides(body: Body) -> bool:
    """True if it divides by a value that is no constant: on a GPU a row that shares its divisor is multiplied by the
    reciprocal.
    """
    first = len(body.args)
    divisors = [line.args[1] for line in body.lines if line.op == "arith.divf"]
    return any(value < first or body.lines[value - first].op != "arith.constant" for value in divisors)


FEW_LINES = 12
"""Operations that cost no more than to read an element."""
COSTLY = TRANSCENDENTAL | {"scalar.load"}


def is_one_element(access: Access) -> bool:
    """True if all points of a domain of several read the same element: sharing its read saves nothing."""
    layout = access.layout
    return layout is not None and layout.count > 1 and not any(stride for _, stride in layout.significant)


def constant_of(access: Access) -> float | None:
    """The number that an operand has everywhere, in its element type, if a body may have that; else None."""
    op = access.root.owner
    if not isinstance(op, kernel.ConstantOp) or op.data is not None:
        return None
    element = tensor_spec(op.results[0])[0]
    return rounded(op.number, element) if is_float(element) else op.number
