"""Launches that form one chain: products that each multiply the result of the last one's epilogue, maps and sums of their
elements.

A chain is grown from a product along the text. A map joins the link of the latest product that it reads, element by element. A
sum of columns, or of all elements, follows the values of its link. A product whose left operand is a value of the last link
begins the next link. A launch that depends on the chain by way of a launch outside it cannot join.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from xdsl.ir import Block, Operation, SSAValue

from aicf_mlir.dialects import kernel
from aicf_mlir.dialects.kernel_op import KernelOp, tensor_spec
from aicf_mlir.dialects.scalar import Bodies
from aicf_mlir.ir.body import Body, is_table
from aicf_mlir.ir.element_types import NARROW
from aicf_mlir.ir.formula import Builder
from aicf_mlir.ir.layouts import Layout, shares_block
from aicf_mlir.ir.tensor_op import shape_of
from aicf_mlir.passes.fuse.epilogues import readers_of
from aicf_mlir.passes.fuse.loops.fit import is_same
from aicf_mlir.passes.fuse.loops.members import Access, LoopMember, constant_of, member_of, resolve
from aicf_mlir.passes.fuse.totals import divided

WIDEST = 128
"""Columns of a product that a chain holds in registers."""


@dataclass(frozen=True)
class Sum:
    """A sum over all rows: its terms, computed from the elements, and the function of the sums."""

    member: LoopMember
    terms: Body
    behind: Body
    """The body applied to the sum of one column; it has a `scalar.sum` first, over the columns too, if `is_total`."""

    @property
    def is_total(self) -> bool:
        """True if it is one number."""
        return self.member.kind == "rowwise"


@dataclass
class ChainLink:
    """A product with the members that joined it."""

    product: KernelOp
    maps: list[LoopMember] = field(default_factory=list[LoopMember])
    sums: list[Sum] = field(default_factory=list[Sum])

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the link's product."""
        return shape_of(self.product.results[0])

    @property
    def values(self) -> list[SSAValue]:
        """The product, and the results of the maps."""
        return [self.product.results[0], *(value for member in self.maps for value in member.results)]

    @property
    def ops(self) -> list[Operation]:
        """All ops that the link replaces."""
        return [
            self.product,
            *(member.op for member in self.maps),
            *(total.member.op for total in self.sums),
        ]


@dataclass(frozen=True)
class OverRows:
    """A product of two values over all rows, the gradient of a weight."""

    product: KernelOp
    left: SSAValue
    right: SSAValue | None
    """The right operand; None: the left operand of the first link."""


@dataclass
class Chain:
    """Links, in order."""

    links: list[ChainLink]
    cast: SSAValue | None = None
    """The f32 value that a separate launch casts to the left operand of the first product, if the chain could do the cast."""
    over_rows: list[OverRows] = field(default_factory=list[OverRows])
    """The products over rows that could be computed together with the links, in the order of the text."""
    ended_by: Operation | None = None
    """The first launch that reads a value of the last link, and could not join."""

    @property
    def ops(self) -> set[Operation]:
        """All ops that the links replace."""
        return {op for link in self.links for op in link.ops}


def is_narrow_product(op: Operation, rows: int) -> bool:
    """True if `op` may be the first of a chain: many rows of a dense matrix of 16 bits, times a small one."""
    if not isinstance(op, kernel.GemmOp) or op.kernel_id is not None or op.attrs.get("trans_a"):
        return False
    (a,), (b,) = op.ins["a"], op.ins["b"]
    (element, shape), out = tensor_spec(a), shape_of(op.results[0])
    dense = not any(shares_block(value.type) for value in (a, b, op.results[0]))
    small = len(shape) == 2 and 0 < max(shape[1], out[1]) <= WIDEST and min(shape[1], out[1]) > 0
    return dense and small and element in NARROW and shape[0] >= rows


def grow(first: KernelOp, ops: Sequence[Operation], bodies: Bodies, rows: int, most: int) -> Chain:
    """The chain of at most `most` links that begins with `first`; `ops` are the ops of the text from there on."""
    growth = Growth(first, bodies, rows, most)
    growth.chain.cast = before_cast(first, ops)
    for op in ops:
        growth.take(op)
    growth.leave_casts()
    growth.leave_unread()
    return growth.chain


