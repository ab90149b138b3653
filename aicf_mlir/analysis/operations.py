"""The number of floating-point operations that defines a launch, for any kernel that runs it.

A sum or product of two numbers, a quotient, an extreme, a root or a transcendental function counts one, a fused multiply-add two,
a product of matrices 2 m n k; comparisons, selections, casts, integers and copies count nothing. For attention only the products
are counted, over the pairs that `causal` leaves: two forward, five backward, where the scores are computed again. The number is
None if neither a body nor a formula defines the results of an op.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

from aicf_mlir.dialects.kernel_formulas import FORMULAS, ROWS
from aicf_mlir.ir.attributes import AttributeValue
from aicf_mlir.ir.body import (
    COLUMN_SUM,
    FLOAT_BINARY,
    FLOAT_UNARY,
    POWER_OF_INTEGER,
    REDUCTIONS,
    Body,
    Line,
    is_float,
)
from aicf_mlir.ir.formula import Scalar, trace
from aicf_mlir.ir.layouts import dense_strides
from aicf_mlir.ir.registry import TensorSpec, schemas
from aicf_mlir.kernels.back_to_back import BackToBackKernel, Link
from aicf_mlir.kernels.horizontal import HorizontalKernel
from aicf_mlir.kernels.kernel import Kernel, Tensor, elements
from aicf_mlir.kernels.segments import SegmentedKernel
from aicf_mlir.optimizers import UPDATES
from aicf_mlir.optimizers.op import GRADIENT, PER_TENSOR

Tensors = Mapping[str, Sequence[TensorSpec]]
"""Operands or results by the names of the schema."""

Attributes = Mapping[str, AttributeValue]


def of_launch(op: str, ins: Tensors, outs: Tensors, attrs: Attributes) -> int | None:
    """The operations of a launch of a registered kernel op; None if the number is unknown."""
    rule = RULES.get(op)
    return None if rule is None else rule(op, ins, outs, attrs)


def of_kernel(kernel: Kernel) -> int:
    """The operations of a generated kernel: the operations of its body at each point where a value of it differs."""
    if isinstance(kernel, SegmentedKernel | HorizontalKernel):
        return sum(of_kernel(part) for part in kernel.parts)
    if isinstance(kernel, BackToBackKernel):
        over_rows = sum(2 * elements(outer.result.shape) for outer in kernel.outers)
        return kernel.rows * (over_rows + sum(_of_link(link) for link in kernel.links))
    body, first = kernel.body, len(kernel.body.args)
    whole, kept, columns = map(elements, (kernel.domain, kernel.kept, kernel.reduced_shape))
    found = 0
    for number, line in enumerate(body.lines, first):
        if line.op in (*REDUCTIONS, COLUMN_SUM):
            points = whole
        elif body.behind_columns[number]:
            points = columns
        else:
            points = whole if kernel.wide[number] else kept
        found += points * weight(line)
    if (product := kernel.product) is not None:
        found += 2 * elements(product.shape) * product.a.shape[-2 if product.trans_a else -1]
    return found


def _of_link(link: Link) -> int:
    """The operations for one row: the product, the body, and the sums."""
    sums = sum(made.column_sum is not None for made in link.yields)
    return link.n * (2 * link.k + _of_body(link.body) + sums)


def weight(line: Line) -> int:
    """The operations of a line of a body, for one point."""
    if line.op == "math.fma":
        return 2
    reduces = line.op in (*REDUCTIONS, COLUMN_SUM) and is_float(line.type)
    return int(reduces or line.op == POWER_OF_INTEGER or line.op in FLOAT_UNARY or line.op in FLOAT_BINARY)


def _of_body(body: Body) -> int:
    return sum(map(weight, body.lines))


def _of_formula(name: str) -> int:
    """The operations for one element of an elementwise kernel op."""
    return _of_body(trace(["f32"] * len(schemas()[name].inputs), FORMULAS[name]))


CONVOLUTIONS = ("convolution", "convolution_input_grad", "convolution_weight_grad")


def _convolution(op: str, ins: Tensors, outs: Tensors, attrs: Attributes) -> int:
    """A product and a sum for each element of y, channel of a group and position; windows count as if they were whole."""
    tensors = {name: shape for part in (ins, outs) for name, given in part.items() for _, shape in given}
    y, w = tensors.get("y") or tensors["dy"], tensors.get("w") or tensors["dw"]
    found = 2 * prod(y) * prod(w) // max(w[0], 1)
    if "bias" in tensors:
        found += prod(y)
    return found + (prod(y) * _of_formula("relu") if attrs.get("act") == "relu" else 0)


def _nothing(op: str, ins: Tensors, outs: Tensors, attrs: Attributes) -> int:
    return 0


def _elementwise(op: str, ins: Tensors, outs: Tensors, attrs: Attributes) -> int:
    ((result,),) = outs.values()
    return prod(result[1]) * _of_formula(op)


def _rows(op: str, ins: Tensors, outs: Tensors, attrs: Attributes) -> int:
    operands = [tensor for tensors in ins.values() for tensor in tensors]
    body = trace(["f32"] * len(operands), ROWS[op])
    shape = operands[0][1]
    tensor = Tensor("f32", shape, dense_strides(shape))
    return of_kernel(Kernel("rowwise", "cpu", body, shape, 1, (tensor,) * len(operands), (tensor,)))


def _product(op: str, ins: Tensors, outs: Tensors, attrs: Attributes) -> int:
    (_, shape), (_, out) = ins["a"][0], outs["out"][0]
    found = 2 * prod(out) * shape[-2 if attrs.get("trans_a") else -1]
    if ins.get("bias"):
        found += prod(out)
    if outs.get("bias_grad"):
        found += prod(shape)
    for name in (attrs.get("act"), attrs.get("act_grad") and f"{attrs['act_grad']}_bwd"):
        if isinstance(name, str) and name in FORMULAS:
            found += prod(out) * _of_formula(name)
    return found


def _each(operand: str, count: int) -> Rule:
    """A rule with this many operations for each element of an operand."""

    def rule(op: str, ins: Tensors, outs: Tensors, attrs: Attributes) -> int:
        return count * sum(prod(shape) for _, shape in ins[operand])

    return rule


def _mean_of_ranks(op: str, ins: Tensors, outs: Tensors, attrs: Attributes) -> int:
    """A sum over the ranks, and a division."""
    ranks = attrs["ranks"]
    assert isinstance(ranks, int)
    return ranks * sum(prod(shape) for _, shape in outs["y"])


def _pairs(ins: Tensors, attrs: Attributes) -> tuple[int, int, int]:
    """Pairs of a query and a key that meet, over batch and heads; elements of a query, and of a value."""
    (*batch, queries, size), (*_, keys, _), (*_, value_size) = (
        ins[name][0][1] for name in ("query", "key", "value")
    )
    met = sum(min(keys, i + 1) for i in range(queries)) if attrs.get("causal") else queries * keys
    return prod(batch) * met, size, value_size


def _attention(op: str, ins: Tensors, outs: Tensors, attrs: Attributes) -> int:
    pairs, size, value_size = _pairs(ins, attrs)
    return 2 * pairs * (size + value_size)


def _attention_grad(op: str, ins: Tensors, outs: Tensors, attrs: Attributes) -> int:
    pairs, size, value_size = _pairs(ins, attrs)
    return 2 * pairs * (3 * size + 2 * value_size)


def _update(op: str, ins: Tensors, outs: Tensors, attrs: Attributes) -> int | None:
    """The rule's own formula, for each element; values that follow from the scalars alone are not counted."""
    rule = UPDATES[op]
    if rule.UPDATED is None or rule.COMBINED is None:
        return None
    results = [name for name, tensors in outs.items() if tensors and ins.get(name)]  # not the copies
    scalars = [name for name, given in ins.items() if given and name not in (*results, GRADIENT)]
    flags = {name: bool(value) for name, value in attrs.items() if name not in PER_TENSOR}
    combine, update, names = rule.COMBINED, rule.UPDATED, list[str]()

    def combined(*values: Scalar) -> list[Scalar]:
        made = combine(**dict(zip(scalars, values, strict=True)), **flags)
        names.extend(made)
        return list(made.values())

    trace(["f64"] * len(scalars), combined)
    taken = (GRADIENT, *results, *names)

    def updated(*values: Scalar) -> list[Scalar]:
        made = update(**dict(zip(taken, values, strict=True)), **flags)
        return [made[name] for name in results]

    each = _of_body(trace(["f32"] * len(taken), updated))
    return each * sum(prod(shape) for _, shape in ins[GRADIENT])


