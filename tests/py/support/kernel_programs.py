"""Random functions of kernel ops that provoke fusions, views and updates; f64: rounding hides nothing.

One parameter is of f32, and its gradient of bf16.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from programs import step_function
from xdsl.builder import Builder
from xdsl.dialects.builtin import ArrayAttr, FloatAttr, ModuleOp, TensorType, bf16, f32, f64
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region, SSAValue
from xdsl.rewriter import InsertPoint

from aicf_mlir.dialects import kernel
from aicf_mlir.dialects.kernel_op import KernelOp, tensor_spec
from aicf_mlir.interpreters.numerics import NUMPY_TYPES, Array
from aicf_mlir.ir.expect import with_shape
from aicf_mlir.ir.layouts import Layout, with_layout
from aicf_mlir.ir.signature import Label, argument_labels
from aicf_mlir.ir.tensor_op import shape_of, tensor_type

N = 4
MATRIX, VECTOR, VIEW = TensorType(f64, (N, N)), TensorType(f64, (N,)), TensorType(f64, (2, N // 2, N))
SCALAR = TensorType(f64, ())
NARROW, WIDE, SINGLE = TensorType(bf16, (2, N // 2)), TensorType(f32, (2, N // 2)), TensorType(f32, (N,))

ACTIVATIONS = (kernel.ReluOp, kernel.GeluOp, kernel.SiluOp, kernel.TanhOp, kernel.SigmoidOp)
GRADIENTS = (kernel.ReluBwdOp, kernel.GeluTanhBwdOp, kernel.SiluBwdOp, kernel.TanhBwdOp)
BINARIES = (kernel.AddOp, kernel.SubOp, kernel.MulOp)


@dataclass
class RandomFunction:
    """One function in the making: values by type, from which the next op takes mostly the latest."""

    rng: np.random.Generator
    block: Block
    values: dict[TensorType, list[SSAValue]] = field(default_factory=dict)

    def pick(self, kind: TensorType) -> SSAValue:
        """A value of a type; half of the time the last one."""
        known = self.values[kind]
        return known[-1] if self.rng.random() < 0.5 else known[self.rng.integers(len(known))]

    def choose(self, items: Sequence[type[KernelOp]]) -> type[KernelOp]:
        """One of several ops."""
        return items[int(self.rng.integers(len(items)))]

    def add(self, op: KernelOp | kernel.ReshapeOp | kernel.JoinOp | kernel.ConstantOp) -> SSAValue:
        """Append an op; its first result."""
        Builder(InsertPoint.at_end(self.block)).insert(op)
        for result in op.results:
            self.values.setdefault(result.type, []).append(result)
        return op.results[0]

    def gemm(self) -> None:
        flags = {name: True for name in ("trans_a", "trans_b") if self.rng.random() < 0.3}
        self.add(kernel.GemmOp.launch([self.pick(MATRIX), self.pick(MATRIX)], [MATRIX], **flags))

    def bias(self) -> None:
        kind = MATRIX if self.rng.random() < 0.8 else VIEW
        self.add(kernel.BiasAddOp.launch([self.pick(kind), self.pick(VECTOR)], [kind]))

    def activation(self) -> None:
        kind = MATRIX if self.rng.random() < 0.7 else VIEW
        self.add(self.choose(ACTIVATIONS).launch([self.pick(kind)], [kind]))

    def gradient(self) -> None:
        kind = MATRIX if self.rng.random() < 0.7 else VIEW
        self.add(self.choose(GRADIENTS).launch([self.pick(kind), self.pick(kind)], [kind]))

    def binary(self) -> None:
        right = MATRIX if self.rng.random() < 0.7 else VECTOR
        self.add(self.choose(BINARIES).launch([self.pick(MATRIX), self.pick(right)], [MATRIX]))

    def view(self) -> None:
        source, target = (MATRIX, VIEW) if self.rng.random() < 0.5 else (VIEW, MATRIX)
        self.add(kernel.ReshapeOp.build_op([self.pick(source)], [target]))

    def part(self, source: SSAValue, layout: Layout) -> SSAValue:
        """A copy of the elements of `source` that lie where `layout` says."""
        view = kernel.ViewOp.build_op([source], [with_layout(tensor_type(source), layout)])
        Builder(InsertPoint.at_end(self.block)).insert(view)
        return self.add(kernel.CopyOp.launch([view], [with_shape(source, layout.shape)]))

    def transposed(self) -> None:
        self.part(self.pick(MATRIX), Layout((N, N), (1, N)))

    def turned_view(self) -> None:
        """[2, N / 2, N] with its first two dimensions exchanged, as [N, N]."""
        turned = self.part(self.pick(VIEW), Layout((N // 2, 2, N), (N, N * N // 2, 1)))
        self.add(kernel.ReshapeOp.build_op([turned], [MATRIX]))

    def joined(self) -> None:
        """Columns of one matrix beside columns of another, or of the same; or rows above rows."""
        across = self.rng.random() < 0.5
        shape = (N, N // 2) if across else (N // 2, N)
        starts = [0, N // 2 if across else N * N // 2]
        copies: list[SSAValue] = []
        for start in starts:
            source = self.pick(MATRIX)
            half = self.part(source, Layout(shape, (N, 1), int(self.rng.choice(starts))))
            if self.rng.random() < 0.5:
                half = self.add(kernel.TanhOp.launch([half], [half.type]))
            place = with_layout(tensor_type(half), Layout(shape, (N, 1), start))
            copies.append(self.insert(kernel.CopyOp.launch([half], [place])))
        self.add(kernel.JoinOp.build_op(copies, [MATRIX]))

    def insert(self, op: KernelOp) -> SSAValue:
        """Append an op whose result nothing else takes."""
        return Builder(InsertPoint.at_end(self.block)).insert(op).results[0]

    def sum_of_rows(self) -> None:
        self.add(kernel.ReduceSumOp.launch([self.pick(MATRIX)], [VECTOR], dims=[0]))

    def weight_and_bias_gradient(self) -> None:
        """The sum and the product on one dy, in any order, with other ops between."""
        dy = self.pick(MATRIX)
        steps: list[Callable[[], object]] = [
            lambda: self.add(kernel.GemmOp.launch([dy, self.pick(MATRIX)], [MATRIX], trans_a=True)),
            lambda: self.add(kernel.ReduceSumOp.launch([dy], [VECTOR], dims=[0])),
            self.binary,
        ]
        for index in self.rng.permutation(len(steps)):
            steps[index]()

    def constant(self) -> None:
        value = float(self.rng.integers(-2, 3)) / 2
        kind = MATRIX if self.rng.random() < 0.5 else VECTOR
        self.add(kernel.ConstantOp.build_op([], [kind], {"value": FloatAttr(value, f64)}))

    def move(self) -> None:
        moves = (self.transposed, self.turned_view, self.joined)
        moves[self.rng.integers(len(moves))]()

    def narrow_update(self, p: SSAValue, gradient: SSAValue, lr: SSAValue) -> list[tuple[SSAValue, Label]]:
        """The update of a parameter of f32, of a cast of its gradient, which may be returned too."""
        if self.rng.random() < 0.5:
            flat = self.add(kernel.ReshapeOp.build_op([gradient], [TensorType(bf16, (N,))]))
            cast = wide = self.add(kernel.CopyOp.launch([flat], [SINGLE]))
        else:
            cast = self.add(kernel.CopyOp.launch([gradient], [WIDE]))
            wide = self.add(kernel.ReshapeOp.build_op([cast], [SINGLE]))
        operands = {"p": p, "g": wide, "lr": lr, "weight_decay": lr}
        updated = self.add(kernel.SgdStepOp.launch(operands, {"p": SINGLE}, groups=[0]))
        returned = [(cast, Label("output", "cast"))] if self.rng.random() < 0.3 else []
        return [(updated, Label("update", "w")), *returned]

    def step(self) -> None:
        """One random op."""
        steps = (self.gemm, self.bias, self.activation, self.gradient, self.binary, self.view, self.move)
        rare = (self.sum_of_rows, self.weight_and_bias_gradient, self.constant)
        chosen = steps if self.rng.random() < 0.85 else rare
        chosen[self.rng.integers(len(chosen))]()


def random_function(seed: int, ops: int = 16) -> ModuleOp:
    """A function of about `ops` ops with inputs, parameters, their updates, a gradient and outputs."""
    rng = np.random.default_rng(seed)
    arguments = [("input", "x", MATRIX), ("input", "v", VIEW), ("buffer", "b", VECTOR)]
    arguments += [("param", f"p{i}", MATRIX) for i in range(3)] + [("host_scalar", "lr", SCALAR)]
    arguments += [("input", "h", NARROW), ("param", "w", SINGLE)]
    block = Block(arg_types=[kind for _, _, kind in arguments])
    maker = RandomFunction(rng, block)
    for argument, (role, name, kind) in zip(block.args, arguments, strict=True):
        argument.name_hint = name
        if role != "host_scalar" and kind not in (NARROW, SINGLE):
            maker.values.setdefault(kind, []).append(argument)
    *_, lr, narrow, single = block.args
    for _ in range(ops):
        maker.step()
    results: list[tuple[SSAValue, Label]] = []
    for index in range(3):
        chance = rng.random()
        if chance < 0.7:
            operands = {"p": block.args[3 + index], "g": maker.pick(MATRIX), "lr": lr, "weight_decay": lr}
            value = maker.add(kernel.SgdStepOp.launch(operands, {"p": MATRIX}, groups=[0]))
            if rng.random() < 0.2:
                maker.step()  # may read the new value, before the next update
        elif chance < 0.9:
            value = maker.pick(MATRIX)
        else:
            continue
        results.append((value, Label("update", f"p{index}")))
    results += [(maker.pick(kind), Label("output", f"y{i}")) for i, kind in enumerate((MATRIX, VIEW, VECTOR))]
    results.append((maker.pick(MATRIX), Label("grad", "p0")))
    if rng.random() < 0.5:
        results += maker.narrow_update(single, narrow, lr)
    block.add_op(ReturnOp(*(value for value, _ in results)))
    function = FuncOp.from_region(
        "random", block.arg_types, [value.type for value, _ in results], Region(block)
    )
    function.arg_attrs = ArrayAttr([Label(role, name).to_attribute() for role, name, _ in arguments])
    function.res_attrs = ArrayAttr([label.to_attribute() for _, label in results])
    return ModuleOp([function])


def random_arguments(module: ModuleOp, seed: int) -> dict[str, Array]:
    """An array for every argument, by name."""
    rng = np.random.default_rng(seed)
    function = step_function(module)
    return {
        label.name: (rng.standard_normal(shape_of(argument)) / 2).astype(
            NUMPY_TYPES[tensor_spec(argument)[0]]
        )
        for argument, label in zip(function.args, argument_labels(function), strict=True)
    }


def launches(module: ModuleOp) -> list[KernelOp]:
    """All launches of a module."""
    return [op for op in module.walk() if isinstance(op, KernelOp)]
