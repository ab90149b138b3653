"""Random functions of one kernel.back_to_back: widths, shared weights, what links take, and what becomes of their values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from aicf_mlir.dialects import kernel
from aicf_mlir.dialects.scalar import Bodies
from aicf_mlir.ir.attributes import Symbol
from aicf_mlir.ir.dtypes import ELEMENT_TYPES
from aicf_mlir.ir.formula import Scalar, exp, maximum, select, tanh, trace
from aicf_mlir.ir.layouts import Layout, with_layout
from aicf_mlir.ir.links import ROUNDED_A, LinkText, OuterText, ValueUses
from aicf_mlir.ir.roundings import written

RAGGED = (1, 3, 16, 17, 40)
TILED = (16, 32, 48, 128)
"""Widths that a GPU takes."""
ROWS = (1, 63, 64, 130, 200)


Result = tuple[str, tuple[int, ...]]
"""Element type and shape."""


@dataclass
class Drawn:
    """What has been drawn so far; a type for each argument and each result, and for each x how it repeats."""

    rng: np.random.Generator
    element: str
    rows: int
    arguments: list[tuple[str, tuple[int, ...]]] = field(default_factory=list[tuple[str, tuple[int, ...]]])
    xs: list[tuple[int, Layout]] = field(default_factory=list[tuple[int, Layout]])
    values: list[tuple[int, ValueUses]] = field(default_factory=list[tuple[int, ValueUses]])
    """Columns and uses."""

    def argument(self, element: str, *shape: int) -> int:
        self.arguments.append((element, shape))
        return len(self.arguments) - 1

    def x(self, n: int) -> int:
        """One more operand of a body: whole, one for all rows, one for all columns, or one number."""
        strides = ((n, 1), (0, 1), (1, 0), (0, 0))[int(self.rng.choice(4, p=(0.4, 0.4, 0.1, 0.1)))]
        layout = Layout((self.rows, n), strides)
        shape = (self.rows, n) if strides == (n, 1) else (layout.end,)
        self.xs.append((self.argument(str(self.rng.choice(["f32", self.element])), *shape), layout))
        return len(self.xs) - 1

    def value(self, n: int, chained: bool) -> None:
        """One more; what has no use in the end is written."""
        write, total = bool(self.rng.random() < 0.5), bool(self.rng.random() < 0.4)
        narrow = chained or self.rng.random() < 0.7
        self.values.append((n, ValueUses(write, chained, total, self.element if narrow else "f32")))

    def results(self) -> list[tuple[str, tuple[int, ...]]]:
        """Of all values."""
        found: list[tuple[str, tuple[int, ...]]] = []
        for n, uses in self.values:
            found += [(uses.element, (self.rows, n))] if uses.write else []
            found += [(str(self.rng.choice(["f32", self.element])), (n,))] if uses.sum else []
        return found

    def over_rows(self, columns: int, element: str) -> list[tuple[OuterText, Result]]:
        """Products of some values that are rounded to what is multiplied, and of one and a; with their results."""
        narrow = [(y, n) for y, (n, uses) in enumerate(self.values) if uses.element == self.element]
        found: list[tuple[OuterText, Result]] = []
        for left, rows in narrow:
            if self.rng.random() < 0.4:
                right, n = (
                    (None, columns)
                    if self.rng.random() < 0.3
                    else narrow[int(self.rng.integers(len(narrow)))]
                )
                found.append(
                    (OuterText(left, right), (str(self.rng.choice(["f32", self.element])), (rows, n)))
                )
        return found


def formula(count: int, results: int, kind: int):
    """A body of that many operands: of small numbers, so that no rounding is far from the next."""

    def body(*operands: Scalar) -> list[Scalar]:
        total = operands[0] * 0.25
        for number, operand in enumerate(operands[1:count], 1):
            total = total + operand * (0.5 / number)
        made = (
            total,
            maximum(total, 0.0),
            tanh(total),
            select(operands[-1] <= 0.0, 0.0, operands[0]),
            total / (1.0 + exp(-total)),
        )
        return [made[(kind + number) % len(made)] for number in range(results)]

    return body


def random_chain(seed: int, tiled: bool = False) -> ModuleOp:
    """A function `f` of dense blocks: views of them, one kernel.back_to_back, its results."""
    rng = np.random.default_rng(seed)
    widths = TILED if tiled else RAGGED
    drawn = Drawn(rng, str(rng.choice(["bf16", "f16"])), int(rng.choice(ROWS)))
    count = int(rng.integers(1, 6))
    k = int(rng.choice(widths))
    a_element = drawn.element if rng.random() < 0.6 else "f32"
    a = drawn.argument(a_element, drawn.rows, columns_of_a := k)
    module, bs = ModuleOp([]), list[tuple[int, tuple[int, int]]]()
    bodies, symbols = Bodies(module), list[Symbol]()
    links: list[tuple[int, bool, list[tuple[str, int]], range]] = []
    for number in range(count):
        n = int(rng.choice(widths))
        same = [index for index, (_, shape) in enumerate(bs) if k in shape]
        if same and rng.random() < 0.5:
            b = int(rng.choice(same))
            shape = bs[b][1]
            trans = shape[1] == k
            n = shape[0] if trans else shape[1]
        else:
            trans = bool(rng.random() < 0.5)
            bs.append(
                (drawn.argument(drawn.element, *((n, k) if trans else (k, n))), (n, k) if trans else (k, n))
            )
            b = len(bs) - 1
        takes = [("x", drawn.x(n)) for _ in range(int(rng.integers(0, 3)))]
        takes += [
            ("y", y) for y, (columns, _) in enumerate(drawn.values) if columns == n and rng.random() < 0.5
        ]
        last, given = number == count - 1, int(rng.integers(1, 3))
        for place in range(given):
            drawn.value(n, chained=not last and place == 0)
        types = ["f32"] * (1 + len(takes))
        body = trace(types, formula(len(types), given, int(rng.integers(5))))
        body = written(body, [], [uses.element for _, uses in drawn.values[-given:]])
        symbols.append(Symbol(bodies.symbol(body, f"link{number}")))
        links.append((b, trans, takes, range(len(drawn.values) - given, len(drawn.values))))
        k = n
    outers = drawn.over_rows(columns_of_a, a_element) if seed % 2 else []
    taken = {y for outer, _ in outers for y in (outer.left, outer.right)}
    taken |= {y for _, _, takes, _ in links for kind, y in takes if kind == "y"}
    for y, (n, uses) in enumerate(drawn.values):
        if not (uses.write or uses.next or uses.sum or y in taken) or y == len(drawn.values) - 1:
            drawn.values[y] = n, ValueUses(True, uses.next, uses.sum, uses.element)
    texts = [
        LinkText(b, trans, tuple(takes), tuple(drawn.values[y][1] for y in given))
        for b, trans, takes, given in links
    ]
    behind = (
        {ROUNDED_A: (drawn.element, (drawn.rows, columns_of_a))} if a_element == "f32" and seed % 3 else {}
    )
    behind |= {str(outer): result for outer, result in outers}
    return function_of(module, drawn, a, [b for b, _ in bs], symbols, texts, behind)


def function_of(
    module: ModuleOp,
    drawn: Drawn,
    a: int,
    bs: list[int],
    symbols: list[Symbol],
    links: list[LinkText],
    behind: Mapping[str, Result],
) -> ModuleOp:
    """The function around what was drawn."""

    def tensor(element: str, shape: tuple[int, ...]) -> TensorType[Attribute]:
        return TensorType(ELEMENT_TYPES[element], shape)

    block = Block(arg_types=[tensor(*argument) for argument in drawn.arguments])
    xs: list[SSAValue] = []
    ops: list[Operation] = []
    for argument, layout in drawn.xs:
        value: SSAValue = block.args[argument]
        if layout.strides != Layout.dense(layout.shape).strides:
            view = kernel.ViewOp.build_op(
                [value], [with_layout(tensor(drawn.arguments[argument][0], ()), layout)]
            )
            ops.append(view)
            value = view.output
        xs.append(value)
    launch = kernel.BackToBackOp.launch(
        {"a": block.args[a], "b": [block.args[b] for b in bs], "x": xs},
        {"y": [tensor(*result) for result in (*drawn.results(), *behind.values())]},
        bodies=tuple(symbols),
        links=tuple(str(link) for link in links),
        **({"behind": tuple(behind)} if behind else {}),
    )
    block.add_ops([*ops, launch, ReturnOp(*launch.results)])
    types = ([value.type for value in block.args], [value.type for value in launch.results])
    module.body.block.add_op(FuncOp("f", types, Region(block)))
    return module
