"""Drafts on each of which one rule of fusion applies alone: those of products, losses and loops."""

from __future__ import annotations

from math import prod

from drafts import Draft
from xdsl.dialects.builtin import TensorType
from xdsl.ir import SSAValue

from aicf_mlir.dialects import kernel
from aicf_mlir.dialects.kernel_op import KernelOp, tensor_spec
from aicf_mlir.dialects.nn.statistics import MANY_ROWS
from aicf_mlir.ir.dtypes import ELEMENT_TYPES
from aicf_mlir.ir.formula import Scalar, maximum, row_max, row_min, row_prod, row_sum
from aicf_mlir.ir.layouts import Layout, with_layout
from aicf_mlir.ir.tensor_op import shape_of
from aicf_mlir.passes.fuse.loops.cluster import FEW_ROWS
from aicf_mlir.passes.fuse.narrow_products import narrow_product
from aicf_mlir.passes.fuse.small_updates import is_small_product
from aicf_mlir.passes.fuse.tall_products import parts_of

FLOATS = ("f32", "f64", "bf16", "f16")
POWERS = (1, 2, 4, 8, 16)
"""Sizes by which a mean divides exactly."""
SPARSE = 0.05
"""Of the elements of long products, those that are not 0, where a result must not be rounded to 8 binary digits."""
ROUNDED_ACTIVATIONS = (kernel.GeluOp, kernel.SiluOp, kernel.TanhOp, kernel.SigmoidOp)
ROUNDED_GRADIENTS = (kernel.GeluTanhBwdOp, kernel.SiluBwdOp, kernel.TanhBwdOp, kernel.SigmoidBwdOp)


def losses(draft: Draft) -> None:
    """A squared error or cross entropy, its gradient, or both."""
    element = draft.choice(("f32", "f64"))
    parts = draft.choice((("loss",), ("gradient",), ("loss", "gradient")))
    dloss = (
        draft.constant((), element, draft.choice((1.0, 0.5)))
        if draft.chance(0.5)
        else draft.argument((), element)
    )
    reduction = {"reduction": draft.choice(("mean", "sum"))}
    scalar = TensorType(ELEMENT_TYPES[element], ())
    if draft.chance(0.5):
        draft.is_exact = False
        shape = (draft.size(6), draft.integer(1, 6))
        y = draft.argument(shape, element)
        given = [y, draft.argument(shape[:1], draft.choice(("i64", "i32")), below=shape[1])]
        attrs = reduction | ({"ignore_index": draft.integer(-1, 1)} if draft.chance(0.4) else {})
        kinds: tuple[type[KernelOp], type[KernelOp]] = (kernel.CrossEntropyOp, kernel.CrossEntropyGradOp)
    else:
        shape = tuple(draft.choice(POWERS) for _ in range(draft.integer(1, 3)))
        y = draft.argument(shape, element)
        if len(shape) == 2 and draft.chance(0.5):
            a, b, turned = draft.factors(element, *shape, draft.size(4))
            y = draft.product(a, b, **turned)
        given, attrs = [y, draft.argument(shape, element)], reduction
        kinds = (kernel.MseLossOp, kernel.MseGradOp)
    for part in parts:
        if part == "loss":
            draft.returns(draft.add(kinds[0].launch(given, [scalar], **attrs)))
        else:
            draft.returns(draft.add(kinds[1].launch([dloss, *given], [y.type], **attrs)))


def chains(draft: Draft) -> None:
    """Products of many rows by narrow weights, with maps and sums between them; perhaps backward too."""
    element = draft.choice(("bf16", "f16"))
    rows = 64 * draft.integer(1, 3)
    widths = [16 * draft.integer(1, 4) for _ in range(draft.integer(3, 4))]
    has_bias = draft.chance(0.5)
    if has_bias:
        draft.share = SPARSE  # a bias is added before the sums are rounded
    x = y = draft.argument((rows, widths[0]), element)
    values: list[SSAValue] = []
    for n in widths[1:]:
        turned = draft.chance(0.5)
        w = draft.argument((n, shape_of(y)[1]) if turned else (shape_of(y)[1], n), element)
        y = draft.product(y, w, **({"trans_b": True} if turned else {}))
        if has_bias:
            y = draft.add(kernel.BiasAddOp.launch([y, draft.argument((n,), element)], [y.type]))
        if draft.chance(0.5):
            y = draft.pointwise(kernel.ReluOp, y)
        values.append(y)
    if draft.chance(0.5):
        draft.returns(draft.sum(y, [0]))
    if draft.chance(0.5):
        draft.returns(draft.product(values[0], x, trans_a=True))
    if draft.chance(0.3):
        draft.returns(values[0])
    draft.returns(y)


