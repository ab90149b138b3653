"""Independent launches as one: members of several kinds, each with its part of one body.

The body has the arguments of the first member, then those of the second, and its results alike; the text assigns them to the
members:

    gemm_map(12 -> 3, trans_a), rowwise(2 -> 1, reduced 2), map(8 -> 10)

with the operands and results that each has as a launch of its own, a and b of a product among them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate

from xdsl.utils.exceptions import VerifyException

from aicf_mlir.ir.body import BITS, Body, Line, is_table
from aicf_mlir.ir.formula import Builder
from aicf_mlir.ir.layouts import dense_strides
from aicf_mlir.ir.registry import is_cpu
from aicf_mlir.kernels.kernel import Kernel, Product, Tensor
from aicf_mlir.kernels.segments import MOST_ADDRESSES

FLAGS = ("trans_a", "trans_b", "allow_tf32")
"""The flags of a product."""
KINDS = ("gemm_map", "map", "rowwise", "colwise")

_MEMBER = re.compile(r"(\w+)\((\d+) -> (\d+)((?:, (?:trans_a|trans_b|allow_tf32|reduced \d+))*)\)")


@dataclass(frozen=True)
class Member:
    """One launch among several."""

    kind: str
    operands: int
    """The number of operands of the launch."""
    results: int
    reduced: int = 0
    """Dimensions, as in `Kernel.reduced`."""
    flags: tuple[str, ...] = ()
    """The names in `FLAGS` that are true."""

    @property
    def args(self) -> int:
        """The number of the member's own arguments of the body: for a product its element, and not its factors."""
        return self.operands - (self.kind == "gemm_map")

    def __str__(self) -> str:
        further = [*self.flags, *([f"reduced {self.reduced}"] if self.reduced else [])]
        return f"{self.kind}({', '.join((f'{self.operands} -> {self.results}', *further))})"


def members_of(text: str) -> tuple[Member, ...]:
    """The members that a text names; VerifyException for another text."""
    members: list[Member] = []
    for match in _MEMBER.finditer(text):
        words = match[4].split(", ")[1:]
        reduced = [int(word.removeprefix("reduced ")) for word in words if word.startswith("reduced")]
        flags = tuple(word for word in words if word in FLAGS)
        members.append(Member(match[1], int(match[2]), int(match[3]), sum(reduced), flags))
    if not members or text_of(members) != text or any(member.kind not in KINDS for member in members):
        raise VerifyException(
            f'expected members such as "gemm_map(12 -> 3, trans_a), rowwise(2 -> 1, reduced 2)", got {text!r}'
        )
    return tuple(members)


def text_of(members: Iterable[Member]) -> str:
    """The text that names them."""
    return ", ".join(map(str, members))


def joined(bodies: Sequence[Body]) -> Body:
    """One body with the arguments, the lines and the results of all: lines that two share appear twice, as in each by itself."""
    count = sum(len(body.args) for body in bodies)
    lines, results, first = list[Line](), list[int](), 0
    for body in bodies:
        args, behind = len(body.args), count + len(lines)
        moved = [first + n if n < args else behind + n - args for n in range(args + len(body.lines))]
        lines += [line._replace(args=tuple(moved[arg] for arg in line.args)) for line in body.lines]
        results += [moved[value] for value in body.results]
        first += args
    return Body(tuple(arg for body in bodies for arg in body.args), tuple(lines), tuple(results))


def parted(body: Body, counts: Sequence[tuple[int, int]]) -> list[Body]:
    """The bodies from which `joined` makes this one, by the arguments and results of each; VerifyException if they meet."""
    sums = [sum(column) for column in zip(*counts, strict=True)]
    if sums != [len(body.args), len(body.results)]:
        raise VerifyException(
            f"the members have {sums[0]} arguments and {sums[1]} results, the body {len(body.args)} and {len(body.results)}"
        )
    bodies: list[Body] = []
    arg = result = 0
    for args, results in counts:
        renamed = {value: value - arg for value in range(arg, arg + args)}
        builder = Builder(body.args[arg : arg + args])
        wanted = body.results[result : result + results]
        for value in _closure(body, wanted):
            if value < len(body.args):
                if value not in renamed:
                    raise VerifyException(f"member {len(bodies)} reads argument {value}, which is another's")
                continue
            line = body.lines[value - len(body.args)]
            renamed[value] = builder.line(line.op, [renamed[a] for a in line.args], line.type, line.attr)
        bodies.append(builder.finish(renamed[value] for value in wanted))
        arg, result = arg + args, result + results
    return bodies


