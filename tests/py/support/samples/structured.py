"""Samples of products, shape ops and reductions."""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch
import torch.nn.functional as F
from xdsl.dialects.builtin import TensorType, bf16, f16, f32, f64
from xdsl.ir import Block, Operation, Region

from aicf_mlir.dialects import nn
from aicf_mlir.dialects.train import YieldOp
from aicf_mlir.ir.dtypes import element_name
from samples.sample import (
    ALL,
    Sample,
    classes,
    special,
    tensors,
)


def products() -> list[Sample]:
    """linear with and without bias and leading dimensions; matmul with every pair of flags."""
    linears = [("7x5", "3x5", "3"), ("5", "3x5", "3"), ("2x3x5", "4x5", "4"), ("2x1x3x5", "1x5", "1")]
    samples = [Sample(",".join(shapes), tensors(*shapes), nn.LinearOp, F.linear) for shapes in linears]
    samples += [
        Sample(",".join(shapes[:2]), tensors(*shapes[:2]), nn.LinearOp, F.linear) for shapes in linears
    ]
    for batch, trans_a, trans_b in itertools.product(("", "2x3x"), (False, True), (False, True)):
        a, b = ("5x7" if trans_a else "7x5"), ("3x5" if trans_b else "5x3")

        def build(a: Any, b: Any, flags: tuple[bool, bool] = (trans_a, trans_b)) -> Operation:
            return nn.MatmulOp(a, b, *flags)

        def reference(a: Any, b: Any, flags: tuple[bool, bool] = (trans_a, trans_b)) -> Any:
            return torch.matmul(a.mT if flags[0] else a, b.mT if flags[1] else b)

        samples.append(
            Sample(f"{batch}-{trans_a}-{trans_b}", tensors(batch + a, batch + b), build, reference)
        )
    return samples


def custom_gradient(*values: Any) -> Operation:
    """The values, each with its own gradient: that of the identity."""
    region = Block(arg_types=[value.type for value in values])
    region.add_op(YieldOp(region.args))
    return nn.CustomGradientOp(values, values, Region(region))


def shapes() -> list[Sample]:
    """Ops that move elements, casts among all types, and constants."""
    samples = [
        Sample("split", ("6x4xf32",), lambda x: nn.ReshapeOp(x, [3, 2, 4]), lambda x: x.reshape(3, 2, 4)),
        Sample("flat", ("2x3x4xf32",), lambda x: nn.ReshapeOp(x, [24]), lambda x: x.reshape(24)),
        Sample("0-d", ("1x1xf32",), lambda x: nn.ReshapeOp(x, []), lambda x: x.reshape([])),
        Sample("indices", ("6xi64",), lambda x: nn.ReshapeOp(x, [2, 3]), lambda x: x.reshape(2, 3)),
        Sample("detach", ("3x5xf32",), nn.DetachOp, lambda x: x.detach()),
        Sample("custom", ("3x5xf32",), custom_gradient, lambda x: x.clone()),
        Sample("custom-two", ("3x5xf32", "4xf32"), custom_gradient, lambda x, y: (x.clone(), y.clone())),
        Sample("detach-indices", ("6xi64",), nn.DetachOp, lambda x: x.detach()),
        Sample("2-d", ("3x5xf32",), lambda x: nn.TransposeOp(x, [1, 0]), lambda x: x.T),
        Sample("turn", ("2x3x4xf32",), lambda x: nn.TransposeOp(x, [2, 0, 1]), lambda x: x.permute(2, 0, 1)),
        Sample("row", ("5xf32",), lambda x: nn.BroadcastToOp(x, [3, 5]), lambda x: x.expand(3, 5)),
        Sample("column", ("3x1xf32",), lambda x: nn.BroadcastToOp(x, [2, 3, 5]), lambda x: x.expand(2, 3, 5)),
        Sample("scalar", ("f32",), lambda x: nn.BroadcastToOp(x, [2, 1]), lambda x: x.expand(2, 1)),
        Sample("f64", ("3x5xf64",), lambda x: nn.CastOp(x, f64), lambda x: x.double()),
        Sample("of-i64", ("6xi64",), lambda x: nn.CastOp(x, f32), lambda x: x.float(), {0: classes(9)}),
        Sample("of-i32", ("6xi32",), lambda x: nn.CastOp(x, f16), lambda x: x.half(), {0: classes(9)}),
    ]
    targets = ((bf16, torch.bfloat16), (f16, torch.float16), (f32, torch.float32), (f64, torch.float64))
    for source, (target, dtype) in itertools.product(("bf16", "f16", "f32", "f64"), targets):

        def cast(x: Any, target: Any = target) -> Operation:
            return nn.CastOp(x, target)

        def reference(x: Any, dtype: torch.dtype = dtype) -> Any:
            return x.to(dtype)

        name = f"{source}-to-{element_name(target)}"
        samples.append(Sample(name, (f"{ALL}x{source}",), cast, reference, {0: special}, smooth=False))
    for number in (1.0, 0.1, -0.0, math.inf, math.nan, 1e-45):

        def constant(number: float = number) -> Operation:
            return nn.ConstantOp(number, TensorType(f32, [3, 2]))

        def full(number: float = number) -> Any:
            return torch.full((3, 2), number, dtype=torch.float32)

        samples.append(Sample(str(number), (), constant, full))
    return samples


def reductions() -> list[Sample]:
    """sum, mean and variance over subsets of dimensions, with and without keeping them."""
    samples: list[Sample] = []
    for dims, correction, keepdim in (
        ((0,), 1, False),
        ((0, 2), 0, True),
        ((1,), 2.5, False),
        ((2,), 0, False),
    ):

        def both(x: Any, dims: Any = dims, by: float = correction, keepdim: bool = keepdim) -> Operation:
            return nn.VarMeanOp(x, dims, by, keepdim)

        def in_torch(x: Any, dims: Any = dims, by: float = correction, keepdim: bool = keepdim) -> Any:
            return torch.var_mean(x, dims, correction=by, keepdim=keepdim)

        samples.append(Sample(f"{dims}-{correction}-{keepdim}", ("7x3x5xf32",), both, in_torch))
    samples.append(
        Sample(
            "one row", ("1x3xf32",), lambda x: nn.VarMeanOp(x, [0]), lambda x: torch.var_mean(x, 0), {}, False
        )
    )
    for op, reference in ((nn.SumOp, torch.sum), (nn.MeanOp, torch.mean)):
        subsets = itertools.chain.from_iterable(itertools.combinations(range(3), n) for n in (1, 2, 3))
        for dims, keepdim in itertools.product(subsets, (False, True)):

            def build(x: Any, op: Any = op, dims: Any = dims, keepdim: bool = keepdim) -> Operation:
                return op(x, dims, keepdim)

            def expected(x: Any, f: Any = reference, dims: Any = dims, keepdim: bool = keepdim) -> Any:
                return f(x, dim=dims, keepdim=keepdim)

            samples.append(Sample(f"{dims}-{keepdim}", ("2x3x5xf32",), build, expected))
        samples.append(Sample("0-d", ("f32",), lambda x, op=op: op(x), reference))
        samples.append(
            Sample("special", (f"{ALL}xf32",), lambda x, op=op: op(x), reference, {0: special}, False)
        )
    return samples
