"""A chain of products in one launch: each multiplies the rows that the one before made by weights that all rows share.

    z_l = a_l op(b_l)       a_0 is an operand, a_l a value of link l - 1; sums in f32
    y_l = body_l(z_l, …)    of the elements of z, of operands x, and of values that earlier links have given
    w = y_i^T y_j           over all rows, of two values, or of one and a_0: sums in f32, rounded once

An `a_0` of f32 is rounded to the element type of b when it is read; it may be written so, as a result too. Every value that is
chained, written or taken later is rounded to its element type there, as if a launch of its own had stored it. Inside a body
it is rounded if the body has the rounding. A column sum adds the rounded values, over all rows, in f32, and is rounded once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from xdsl.utils.exceptions import VerifyException

from aicf_mlir.ir.body import COMPUTE, Body, is_table
from aicf_mlir.ir.element_types import NARROW
from aicf_mlir.ir.roundings import check_read
from aicf_mlir.kernels.kernel import Kernel
from aicf_mlir.kernels.tensor import Tensor


@dataclass(frozen=True)
class Yield:
    """A value that the body of a link gives."""

    wide: Tensor | None
    """The tensor [M, N], if it is written; None: it is not."""
    column_sum: Tensor | None
    """The tensor [N], if its sum over all rows is written; None: it is not."""
    chained: bool
    """True if it is multiplied by the next link."""
    element: str
    """The element type that it is rounded to: "bf16", "f16" or "f32"; a value of f32 is as the body gives it."""


@dataclass(frozen=True)
class Link:
    """A product and its body."""

    body: Body
    """The body; its first argument is the element of the product."""
    b: Tensor
    b_number: int
    """The number of its operand b: links may share one."""
    same_b: int
    """The first link with that operand: itself if no earlier one has it."""
    trans_b: bool
    """True if b is [N, K], else [K, N]."""
    takes: tuple[tuple[str, int], ...]
    """The source of each argument of the body after the product: ("x", number of the operand) or ("y", number of a value)."""
    yields: tuple[Yield, ...]

    @property
    def n(self) -> int:
        """Columns of the product."""
        return self.b.shape[0 if self.trans_b else 1]

    @property
    def k(self) -> int:
        """The number of terms that it sums."""
        return self.b.shape[1 if self.trans_b else 0]

    @property
    def chained(self) -> int | None:
        """The number of its value that the next link multiplies."""
        return next((number for number, made in enumerate(self.yields) if made.chained), None)


@dataclass(frozen=True)
class Outer:
    """A product over all rows of two values, as they are rounded: of a weight, its gradient."""

    left: int
    """The number of a value of 16 bits; its columns are the rows of the result."""
    right: int | None
    """The right value; None: a, as it is multiplied."""
    result: Tensor
    """[N of left, N of right], dense."""


@dataclass(frozen=True)
class BackToBackKernel(Kernel):
    """A kernel.chain. Operands: a, every b once, every x. Results: for each value the value if it is written, then its sum. After
    those of all links come a as it was rounded, if that is written, and the products over rows.

    Its body and its domain are those of the first link.
    """

    links: tuple[Link, ...] = ()
    b_count: int = 0
    a_rounded: Tensor | None = None
    """The tensor to which an a of f32 is written as it is multiplied; None: it is not written."""
    outers: tuple[Outer, ...] = ()

    @staticmethod
    def of(
        target: str,
        links: Sequence[Link],
        a: Tensor,
        bs: Sequence[Tensor],
        xs: Sequence[Tensor],
        a_rounded: Tensor | None = None,
        outers: Sequence[Outer] = (),
    ) -> BackToBackKernel:
        """The kernel of these links; VerifyException if there are none."""
        if not links:
            raise VerifyException("a chain has one link or more, got none")
        results = [
            tensor
            for link in links
            for made in link.yields
            for tensor in (made.wide, made.column_sum)
            if tensor is not None
        ]
        results += [] if a_rounded is None else [a_rounded]
        results += [outer.result for outer in outers]
        operands = (a, *bs, *xs)
        domain = (a.shape[0], links[0].n)
        return BackToBackKernel(
            "back_to_back",
            target,
            links[0].body,
            domain,
            0,
            operands,
            tuple(results),
            links=tuple(links),
            b_count=len(bs),
            a_rounded=a_rounded,
            outers=tuple(outers),
        )

    @property
    def a(self) -> Tensor:
        """The left operand of the first link."""
        return self.operands[0]

    @property
    def rows(self) -> int:
        """M."""
        return self.a.shape[0]

    @property
    def element(self) -> str:
        """The element type of all factors."""
        return self.links[0].b.element

    @property
    def bs(self) -> tuple[Tensor, ...]:
        """The right operands of the links."""
        return self.operands[1 : 1 + self.b_count]

    @property
    def xs(self) -> tuple[Tensor, ...]:
        """The operands of bodies other than products."""
        return self.operands[1 + self.b_count :]

    @cached_property
    def values(self) -> tuple[tuple[int, Yield], ...]:
        """All values that bodies give, each with its link: the values that ("y", number) counts."""
        return tuple((number, made) for number, link in enumerate(self.links) for made in link.yields)

    def first_value(self, link: int) -> int:
        """The number of the first value of a link."""
        return sum(len(before.yields) for before in self.links[:link])

    @cached_property
    def places(self) -> tuple[tuple[int | None, int | None], ...]:
        """For each value, the numbers of the results that it is written to and summed in."""
        found: list[tuple[int | None, int | None]] = []
        count = 0
        for _, made in self.values:
            wide, column = made.wide is not None, made.column_sum is not None
            found.append((count if wide else None, count + wide if column else None))
            count += wide + column
        return tuple(found)

    @cached_property
    def taken(self) -> frozenset[int]:
        """The numbers of values that a later link takes."""
        return frozenset(number for link in self.links for kind, number in link.takes if kind == "y")

    @property
    def multiplies_a(self) -> bool:
        """True if a product over rows takes a."""
        return any(outer.right is None for outer in self.outers)

    @cached_property
    def multiplied(self) -> frozenset[int]:
        """The numbers of values that products over rows take."""
        sides = (side for outer in self.outers for side in (outer.left, outer.right))
        return frozenset(side for side in sides if side is not None)

    @property
    def is_map(self) -> bool:
        return True

    @cached_property
    def in_place(self) -> frozenset[tuple[int, int]]:
        """No pairs: a tile of rows may be read again after a later one has been written."""
        return frozenset()

    @property
    def launch_in_place(self) -> frozenset[tuple[int, int]]:  # type: ignore[override]
        return self.in_place

    def verify(self) -> None:
        """Raise VerifyException, with what was expected, unless the links fit each other and their tensors."""
        if not self.links:
            raise VerifyException("a chain has one link or more, got none")
        a = self.a
        if self.element not in NARROW or a.element not in (self.element, "f32"):
            raise VerifyException(
                f"expected a and b of {' or '.join(NARROW)}, or an a of f32, got {a.element} and {self.element}"
            )
        width = _dense("a", a)[1]
        if (made := self.a_rounded) is not None and (a.element, made.element, made.shape) != (
            "f32",
            self.element,
            a.shape,
        ):
            raise VerifyException(f"expected an a of f32 written in {self.element}, got {a} in {made}")
        for number, link in enumerate(self.links):
            for message in self._faults(number, link, width):
                raise VerifyException(f"link {number}: {message}")
            read = [
                self.xs[at].element if kind == "x" else self.values[at][1].element for kind, at in link.takes
            ]
            given = [made.element for made in link.yields]
            check_read(link.body, ["", *read], given, f"link {number}: value ")
            width = link.n
        for outer in self.outers:
            for message in self._faults_of_outer(outer):
                raise VerifyException(message)

    def _faults_of_outer(self, outer: Outer) -> Iterator[str]:
        shape: list[int] = []
        for side in (outer.left, outer.right):
            if side is None:
                shape.append(self.a.shape[1])
                continue
            if not 0 <= side < len(self.values):
                yield f"a product over rows takes y{side}, which there is not"
                return
            link, made = self.values[side]
            if made.element != self.element:
                yield f"a product over rows takes y{side}, expected {self.element}, got {made.element}"
            shape.append(self.links[link].n)
        if outer.result.shape != tuple(shape) or not outer.result.layout.is_dense:
            yield f"a product over rows: expected a result of {shape}, got {list(outer.result.shape)}"
        if COMPUTE[outer.result.element] != "f32":
            yield f"a product over rows: expected floats of 32 bits or less, got {outer.result.element}"

    def _faults(self, number: int, link: Link, width: int) -> Iterator[str]:
        """The faults of a link that multiplies `width` columns, in order."""
        last = number == len(self.links) - 1
        _dense("b", link.b)
        if link.b.element != self.element:
            yield f"b: expected elements of {self.element} as in link 0, got {link.b.element}"
        if link.k != width:
            yield f"expected a product over {width} columns, got b of {list(link.b.shape)}"
        if not 0 <= link.b_number < self.b_count or self.bs[link.b_number] != link.b:
            yield f"b: there is no such operand b{link.b_number}"
        same = [before.b_number == link.b_number for before in self.links].index(True)
        if link.same_b != same:
            yield f"b{link.b_number}: expected it to be that of link {same} first, got {link.same_b}"
        body = link.body
        body.verify()
        if any(map(is_table, body.args)) or body.dims or body.reduces:
            yield "its body takes no table, asks for no index, and reduces nothing"
        if len(body.args) != 1 + len(link.takes):
            yield f"the body takes {len(body.args)} operands, got the product and {len(link.takes)} others"
        if body.args[0] != "f32":
            yield f"the body takes {body.args[0]}, got an element of the product of f32"
        for place, (type_, take) in enumerate(zip(body.args[1:], link.takes, strict=True), 1):
            yield from self._faults_of_take(number, link, place, type_, take)
        if len(body.results) != len(link.yields):
            yield f"the body gives {len(body.results)} values, got uses of {len(link.yields)}"
        if [made.chained for made in link.yields].count(True) != (0 if last else 1):
            yield f"expected {'no' if last else 'one'} value for the next link"
        for place, (value, made) in enumerate(zip(body.results, link.yields, strict=True)):
            yield from self._faults_of_yield(link, self.first_value(number) + place, body.type(value), made)

    def _faults_of_take(
        self, number: int, link: Link, place: int, type_: str, take: tuple[str, int]
    ) -> Iterator[str]:
        kind, index = take
        count = len(self.xs) if kind == "x" else self.first_value(number)
        if kind not in ("x", "y") or not 0 <= index < count:
            yield f"operand {place} of the body: there is no {kind}{index} before it"
            return
        shape = (self.rows, link.n)
        if kind == "x":
            element, got = self.xs[index].element, self.xs[index].shape
        else:
            owner, made = self.values[index]
            element, got = made.element, (self.rows, self.links[owner].n)
        if got != shape:
            yield f"operand {place} of the body: expected {list(shape)}, got {kind}{index} of {list(got)}"
        if COMPUTE[element] != type_:
            yield f"operand {place}: the body takes {type_}, got elements of {element}"

    def _faults_of_yield(self, link: Link, number: int, type_: str, made: Yield) -> Iterator[str]:
        if COMPUTE[made.element] != type_:
            yield f"y{number}: the body gives {type_}, expected elements of {made.element}"
        if not (made.wide or made.column_sum or made.chained or number in self.taken | self.multiplied):
            yield f"y{number} has no use"
        if made.chained and made.element != self.element:
            yield f"y{number}: expected elements of {self.element} for the next product, got {made.element}"
        if made.wide is not None and (made.wide.shape, made.wide.element) != (
            (self.rows, link.n),
            made.element,
        ):
            yield f"y{number}: expected {made.element}[{self.rows}, {link.n}] where it is written"
        if made.column_sum is not None:
            if made.column_sum.shape != (link.n,) or COMPUTE[made.column_sum.element] != "f32":
                yield f"y{number}: expected a column sum of {link.n} floats, got {made.column_sum}"
            if type_ != "f32":
                yield f"y{number}: a column sum is of f32, got {type_}"


def _dense(name: str, tensor: Tensor) -> tuple[int, ...]:
    """The shape of a matrix without gaps; VerifyException for anything else."""
    if len(tensor.shape) != 2 or not tensor.layout.is_dense:
        raise VerifyException(f"{name}: expected a matrix without gaps, got {tensor}")
    return tensor.shape