Rule = Callable[[str, Tensors, Tensors, Attributes], "int | None"]

RULES: Mapping[str, Rule] = {
    **dict.fromkeys(FORMULAS, _elementwise),
    **dict.fromkeys(ROWS, _rows),
    **dict.fromkeys(
        (
            *("copy", "multi_tensor_copy", "check_index", "check_finite", "check_ranks", "all_gather"),
            *("all_gather_status", "all_to_all", "argsort", "sort_rows"),
        ),
        _nothing,
    ),
    **dict.fromkeys(("gemm", "gemm_epilogue"), _product),
    **dict.fromkeys(UPDATES, _update),
    "reduce_sum": _each("x", 1),
    **dict.fromkeys(("scatter_add", "scatter_rows"), _each("src", 1)),
    **dict.fromkeys(("all_reduce", "all_reduce_status"), _mean_of_ranks),
    "scan": _each("x", 1),
    "mse_loss": _each("y", 3),  # a difference, a square, a sum
    "mse_grad": _each("y", 2),  # a difference, a product
    **dict.fromkeys(CONVOLUTIONS, _convolution),
    "attention": _attention,
    "attention_grad": _attention_grad,
    "attention_mask_grad": _attention,
}
"""The rules by kernel op. The ops left out, cross entropy and the counters of steps, have no formula in Python."""
