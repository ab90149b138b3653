"""Batches of small products in f32 on a GPU: generated, with their sizes as constants.

A prebuilt kernel divides by the sizes and tests the bounds of each row at every step. That takes longer than the products where a
matrix is one tile or two and its rows are odd: 2048 products of 27 x 64 of 27 terms took 59 us prebuilt, and 27 generated with
an epilogue that read more, on an H100.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from xdsl.dialects.func import FuncOp
from xdsl.rewriter import InsertPoint, Rewriter

from aicf_mlir.dialects import kernel
from aicf_mlir.dialects.kernel_op import KernelOp, tensor_spec
from aicf_mlir.dialects.scalar import Bodies
from aicf_mlir.ir.attributes import Symbol
from aicf_mlir.ir.chips import chip_of
from aicf_mlir.ir.formula import Scalar, trace
from aicf_mlir.ir.tensor_op import shape_of
from aicf_mlir.passes.fuse.library import Library
from aicf_mlir.passes.fuse.rule import FusionRule

SMALL = 64
"""The most rows, columns and terms of a small product."""


@dataclass(frozen=True)
class FuseSmallBatchesPass(FusionRule):
    """Generate the batches of small products in f32, with their sizes as constants."""

    name = "fuse-small-batches"
    DEVICES: ClassVar = ("cuda",)

    def fuse(self, function: FuncOp, bodies: Bodies) -> None:
        library = Library(self.target)
        for op in list(function.body.block.ops):
            if isinstance(op, kernel.GemmOp) and is_small_batch(op, self.target) and not library.runs(op):
                generate(op, bodies)


def is_small_batch(op: KernelOp, target: str) -> bool:
    """True for many products of f32, one for each multiprocessor at least, each of a few elements."""
    (a,), shape = op.ins["a"], shape_of(op.results[0])
    terms = shape_of(a)[-2 if op.attrs.get("trans_a") is True else -1]
    elements = {tensor_spec(value)[0] for value in op.operands}
    is_f32 = elements == {"f32"} and op.attrs.get("allow_tf32") is not True
    return is_f32 and prod(shape[:-2]) >= chip_of(target).processors and 0 < max(*shape[-2:], terms) <= SMALL


def generate(op: KernelOp, bodies: Bodies) -> None:
    """Write the product with an epilogue that changes nothing."""

    def as_it_is(z: Scalar) -> Scalar:
        return z

    body = trace(["f32"], as_it_is)
    launch = kernel.GemmMapOp.launch(
        {"a": op.ins["a"], "b": op.ins["b"], "x": [], "table": []},
        {"y": [op.results[0].type]},
        body=Symbol(bodies.symbol(body, "product")),
        **op.attrs,
    )
    launch.location = op.location
    launch.results[0].name_hint = op.results[0].name_hint
    Rewriter.insert_op(launch, InsertPoint.before(op))
    Rewriter.replace_op(op, [], [launch.results[0]])
