"""Bias, activation and their gradients become epilogues of prebuilt products."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.func import FuncOp
from xdsl.pattern_rewriter import PatternRewriteWalker, RewritePattern

from aicf_mlir.dialects.scalar import Bodies
from aicf_mlir.passes.fuse.activation import FuseActivation, FuseRelu
from aicf_mlir.passes.fuse.activation_gradient import FuseActivationGradient
from aicf_mlir.passes.fuse.bias import FuseBias
from aicf_mlir.passes.fuse.bias_gradient import FuseBiasGradient
from aicf_mlir.passes.fuse.library import Library
from aicf_mlir.passes.fuse.rule import FusionRule, is_small
from aicf_mlir.passes.fuse.views import FoldReshape


@dataclass(frozen=True)
class FuseActivationsPass(FusionRule):
    """Write bias, activation and their gradients as epilogues of prebuilt products, kernel.gemm_epilogue; relu as one of a
    convolution.

    No product in a small step: there all of them are generated, so that they can be one launch with others.

    Options:
      early: without remarks, for loops may take what is left
    """

    name = "fuse-activations"

    early: bool = False

    def fuse(self, function: FuncOp, bodies: Bodies) -> None:
        """Apply the patterns one after the other, each once to every op."""

        def apply(pattern: RewritePattern) -> None:
            PatternRewriteWalker(pattern, apply_recursively=False).rewrite_region(function.body)

        apply(FuseRelu(self.target))
        if is_small(function):
            return
        library = Library(self.target)
        apply(FoldReshape())
        apply(FuseBias())
        apply(FuseActivation(library))
        apply(FuseActivationGradient(library))
        apply(FoldReshape())  # those that the fusions have put between two products
        apply(FuseBiasGradient(function, library, says=not self.early))