def narrow_products(draft: Draft) -> None:
    """A product of few rows, columns or terms, too large for the tiles of small results, or a batch."""
    element = draft.choice(FLOATS)
    few, many, long = draft.integer(1, 7), draft.integer(8, 40), draft.integer(1025, 1100)
    batch = (draft.integer(2, 3),) if draft.chance(0.3) else ()
    if has_bias := draft.chance(0.5):
        draft.share = SPARSE
    while True:
        sizes = [draft.choice((few, many)) for _ in range(3)]
        if not batch:
            sizes[draft.integer(0, 2)] = long
        m, n, k = sizes
        a, b, turned = draft.factors(element, m, n, k, *batch)
        y = draft.product(a, b, **turned)
        found = narrow_product(y.owner) if isinstance(y.owner, KernelOp) else None
        if found is not None and not is_small_product(y, draft.target):
            break
        draft.returns(y)
    if has_bias and (found.has_few_terms or found.has_few_columns):
        if draft.chance(0.5):
            y = draft.reshape(y, *((prod(batch) * m, n) if batch else (1, m, n)))
        y = draft.add(kernel.BiasAddOp.launch([y, draft.argument((n,), element)], [y.type]))
    draft.returns(y)


def aligned_products(draft: Draft) -> None:
    """A product on tensor cores with rows of odd lengths; its operands may be joined of parts, or summed."""
    element = draft.choice(("bf16", "f16", "f32"))
    flags = {"allow_tf32": True} if element == "f32" else {}
    if has_bias := draft.chance(0.5):
        draft.share = SPARSE
    batch = (2,) if draft.chance(0.2) else ()
    odd, wide = draft.choice((5, 13, 67)), draft.choice((4096, 4100, 4099))
    wide = wide if odd == 67 else 1 << 16
    turned = {"trans_a": draft.chance(0.5), "trans_b": draft.chance(0.5)}
    small = draft.integer(1, 3)
    m, n, k = (wide, small, odd) if not turned["trans_a"] else (odd, small, wide)
    a, b, attrs = draft.factors(element, m, n, k, *batch, **turned)
    if not batch and draft.chance(0.4):
        a = joined(draft, a)
    y = draft.product(a, b, **attrs, **flags)
    if has_bias:
        y = draft.add(kernel.BiasAddOp.launch([y, draft.argument((n,), element)], [y.type]))
    draft.returns(y)
    if not batch and draft.chance(0.5):
        draft.returns(draft.sum(a, [0]))
    if not batch and draft.chance(0.3):
        other = draft.argument((shape_of(a)[0], small), element)
        draft.returns(draft.product(a, other, trans_a=True, **flags))


def joined(draft: Draft, a: SSAValue) -> SSAValue:
    """A matrix joined of columns of another, or of their negatives."""
    rows, columns = shape_of(a)
    first = 0 if draft.chance(draft.empty) else draft.integer(1, columns - 1)
    parts: list[SSAValue] = []
    for start, count in ((0, first), (first, columns - first)):
        seen = draft.view(a, layout := Layout((rows, count), (columns, 1), start))
        place = with_layout(a.type, layout)  # pyright: ignore
        if draft.chance(0.2):
            parts.append(draft.append(kernel.CopyOp.launch([seen], [place])))
            continue
        copy = draft.add(kernel.CopyOp.launch([seen], [TensorType(a.type.element_type, (rows, count))]))  # pyright: ignore
        moved = draft.pointwise(kernel.NegOp, copy)
        parts.append(draft.append(kernel.CopyOp.launch([moved], [place])))
    return draft.append(kernel.JoinOp.build_op(parts, [a.type]))


def tall_products(draft: Draft) -> None:
    """A long sum with few results, of a number of terms that may leave some over."""
    element = draft.choice(("f32", "f64"))
    m, n, k = draft.size(40), draft.size(40), draft.integer(2048, 2500)
    if draft.chance(0.3):
        k = 2048
    a, b, turned = draft.factors(element, m, n, k)
    y = draft.product(a, b, **turned)
    assert isinstance(y.owner, KernelOp) and (parts_of(y.owner, draft.target) or not m * n)
    draft.returns(y)


