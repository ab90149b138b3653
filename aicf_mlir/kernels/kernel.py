"""A generated kernel before its code: body, domain and operands. Its id, its rules, and the loops that generators share.

Every kernel walks a domain, a box of whole numbers. Every operand has an element for each point of it, with stride 0 if it
repeats; a table is an operand that the body indexes itself. The reduced dimensions are, by kind:

    map      nothing
    multi_tensor_map nothing: a map for each of many segments, with tensors of their own (kernels/segments.py)
    multi_tensor_rowwise all elements of each of many segments
    horizontal the reduced dimensions of each of several kernels that are one launch (kernels/horizontal.py)
    gemm_map nothing: a map, whose first operand is the element of a matrix product that the same launch computes
    rowwise  the last `reduced` dimensions: any number of successive reductions; column sums in addition to them run
             over the others, on values that follow no reduction, or are results (kernels/column_sums.py)
    colwise  the first `reduced` dimensions: any number of successive reductions

A result has the shape of the domain, or of the domain without the reduced dimensions; a value after a column sum has
the shape of the reduced ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from xdsl.utils.exceptions import VerifyException

from aicf_mlir.ir.body import COLUMN_SUM, COMPUTE, REDUCTIONS, Body, is_table, table_type
from aicf_mlir.ir.registry import is_cpu
from aicf_mlir.ir.roundings import check_read, is_read_as
from aicf_mlir.kernels.code import Code, Phase
from aicf_mlir.kernels.identity import kernel_id
from aicf_mlir.kernels.product import Product
from aicf_mlir.kernels.tensor import Tensor

GENERATOR = 38
"""Counts up whenever the code of a kernel may change: ids, the cache and tests/py/support/generated_texts.txt depend on it."""

MAPS = ("map", "gemm_map")
KINDS = (*MAPS, "rowwise", "colwise")

__all__ = ["Axis", "Code", "Kernel", "Phase", "Product", "Tensor", "collapse", "elements"]


@dataclass(frozen=True)
class Kernel:
    """The inputs that determine the code of a kernel, and nothing else."""

    kind: str
    target: str
    """"cpu", or a compute capability such as "sm_90"."""
    body: Body
    domain: tuple[int, ...]
    reduced: int
    operands: tuple[Tensor, ...]
    """The operands in the order of the body's arguments, tables among them. The first one of a gemm_map is not in memory."""
    results: tuple[Tensor, ...]
    product: Product | None = None
    """The product of a gemm_map; its operands come before all others in a launch."""
    ahead: tuple[int, ...] = ()
    """CUDA: the operands of the launch, by number, that are read before the wait for the launch before it."""
    schedule: str = ""
    """The text of kernels/schedule_text.py; "" for what the generator chooses."""

    @cached_property
    def symbol(self) -> str:
        """The name of its functions: the same text, types, layouts and target give the same one on every machine."""
        return kernel_id(self, GENERATOR)

    @property
    def id(self) -> str:
        """The kernel id: the symbol, and the schedule."""
        return f"{self.symbol}[{self.schedule}]" if self.schedule else self.symbol

    @property
    def is_map(self) -> bool:
        """True if every point of the domain is computed by itself."""
        return self.kind in MAPS

    @property
    def launch_tensors(self) -> tuple[int | None, ...]:
        """For each operand and result of its launch, its number in this kernel: all of them, in order."""
        return tuple(range(len(self.operands) + len(self.results)))

    @property
    def kept(self) -> tuple[int, ...]:
        """The domain without the reduced dimensions."""
        rank = len(self.domain)
        return self.domain[self.reduced :] if self.kind == "colwise" else self.domain[: rank - self.reduced]

    @property
    def reduced_shape(self) -> tuple[int, ...]:
        """The reduced dimensions."""
        rank = len(self.domain)
        return self.domain[: self.reduced] if self.kind == "colwise" else self.domain[rank - self.reduced :]

    @property
    def reduced_dims(self) -> range:
        """The positions of the reduced dimensions in the domain."""
        rank = len(self.domain)
        return range(self.reduced) if self.kind == "colwise" else range(rank - self.reduced, rank)

    @property
    def kept_dims(self) -> range:
        """The positions of the other dimensions."""
        rank = len(self.domain)
        return range(self.reduced, rank) if self.kind == "colwise" else range(rank - self.reduced)

    @property
    def goes_on(self) -> bool:
        """True if a colwise kernel computes something for each element after a reduction: it walks down its columns again."""
        stages = self.body.stages
        whole = [stages[value] for n, value in enumerate(self.body.results) if self.is_whole(n)]
        return self.kind == "colwise" and (max(stages, default=0) > 1 or any(whole))

    @cached_property
    def wide(self) -> tuple[bool, ...]:
        """For each value of the body, True if it differs along the reduced dimensions; true for all values of a map."""
        if self.is_map:
            return (True,) * (len(self.body.args) + len(self.body.lines))
        found: list[bool] = []
        for type_, tensor in zip(self.body.args, self.operands, strict=True):
            strides = (
                [s for d in self.reduced_dims if (s := tensor.strides[d]) and self.domain[d] > 1]
                if not is_table(type_)
                else []
            )
            found.append(bool(strides))
        for line in self.body.lines:
            if line.op in REDUCTIONS:
                found.append(False)
            elif line.op == COLUMN_SUM:
                found.append(True)
            elif line.op == "scalar.index":
                found.append(line.attr in self.reduced_dims)
            else:
                found.append(any(found[arg] for arg in line.args))
        return tuple(found)

    def is_whole(self, result: int) -> bool:
        """True if a result has the shape of the domain."""
        return self.is_map or self.results[result].shape == self.domain

    def is_column(self, result: int) -> bool:
        """True if a result has the shape of the reduced dimensions alone."""
        return self.body.behind_columns[self.body.results[result]]

    def holding(self, value: int) -> int | None:
        """The result of the domain's shape that is `value` as it is read again; None if there is none."""
        for number, tensor in enumerate(self.results):
            if self.is_whole(number) and is_read_as(
                self.body, value, self.body.results[number], tensor.element
            ):
                return number
        return None

    def verify(self) -> None:
        """Raise VerifyException, with what was expected, unless body, domain and operands fit each other."""
        body = self.body
        body.verify()
        if self.kind not in KINDS:
            raise VerifyException(f"expected one of {', '.join(KINDS)}, got {self.kind}")
        if not (self.reduced == 0 if self.is_map else 0 < self.reduced <= len(self.domain)):
            raise VerifyException(
                f"a {self.kind} of {len(self.domain)} dimensions cannot reduce {self.reduced}"
            )
        if self.is_map and body.reduces:
            raise VerifyException(f"a {self.kind} has no reductions; use rowwise or colwise")
        self._verify_product()
        if len(body.args) != len(self.operands):
            raise VerifyException(f"the body takes {len(body.args)} operands, got {len(self.operands)}")
        if len(body.results) != len(self.results):
            raise VerifyException(f"the body gives {len(body.results)} results, got {len(self.results)}")
        for number, (type_, tensor) in enumerate(zip(body.args, self.operands, strict=True)):
            if is_table(type_):
                if type_ != (written := table_type(tensor.element, len(tensor.shape))):
                    raise VerifyException(f"operand {number}: the body takes a table {type_}, got {written}")
            elif COMPUTE[tensor.element] != type_:
                raise VerifyException(
                    f"operand {number}: the body takes {type_}, got elements of {tensor.element}"
                )
            elif tensor.shape != self.domain:
                raise VerifyException(
                    f"operand {number}: expected the shape of the domain {list(self.domain)}, got {list(tensor.shape)}"
                )
        for dim in body.dims:
            if dim >= len(self.domain):
                raise VerifyException(f"there is no dimension {dim} in a domain of {len(self.domain)}")
        if any(body.behind_columns):
            self._verify_column_sums()
        for number, (value, tensor) in enumerate(zip(body.results, self.results, strict=True)):
            if COMPUTE[tensor.element] != body.type(value):
                raise VerifyException(
                    f"result {number}: the body gives {body.type(value)}, expected elements of {tensor.element}"
                )
            allowed = (self.domain,) if self.is_map or self.wide[value] else (self.domain, self.kept)
            allowed = (self.reduced_shape,) if self.is_column(number) else allowed
            if tensor.shape not in allowed:
                shapes = " or ".join(str(list(shape)) for shape in dict.fromkeys(allowed))
                raise VerifyException(f"result {number}: expected shape {shapes}, got {list(tensor.shape)}")
        read = (
            ["", *self.elements[1:]] if self.product else self.elements
        )  # sums have more digits than their tensor
        check_read(body, read, [tensor.element for tensor in self.results])

    @property
    def elements(self) -> list[str]:
        """The element types of the operands."""
        return [tensor.element for tensor in self.operands]

    def _verify_product(self) -> None:
        """Check that a gemm_map has a product of its domain, and no other kernel has one."""
        product = self.product
        if (product is None) != (self.kind != "gemm_map"):
            raise VerifyException(f"a {self.kind} {'needs a' if product is None else 'has no'} product")
        if product is not None and not self.body.args:
            raise VerifyException(
                "the body of a gemm_map takes the element of the product first, got no operand"
            )

    def _verify_column_sums(self) -> None:
        """Check that column sums take values that follow no reduction, or are results, and that no sums and no values that differ
        from row to row follow them.
        """
        body = self.body
        if self.kind != "rowwise" or self.reduced == len(self.domain):
            raise VerifyException("column sums are of a rowwise kernel that keeps a dimension; use colwise")
        if all(self.is_column(number) for number in range(len(self.results))):
            raise VerifyException("a rowwise kernel of column sums alone is a colwise one")
        for number, line in enumerate(body.lines):
            first = len(body.args) + number
            behind = [body.behind_columns[arg] for arg in line.args]
            if line.op == COLUMN_SUM and any(behind):
                raise VerifyException("a column sum follows no other column sum")
            if first in body.late_sums and self.holding(line.args[0]) is None:
                raise VerifyException(
                    "a column sum of what follows a reduction takes a result, as it is stored"
                )
            if line.op in REDUCTIONS and any(behind):
                raise VerifyException(f"{line.op} follows a column sum")
        for value in body.beside_columns:
            if body.stages[value] or self._by_row[value]:
                raise VerifyException(f"value {value} behind a column sum differs from row to row")

    @cached_property
    def _by_row(self) -> tuple[bool, ...]:
        """For each value of a rowwise body, True if it may differ along the kept dimensions; false for column sums."""
        kept = range(len(self.kept))
        found = [
            not is_table(type_) and any(tensor.strides[d] and self.domain[d] > 1 for d in kept)
            for type_, tensor in zip(self.body.args, self.operands, strict=True)
        ]
        for line in self.body.lines:
            if line.op == "scalar.index":
                found.append(line.attr in kept)
            else:
                found.append(line.op != COLUMN_SUM and any(found[arg] for arg in line.args))
        return tuple(found)

    @cached_property
    def in_place(self) -> frozenset[tuple[int, int]]:
        """Pairs (result, operand) that may be the very same memory.

        Each point reads its element before it writes it, and nothing reads it later. So a result of the domain's shape in the
        last stage may share memory with an operand of the same layout that nothing after a column sum reads.
        """
        stages, again = self.body.stages, self.body.beside_columns
        last = max(
            (stages[value] for number, value in enumerate(self.body.results) if self.is_whole(number)),
            default=0,
        )
        first = 0 if self.product is None else 1  # the product is not in memory
        found: set[tuple[int, int]] = set()
        for number, (value, result) in enumerate(zip(self.body.results, self.results, strict=True)):
            if not self.is_whole(number) or stages[value] < last:
                continue
            for index, (type_, operand) in enumerate(zip(self.body.args, self.operands, strict=True)):
                same = operand.element == result.element and operand.layout.normal() == result.layout.normal()
                # After the phase that writes whole results, columns read the operands again that do not differ along rows.
                apart = is_table(type_) or index in again or index < first
                if same and not apart and (self.kind != "colwise" or self.wide[index]):
                    found.add((number, index))
        return frozenset(found)

    @cached_property
    def holder(self) -> int | None:
        """The result of a gemm_map in whose memory the CPU computes the product first; None: in the workspace.

        Several results, each of which can take the place of an operand of its own, leave their memory to that.
        """
        replaced = {operand for _, operand in self.in_place}
        if len(self.results) > 1 and len(replaced) >= len(self.results):
            return None
        for number, result in enumerate(self.results):
            if result.element == self.operands[0].element and result.layout.is_dense:
                return number
        return None

    @cached_property
    def launch_in_place(self) -> frozenset[tuple[int, int]]:
        """`in_place`, of the operands of a launch: those of the product come before the body's others."""
        if self.product is None:
            return self.in_place
        holder = self.holder if is_cpu(self.target) else None
        return frozenset((result, operand + 1) for result, operand in self.in_place if result != holder)


