"""Drafts on each of which one rule of fusion applies alone: those of updates, of launches that are alike, and of indices."""

from __future__ import annotations

from collections.abc import Sequence

from drafts import Draft
from xdsl.dialects.builtin import TensorType
from xdsl.ir import SSAValue

from aicf_mlir.dialects import kernel
from aicf_mlir.dialects.kernel_op import tensor_spec
from aicf_mlir.ir.attributes import Symbol
from aicf_mlir.ir.dtypes import ELEMENT_TYPES
from aicf_mlir.ir.formula import Scalar, maximum, row_sum, trace
from aicf_mlir.ir.layouts import Layout
from aicf_mlir.ir.tensor_op import element_type, shape_of

NARROW = ("bf16", "f16")
FLOATS = ("f32", "f64", "bf16", "f16")
RATES = (0.25, 0.5, 1.0)
"""Powers of two: what is multiplied by them keeps all its digits."""


def step_counter(draft: Draft, count: int, corrected: bool) -> tuple[SSAValue, list[SSAValue]]:
    """The counters after this step, and the inverse bias corrections of it, of `count` parameters."""
    step = draft.argument((count,), "f32", "state", value=float(draft.integer(0, 3)))
    names = ("beta1", "beta2", "bc1_pin", "bc2_pin") if corrected else ()
    given = {name: draft.scalar(value) for name, value in zip(names, (0.5, 0.75, 2.0, 4.0), strict=False)}
    made = ["bc1_inv", "bc2_inv"] if corrected else []
    types = {"step": [step.type], **{name: [TensorType(ELEMENT_TYPES["f64"], (count,))] for name in made}}
    op = kernel.AdvanceOp.launch({"step": step, **given}, types)
    draft.add(op)
    draft.updates(step, op.results[0])
    return op.results[0], list(op.results[1:])


class Optimizer:
    """An optimizer of one kind and one group, with an update for each parameter."""

    def __init__(self, draft: Draft, count: int, kind: str = ""):
        self.draft = draft
        self.kind = kind or draft.choice(("sgd", "sgd", "momentum", "momentum", "adam"))
        self.flags = {name: True for name in ("maximize",) if draft.chance(0.2)}
        self.scalars = {name: draft.scalar(draft.choice(RATES)) for name in ("lr", "weight_decay")}
        self.index = 0
        if self.kind == "momentum":
            if draft.chance(0.3):
                self.flags["nesterov"] = True
            self.scalars |= {name: draft.scalar(draft.choice(RATES)) for name in ("momentum", "dampening")}
            self.scalars["step"] = step_counter(draft, count, corrected=False)[0]
        elif self.kind == "adam":
            draft.is_exact = False
            if draft.chance(0.5):
                self.flags["decoupled"] = True
            given = {"beta1": 0.5, "beta2": 0.75, "eps": 0.125}
            self.scalars |= {name: draft.scalar(value) for name, value in given.items()}
            corrections = step_counter(draft, count, corrected=True)[1]
            self.scalars |= zip(("bc1_inv", "bc2_inv"), corrections, strict=True)

    def update(self, p: SSAValue, g: SSAValue) -> None:
        """Update a parameter, and its states, by a gradient."""
        states = {"sgd": (), "momentum": ("buf",), "adam": ("m", "v")}[self.kind]
        given = {name: self.draft.argument(shape_of(p), "f32", "state") for name in states}
        if "v" in given:
            squares = self.draft.values["state", self.draft.name_of(given["v"]).name]
            squares *= squares
        tensors = {"p": p, **given}
        operands = {"p": p, "g": g, **given, **self.scalars}
        attrs = {} if self.kind == "sgd" else {"indices": [self.index]}
        op = (kernel.AdamStepOp if self.kind == "adam" else kernel.SgdStepOp).launch(
            operands,
            {name: [value.type] for name, value in tensors.items()},
            groups=[0],
            **attrs,
            **self.flags,
        )
        self.index += 1
        self.draft.add(op)
        for value, result in zip(tensors.values(), op.results, strict=True):
            self.draft.updates(value, result)


def gradients(draft: Draft) -> None:
    """Casts of gradients in 16 bits, also before a reshape; some are read elsewhere too."""
    count = draft.integer(1, 3)
    optimizer = Optimizer(draft, count)
    for number in range(count):
        m, n = draft.size(6), draft.size(6)
        narrow = draft.choice(NARROW)
        match draft.choice(("argument", "product", "sum")):
            case "argument":
                given = draft.argument((m, n), narrow)
            case "product":
                a, b, turned = draft.factors(narrow, m, n, draft.size(9))
                given = draft.product(a, b, **turned)
            case _:
                given = draft.sum(draft.argument((draft.integer(2, 9), m, n), narrow), [0])
        wide = draft.cast(given, "f32")
        if number and draft.chance(0.3):
            draft.returns(wide)
        shape = shape_of(wide)
        wide = draft.reshape(wide, *draft.choice((shape, (m * n,), (n, m))))
        optimizer.update(draft.argument(shape_of(wide), "f32", "param"), wide)