class Growth:
    """A chain in the making."""

    def __init__(self, first: KernelOp, bodies: Bodies, rows: int, most: int):
        self.bodies, self.rows, self.most = bodies, rows, most
        self.first = first
        self.chain = Chain([])
        self.link_of: dict[SSAValue, int] = {}
        """The link that gives each value."""
        self.beyond: set[SSAValue] = set()
        """The values that depend on the chain through launches outside it."""

    def take(self, op: Operation) -> None:
        """Take the next launch of the text: as a part of the chain, or outside of it."""
        links = self.chain.links
        if op is self.first or self.is_next(op):
            assert isinstance(op, KernelOp)
            self.link_of[op.results[0]] = len(links)
            links.append(ChainLink(op))
            self.chain.ended_by = None
            return
        if isinstance(op, kernel.VIEWS):
            if any(value in self.beyond for value in op.operands):
                self.beyond.update(op.results)
            return
        roots = {resolve(value).root for value in op.operands}
        if not roots & self.link_of.keys() and not self.is_beyond(op, roots):
            return
        if not self.is_beyond(op, roots) and self.joins(op):
            return
        if not self.is_beyond(op, roots) and is_over_rows(op):
            self.note_over_rows(op)
        self.beyond.update(op.results)
        reads_last = bool(links) and bool(roots & set(links[-1].values))
        if reads_last and self.chain.ended_by is None and isinstance(op, KernelOp) and not is_over_rows(op):
            self.chain.ended_by = op

    def is_beyond(self, op: Operation, roots: set[SSAValue]) -> bool:
        """True if it reads a value that is made outside of the chain from its values."""
        return bool(self.beyond & (roots | set(op.operands)))

    def is_next(self, op: Operation) -> bool:
        """True if `op` multiplies a value of the last link, as it is."""
        links = self.chain.links
        if not 0 < len(links) < self.most or not is_narrow_product(op, self.rows):
            return False
        assert isinstance(op, KernelOp)
        (a,), (b,) = op.ins["a"], op.ins["b"]
        access, by = resolve(a), resolve(b).root
        if access.root not in links[-1].values or access.layout is None or self.beyond & {a, b, by}:
            return False
        same = tensor_spec(a)[0] == tensor_spec(self.first.operands[0])[0]
        whole = is_same(access.layout, links[-1].shape) and shape_of(a) == links[-1].shape
        return same and whole and by not in self.link_of

    def joins(self, op: Operation) -> bool:
        """True if `op` has become a part of the latest link that it reads."""
        member = member_of(op, self.bodies)
        if member is None or member.body.dims or any(map(is_table, member.body.args)):
            return False
        read = [self.link_of[access.root] for access in member.operands if access.root in self.link_of]
        if not read or op in self.chain.ops:
            return False
        link = self.chain.links[max(read)]
        flat = flattened(member, link.shape)
        if flat is None or not all(self.is_in_place(access, link) for access in flat.operands):
            return False
        if member.kind == "map":
            link.maps.append(flat)
            self.link_of |= dict.fromkeys(flat.results, max(read))
            return True
        if (halves := sum_of(flat)) is None:
            return False
        link.sums.append(Sum(flat, *halves))
        self.beyond.update(op.results)
        return True

    def note_over_rows(self, op: Operation) -> None:
        """Note a product over rows whose operands are values of the chain, or one of them and the first operand of the chain."""
        assert isinstance(op, KernelOp)
        (a,), (b,) = op.ins["a"], op.ins["b"]
        same = tensor_spec(a)[0] == tensor_spec(self.first.operands[0])[0]
        if not same or op.attrs.get("trans_b") or shares_block(op.results[0].type):
            return
        left, right = self.side(a), self.side(b)
        first = self.first.operands[0]
        begins = shape_of(b) == shape_of(first) and resolve(b) == resolve(first)
        if left is not None and (right is not None or begins):
            self.chain.over_rows.append(OverRows(op, left, right))

    def side(self, value: SSAValue) -> SSAValue | None:
        """The value of the chain that is the operand, whole and by rows; None if there is none."""
        access = resolve(value)
        if access.root not in self.link_of or access.layout is None:
            return None
        shape = self.chain.links[self.link_of[access.root]].shape
        whole = shape_of(value) == shape and is_same(access.layout, shape)
        return access.root if whole else None

    def leave_casts(self) -> None:
        """Remove wide copies that nothing in the chain reads: their readers cast a value of half the size."""
        inside = self.chain.ops
        for link in self.chain.links:
            link.maps = [
                member
                for member in link.maps
                if not isinstance(member.op, kernel.CopyOp)
                or tensor_spec(member.results[0])[0] in NARROW
                or any(op in inside for op in readers_of(member.results[0]))
            ]

    def leave_unread(self) -> None:
        """Take out last links that give nothing to anybody, as there are where dce has not run."""
        links = self.chain.links
        while len(links) > 1 and not links[-1].sums:
            own = set(links[-1].ops)
            if any(op not in own for value in links[-1].values for op in readers_of(value)):
                return
            links.pop()

    def is_in_place(self, access: Access, link: ChainLink) -> bool:
        """True if an operand is a constant, comes from outside, or is a value of as many columns, read element by element."""
        if access.layout is None or constant_of(access) is not None:
            return constant_of(access) is not None
        if access.root not in self.link_of:
            return access.root not in self.beyond
        source = self.chain.links[self.link_of[access.root]]
        return source.shape == link.shape and is_same(access.layout, link.shape)


