"""A sum of products over rows becomes one product over the rows of all: A1ᵀ·B1 + A2ᵀ·B2 = [A1; A2]ᵀ·[B1; B2].

The gradient of a weight that is used several times is such a sum: points of a domain and of its border, derivatives of a network
with respect to its input, the steps of a recurrence. One product fills more of a chip than each of them, and nothing is added
between them. The factors are written where the joined product reads them. Sums of rows, as the gradient of a bias is, are joined
where their rows are.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from aicf_mlir.dialects import nn
from aicf_mlir.ir.locations import fused_location
from aicf_mlir.ir.properties import is_true
from aicf_mlir.ir.tensor_op import element_type, shape_of
from aicf_mlir.passes.target import TargetPass

MOST_BYTES = 8 << 20
"""The most bytes of the factors of a product: a larger one fills a chip, and its factors would be held for longer."""


@dataclass(frozen=True)
class JoinProductsPass(TargetPass):
    """Make one product of those over rows that are added, on a GPU."""

    name = "join-products"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.is_cpu:
            return
        for function in op.walk():
            if isinstance(function, FuncOp) and not function.is_declaration:
                for joined in (join_products, join_sums):
                    for add in reversed(list(function.body.block.ops)):
                        if isinstance(add, nn.AddOp) and add.parent is not None and not is_term(add):
                            joined(add)


def is_term(op: nn.AddOp) -> bool:
    """True if the sum is only a term of another one."""
    use = op.result.get_user_of_unique_use()
    return isinstance(use, nn.AddOp) and shape_of(use.result) == shape_of(op.result)


def terms(add: nn.AddOp) -> Iterator[SSAValue]:
    """The values whose sum it is, in order."""
    for value in add.operands:
        op = value.owner
        if isinstance(op, nn.AddOp) and value.has_one_use() and shape_of(value) == shape_of(add.result):
            yield from terms(op)
        else:
            yield value


def is_product_of_rows(value: SSAValue) -> bool:
    """True for Aᵀ·B of two matrices that ops write, small, and for this sum only."""
    op = value.owner
    if not isinstance(op, nn.MatmulOp) or not value.has_one_use() or len(shape_of(value)) != 2:
        return False
    if not is_true(op.trans_a) or is_true(op.trans_b):
        return False
    count = sum(math.prod(shape_of(factor)) for factor in op.operands)
    return all(is_written(factor) for factor in op.operands) and 4 * count <= MOST_BYTES


def is_written(value: SSAValue) -> bool:
    """True if one launch writes it, which may write it elsewhere: no other place is wanted of it."""
    if not isinstance(value.owner, Operation) or isinstance(value.owner, nn.ConstantOp | nn.ConcatOp):
        return False
    readers = [use.operation for use in value.uses]
    readers += [use.operation for op in readers if isinstance(op, nn.ReshapeOp) for use in op.result.uses]
    return not any(isinstance(op, nn.ConcatOp) for op in readers)


def sum_of_rows(op: object) -> nn.SumOp | None:
    """The op, if it is the sum over the rows of a matrix."""
    if not isinstance(op, nn.SumOp) or list(op.dims.get_values()) != [0]:
        return None
    return op if len(shape_of(op.x)) == 2 and not is_true(op.keepdim) else None


def is_summed(value: SSAValue) -> bool:
    """True if something takes the sum of a matrix's rows."""
    return any(sum_of_rows(use.operation) is not None for use in value.uses)


def join_products(add: nn.AddOp) -> None:
    """Write the products of rows among the terms as one; those whose first factor is summed too come first."""
    groups: dict[tuple[object, bool], list[nn.MatmulOp]] = defaultdict(list)
    rest: list[SSAValue] = []
    for value in terms(add):
        if is_product_of_rows(value):
            op = value.owner
            assert isinstance(op, nn.MatmulOp)
            groups[element_type(op.a), is_true(op.allow_tf32)].append(op)
        else:
            rest.append(value)
    if all(len(group) < 2 for group in groups.values()):
        return
    for (_, allow_tf32), products in groups.items():
        if len(products) < 2:
            rest.append(products[0].result)
            continue
        products.sort(key=lambda op: not is_summed(op.a))
        factors = [nn.ConcatOp([getattr(op, name) for op in products], 0) for name in ("a", "b")]
        product = nn.MatmulOp(*(factor.result for factor in factors), trans_a=True, allow_tf32=allow_tf32)
        put(add, [*factors, product], products)
        rest.insert(0, product.result)
    replace(add, rest)


def join_sums(add: nn.AddOp) -> None:
    """Write the sums of rows among the terms as one, where the rows lie one below the other in a joined factor."""
    sums = [
        op for value in terms(add) if value.has_one_use() and (op := sum_of_rows(value.owner)) is not None
    ]
    rows = [op.x for op in sums]
    if len(rows) < 2:
        return
    for use in rows[0].uses:
        whole = use.operation
        if not isinstance(whole, nn.ConcatOp) or not whole.is_before_in_block(add):
            continue
        parts = list(whole.inputs)
        if whole.dim.value.data == 0 and set(parts[: len(rows)]) == set(rows):
            break
    else:
        return
    made: list[Operation] = []
    value = whole.result
    if len(parts) > len(rows):
        sizes = whole.sizes()
        first = sum(sizes[: len(rows)])
        split = nn.SplitOp(value, 0, [first, sum(sizes) - first])
        made.append(split)
        value = split.parts[0]
    total = nn.SumOp(value, [0])
    put(add, [*made, total], sums)
    replace(add, [total.result, *(value for value in terms(add) if value.owner not in sums)])


def put(place: Operation, made: Sequence[Operation], of: Sequence[Operation]) -> None:
    """Insert ops in front of a place."""
    for op in made:
        op.location = fused_location(*of)
    Rewriter.insert_op(made, InsertPoint.before(place))


def replace(add: nn.AddOp, values: Sequence[SSAValue]) -> None:
    """Replace a sum by that of other terms, and erase those that nothing else reads."""
    total = values[0]
    for value in values[1:]:
        sum_ = nn.AddOp(total, value)
        put(add, [sum_], [add])
        total = sum_.result
    dead = [*add.operands]
    Rewriter.replace_op(add, [], [total])
    while dead:
        op = dead.pop().owner
        if (
            isinstance(op, nn.AddOp | nn.MatmulOp | nn.SumOp)
            and op.parent is not None
            and not any(r.uses for r in op.results)
        ):
            dead += op.operands
            op.detach()
            op.erase()