def updates(draft: Draft) -> None:
    """On a CPU updates of large weights by products; on a GPU those of a small step."""
    if draft.is_cpu:
        optimizer = Optimizer(draft, count := draft.integer(1, 2), draft.choice(("momentum", "adam")))
        sizes = [
            (*draft.choice(((512, 256), (256, 512), (1024, 130))), draft.integer(1, 5)) for _ in range(count)
        ]
    else:
        optimizer = Optimizer(draft, 2 * (count := draft.integer(1, 3)))
        sizes = [(draft.size(40), draft.size(40), draft.size(20)) for _ in range(count)]
    for number, (m, n, k) in enumerate(sizes):
        a, b, turned = draft.factors("f32", m, n, k)
        product = draft.product(a, b, **turned)
        if not draft.is_cpu and draft.chance(0.4):
            bias = draft.sum(draft.argument((k, m)), [0])
            optimizer.update(draft.argument((m,), "f32", "param"), bias)
        is_flat = draft.is_cpu and number and draft.chance(0.3)
        shape = (m * n,) if is_flat else (m, n)
        optimizer.update(draft.argument(shape, "f32", "param"), draft.reshape(product, *shape))


def horizontal(draft: Draft) -> None:
    """A small step of several products, with what leads to them."""
    optimizer = Optimizer(draft, 4)
    x = draft.argument((k := draft.integer(2, 16), draft.integer(2, 24)))
    for _ in range(draft.integer(2, 3)):
        m = draft.integer(2, 24)
        dy = draft.argument((k, m))
        if draft.chance(0.5):
            dy = draft.pointwise(kernel.ReluBwdOp, dy, draft.argument((k, m)))
        p = draft.argument((m, shape_of(x)[1]), "f32", "param")
        optimizer.update(p, draft.product(dy, x, trans_a=True))
        if draft.chance(0.5):
            draft.returns(draft.product(dy, p))


def optimizer(draft: Draft) -> None:
    """Updates of one kind, and perhaps of another."""
    for count in [draft.integer(2, 4), *([draft.integer(1, 2)] if draft.chance(0.3) else [])]:
        made = Optimizer(draft, count)
        for _ in range(count):
            shape = [draft.size(5) for _ in range(draft.integer(1, 3))]
            p, g = draft.argument(shape, "f32", "param"), draft.argument(shape)
            made.update(p, draft.pointwise(kernel.NegOp, g) if draft.chance(0.5) else g)


def checks(draft: Draft) -> None:
    """Checks with codes that follow each other; an index may be one that no class has. A function has one status."""
    if any(label.role == "status" for label in draft.labels):
        return
    status = given = draft.argument((3,), "i64", "status", value=0)
    for code in range(1, draft.integer(2, 5) + 1):
        shape = [draft.size(4) for _ in range(draft.integer(1, 2))]
        classes = draft.integer(2, 5)
        index = draft.argument(shape, draft.choice(("i64", "i32")), below=classes + draft.chance(0.2))
        ignored = {"ignore_index": [draft.integer(-1, 2)]} if draft.chance(0.5) else {}
        op = kernel.CheckIndexOp.launch(
            {"status": status, "target": index},
            {"status": status.type},
            classes=[classes],
            code=code,
            **ignored,
        )
        status = draft.add(op)
    draft.results.append((status, draft.name_of(given)))


def arguments(draft: Draft) -> None:
    """Casts of arguments by which products multiply, in two groups of types or one."""
    for narrow in draft.rng.permutation(NARROW)[: draft.integer(1, 2)]:
        y: SSAValue | None = None
        n = draft.integer(1, 3) * 2
        for _ in range(draft.integer(2, 4)):
            w = draft.cast(draft.argument((n, n), "f32", draft.choice(("param", "input"))), str(narrow))
            y = w if y is None else draft.product(y, w)
        assert y is not None
        draft.returns(y)


def segments(draft: Draft) -> None:
    """Maps of one body that lead to updates and outputs only, or sums of whole tensors."""
    element = draft.choice(("f32", "f64"))
    sums = draft.chance(0.3)
    rate = draft.argument((1,), element)
    for _ in range(draft.integer(2, 5)):
        shape = [draft.size(6) for _ in range(draft.integer(1, 3))]
        p, g = (draft.argument(shape, element, role) for role in ("param", "input"))
        if sums:
            (total,) = draft.generated(
                kernel.RowwiseOp, squared_sum, [g], [(element, ())], shape, reduced=len(shape)
            )
            draft.returns(total)
            continue
        seen = draft.view(rate, Layout(tuple(shape), (0,) * len(shape)))
        (new,) = draft.generated(kernel.MapOp, descended, [p, g, seen], [(element, shape)], shape)
        draft.updates(p, new)