def before_cast(first: KernelOp, ops: Sequence[Operation]) -> SSAValue | None:
    """The f32 value that is cast to the left operand of `first`, if no earlier op reads the cast."""
    (value,) = first.ins["a"]
    op = value.owner
    if not isinstance(op, kernel.CopyOp) or op.kernel_id is not None:
        return None
    source, behind = op.operands[0], set(ops)
    plain = not shares_block(source.type) and tensor_spec(source) == ("f32", shape_of(value))
    return source if plain and all(use.operation in behind for use in value.uses) else None


def is_over_rows(op: Operation) -> bool:
    """True if it is a product over the rows, the gradient of a weight, which a chain leaves to others by design."""
    return isinstance(op, kernel.GemmOp) and bool(op.attrs.get("trans_a"))


def sum_of(member: LoopMember) -> tuple[Body, Body] | None:
    """The body of the terms that a launch sums over all rows, and that of its function of a sum; None if it does more."""
    if len(member.results) != 1 or not all(member.narrow) or (halves := divided(member.body)) is None:
        return None
    columns, behind = halves
    (total,) = columns.results
    (term,) = columns.lines[total - len(columns.args)].args
    builder = Builder(columns.args)
    builder.inline(Body(columns.args, columns.lines, ()), range(len(columns.args)))
    return builder.finish([term]), behind


def flattened(member: LoopMember, shape: tuple[int, ...]) -> LoopMember | None:
    """A map over `shape`, [M, N]; or sums of its columns, or of all its elements, over it. None if no strides express it."""
    if member.kind == "map":
        return member.over(shape)
    rank = len(member.domain)
    columns = member.kind == "colwise" and member.domain[member.reduced :] == shape[1:]
    everything = member.kind == "rowwise" and member.reduced == rank
    if not (columns or everything):
        return None
    moved: list[Access] = []
    for access in member.operands:
        layout = None if access.layout is None else access.layout.then(Layout.dense(shape))
        if layout is None or layout.count != Layout.dense(member.domain).count:
            return None
        moved.append(Access(access.root, layout))
    return replace(member, domain=shape, reduced=1 if columns else 2, operands=tuple(moved))


def made_late(values: Sequence[SSAValue], position: dict[Operation, int], place: int) -> Iterator[Operation]:
    """The ops to move before a place of the text: the ops after it that make `values`, each after the ops it reads."""
    ops: dict[Operation, None] = {}

    def visit(value: SSAValue) -> None:
        op = value.owner
        if isinstance(op, Block) or position[op] < place or op in ops:
            return
        for operand in op.operands:
            visit(operand)
        ops[op] = None

    for value in values:
        visit(value)
    yield from ops
