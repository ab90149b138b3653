"""Functions of kernel ops in the making, of whole numbers: sums in any order, and fusions of any kind, have the same bits.

Between the ops of a draft stand ops that read its arguments alone, now and then. Rules must leave them right too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeVar

import numpy as np
from xdsl.builder import Builder
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, FloatAttr, ModuleOp, TensorType, f64
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint

from aicf_mlir.dialects import kernel
from aicf_mlir.dialects.kernel_op import KernelOp, tensor_spec
from aicf_mlir.dialects.scalar import Bodies
from aicf_mlir.interpreters.arithmetic import EXACT, ROUNDED, Arithmetic
from aicf_mlir.interpreters.numerics import FLOATS, NUMPY_TYPES, Array
from aicf_mlir.ir.attributes import AttributeValue, Symbol
from aicf_mlir.ir.dtypes import ELEMENT_TYPES
from aicf_mlir.ir.formula import trace
from aicf_mlir.ir.layouts import Layout, shares_block, with_layout
from aicf_mlir.ir.signature import Key, Label
from aicf_mlir.ir.tensor_op import element_type, shape_of, tensor_type
from aicf_mlir.passes.fuse.loss_loops.launches import computed_in

T = TypeVar("T")

ASIDE = 0.25
"""How often an op stands in front of one of the draft."""
LARGE = 1 << 14
"""Elements of an argument that is not read aside."""


@dataclass(frozen=True)
class Program:
    """A function with a value for each argument."""

    module: ModuleOp
    values: dict[Key, Array]
    is_exact: bool
    """True if all that it computes are whole numbers, or fractions of a few binary digits."""
    arithmetic: Arithmetic
    """With roundings where no number needs one that fusion leaves out, that of a product before its bias."""


class Draft:
    """One function for a target. `rng` draws everything."""

    def __init__(self, rng: np.random.Generator, target: str):
        self.rng, self.target = rng, target
        self.module = ModuleOp([])
        self.bodies = Bodies(self.module)
        self.block = Block()
        self.labels: list[Label] = []
        self.values: dict[Key, Array] = {}
        self.results: list[tuple[SSAValue, Label]] = []
        self.attributes: dict[str, Attribute] = {}
        self.is_exact = True
        self.reuse = 0.0
        """How often a value that is there stands for a new argument."""
        self.empty = 0.0
        """How often a size is 0."""
        self.share = 1.0
        """Of the elements of arguments that are drawn, the others being 0."""

    @property
    def is_cpu(self) -> bool:
        return self.target == "cpu"

    def chance(self, of: float) -> bool:
        return bool(self.rng.random() < of)

    def integer(self, low: int, high: int) -> int:
        """From `low` to `high`, both included."""
        return int(self.rng.integers(low, high + 1))

    def size(self, high: int) -> int:
        """Of a dimension: from 1 to `high`, or 0 where a draft has empty tensors."""
        return 0 if self.chance(self.empty) else self.integer(1, high)

    def choice(self, items: Sequence[T]) -> T:
        return items[self.integer(0, len(items) - 1)]

    def argument(
        self,
        shape: Sequence[int],
        element: str = "f32",
        role: str = "input",
        *,
        below: int | None = None,
        value: float | None = None,
    ) -> SSAValue:
        """An argument of whole numbers from -2 to 2, many of them 0 in a sparse draft; of integers from 0 and `below` a bound; or
        of one value.
        """
        if role == "input" and below is None and value is None and self.chance(self.reuse):
            made = TensorType(ELEMENT_TYPES[element], shape)
            if known := [each for each in self.known() if each.type == made]:
                return self.choice(known)
        name = f"{role[0]}{len(self.labels)}"
        if value is not None:
            drawn = np.full(shape, value)
        elif below is not None:
            drawn = self.rng.integers(0, below, shape)
        else:
            drawn = self.rng.integers(-2, 3, shape)
            drawn *= self.rng.random(shape) < self.share
        self.values[role, name] = np.asarray(drawn).astype(NUMPY_TYPES[element])
        self.labels.append(Label(role, name))
        made = self.block.insert_arg(TensorType(ELEMENT_TYPES[element], shape), len(self.block.args))
        made.name_hint = name
        return made

    def known(self) -> list[SSAValue]:
        """All values that are there, without parts of a block."""
        made = [value for op in self.block.ops for value in op.results if not shares_block(value.type)]
        return [*self.block.args, *made]

    def name_of(self, argument: SSAValue) -> Label:
        return self.labels[self.block.args.index(argument)]

    def scalar(self, value: float) -> SSAValue:
        return self.argument((), "f64", "host_scalar", value=value)

    def add(self, op: Operation) -> SSAValue:
        """The op at the end, perhaps after one aside; its first result."""
        if self.chance(ASIDE) and not isinstance(op, kernel.ConstantOp):
            self.aside()
        return self.append(op)

    def append(self, op: Operation) -> SSAValue:
        """The op right at the end; its first result."""
        Builder(InsertPoint.at_end(self.block)).insert(op)
        return op.results[0]

    def aside(self) -> None:
        """An op whose result is returned. It reads an argument, or anything where values are used again."""
        given = [
            value
            for value in (self.known() if self.reuse else self.block.args)
            if shape_of(value) and tensor_spec(value)[0] in FLOATS and prod(shape_of(value)) <= LARGE
        ]
        if not given:
            return
        value = self.choice(given)
        match self.integer(0, 3):
            case 0:
                made = kernel.NegOp.launch([value], [value.type])
            case 1:
                made = kernel.MulOp.launch([value, value], [value.type])
            case 2:
                wide = TensorType(ELEMENT_TYPES["f64"], shape_of(value))
                made = kernel.CopyOp.launch([value], [wide])
            case _:
                total = TensorType(element_type(value), shape_of(value)[1:])
                made = kernel.ReduceSumOp.launch([value], [total], dims=[0])
        self.returns(self.append(made))

    def constant(self, shape: Sequence[int], element: str, value: float) -> SSAValue:
        type_ = TensorType(ELEMENT_TYPES[element], shape)
        return self.append(kernel.ConstantOp.build_op([], [type_], {"value": FloatAttr(value, f64)}))

    def reshape(self, value: SSAValue, *shape: int) -> SSAValue:
        if shape == shape_of(value):
            return value
        return self.append(kernel.ReshapeOp.build_op([value], [TensorType(element_type(value), shape)]))

    def view(self, value: SSAValue, layout: Layout) -> SSAValue:
        return self.append(kernel.ViewOp.build_op([value], [with_layout(tensor_type(value), layout)]))

    def cast(self, value: SSAValue, element: str) -> SSAValue:
        made = TensorType(ELEMENT_TYPES[element], shape_of(value))
        return self.add(kernel.CopyOp.launch([value], [made]))

    def pointwise(self, kind: type[KernelOp], *values: SSAValue) -> SSAValue:
        """An op whose result is like its first operand."""
        return self.add(kind.launch(list(values), [values[0].type]))

    def product(self, a: SSAValue, b: SSAValue, **attrs: AttributeValue) -> SSAValue:
        """The product of two matrices, or of two batches of them."""
        *batch, rows, columns = shape_of(a)
        m = columns if attrs.get("trans_a") else rows
        n = shape_of(b)[-2 if attrs.get("trans_b") else -1]
        return self.add(kernel.GemmOp.launch([a, b], [TensorType(element_type(a), (*batch, m, n))], **attrs))

    def factors(
        self, element: str, m: int, n: int, k: int, *batch: int, **given: bool
    ) -> tuple[SSAValue, SSAValue, dict[str, bool]]:
        """Two arguments that are multiplied, and how they are transposed: as `given`, else drawn."""
        turned = {name: given.get(name, self.chance(0.4)) for name in ("trans_a", "trans_b")}
        a = self.argument((*batch, *((k, m) if turned["trans_a"] else (m, k))), element)
        b = self.argument((*batch, *((n, k) if turned["trans_b"] else (k, n))), element)
        return a, b, {name: True for name, is_turned in turned.items() if is_turned}

    def sum(self, value: SSAValue, dims: Sequence[int], **attrs: AttributeValue) -> SSAValue:
        shape = [size for dim, size in enumerate(shape_of(value)) if dim not in dims]
        made = TensorType(element_type(value), shape)
        return self.add(kernel.ReduceSumOp.launch([value], [made], dims=list(dims), **attrs))

    def generated(
        self,
        kind: type[KernelOp],
        formula: Callable[..., Any],
        operands: Sequence[SSAValue],
        results: Sequence[tuple[str, Sequence[int]]],
        shape: Sequence[int],
        **attrs: int,
    ) -> list[SSAValue]:
        """The results of a map, or of a launch that reduces, over `shape`."""
        body = trace([computed_in(value) for value in operands], formula)
        made = kind.launch(
            {"x": list(operands), "table": []},
            {"y": [TensorType(ELEMENT_TYPES[element], size) for element, size in results]},
            body=Symbol(self.bodies.symbol(body, "formula")),
            shape=list(shape),
            **attrs,
        )
        self.add(made)
        return list(made.results)

    def returns(self, value: SSAValue, role: str = "output", name: str = "") -> None:
        self.results.append((value, Label(role, name or f"y{len(self.results)}")))

    def updates(self, argument: SSAValue, value: SSAValue) -> None:
        """Return the new value of an argument."""
        label = self.name_of(argument)
        self.results.append((value, Label("update", label.name, (), label.role)))

    def finish(self) -> Program:
        """The function, in a module of its own."""
        self.block.add_op(ReturnOp(*(value for value, _ in self.results)))
        types = [value.type for value, _ in self.results]
        function = FuncOp.from_region("drawn", self.block.arg_types, types, Region(self.block))
        function.arg_attrs = ArrayAttr[DictionaryAttr]([label.to_attribute() for label in self.labels])
        function.res_attrs = ArrayAttr[DictionaryAttr]([label.to_attribute() for _, label in self.results])
        function.attributes |= self.attributes
        self.module.body.block.add_op(function)
        rounds = self.is_exact and not self.reuse
        return Program(self.module, self.values, self.is_exact, ROUNDED if rounds else EXACT)