def _closure(body: Body, wanted: Sequence[int]) -> list[int]:
    """All values that the wanted ones are computed from, themselves among them, in the body's order."""
    needed, waiting = set[int](), list(wanted)
    while waiting:
        value = waiting.pop()
        if value not in needed:
            needed.add(value)
            if value >= len(body.args):
                waiting += body.lines[value - len(body.args)].args
    return sorted(needed)


@dataclass(frozen=True)
class HorizontalKernel(Kernel):
    """Several kernels as one. Operands are those of the launches, one after the other, so products have two."""

    members: tuple[Member, ...] = ()

    @property
    def firsts(self) -> list[tuple[int, int]]:
        """The first operand and the first result of each member."""
        operands = accumulate((member.operands for member in self.members), initial=0)
        results = accumulate((member.results for member in self.members), initial=0)
        return list(zip(operands, results, strict=True))[:-1]

    @cached_property
    def parts(self) -> tuple[Kernel, ...]:
        """The kernel that each member would be as a launch of its own."""
        for name, tensors in (("operands", self.operands), ("results", self.results)):
            wanted = sum(getattr(member, name) for member in self.members)
            if wanted != len(tensors):
                raise VerifyException(f"the members have {wanted} {name}, got {len(tensors)}")
        bodies = parted(self.body, [(member.args, member.results) for member in self.members])
        return tuple(
            self._part(member, body, operand, result)
            for member, body, (operand, result) in zip(self.members, bodies, self.firsts, strict=True)
        )

    def _part(self, member: Member, body: Body, operand: int, result: int) -> Kernel:
        given = tuple(map(_repeated, self.operands[operand : operand + member.operands]))
        ahead = tuple(n - operand for n in self.ahead if operand <= n < operand + member.operands)
        results = self.results[result : result + member.results]
        if member.kind != "gemm_map":
            if member.reduced and not given:
                raise VerifyException(f"{member}: nothing says what it reduces; use a launch of its own")
            domain = given[0].shape if given else results[0].shape
            return Kernel(member.kind, self.target, body, domain, member.reduced, given, results, ahead=ahead)
        if len(given) < 2:
            raise VerifyException("a product has two operands or more")
        trans_a, trans_b, rounds = (name in member.flags for name in FLAGS)
        product = Product(given[0], given[1], trans_a, trans_b, rounds and not is_cpu(self.target))
        _ = product.layout  # no kernel takes every strides
        z = Tensor(product.element, product.shape, dense_strides(product.shape))
        return Kernel(
            member.kind, self.target, body, product.shape, 0, (z, *given[2:]), results, product, ahead
        )

    def verify(self) -> None:
        if len(self.operands) + len(self.results) > MOST_ADDRESSES:
            raise VerifyException(
                f"one launch takes {MOST_ADDRESSES} tensors at most, got {len(self.operands) + len(self.results)}"
            )
        if any(map(is_table, self.body.args)):
            raise VerifyException("the body of a together takes no table; use a launch of its own")
        for part in self.parts:
            part.verify()

    @cached_property
    def in_place(self) -> frozenset[tuple[int, int]]:
        return frozenset(
            (first_result + result, first + operand)
            for part, (first, first_result) in zip(self.parts, self.firsts, strict=True)
            for result, operand in part.launch_in_place
        )


def _repeated(tensor: Tensor) -> Tensor:
    """An operand. If it is one element its position is dropped, so that members that differ only in it have one code."""
    one = not any(step and size > 1 for step, size in zip(tensor.strides, tensor.shape, strict=True))
    return replace(tensor, alignment=max(1, BITS[tensor.element] // 8)) if one else tensor