def squared_sum(x: Scalar) -> Scalar:
    return row_sum(x * x)


def descended(p: Scalar, g: Scalar, rate: Scalar) -> Scalar:
    return p - rate * maximum(g, -1.0)


def placed_updates(draft: Draft) -> None:
    """Products with an update in the epilogue, after launches that need not come before them."""
    element = draft.choice(("f32", "f64"))

    def subtracted(z: Scalar, w: Scalar) -> Scalar:
        return w - 0.5 * z

    k = draft.integer(1, 4)
    last = draft.argument((k, draft.integer(1, 4)), element)
    made: list[tuple[SSAValue, SSAValue, SSAValue]] = []
    for _ in range(draft.integer(1, 3)):
        w = draft.argument((shape_of(last)[1], draft.integer(1, 4)), element, "param")
        made.append((w, last, draft.argument((k, shape_of(w)[1]), element)))
        last = draft.product(last, w)
    draft.returns(draft.pointwise(kernel.ReluOp, last))
    between = draft.argument((2,), element)
    draft.returns(draft.append(kernel.NegOp.launch([between], [between.type])))
    body = Symbol(draft.bodies.symbol(trace([element] * 2, subtracted), "step"))
    for w, x, dy in made:
        seen = w
        if draft.chance(0.3):
            seen = draft.reshape(draft.reshape(w, shape_of(w)[0] * shape_of(w)[1]), *shape_of(w))
        op = kernel.GemmMapOp.launch(
            {"a": x, "b": dy, "x": [seen], "table": []}, {"y": [w.type]}, body=body, trans_a=True
        )
        draft.updates(w, draft.append(op))


def take(index: Scalar, table: Scalar) -> Scalar:
    return table.load(index, index.builder.index(1))


def rows_at(draft: Draft, table: SSAValue, at: SSAValue) -> SSAValue:
    """The rows of a table that an index names, or of a column of indices."""
    element, (_, width) = tensor_spec(table)
    count, *columns = shape_of(at)
    shape = (count, width)
    offset = draft.integer(0, columns[0] - 1) if columns else 0
    seen = draft.view(at, Layout(shape, (columns[0] if columns else 1, 0), offset))
    body = trace(["i64", f"?x?x{element}"], take)
    op = kernel.MapOp.launch(
        {"x": [seen], "table": [table]},
        {"y": [TensorType(element_type(table), shape)]},
        body=Symbol(draft.bodies.symbol(body, "take")),
        shape=list(shape),
    )
    return draft.add(op)


def added(draft: Draft, to: SSAValue, index: SSAValue, rows: SSAValue) -> SSAValue:
    return draft.add(kernel.ScatterAddOp.launch({"x": to, "index": index, "src": rows}, {"x": to.type}))


def lookups(draft: Draft) -> None:
    """Sums over the edges of a graph, also several over the same ones."""
    edges = draft.size(20) if draft.is_cpu else draft.integer(4097, 4500)
    nodes, targets = draft.integer(2, 9), draft.integer(2, 9)
    element = draft.choice(("f32", "f64"))
    at = draft.argument(draft.choice(((edges,), (edges, 2))), "i64", below=nodes)
    index = draft.argument((edges,), "i64", below=targets)
    for number in range(draft.integer(1, 3)):
        width = draft.size(4)
        to = draft.argument((targets, width), element)
        if number and draft.chance(0.3):
            rows = draft.argument((edges, width), element)
        else:
            rows = rows_at(draft, draft.argument((nodes, width), element), at)
        if number and draft.chance(0.3):
            draft.returns(draft.pointwise(kernel.NegOp, rows))
        draft.returns(added(draft, to, index, rows))


def scatters(draft: Draft) -> None:
    """Sums by an index, some of sums before them."""
    element = draft.choice(FLOATS)
    last: SSAValue | None = None
    for number in range(draft.integer(2, 5)):
        count = draft.size(12)
        shape = (draft.integer(1, 6), draft.size(4))
        index = draft.argument((count,), "i64", below=shape[0])
        to = draft.argument(shape, element)
        if number > 1 and last is not None and draft.chance(0.3):
            to, index = last, draft.argument((count,), "i64", below=shape_of(last)[0])
        last = added(draft, to, index, draft.argument((count, shape_of(to)[1]), element))
        shapes: Sequence[Sequence[int]] = (shape_of(last), (shape_of(last)[0] * shape_of(last)[1],))
        draft.returns(draft.reshape(last, *draft.choice(shapes)))
