"""Convolutions by a fast kernel of the target, their images as it reads them fastest; by products over windows elsewhere."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, TensorType, f32
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from aicf_mlir.dialects import nn
from aicf_mlir.dialects.nn.convolutions import ConvolvingOp
from aicf_mlir.dialects.nn.emitter import Emitter
from aicf_mlir.errors import SelectionError
from aicf_mlir.ir import registry
from aicf_mlir.ir.chips import chip_of
from aicf_mlir.ir.dtypes import element_name
from aicf_mlir.ir.element_types import NARROW
from aicf_mlir.ir.expect import with_shape
from aicf_mlir.ir.properties import is_true
from aicf_mlir.ir.tensor_op import element_type, shape_of
from aicf_mlir.passes.convolutions.channels_last import ChannelsLast, permuted, to_last
from aicf_mlir.passes.convolutions.expansion import Expansion, with_bias
from aicf_mlir.passes.convolutions.few_channels import EVEN
from aicf_mlir.passes.lower.same import lower_as_it_stands
from aicf_mlir.passes.target import TargetPass

MOST_BYTES = 1 << 29
"""Of the windows of images that a product reads or writes."""
MOST_CHANNELS, MOST_TERMS = EVEN - 1, 512
"""On each side of a convolution that a GPU has as a nest, and products of all results of one place."""
FEW_TERMS, MOST_PLACES = 256, 1 << 19
"""With few channels on one side: products in f32, and of gradients in 16 bits of more places than these (docs/performance.md)."""


@dataclass(frozen=True)
class ConvolutionsPass(TargetPass):
    """Lay images out channels last where a kernel of the target convolves them faster so; write other convolutions as products,
    and on a GPU those of few channels as weighed sums of windows.

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
            self.expand(op, Expansion(nests=True), lambda _: True)
            return
        if not self.is_cpu:
            alone = {each for inside in by_block(op) if is_one_layer(inside) for each in inside}
            self.expand(op, Expansion(nests=True), lambda inner: is_small(inner, inner in alone))
            by_image = Expansion(tiles=2 * chip_of(self.target).processors)
            self.expand(
                op,
                by_image,
                lambda inner: (
                    self.is_fast(inner) and is_faster_by_image(inner) and not self.has_own_kernel(inner)
                ),
            )
        for inner in list(op.walk()):
            if isinstance(inner, ConvolvingOp) and element_name(element_type(inner.result)) in NARROW:
                self.widen(inner)
        for inside in list(by_block(op)):
            is_alone = is_one_layer(inside)
            for inner in inside:
                if not isinstance(inner, nn.ConvolutionOp) or (bias := inner.bias) is None:
                    continue
                if not self.takes_bias(inner, is_alone):
                    add_apart(inner, bias)
        for inside in list(by_block(op)):
            moving = {inner for inner in inside if self.moves(inner, is_one_layer(inside))}
            if moving and (block := inside[0].parent) is not None:
                ChannelsLast(moving).apply(block)
        self.expand(op, Expansion(), lambda inner: not self.is_fast(inner))

    def expand(self, op: ModuleOp, expansion: Expansion, which: Callable[[ConvolvingOp], bool]) -> None:
        """Write those by other ops for which `which` holds."""
        for inner in list(op.walk()):
            if isinstance(inner, ConvolvingOp) and which(inner):
                Rewriter.replace_op(inner, [], [expansion.of(inner)])

    def widen(self, op: ConvolvingOp) -> None:
        """Compute `op` in f32 if no fast kernel has its own type, but one has f32, or the other way rounds terms."""
        types = [TensorType(f32, shape_of(value)) for value in op.factors]
        a, b = Block(arg_types=types).args
        rounds_terms = self.is_cpu and isinstance(op, nn.ConvolutionInputGradOp)
        wide = rounds_terms or self.runs(type(op)(a, b, op.convolved, op.size.get_values()))
        if not wide or self.runs(op):
            return
        emitter = Emitter(InsertPoint.before(op), op.location)
        a, b, *bias = (emitter.emit(nn.CastOp(value, f32)) for value in op.operands)
        made = emitter.emit(type(op)(a, b, op.convolved, op.size.get_values(), *bias))
        Rewriter.replace_op(op, [], [emitter.emit(nn.CastOp(made, element_type(op.result)))])

    def moves(self, op: ConvolvingOp, is_alone: bool) -> bool:
        """True if a fast kernel takes `op` with channels last, and none takes it as fast as it stands.

        A GPU computes f32 without tensor cores faster with channels first. On tensor cores a library moves the images itself
        where it has to, and better than copies around one layer do; between several layers nothing is moved. Groups of which it
        has no fast kernel are moved in any case.
        """
        if not self.runs(op):
            return False
        if self.is_cpu or not self.is_fast(op) or self.has_own_kernel(op):
            return True
        if element_name(element_type(op.result)) in NARROW:
            return not (is_alone and has_whole_vectors(op))
        return is_true(op.allow_tf32)

    def takes_bias(self, op: nn.ConvolutionOp, is_alone: bool) -> bool:
        """True if the kernel that computes the sums adds the bias too."""
        last = self.moves(form(op), is_alone)
        return self.is_fast(form(op, channels_last=last, with_bias=True))

    def has_own_kernel(self, op: ConvolvingOp) -> bool:
        """True if a GPU has a kernel for its groups with channels last, and the library no fast one as it stands.

        It has one for groups of one channel and one output.
        """
        of = op.convolved
        weights = of.parts(op.result if isinstance(op, nn.ConvolutionWeightGradOp) else op.operands[1])
        if self.is_cpu or of.groups == 1 or (weights.channels == 1 and weights.first == of.groups):
            return False
        return self.kernel(form(op, channels_last=True)) != self.kernel(form(op))

    def runs(self, op: ConvolvingOp) -> bool:
        """True if a kernel takes its form with channels last, without its bias, that is not the plain loop."""
        return self.is_fast(form(op, channels_last=True))

    def is_fast(self, op: ConvolvingOp) -> bool:
        """True if a kernel takes it as it stands that is not the plain loop."""
        return bool(self.kernel(op))

    def kernel(self, op: ConvolvingOp) -> str:
        """The kernel that takes it as it stands; "" for the plain loop, the last one of a device, and for none."""
        (launch,) = lower_as_it_stands(op)
        try:
            kernel = registry.select_kernel(launch.use, self.target)[0]
        except SelectionError:
            return ""
        finally:
            launch.erase()
        device = "cpu" if self.is_cpu else "cuda"
        kernels = [row["name"] for row in registry.kernels_of(launch.op_name) if row["device"] == device]
        return kernel if kernel != kernels[-1] else ""