def activations(draft: Draft) -> None:
    """A product with a bias, an activation, the gradient of one, or the sum that is a bias's gradient."""
    element = draft.choice(FLOATS)
    m, n, k = (draft.size(9) for _ in range(3))
    kind = draft.choice(("bias", "activation", "both", "gradient", "sum"))
    rounds = draft.chance(0.3)
    if kind == "sum":
        dy, x = draft.argument((k, m), element), draft.argument((k, n), element)
        if draft.chance(0.5):
            dy = draft.pointwise(kernel.NegOp, dy)
        first = draft.chance(0.5)
        made = [draft.sum(dy, [0])] if first else []
        made += [draft.product(dy, x, trans_a=True)]
        made += [] if first else [draft.sum(dy, [0])]
        for value in made:
            draft.returns(value)
        return
    y = product_of(draft, element, m, n, k)
    if draft.chance(0.3):
        y = draft.reshape(y, *draft.choice(((prod(shape_of(y)[:-1]), n), (1, *shape_of(y)))))
    if kind in ("bias", "both"):
        y = draft.add(kernel.BiasAddOp.launch([y, draft.argument((n,), element)], [y.type]))
    if kind in ("activation", "both"):
        if draft.chance(0.4):
            draft.returns(y)
        act = draft.choice(ROUNDED_ACTIVATIONS) if rounds else kernel.ReluOp
        draft.is_exact &= not rounds
        y = draft.pointwise(act, y)
    if kind == "gradient":
        act = draft.choice(ROUNDED_GRADIENTS) if rounds else kernel.ReluBwdOp
        draft.is_exact &= not rounds
        y = draft.pointwise(act, y, draft.argument(shape_of(y), element))
    draft.returns(y)


def product_of(draft: Draft, element: str, m: int, n: int, k: int) -> SSAValue:
    """A product of arguments, or a batch of them."""
    a, b, turned = draft.factors(element, m, n, k, *((draft.size(3),) if draft.chance(0.2) else ()))
    return draft.product(
        a, b, **turned, **({"allow_tf32": True} if element == "f32" and draft.chance(0.3) else {})
    )


def epilogues(draft: Draft) -> None:
    """A product, and maps of its elements; others may read the product as well."""
    element = draft.choice(FLOATS)
    y = product_of(draft, element, *(draft.size(9) for _ in range(3)))
    for number in range(draft.integer(1, 3)):
        if draft.chance(0.3):
            draft.returns(y)
        y = shifted(draft, y) if number and draft.chance(0.3) else mapped(draft, y)
    draft.returns(y)


def shifted(draft: Draft, y: SSAValue) -> SSAValue:
    """A map of elements and of a sum over their last dimension, which is read before the map."""
    element, shape = tensor_spec(y)
    total = draft.sum(y, [len(shape) - 1])
    seen = draft.view(total, Layout(shape, (*Layout.dense(shape[:-1]).strides, 0)))
    return draft.generated(kernel.MapOp, larger, [y, seen], [(element, shape)], shape)[0]


def mapped(draft: Draft, y: SSAValue) -> SSAValue:
    """A map of whole numbers."""
    element, shape = tensor_spec(y)
    match draft.integer(0, 4):
        case 0:
            return draft.pointwise(kernel.NegOp, y)
        case 1:
            return draft.pointwise(
                draft.choice((kernel.AddOp, kernel.SubOp, kernel.MulOp)), y, draft.argument(shape, element)
            )
        case 2:
            return draft.pointwise(kernel.ReluOp, y)
        case 3:
            other = draft.view(
                draft.argument(shape[-1:], element), Layout(shape, (*(0,) * (len(shape) - 1), 1))
            )
            return draft.generated(kernel.MapOp, larger, [y, other], [(element, shape)], shape)[0]
        case _:
            return draft.cast(y, draft.choice([other for other in FLOATS if other != element]))


def larger(x: Scalar, y: Scalar) -> Scalar:
    return maximum(x, y) - 1.0


def loops(draft: Draft) -> None:
    """Maps of maps, and reductions that follow them."""
    element = draft.choice(FLOATS)
    shape = tuple(draft.size(6) for _ in range(draft.integer(2, 3)))
    y = draft.argument(shape, element)
    for _ in range(draft.integer(2, 4)):
        if draft.chance(0.2):
            draft.returns(y)
        y = mapped(draft, y)
    draft.returns(y)
    if draft.chance(0.4):
        dims = draft.choice(([0], [len(shape) - 1], list(range(len(shape)))))
        draft.returns(draft.sum(y, dims))
    if draft.chance(0.3):
        draft.returns(
            draft.generated(kernel.RowwiseOp, centred, [y], [(tensor_spec(y)[0], shape)], shape, reduced=1)[0]
        )


def centred(x: Scalar) -> Scalar:
    return x - row_max(x)


def summed(x: Scalar) -> Scalar:
    return row_sum(x)


