"""The parts of a chain: the products link by link, each with its epilogue and the sums of its columns; then products over rows.

Each is a kernel of its own, with its own text. A phase of the chain is a phase of a part, which gets the addresses that it takes,
among them places in the workspace for values that are not written. Order and rounding follow from these kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from aicf_mlir.ir.body import Body, Line
from aicf_mlir.ir.element_types import byte_size
from aicf_mlir.ir.layouts import ALIGNMENT, dense_strides
from aicf_mlir.kernels.back_to_back import BackToBackKernel, Link, Outer
from aicf_mlir.kernels.kernel import Kernel, Product, Tensor

SAME = Body(("f32",), (), (0,))
SUM = Body(("f32",), (Line("scalar.sum", (0,), "f32"),), (1,))

ROUNDED, SCRATCH = -1, -2
"""Numbers for two further values: a as it is multiplied, and the scratch memory of the parts."""


@dataclass(frozen=True)
class Address:
    """The address of a tensor: an address of the launch, or an offset in bytes into its workspace."""

    number: int | None
    offset: int = 0


@dataclass(frozen=True)
class PlacedKernel:
    """A kernel, and the addresses of its operands and results; its workspace comes after them."""

    kernel: Kernel
    places: tuple[Address, ...]


@dataclass(frozen=True)
class ChainParts:
    """The parts of a chain, and the addresses of its values."""

    kernel: BackToBackKernel

    def __iter__(self) -> Iterator[PlacedKernel]:
        if self.kernel.a.element != self.kernel.element:
            yield self._rounded()
        a, a_place = self.multiplied
        first = 0
        for link in self.kernel.links:
            yield self._product(link, first, a, a_place)
            for number, made in enumerate(link.yields, first):
                if made.column_sum is not None:
                    yield self._sum(number, made.column_sum)
            if link.chained is not None:
                a, a_place = self.stored(first + link.chained)
            first += len(link.yields)
        for number, outer in enumerate(self.kernel.outers):
            yield self._outer(number, outer)

    @cached_property
    def multiplied(self) -> tuple[Tensor, Address]:
        """The left operand of the first link, rounded."""
        kernel = self.kernel
        if kernel.a.element == kernel.element:
            return kernel.a, Address(0)
        tensor = Tensor(kernel.element, kernel.a.shape, dense_strides(kernel.a.shape))
        if kernel.a_rounded is None:
            return tensor, Address(None, self.offsets[ROUNDED])
        return tensor, Address(len(kernel.operands) + len(kernel.results) - len(kernel.outers) - 1)

    def stored(self, number: int) -> tuple[Tensor, Address]:
        """A value as it is stored in memory."""
        link, made = self.kernel.values[number]
        shape = (self.kernel.rows, self.kernel.links[link].n)
        tensor = Tensor(made.element, shape, dense_strides(shape))
        written, _ = self.kernel.places[number]
        if written is not None:
            return tensor, Address(len(self.kernel.operands) + written)
        return tensor, Address(None, self.offsets[number])

    @cached_property
    def offsets(self) -> dict[int, int]:
        """The offsets of the values that are not written, of a, rounded, and of the workspace of the parts."""
        kernel = self.kernel
        sizes = {
            number: byte_size(made.element, (kernel.rows, kernel.links[link].n))
            for number, (link, made) in enumerate(kernel.values)
            if made.wide is None
        }
        if kernel.a.element != kernel.element and kernel.a_rounded is None:
            sizes[ROUNDED] = byte_size(kernel.element, kernel.a.shape)
        found: dict[int, int] = {}
        end = 0
        for number, size in sizes.items():
            found[number] = end
            end += -(-size // ALIGNMENT) * ALIGNMENT
        return found | {SCRATCH: end}

    def _rounded(self) -> PlacedKernel:
        kernel = self.kernel
        tensor, place = self.multiplied
        made = Kernel("map", kernel.target, SAME, kernel.a.shape, 0, (kernel.a,), (tensor,))
        return PlacedKernel(made, (Address(0), place))

    def _outer(self, number: int, outer: Outer) -> PlacedKernel:
        kernel = self.kernel
        left, left_place = self.stored(outer.left)
        right, right_place = self.multiplied if outer.right is None else self.stored(outer.right)
        shape = outer.result.shape
        made = Kernel(
            "gemm_map",
            kernel.target,
            SAME,
            shape,
            0,
            (Tensor("f32", shape, dense_strides(shape)),),
            (outer.result,),
            Product(left, right, True, False),
        )
        first = len(kernel.operands) + len(kernel.results) - len(kernel.outers)
        return PlacedKernel(made, (left_place, right_place, Address(first + number)))

    def _product(self, link: Link, first: int, a: Tensor, a_place: Address) -> PlacedKernel:
        kernel = self.kernel
        xs = 1 + len(kernel.bs)
        taken = [
            (kernel.xs[number], Address(xs + number)) if kind == "x" else self.stored(number)
            for kind, number in link.takes
        ]
        results = [self.stored(first + number) for number in range(len(link.yields))]
        shape = (kernel.rows, link.n)
        z = Tensor("f32", shape, dense_strides(shape))
        made = Kernel(
            "gemm_map",
            kernel.target,
            link.body,
            shape,
            0,
            (z, *(tensor for tensor, _ in taken)),
            tuple(tensor for tensor, _ in results),
            Product(a, link.b, False, link.trans_b),
        )
        beside = [place for _, place in (*taken, *results)]
        return PlacedKernel(made, (a_place, Address(1 + link.b_number), *beside))

    def _sum(self, number: int, result: Tensor) -> PlacedKernel:
        tensor, place = self.stored(number)
        made = Kernel("colwise", self.kernel.target, SUM, tensor.shape, 1, (tensor,), (result,))
        _, column = self.kernel.places[number]
        assert column is not None
        return PlacedKernel(made, (place, Address(len(self.kernel.operands) + column)))


def chain_workspace(kernel: BackToBackKernel, workspace: Callable[[Kernel], int]) -> int:
    """The bytes for values that are not written, plus the largest workspace that a part needs."""
    parts = ChainParts(kernel)
    return parts.offsets[SCRATCH] + max(workspace(part.kernel) for part in parts)
