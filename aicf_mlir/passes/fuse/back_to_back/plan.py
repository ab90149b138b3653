"""The plan of a chain, made before any launch is: bodies, their operands, and the uses of their values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from xdsl.ir import SSAValue

from aicf_mlir.dialects.generated import tensor_of
from aicf_mlir.dialects.kernel_op import operand_spec, tensor_spec
from aicf_mlir.ir import registry
from aicf_mlir.ir.body import COMPUTE, Body
from aicf_mlir.ir.element_types import byte_size
from aicf_mlir.ir.formula import Builder
from aicf_mlir.ir.layouts import Layout, dense_strides
from aicf_mlir.ir.links import ROUNDED_A, LinkText, OuterText, ValueUses
from aicf_mlir.ir.roundings import written
from aicf_mlir.kernels.back_to_back import BackToBackKernel, Link, Outer, Yield
from aicf_mlir.kernels.tensor import Tensor
from aicf_mlir.passes.fuse.back_to_back.grow import Chain, ChainLink, OverRows, Sum
from aicf_mlir.passes.fuse.epilogues import readers_of
from aicf_mlir.passes.fuse.loops.members import Access, LoopMember, constant_of, resolve
from aicf_mlir.passes.fuse.rounding import as_read, as_tensor

SUMMED = "f32"
"""The element type of a value that is only summed, and of a sum that a launch after the chain continues with."""


@dataclass
class LinkValue:
    """A value that the body of a link gives."""

    at: int
    """The value's number in the body."""
    element: str
    of: SSAValue | None = None
    """The original value; None for the terms of a sum."""
    write: bool = False
    next: bool = False
    sums: list[Sum] = field(default_factory=list[Sum])

    @property
    def uses(self) -> ValueUses:
        """The uses in the form of the text."""
        return ValueUses(self.write, self.next, bool(self.sums), self.element)

    @property
    def sum_element(self) -> str:
        """The element type of its sum: that of the one reader that takes the sum unchanged, if there is one."""
        wanted = [tensor_spec(total.member.results[0])[0] for total in self.sums if is_plain(total)]
        return wanted[0] if len(self.sums) == 1 and wanted else SUMMED


def is_plain(total: Sum) -> bool:
    """True if the sum consists only of the sums of columns."""
    return not total.is_total and len(total.behind.lines) == 1


@dataclass(frozen=True)
class PlannedLink:
    """A link of the launch."""

    body: Body
    text: LinkText
    values: tuple[LinkValue, ...]