def totals(draft: Draft) -> None:
    """The sum of many elements next to sums of their columns."""
    element = draft.choice(("f32", "f64"))
    columns = draft.choice((8, 16, 24))
    rows = -(-(1 << 20) // columns) + draft.integer(0, 3)
    shape = (rows, columns)
    x = draft.argument(shape, element)
    operands = [x, draft.argument(shape, element)] if draft.chance(0.4) else [x]
    scale = draft.choice((1.0, 0.5))

    def total(first: Scalar, *others: Scalar) -> Scalar:
        return row_sum(first * others[0] if others else first * 2.0) * scale

    def sums(*given: Scalar) -> list[Scalar]:
        return [row_sum(value) for value in given]

    made = [
        lambda: draft.generated(kernel.RowwiseOp, total, operands, [(element, ())], shape, reduced=2),
        lambda: draft.generated(
            kernel.ColwiseOp,
            sums,
            operands,
            [(element, shape[1:])] * len(operands),
            shape,
            reduced=1,
        ),
    ]
    for number in draft.rng.permutation(2):
        for value in made[number]():
            draft.returns(value)


def sums_of_results(draft: Draft) -> None:
    """Rows, the sum of the columns of what they give, and a product that reads it too."""
    element = draft.choice(("bf16", "f16", "f32"))
    rows = (
        (draft.integer(4, 8), draft.integer(8, 16))
        if draft.chance(0.5)
        else (FEW_ROWS + draft.integer(0, 40),)
    )
    while prod(rows) < FEW_ROWS:
        rows = (rows[0] + 1, *rows[1:])
    width = draft.choice((64, 96, 128))
    shape = (*rows, width)
    (y,) = draft.generated(
        kernel.RowwiseOp, centred, [draft.argument(shape, element)], [(element, shape)], shape, reduced=1
    )
    flat = draft.reshape(y, prod(rows), width)
    if draft.chance(0.5):
        draft.returns(draft.product(flat, draft.argument((width, draft.integer(1, 4)), element)))
    draft.returns(draft.sum(flat, [0]) if draft.chance(0.5) else draft.sum(y, list(range(len(rows)))))
    if draft.chance(0.3):
        draft.returns(y)


def after_columns(draft: Draft) -> None:
    """Sums of columns, and a map over the same elements that reads them; both may give more, and read more."""
    element, rank = draft.choice(("bf16", "f16", "f32")), draft.integer(1, 2)
    rows = (MANY_ROWS + draft.integer(0, 9),) if rank == 1 else (draft.integer(16, 18), draft.integer(16, 20))
    shape = (*rows, draft.choice((2, 3, 8)))
    x, y = (draft.argument(shape, element) for _ in range(2))

    def sums(a: Scalar, b: Scalar) -> list[Scalar]:
        return [row_sum(a), row_max(a + b), a + b][: 2 + several]

    several = draft.chance(0.5)
    given = [(element, shape[rank:])] * 2 + [(element, shape)] * several
    found = draft.generated(kernel.ColwiseOp, sums, [x, y], given, shape, reduced=rank)
    spread = [draft.view(value, Layout(shape, (*[0] * rank, 1))) for value in found[:2]]
    more = [found[2]] if several and draft.chance(0.5) else [y]

    def after(a: Scalar, total: Scalar, largest: Scalar, b: Scalar) -> Scalar:
        return a + total - largest + b

    (z,) = draft.generated(kernel.MapOp, after, [x, *spread, *more], [(element, shape)], shape)
    draft.returns(z)
    for value in found:
        if draft.chance(0.5):
            draft.returns(value)


def short_rows(draft: Draft) -> None:
    """Many rows of a few elements, which several reductions follow."""
    element = draft.choice(FLOATS)
    rows = (draft.integer(256, 300),) if draft.chance(0.5) else (16, draft.integer(16, 20))
    row = (draft.integer(2, 8),) if draft.chance(0.6) else (draft.integer(1, 2), draft.integer(2, 4))
    shape = (*rows, *row)
    reductions = [draft.choice((row_sum, row_max, row_min, row_prod)) for _ in range(draft.integer(1, 2))]

    def formula(x: Scalar, bias: Scalar) -> list[Scalar]:
        value = x + bias
        made: list[Scalar] = []
        for reduction in reductions:
            made.append(reduction(value))
            value = maximum(value, made[-1])
        return made

    bias = draft.view(
        draft.argument(rows, element), Layout(shape, (*Layout.dense(rows).strides, *(0,) * len(row)))
    )
    operands = [draft.argument(shape, element), bias]
    for value in draft.generated(
        kernel.RowwiseOp, formula, operands, [(element, rows)] * len(reductions), shape, reduced=len(row)
    ):
        draft.returns(value)


def small_batches(draft: Draft) -> None:
    """A batch of small products of f32, and what reads it."""
    batch = (draft.integer(148, 200),) if draft.chance(0.5) else (draft.integer(10, 12), 16)
    m, n, k = (draft.size(9) for _ in range(3))
    a, b, turned = draft.factors("f32", m, n, k, *batch)
    y = draft.product(a, b, **turned)
    draft.returns(draft.pointwise(kernel.ReluOp, y) if draft.chance(0.5) else y)
