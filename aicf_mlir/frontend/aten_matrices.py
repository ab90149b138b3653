"""The rows of `aten_table` for small matrices: factorisations, solutions and determinants, each written column by column.

They consist of ops that have gradients, so that every order follows. A check fails the step where torch raises.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from xdsl.ir import SSAValue

from aicf_mlir.dialects import nn
from aicf_mlir.dialects.nn.pointwise import CLASSES
from aicf_mlir.dialects.nn.reductions import REDUCTIONS
from aicf_mlir.frontend.call import AtenRule, Call, Value
from aicf_mlir.frontend.emitter import Emitter
from aicf_mlir.frontend.refused import Forbidden
from aicf_mlir.ir.tensor_op import shape_of

MOST_ROWS = 32
"""Each column has ops of its own."""


@dataclass(frozen=True)
class Matrices:
    """What is written on batches of matrices [..., rows, columns] of one type."""

    call: Call
    dtype: torch.dtype

    @property
    def emit(self) -> Emitter:
        """Where the ops go."""
        return self.call.emit

    def make(self, name: str, *values: SSAValue) -> SSAValue:
        """A pointwise op, of operands that are broadcast."""
        return self.emit.insert(CLASSES[name](*values))

    def number(self, value: float) -> SSAValue:
        """A number."""
        return self.emit.constant(value, self.dtype)

    def padded(self, x: SSAValue, top: int, left: int, bottom: int = 0, right: int = 0) -> SSAValue:
        """X with zeros around it; negative widths cut."""
        if not (top or left or bottom or right):
            return x
        before = [0] * (len(shape_of(x)) - 2)
        return self.emit.insert(nn.PadOp(x, [*before, top, left], [*before, bottom, right]))

    def cut(self, x: SSAValue, rows: tuple[int, int], columns: tuple[int, int]) -> SSAValue:
        """The rows and columns from a first to before a last."""
        *_, height, width = shape_of(x)
        return self.padded(x, -rows[0], -columns[0], rows[1] - height, columns[1] - width)

    def turned(self, x: SSAValue) -> SSAValue:
        """The transpose."""
        rank = len(shape_of(x))
        return self.emit.transpose(x, [*range(rank - 2), rank - 1, rank - 2])

    def flipped(self, x: SSAValue, *dims: int) -> SSAValue:
        """The reverse order along some of the last two dimensions."""
        return self.emit.insert(nn.FlipOp(x, [d + len(shape_of(x)) for d in dims]))

    def joined(self, parts: Sequence[SSAValue], dim: int) -> SSAValue:
        """Parts one after the other along one of the last two dimensions, of one batch."""
        batch = np.broadcast_shapes(*(shape_of(part)[:-2] for part in parts))
        whole = [self.emit.broadcast(part, [*batch, *shape_of(part)[-2:]]) for part in parts]
        return whole[0] if len(whole) == 1 else self.emit.insert(nn.ConcatOp(whole, dim + len(batch) + 2))

    def lower(self, x: SSAValue) -> SSAValue:
        """The symmetric matrix of the lower triangle; its gradient is symmetric, as in torch."""
        half = self.make("mul", self.make("add", x, self.turned(x)), self.number(0.5))
        size = shape_of(x)[-1]
        below = self.call.materialize(torch.ones(size, size, dtype=torch.bool, device="cpu").tril())
        held, even = self.emit.insert(nn.DetachOp(x)), self.emit.insert(nn.DetachOp(half))
        lower = self.make("where", below, held, self.turned(held))
        return self.make("add", half, self.make("sub", lower, even))

    def cholesky(self, x: SSAValue) -> tuple[SSAValue, SSAValue]:
        """The lower factor of symmetric matrices, and the pivots [..., 1, n] that are above 0 if they are positive definite."""
        size, rest = shape_of(x)[-1], x
        columns, pivots = list[SSAValue](), list[SSAValue]()
        for j in range(size):
            pivots.append(self.cut(rest, (0, 1), (0, 1)))
            column = self.cut(rest, (0, size - j), (0, 1))
            column = self.make("div", column, self.make("sqrt", pivots[-1]))
            columns.append(self.padded(column, j, 0))
            if j < size - 1:
                below = self.cut(column, (1, size - j), (0, 1))
                product = self.make("mul", below, self.turned(below))
                rest = self.make("sub", self.cut(rest, (1, size - j), (1, size - j)), product)
        return self.joined(columns, -1), self.joined(pivots, -1)

    def solved(
        self, t: SSAValue, b: SSAValue, *, upper: bool, left: bool = True, unit: bool = False
    ) -> SSAValue:
        """The solution of t x = b, or with `left` False of x t = b, for a triangle t."""
        if not left:
            solution = self.solved(self.turned(t), self.turned(b), upper=not upper, unit=unit)
            return self.turned(solution)
        if upper:
            flipped = self.solved(self.flipped(t, -2, -1), self.flipped(b, -2), upper=False, unit=unit)
            return self.flipped(flipped, -2)
        size, width, rest = shape_of(t)[-1], shape_of(b)[-1], b
        found = list[SSAValue]()
        for j in range(size):
            row = self.cut(rest, (0, 1), (0, width))
            row = row if unit else self.make("div", row, self.cut(t, (j, j + 1), (j, j + 1)))
            found.append(row)
            if j < size - 1:
                product = self.make("mul", self.cut(t, (j + 1, size), (j, j + 1)), row)
                rest = self.make("sub", self.cut(rest, (1, size - j), (0, width)), product)
        return self.joined(found, -2)

    def eliminated(self, x: SSAValue) -> tuple[SSAValue, SSAValue, SSAValue]:
        """The rows of square matrices, and of columns beside them, after an elimination with partial pivoting; the pivots
        [..., 1, n]; and the sign [..., 1, 1] of the order of the rows.
        """
        (size, width), rest = shape_of(x)[-2:], x
        rows, pivots = list[SSAValue](), list[SSAValue]()
        order = self.number(1.0)
        for j in range(size):
            if j < size - 1:
                rest, sign = self.pivoted(rest)
                order = self.make("mul", order, sign)
            row = self.cut(rest, (0, 1), (0, width - j))
            rows.append(self.padded(row, 0, j))
            pivots.append(self.cut(row, (0, 1), (0, 1)))
            if j < size - 1:
                divisor = self.make(
                    "where", self.make("eq", pivots[-1], self.number(0.0)), self.number(1.0), pivots[-1]
                )
                share = self.make("div", self.cut(rest, (1, size - j), (0, 1)), divisor)
                product = self.make("mul", share, self.cut(row, (0, 1), (1, width - j)))
                rest = self.make("sub", self.cut(rest, (1, size - j), (1, width - j)), product)
        batch = shape_of(x)[:-2]
        return self.joined(rows, -2), self.joined(pivots, -1), self.emit.broadcast(order, [*batch, 1, 1])

    def pivoted(self, x: SSAValue) -> tuple[SSAValue, SSAValue]:
        """The first row in exchange for that whose first element is largest; and -1 if it is another one, else 1."""
        height = shape_of(x)[-2]
        sizes = self.make("abs", self.emit.insert(nn.DetachOp(self.cut(x, (0, height), (0, 1)))))
        place = self.emit.insert(REDUCTIONS["argmax"](sizes, [len(shape_of(x)) - 2], True))
        own = self.call.materialize(torch.arange(height, device="cpu")[:, None])
        zero = self.emit.constant(0, torch.int64)
        index = self.make("where", self.make("eq", own, zero), place, own)
        index = self.make("where", self.make("eq", own, place), zero, index)
        index = self.emit.broadcast(index, shape_of(x))
        moved = self.emit.insert(nn.GatherOp(x, index, len(shape_of(x)) - 2))
        sign = self.make("where", self.make("eq", place, zero), self.number(1.0), self.number(-1.0))
        return moved, sign

    def solution(self, a: SSAValue, b: SSAValue) -> tuple[SSAValue, SSAValue]:
        """The solution of a x = b, and the pivots."""
        size, width = shape_of(a)[-1], shape_of(b)[-1]
        rows, pivots, _ = self.eliminated(self.joined([a, b], -1))
        upper, right = self.cut(rows, (0, size), (0, size)), self.cut(rows, (0, size), (size, size + width))
        return self.solved(upper, right, upper=True), pivots

    def determined(self, x: SSAValue) -> tuple[SSAValue, SSAValue]:
        """The sign of the order of rows and the pivots after an elimination, as [..., 1] and [..., n]."""
        _, pivots, order = self.eliminated(x)
        *batch, size, _ = shape_of(x)
        return self.emit.reshape(order, [*batch, 1]), self.emit.reshape(pivots, [*batch, size])

    def unit(self, size: int) -> SSAValue:
        """The identity."""
        return self.call.materialize(torch.eye(size, dtype=self.dtype, device="cpu"))

    def failures(self, refused: SSAValue) -> SSAValue:
        """For each matrix the place, from 1 on, of its first pivot [..., 1, n] that is refused, or 0."""
        size, batch = shape_of(refused)[-1], shape_of(refused)[:-2]
        place = self.call.materialize(torch.arange(1, size + 1, device="cpu"))
        none = self.emit.constant(size + 1, torch.int64)
        first = self.emit.insert(REDUCTIONS["amin"](self.make("where", refused, place, none), [-1], True))
        first = self.make("where", self.make("eq", first, none), self.emit.constant(0, torch.int64), first)
        return self.emit.cast(self.emit.reshape(first, batch), torch.int32)


def matrices(call: Call, *names: str) -> tuple[Matrices, list[SSAValue]]:
    """Arguments that are square matrices, but for the others."""
    values = [call.value(name) for name in names]
    size = shape_of(values[0])[-1]
    if size > MOST_ROWS:
        raise Forbidden(f"a matrix of {size} rows; supported are at most {MOST_ROWS}")
    if not math.prod(shape_of(values[0])):
        raise Forbidden("an empty matrix")
    dtype = (call.expected[0] if type(call.expected) in (tuple, list) else call.expected).dtype
    if dtype not in (torch.float32, torch.float64):
        raise Forbidden(f"matrices of {call.named(dtype)}")
    return Matrices(call, dtype), values


def checked(call: Call, pivots: SSAValue, rule: str, of: str) -> None:
    """Fail the step at a pivot that the rule refuses."""
    call.emit.check_value(call.emit.insert(nn.DetachOp(pivots)), rule, of)


def cholesky(with_info: bool) -> AtenRule:
    """Return the rule for the triangular factor of positive-definite matrices."""

    def row(call: Call) -> Value:
        m, (x,) = matrices(call, "self")
        symmetric = m.lower(m.turned(x) if call["upper"] else x)
        factor, pivots = m.cholesky(symmetric)
        factor = m.turned(factor) if call["upper"] else factor
        if not with_info or call["check_errors"]:
            checked(call, pivots, "positive pivot", "torch.linalg.cholesky")
        if not with_info:
            return factor
        held = call.emit.insert(nn.DetachOp(pivots))
        return factor, m.failures(m.make("bitwise_not", m.make("gt", held, m.number(0.0))))

    return row


def solve_triangular(call: Call) -> SSAValue:
    """The solution for a triangle, of which the other one is not read."""
    m, (t, b) = matrices(call, "self", "B")
    return m.solved(t, b, upper=call["upper"], left=call["left"], unit=call["unitriangular"])


def cholesky_solve(call: Call) -> SSAValue:
    """The solution for a matrix of which the factor is given."""
    m, (t, b) = matrices(call, "input2", "self")
    lower = m.turned(t) if call["upper"] else t
    return m.solved(m.turned(lower), m.solved(lower, b, upper=False), upper=True)


def cholesky_inverse(call: Call) -> SSAValue:
    """The inverse of a matrix of which the factor is given."""
    m, (t,) = matrices(call, "self")
    lower = m.turned(t) if call["upper"] else t
    inverse = m.solved(lower, m.unit(shape_of(t)[-1]), upper=False)
    return call.emit.insert(nn.MatmulOp(m.turned(inverse), inverse))


def inverse(name: str, with_info: bool) -> AtenRule:
    """Return the rule for inverses."""

    def row(call: Call) -> Value:
        m, (x,) = matrices(call, name)
        found, pivots = m.solution(x, m.unit(shape_of(x)[-1]))
        return of_solution(m, found, pivots, "torch.linalg.inv", with_info)

    return row


def of_solution(m: Matrices, found: SSAValue, pivots: SSAValue, of: str, with_info: bool) -> Value:
    """A solution, whose matrix is checked; or with the place of a pivot that is 0."""
    if not with_info or m.call["check_errors"]:
        checked(m.call, pivots, "pivot", of)
    if not with_info:
        return found
    return found, m.failures(m.make("eq", m.emit.insert(nn.DetachOp(pivots)), m.number(0.0)))


def solve(with_info: bool) -> AtenRule:
    """Return the rule for solutions of a x = b, or of x a = b."""

    def row(call: Call) -> Value:
        m, (a, b) = matrices(call, "A", "B")
        is_vector = len(shape_of(b)) == 1 or shape_of(b) == shape_of(a)[:-1]
        right = call.emit.reshape(b, [*shape_of(b), 1]) if is_vector else b
        left = call["left"] or is_vector
        found, pivots = m.solution(a, right) if left else m.solution(m.turned(a), m.turned(right))
        found = found if left else m.turned(found)
        found = call.emit.reshape(found, shape_of(found)[:-1]) if is_vector else found
        return of_solution(m, found, pivots, "torch.linalg.solve", with_info)

    return row


def before(row: AtenRule, places: Sequence[int | None]) -> AtenRule:
    """Return the rule for an op that returns factors, too, which only torch's gradients read."""

    def whole(call: Call) -> Value:
        made = row(call)
        found = made if isinstance(made, tuple) else (made,)
        return tuple(None if place is None else found[place] for place in places)

    return whole