class ChainPlan:
    """The launch that takes the place of a chain and of these products over rows.

    With `casts` it reads the value that is cast to its first operand, and with `keep` no value is written for later links alone.
    """

    def __init__(self, chain: Chain, over_rows: Sequence[OverRows], casts: bool, keep: bool):
        self.chain, self.over_rows, self.keep = chain, over_rows, keep
        self.ops = {*chain.ops, *(outer.product for outer in over_rows)}
        self.multiplied = {side for outer in over_rows for side in (outer.left, outer.right)}
        self.rounded = chain.links[0].product.ins["a"][0]
        """The left operand of the first link."""
        self.a = chain.cast if casts and chain.cast is not None else self.rounded
        self.bs = list(dict.fromkeys(link.product.ins["b"][0] for link in chain.links))
        self.xs: list[Access] = []
        self.numbers: dict[SSAValue, int] = {}
        """The number of each value of the chain in the launch, if it has one."""
        self.count = 0
        inside = [set(link.values) for link in chain.links]
        self.given = {value for own in inside for value in own}
        self.later = {
            access.root
            for link, own in zip(chain.links, inside, strict=True)
            for access in accesses_of(link)
            if access.root in self.given - own
        }
        self.links = [self.link(number) for number in range(len(chain.links))]

    @property
    def rows(self) -> int:
        """M."""
        return self.chain.links[0].shape[0]

    def link(self, number: int) -> PlannedLink:
        """Plan a link after the ones before it."""
        link = self.chain.links[number]
        own = set(link.values)
        taken = list(
            dict.fromkeys(
                access
                for access in accesses_of(link)
                if access.root not in own and constant_of(access) is None
            )
        )
        elements = ["", *(tensor_spec(access.root)[0] for access in taken)]  # the first are sums
        builder = Builder(["f32", *(COMPUTE[element] for element in elements[1:])], elements)
        known: dict[SSAValue, int] = {link.product.results[0]: 0}

        def arguments(member: LoopMember) -> list[int]:
            found: list[int] = []
            for type_, access in zip(member.body.args, member.operands, strict=True):
                constant = constant_of(access)
                if access.root in known:
                    found.append(as_read(builder, access.root, known[access.root], member.op))
                elif constant is not None:
                    found.append(builder.constant(constant, type_).value)
                else:
                    found.append(1 + taken.index(access))
            return found

        for member in link.maps:
            known |= zip(member.results, builder.inline(member.body, arguments(member)), strict=True)
        values = [value for one in link.values if (value := self.value(number, one, known[one])) is not None]
        for total in link.sums:
            (term,) = builder.inline(total.terms, arguments(total.member))
            same = next((value for value in values if term == summed(builder, value)), None)
            if same is None:
                values.append(same := LinkValue(term, SUMMED))
            same.sums.append(total)
        for at, value in enumerate(values, self.count):
            if value.of is not None:
                self.numbers[value.of] = at
        self.count += len(values)
        body = builder.finish(value.at for value in values)
        body = written(body, elements, [value.element for value in values])
        takes = tuple(self.take(access) for access in taken)
        (b,) = link.product.ins["b"]
        text = LinkText(
            self.bs.index(b),
            link.product.attrs.get("trans_b", False) is True,
            takes,
            tuple(value.uses for value in values),
        )
        return PlannedLink(body, text, tuple(values))

    def value(self, number: int, value: SSAValue, at: int) -> LinkValue | None:
        """A value of the launch; None if only its own link reads it."""
        links = self.chain.links
        following = links[number + 1].product.ins["a"][0] if number + 1 < len(links) else None
        chained = following is not None and resolve(following).root is value
        write = any(op not in self.ops for op in readers_of(value))
        later, multiplied = value in self.later, value in self.multiplied
        if not (write or chained or later or multiplied):
            return None
        write = write or (later and not chained and not self.keep)
        return LinkValue(at, tensor_spec(value)[0], value, write, chained)

    def take(self, access: Access) -> tuple[str, int]:
        """An operand of the launch, or a value of a link before."""
        if access.root in self.given:
            return "y", self.numbers[access.root]
        if access not in self.xs:
            self.xs.append(access)
        return "x", self.xs.index(access)

    @cached_property
    def operand_tensors(self) -> list[Tensor]:
        """The tensor of every x."""
        return [
            tensor_of(access.layout.spec(tensor_spec(access.root)[0]))
            for access in self.xs
            if access.layout is not None
        ]

    def kernel(self, target: str) -> BackToBackKernel:
        """The kernel that would be generated."""
        links: list[Link] = []
        bs = [tensor_of(operand_spec(b)) for b in self.bs]
        texts = [link.text for link in self.links]
        for planned, link in zip(self.links, self.chain.links, strict=True):
            text, n = planned.text, link.shape[1]
            same = [before.b for before in texts].index(text.b)
            yields = tuple(
                Yield(
                    dense(value.element, (self.rows, n)) if value.write else None,
                    dense(value.sum_element, (n,)) if value.sums else None,
                    value.next,
                    value.element,
                )
                for value in planned.values
            )
            links.append(Link(planned.body, bs[text.b], text.b, same, text.trans_b, text.takes, yields))
        return BackToBackKernel.of(
            registry.architecture(target),
            links,
            tensor_of(operand_spec(self.a)),
            bs,
            self.operand_tensors,
            dense(*tensor_spec(self.rounded)) if self.writes_a else None,
            [
                Outer(text.left, text.right, dense(*tensor_spec(outer.product.results[0])))
                for text, outer in zip(self.outers, self.over_rows, strict=True)
            ],
        )

    @property
    def writes_a(self) -> bool:
        """True if another op reads a as it is rounded here."""
        return self.a is not self.rounded and any(op not in self.ops for op in readers_of(self.rounded))

    @property
    def traffic(self) -> int:
        """The bytes of a step with a batch of its own: its reads of a and writes for others, the traffic of a cast before it,
        and the reads of the products over rows outside of it.
        """
        moved = [self.a, *([self.rounded] if self.writes_a else [])]
        if self.chain.cast is not None and self.a is self.rounded:
            moved += [self.chain.cast, self.rounded]
        values = [value for link in self.links for value in link.values if value.write]
        moved += [value.of for value in values if value.of is not None]
        for outer in self.chain.over_rows:
            moved += [] if outer in self.over_rows else outer.product.operands
        return sum(byte_size(*tensor_spec(value)) for value in moved)

    @property
    def outers(self) -> list[OuterText]:
        """The products over rows, by numbers of values."""
        return [
            OuterText(self.numbers[outer.left], None if outer.right is None else self.numbers[outer.right])
            for outer in self.over_rows
        ]

    @property
    def behind(self) -> tuple[str, ...]:
        """The entries after the links, in the form of the text: a, rounded, if it is written, and the products over rows."""
        return (*([ROUNDED_A] if self.writes_a else []), *map(str, self.outers))

    @property
    def reads(self) -> list[SSAValue]:
        """All values that the launch reads, at their source."""
        return [self.a, *self.bs, *(access.root for access in self.xs)]


def accesses_of(link: ChainLink) -> Iterator[Access]:
    """The operands that the maps and the sums of a link read."""
    for member in (*link.maps, *(total.member for total in link.sums)):
        yield from member.operands


def dense(element: str, shape: Sequence[int]) -> Tensor:
    """A tensor of its own."""
    layout = Layout(tuple(shape), dense_strides(shape))
    return tensor_of(layout.spec(element))


def summed(builder: Builder, value: LinkValue) -> int:
    """The number of the term for a sum of the value."""
    return value.at if value.of is None else as_tensor(builder.scalar(value.at), value.element).value