def is_faster_by_image(op: ConvolvingOp) -> bool:
    """True for gradients in f32 for which a library has no fast engine that always adds in the same order.

    They are products for each image: those of the weights, and those of images of few channels, of which a tile of the
    library's is empty for the most part. Only where the windows take less than `MOST_BYTES`, and the sums of each image less
    than these.
    """
    of = op.convolved
    if element_type(op.result) != f32 or of.allow_tf32 or of.channels_last:
        return False
    of_weights = isinstance(op, nn.ConvolutionWeightGradOp)
    has_few_channels = of.groups == 1 and of.parts(op.result).channels < EVEN
    if isinstance(op, nn.ConvolutionOp) or not (of_weights or has_few_channels):
        return False
    weights = of.parts(op.result if of_weights else op.operands[1])
    windows = of.parts(op.operands[1 if of_weights else 0])
    places, columns = math.prod(windows.spatial), weights.channels * math.prod(weights.spatial)
    is_small = 4 * windows.first * of.groups * columns * places <= MOST_BYTES
    return is_small and (not of_weights or weights.first <= places * of.groups)


def by_block(module: ModuleOp) -> Iterator[list[ConvolvingOp]]:
    """The convolutions of each block of a function, where there are some."""
    for function in module.walk():
        if isinstance(function, FuncOp):
            for block in function.body.blocks:
                if inside := [op for op in block.ops if isinstance(op, ConvolvingOp)]:
                    yield inside


def is_one_layer(ops: Sequence[ConvolvingOp]) -> bool:
    """True if `ops` are one convolution and its gradients at most."""
    weights = {op.operands[1] for op in ops if not isinstance(op, nn.ConvolutionWeightGradOp)}
    return len(weights) <= 1 and len({type(op) for op in ops}) == len(ops)


def has_whole_vectors(op: ConvolvingOp) -> bool:
    """True if the channels of the images need not be filled up for a library to move as many at once as it can."""
    of = op.convolved
    images = of.parts(op.result if isinstance(op, nn.ConvolutionInputGradOp) else op.operands[0])
    return of.groups > 1 or images.channels % EVEN == 0


def is_small(op: ConvolvingOp, is_alone: bool) -> bool:
    """True if a GPU computes `op` faster as a nest than a library does, which moves channels that are missing too.

    With few channels on one side this holds for smaller kernels. Where the images of other layers are channels last, copies lie
    between them and the nest, which cost more for many places than it saves. The library keeps products of whole vectors of 16
    bits. With TF32 nothing was measured.
    """
    of, is_forward = op.convolved, isinstance(op, nn.ConvolutionOp)
    of_weights = isinstance(op, nn.ConvolutionWeightGradOp)
    weights = of.parts(op.result if of_weights else op.operands[1])
    results = of.parts(op.result if is_forward else op.operands[1 if of_weights else 0])
    places, terms = (math.prod((of_each.first, *of_each.spatial)) for of_each in (results, weights))
    terms *= weights.channels
    fewest, most = sorted((weights.first, weights.channels))
    if of.groups > 1 or fewest > MOST_CHANNELS or terms > MOST_TERMS:
        return False
    if most <= MOST_CHANNELS:
        return True
    if element_name(element_type(op.result)) not in NARROW:
        return not of.allow_tf32 and terms <= FEW_TERMS
    if math.prod(weights.spatial) == 1 and has_whole_vectors(op):
        return False
    return places <= MOST_PLACES or (is_alone and (is_forward or terms <= FEW_TERMS))


def form(op: ConvolvingOp, channels_last: bool = False, with_bias: bool = False) -> ConvolvingOp:
    """The same convolution on operands of its own, as it stands or with channels last; without its bias unless asked for."""
    shapes = [shape_of(value) for value in op.factors]
    if channels_last and not is_true(op.channels_last):
        shapes = [permuted(shape, to_last(len(shape))) for shape in shapes]
    types = [with_shape(value, shape) for value, shape in zip(op.factors, shapes, strict=True)]
    more = [value.type for value in op.operands[2:] if with_bias]
    a, b, *bias = Block(arg_types=[*types, *more]).args
    of = op.convolved._replace(channels_last=channels_last or is_true(op.channels_last))
    return type(op)(a, b, of, op.size.get_values(), *bias)


def add_apart(op: nn.ConvolutionOp, bias: SSAValue) -> None:
    """Write a convolution with a bias as one without, and a sum."""
    emitter = Emitter(InsertPoint.before(op), op.location)
    sums = emitter.emit(nn.ConvolutionOp(*op.factors, op.convolved, op.size.get_values()))
    Rewriter.replace_op(op, [], [with_bias(emitter.emit, sums, bias, op.convolved.channels_last)])