def determinant(of: Callable[[Matrices, SSAValue, SSAValue], Value], name: str, title: str) -> AtenRule:
    """Return the rule for what is made of the sign of an order of rows and of the pivots."""

    def row(call: Call) -> Value:
        m, (x,) = matrices(call, name)
        order, pivots = m.determined(x)
        if call.carries_gradient:
            checked(call, pivots, "pivot", title)
        return of(m, order, pivots)

    return row


def along(m: Matrices, op: type, x: SSAValue) -> SSAValue:
    """A reduction of the last dimension."""
    return m.emit.insert(op(x, [len(shape_of(x)) - 1]))


def det(m: Matrices, order: SSAValue, pivots: SSAValue) -> SSAValue:
    """The product of the pivots."""
    return m.make("mul", along(m, REDUCTIONS["prod"], pivots), along(m, nn.SumOp, order))


def slogdet(m: Matrices, order: SSAValue, pivots: SSAValue) -> tuple[SSAValue, SSAValue]:
    """The sign, and the log of the size."""
    held = m.emit.insert(nn.DetachOp(pivots))
    signs = m.make("mul", along(m, REDUCTIONS["prod"], m.make("sign", held)), along(m, nn.SumOp, order))
    return signs, along(m, nn.SumOp, m.make("log", m.make("abs", pivots)))


def logdet(m: Matrices, order: SSAValue, pivots: SSAValue) -> SSAValue:
    """The log of a determinant: NaN if that is negative."""
    sign, size = slogdet(m, order, pivots)
    return m.make("add", size, m.make("log", sign))