@dataclass(frozen=True)
class Axis:
    """Dimensions of the domain that every operand walks as one."""

    dims: tuple[int, ...]
    size: int
    strides: tuple[int, ...]
    """Elements; of each operand and then of each result. 0 for a table, and for a result without the dimension."""
    step: int = 1
    """How far apart its points are in the dimension."""


def collapse(kernel: Kernel, dims: Sequence[int]) -> list[Axis]:
    """The dimensions `dims` of the domain as few axes, outermost first; size 1 is left out.

    Neighbours become one if they follow each other without a gap in every operand and result, and if the body does not use the
    index of one of them.
    """
    axes: list[Axis] = []
    for dim in dims:
        size = kernel.domain[dim]
        if size == 1 and dim not in kernel.body.dims:
            continue
        strides = tuple(strides_along(kernel, dim))
        if axes and not {dim, *axes[-1].dims} & kernel.body.dims:
            before = axes[-1]
            if all(outer == inner * size for outer, inner in zip(before.strides, strides, strict=True)):
                axes[-1] = Axis((*before.dims, dim), before.size * size, strides)
                continue
        axes.append(Axis((dim,), size, strides))
    return axes


def strides_along(kernel: Kernel, dim: int) -> Iterator[int]:
    """The stride of each operand and then of each result along a dimension of the domain, as in `Axis.strides`."""
    for type_, tensor in zip(kernel.body.args, kernel.operands, strict=True):
        yield 0 if is_table(type_) else tensor.strides[dim]
    for number, tensor in enumerate(kernel.results):
        if kernel.is_whole(number):
            yield tensor.strides[dim]
        elif kernel.is_column(number):
            yield tensor.strides[dim - len(kernel.kept)] if dim in kernel.reduced_dims else 0
        elif dim in kernel.reduced_dims:
            yield 0
        else:
            yield tensor.strides[dim - kernel.reduced if kernel.kind == "colwise" else dim]


def elements(shape: Sequence[int]) -> int:
    """The number of points of a box."""
    return prod(shape)
