"""Fewer launches that compute the same: epilogues of products, chains of loops, and one launch for all tensors of an update.

Each fusion is legal by itself and never loses a value that something else uses. In f16 and bf16 an epilogue
works on the f32 accumulators: a fused result is rounded once, unfused ones after each launch. Both are within
the tolerance of the ops; the fused one is closer to the exact result. What is cast, and what there is once a
row, is rounded to its own type first.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriteWalker, RewritePattern
from xdsl.rewriter import Rewriter

from aicf_mlir.dialects.generated import GeneratedOp
from aicf_mlir.dialects.plan import LaunchOp
from aicf_mlir.dialects.scalar import Bodies, BodyOp
from aicf_mlir.ir import registry
from aicf_mlir.ir.signature import return_op
from aicf_mlir.passes.fuse.activation import FuseActivation
from aicf_mlir.passes.fuse.activation_gradient import FuseActivationGradient
from aicf_mlir.passes.fuse.arguments import fuse_arguments
from aicf_mlir.passes.fuse.bias import FuseBias
from aicf_mlir.passes.fuse.bias_gradient import FuseBiasGradient
from aicf_mlir.passes.fuse.epilogue import fuse_epilogues
from aicf_mlir.passes.fuse.gradients import read_as_they_are
from aicf_mlir.passes.fuse.library import Library
from aicf_mlir.passes.fuse.loops import fuse_loops, tell_apart
from aicf_mlir.passes.fuse.loops.totals import add_columns_first
from aicf_mlir.passes.fuse.losses import write_losses_as_loops
from aicf_mlir.passes.fuse.optimizer import fuse_updates
from aicf_mlir.passes.fuse.segments import SMALL, SMALL_ON_GPU, fuse_segments
from aicf_mlir.passes.fuse.update import UpdateFusion
from aicf_mlir.passes.fuse.views import FoldReshape


@dataclass(frozen=True)
class FusePass(ModulePass):
    """Fuse bias, activation and their gradients into products, and all updates of a kind into one launch.

    Options:
      target: "cpu" (the default), where products also update large weights, or a compute capability such as "sm_90"; of
        "sm_90+cublaslt" what that library multiplies gets no epilogue that it has not
    """

    name = "fuse"

    target: str = "cpu"

    def __post_init__(self) -> None:
        registry.check_target(self.target)

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        bodies, library = Bodies(op), Library(self.target)
        for function in list(op.ops):
            if isinstance(function, FuncOp) and not function.is_declaration:
                return_op(function)  # refuses what is not one block
                read_as_they_are(function)
                updates = UpdateFusion(function, bodies)
                if self.target == "cpu":
                    updates.write()
                else:
                    write_losses_as_loops(function, bodies)
                fuse_products(function, library)
                fuse_epilogues(function, bodies, library, last=False)
                if fuse_loops(function, bodies, last=False):
                    fuse_products(function, library)  # what one launch reads now, two did
                fuse_epilogues(function, bodies, library, last=True)
                fuse_loops(function, bodies, last=True)
                if self.target != "cpu" and add_columns_first(function, bodies):
                    fuse_loops(function, bodies, last=True)
                fuse_updates(function)
                if self.target == "cpu":  # where a launch is a call
                    fuse_segments(function, bodies, SMALL)
                else:
                    fuse_arguments(function, bodies, SMALL_ON_GPU)
                    fuse_segments(function, bodies, SMALL_ON_GPU)
                updates.place()
                tell_apart(function, bodies)
        drop_unread_bodies(op)


def fuse_products(function: FuncOp, library: Library) -> None:
    """Apply the patterns one after the other, each once to every op."""

    def apply(pattern: RewritePattern) -> None:
        PatternRewriteWalker(pattern, apply_recursively=False).rewrite_region(function.body)

    apply(FoldReshape())
    apply(FuseBias())
    apply(FuseActivation(library))
    apply(FuseActivationGradient(library))
    apply(FoldReshape())  # those that the fusions have put between two products
    apply(FuseBiasGradient(function, library))


def drop_unread_bodies(module: ModuleOp) -> None:
    """Erase the bodies that no launch names any more."""
    launches = [op for op in module.walk() if isinstance(op, GeneratedOp | LaunchOp)]
    named = {op.body if isinstance(op, LaunchOp) else op.body_symbol for op in launches}
    for op in list(module.ops):
        if isinstance(op, BodyOp) and op.symbol not in named:
            Rewriter.erase_op(op)
