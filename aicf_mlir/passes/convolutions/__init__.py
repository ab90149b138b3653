"""Convolutions by a fast kernel of the target, their images channels last; by products over windows where there is none."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, TensorType, f32
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block
from xdsl.rewriter import InsertPoint, Rewriter

from aicf_mlir.dialects import nn
from aicf_mlir.dialects.nn.convolutions import ConvolvingOp
from aicf_mlir.dialects.nn.emitter import Emitter
from aicf_mlir.errors import SelectionError
from aicf_mlir.ir import registry
from aicf_mlir.ir.dtypes import element_name
from aicf_mlir.ir.element_types import NARROW
from aicf_mlir.ir.expect import with_shape
from aicf_mlir.ir.properties import is_true
from aicf_mlir.ir.tensor_op import element_type, shape_of
from aicf_mlir.passes.convolutions.channels_last import ChannelsLast, permuted, to_last
from aicf_mlir.passes.convolutions.expansion import Expansion
from aicf_mlir.passes.convolutions.few_channels import EVEN
from aicf_mlir.passes.lower.same import lower_as_it_stands
from aicf_mlir.passes.target import TargetPass

MOST_CHANNELS, MOST_TERMS = EVEN - 1, 512
"""On each side of a convolution that a GPU has as a nest, and products of all results of one place. On an H200 a library takes as
long for 441 products of 16 bits, and two to twelve times as long for 81 (docs/performance.md). More channels on one side would
be read one by one from images that are channels last.
"""


@dataclass(frozen=True)
class ConvolutionsPass(TargetPass):
    """Lay images out channels last where a kernel of the target convolves them fast; write other convolutions as products, and on
    a GPU those of few channels as weighed sums of windows.

    Where a kernel is fast in f32 alone, as on a CPU, the operands of 16 bits are widened and the result is rounded: what the sums
    are anyway. So they are on a CPU where there is no fast kernel and the result is a sum of products that would be rounded each:
    one of these may overflow though the sum does not.

    Options:
      nests: write every convolution as weighed sums of windows, for which code is generated as for any other loop
    """

    name = "convolutions"

    nests: bool = False

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if not any(isinstance(inner, ConvolvingOp) for inner in op.walk()):
            return
        if self.nests:
            self.expand(op, lambda _: True)
            return
        if not self.is_cpu:
            self.expand(op, is_small)
        for inner in list(op.walk()):
            if isinstance(inner, ConvolvingOp) and element_name(element_type(inner.result)) in NARROW:
                self.widen(inner)
        for function in op.walk():
            if isinstance(function, FuncOp):
                for block in function.body.blocks:
                    if any(isinstance(inner, ConvolvingOp) and self.runs(inner) for inner in block.ops):
                        ChannelsLast(self.runs).apply(block)
        self.expand(op)

    def expand(self, op: ModuleOp, as_nests: Callable[[ConvolvingOp], bool] | None = None) -> None:
        """Write those by other ops that no fast kernel takes, or as nests those for which that holds."""
        expansion = Expansion(as_nests is not None)
        for inner in list(op.walk()):
            if not isinstance(inner, ConvolvingOp):
                continue
            if as_nests(inner) if as_nests else not (is_true(inner.channels_last) and self.runs(inner)):
                Rewriter.replace_op(inner, [], [expansion.of(inner)])

    def widen(self, op: ConvolvingOp) -> None:
        """Compute `op` in f32 if no fast kernel has its own type, but one has f32, or the other way rounds terms."""
        types = [TensorType(f32, shape_of(value)) for value in op.operands]
        a, b = Block(arg_types=types).args
        rounds_terms = self.is_cpu and isinstance(op, nn.ConvolutionInputGradOp)
        wide = rounds_terms or self.runs(type(op)(a, b, op.convolved, op.size.get_values()))
        if not wide or self.runs(op):
            return
        emitter = Emitter(InsertPoint.before(op), op.location)
        a, b = (emitter.emit(nn.CastOp(value, f32)) for value in op.operands)
        made = emitter.emit(type(op)(a, b, op.convolved, op.size.get_values()))
        Rewriter.replace_op(op, [], [emitter.emit(nn.CastOp(made, element_type(op.result)))])

    def runs(self, op: ConvolvingOp) -> bool:
        """True if a kernel takes its form with channels last that is not the plain loop, the last one of a device."""
        (launch,) = lower_as_it_stands(form_with_channels_last(op))
        try:
            kernel = registry.select_kernel(launch.use, self.target)[0]
        except SelectionError:
            return False
        finally:
            launch.erase()
        device = "cpu" if self.is_cpu else "cuda"
        kernels = [row["name"] for row in registry.kernels_of(launch.op_name) if row["device"] == device]
        return kernel != kernels[-1]


def is_small(op: ConvolvingOp) -> bool:
    """True if a GPU computes `op` faster as a nest than a library does, which moves channels that are missing too."""
    of = op.convolved
    weights = of.parts(op.result if isinstance(op, nn.ConvolutionWeightGradOp) else op.operands[1])
    terms = weights.first * weights.channels * math.prod(weights.spatial)
    return of.groups == 1 and max(weights.first, weights.channels) <= MOST_CHANNELS and terms <= MOST_TERMS


def form_with_channels_last(op: ConvolvingOp) -> ConvolvingOp:
    """The same convolution on operands of its own that lie so; the op itself if its operands do."""
    if is_true(op.channels_last):
        return op
    shapes = [permuted(shape_of(value), to_last(len(shape_of(value)))) for value in op.operands]
    types = [with_shape(value, shape) for value, shape in zip(op.operands, shapes, strict=True)]
    a, b = Block(arg_types=types).args
    return type(op)(a, b, op.convolved._replace(channels_last=True), op.size.get_values())
