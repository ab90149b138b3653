"""Random functions of one product with a generated epilogue: layouts, element types, transposes, batches, bodies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np
from generated_cases import random_kernel
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Region, SSAValue

from aicf_mlir.dialects import kernel
from aicf_mlir.dialects.scalar import Bodies
from aicf_mlir.ir.attributes import Symbol
from aicf_mlir.ir.body import is_table
from aicf_mlir.ir.dtypes import ELEMENT_TYPES
from aicf_mlir.ir.layouts import Layout, dense_strides, with_layout
from aicf_mlir.kernels.kernel import Kernel
from aicf_mlir.kernels.tensor import Tensor

DEPTHS = (1, 3, 8, 17, 64, 100)


def random_gemm_map(seed: int) -> ModuleOp:
    """A function `f` of dense blocks: views of them, one kernel.gemm_map, its results."""
    rng = np.random.default_rng(seed)
    epilogue = _epilogue(rng)
    narrow = ("f32", "f32", "bf16", "f16")
    element = "f64" if epilogue.body.args[0] == "f64" else str(rng.choice(narrow))
    transposed = rng.random(2) < 0.4
    *batch, m, n = epilogue.domain
    k = int(rng.choice(DEPTHS))
    a = _matrices(rng, element, [*batch, k, m] if transposed[0] else [*batch, m, k])
    b = _matrices(rng, element, [*batch, n, k] if transposed[1] else [*batch, k, n])
    return _function(rng, epilogue, (a, b), transposed, allow_tf32=element == "f32" and seed % 2 == 1)


def _epilogue(rng: np.random.Generator) -> Kernel:
    """A map of two dimensions or more whose first operand is a float: the product stands in its place."""
    while True:
        made = random_kernel(rng, "map", "cpu")
        if len(made.domain) > 1 and made.operands[0].element in ("f32", "f64"):
            return made


def _matrices(rng: np.random.Generator, element: str, shape: Sequence[int]) -> Tensor:
    """Dense, by columns, with a gap behind each line, or the same matrix for all products of a level."""
    *batch, rows, columns = shape
    gap = int(rng.choice([0, 0, 1, 8]))
    lines = [columns + gap, 1] if rng.random() < 0.7 else [1, rows + gap]
    size = max(rows * lines[0], columns * lines[1])
    strides = [step * size for step in dense_batch(batch)]
    if batch and rng.random() < 0.3:
        strides[int(rng.integers(len(batch)))] = 0
    return Tensor(element, tuple(shape), (*strides, *lines))


def dense_batch(sizes: Sequence[int]) -> list[int]:
    """Products from one to the next of each level."""
    return [prod(sizes[level + 1 :]) for level in range(len(sizes))]


def _function(
    rng: np.random.Generator,
    epilogue: Kernel,
    product: tuple[Tensor, Tensor],
    transposed: Sequence[bool],
    allow_tf32: bool,
) -> ModuleOp:
    module = ModuleOp([])
    tensors = [*product, *epilogue.operands[1:]]
    layouts = [_placed(rng, tensor) for tensor in tensors]
    blocks = [
        TensorType(ELEMENT_TYPES[tensor.element], [max(layout.end, 1)])
        for tensor, layout in zip(tensors, layouts, strict=True)
    ]
    tables = [False, False, *(is_table(type_) for type_ in epilogue.body.args[1:])]
    for at, (tensor, table) in enumerate(zip(tensors, tables, strict=True)):
        if table:
            blocks[at] = TensorType(ELEMENT_TYPES[tensor.element], tensor.shape)
    block = Block(arg_types=blocks)
    values: list[SSAValue] = []
    for argument, type_, layout, table in zip(block.args, blocks, layouts, tables, strict=True):
        if table:
            values.append(argument)
            continue
        dense = layout.is_dense and layout.count == type_.get_shape()[0]
        made = (
            kernel.ReshapeOp.build_op([argument], [TensorType(type_.element_type, layout.shape)])
            if dense
            else kernel.ViewOp.build_op([argument], [with_layout(type_, layout)])
        )
        block.add_op(made)
        values.append(made.output)
    scalars = [value for value, table in zip(values[2:], tables[2:], strict=True) if not table]
    shapes = [result.shape for result in epilogue.results]
    wholes = [_whole(rng, result) for result in epilogue.results]
    launch = kernel.GemmMapOp.launch(
        {"a": values[0], "b": values[1], "x": scalars, "table": values[2 + len(scalars) :]},
        {"y": [_part(whole, 0, shape[-1]) for whole, shape in zip(wholes, shapes, strict=True)]},
        body=Symbol(Bodies(module).symbol(replace(epilogue.body), "epilogue")),
        trans_a=bool(transposed[0]),
        trans_b=bool(transposed[1]),
        allow_tf32=allow_tf32,
    )
    block.add_op(launch)
    returned = [_joined(block, result, whole) for result, whole in zip(launch.results, wholes, strict=True)]
    block.add_op(ReturnOp(*returned))
    types = ([argument.type for argument in block.args], wholes)
    module.body.block.add_op(FuncOp("f", types, Region(block)))
    return module


def _whole(rng: np.random.Generator, result: Tensor) -> TensorType[Attribute]:
    """What is returned of a result: itself, or a tensor with a column more, which shows what is written behind rows."""
    *rest, columns = result.shape
    return TensorType(ELEMENT_TYPES[result.element], [*rest, columns + int(rng.random() < 0.3)])


def _part(whole: TensorType[Attribute], first: int, count: int) -> TensorType[Attribute]:
    """Columns of `whole` from `first` on; all of them are `whole` itself."""
    *rest, columns = whole.get_shape()
    if count == columns:
        return whole
    return with_layout(whole, Layout((*rest, count), dense_strides(whole.get_shape()), first))


def _joined(block: Block, result: SSAValue, whole: TensorType[Attribute]) -> SSAValue:
    """`whole`, of `result` and the column that it lacks, which is a copy of an argument."""
    if result.type == whole:
        return result
    *rest, columns = whole.get_shape()
    argument = block.insert_arg(TensorType(whole.get_element_type(), [*rest, 1]), len(block.args))
    column = kernel.CopyOp.launch([argument], [_part(whole, columns - 1, 1)])
    joined = kernel.JoinOp.build_op([result, column.results[0]], [whole])
    block.add_ops([column, joined])
    return joined.output


def _placed(rng: np.random.Generator, tensor: Tensor) -> Layout:
    """Where the tensor lies in its block: sometimes not at the start, so that addresses are little aligned."""
    offset = int(rng.integers(1, 4)) if rng.random() < 0.2 else 0
    return Layout(tensor.shape, tensor.strides, offset)
