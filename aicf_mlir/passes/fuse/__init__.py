"""Fewer launches that compute the same: epilogues of products, chains of loops, and one launch for all tensors of an update.

Each fusion is legal by itself and never loses a value that something else uses. Every f16 and bf16 that another op reads is
rounded to its own type first (rounding.py), so that a fused function has the bits of its ops.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriteWalker, RewritePattern
from xdsl.rewriter import Rewriter

from aicf_mlir.codegen.schedule import reason
from aicf_mlir.dialects.generated import GeneratedOp
from aicf_mlir.dialects.plan import LaunchOp
from aicf_mlir.dialects.scalar import Bodies, BodyOp
from aicf_mlir.ir import registry
from aicf_mlir.ir.signature import return_op
from aicf_mlir.passes.fuse.activation import FuseActivation
from aicf_mlir.passes.fuse.activation_gradient import FuseActivationGradient
from aicf_mlir.passes.fuse.aligned_products import align_products
from aicf_mlir.passes.fuse.alike import fuse_checks, fuse_scatters
from aicf_mlir.passes.fuse.arguments import fuse_arguments
from aicf_mlir.passes.fuse.back_to_back import fuse_chains
from aicf_mlir.passes.fuse.bias import FuseBias
from aicf_mlir.passes.fuse.bias_gradient import FuseBiasGradient
from aicf_mlir.passes.fuse.constants import write_constants_first
from aicf_mlir.passes.fuse.epilogue import fuse_epilogues
from aicf_mlir.passes.fuse.gradients import read_as_they_are
from aicf_mlir.passes.fuse.horizontal import fuse_horizontally
from aicf_mlir.passes.fuse.library import Library
from aicf_mlir.passes.fuse.loops import fuse_loops, is_large, tell_apart
from aicf_mlir.passes.fuse.loops.totals import add_columns_first
from aicf_mlir.passes.fuse.losses import write_losses_as_loops
from aicf_mlir.passes.fuse.narrow_products import write_narrow_products_as_loops
from aicf_mlir.passes.fuse.optimizer import fuse_updates
from aicf_mlir.passes.fuse.scattered import read_rows_in_place
from aicf_mlir.passes.fuse.segments import SMALL, SMALL_ON_GPU, fuse_segments
from aicf_mlir.passes.fuse.short_rows import write_short_rows_as_maps
from aicf_mlir.passes.fuse.small_batches import generate_products, generate_small_batches
from aicf_mlir.passes.fuse.small_updates import SmallUpdateFusion
from aicf_mlir.passes.fuse.tall_products import divide_tall_products
from aicf_mlir.passes.fuse.update import UpdateFusion
from aicf_mlir.passes.fuse.views import FoldReshape

CHAIN_ROWS = 1 << 15
"""The fewest rows of products that become a chain: fewer do not fill a GPU with tiles of rows that stay in it."""
CHAINED_FROM = 90
"""The compute capability that has code for chains."""


@dataclass(frozen=True)
class FusePass(ModulePass):
    """Fuse bias, activation and their gradients into products, and all updates of a kind into one launch.

    Options:
      target: "cpu" (the default), where products also update large weights, or a compute capability such as "sm_90"; for
        "sm_90+cublaslt" the products of that library get only the epilogues that it has
      back-to-back-rows: the number of rows from which on successive narrow products of 16 bits become one launch, a chain; by
        default 2^15 if the target has code for them, and never on the CPU
    """

    name = "fuse"

    target: str = "cpu"
    back_to_back_rows: int | None = None

    def __post_init__(self) -> None:
        registry.check_target(self.target)

    @property
    def rows_of_chains(self) -> int | None:
        """The number of rows from which on there are chains."""
        if (
            self.back_to_back_rows is None
            and self.target != "cpu"
            and registry.capability(self.target) >= CHAINED_FROM
        ):
            return CHAIN_ROWS
        return self.back_to_back_rows

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        bodies, library, rows = Bodies(op), Library(self.target), self.rows_of_chains
        for function in list(op.ops):
            if isinstance(function, FuncOp) and not function.is_declaration:
                return_op(function)  # refuses a region that is not one block
                write_constants_first(function.body.block)
                read_as_they_are(function)
                read_rows_in_place(function, bodies, self.target)
                small = SmallUpdateFusion(function, bodies, self.target)
                updates = UpdateFusion(function, bodies) if self.target == "cpu" else small
                if self.back_to_back_rows is None:
                    updates.write()
                is_small = self.target != "cpu" and bool(updates.launches)
                if self.target != "cpu" or rows is not None:
                    write_losses_as_loops(function, bodies)
                if rows is not None:
                    fuse_chains(function, bodies, self.target, rows, reason)
                if self.target != "cpu":
                    write_narrow_products_as_loops(function, bodies, small)
                if self.target != "cpu" and not is_small:
                    align_products(function)
                    divide_tall_products(function)
                if not is_small:  # else each product is generated, so that it can be one launch with others
                    fuse_products(function, library)
                fuse_epilogues(function, bodies, library, last=False)
                if fuse_loops(function, bodies, last=False) and not is_small:
                    fuse_products(function, library)  # one launch reads it now, two did before
                fuse_epilogues(function, bodies, library, last=True)
                alone = always if is_small else never if self.target == "cpu" else is_large
                fuse_loops(function, bodies, last=True, alone=alone)
                if self.target != "cpu" and add_columns_first(function, bodies):
                    fuse_loops(function, bodies, last=True, alone=alone)
                fuse_updates(function)
                fuse_checks(function, SMALL if self.target == "cpu" else SMALL_ON_GPU)
                if self.target == "cpu":  # where a launch is a call
                    write_short_rows_as_maps(function, bodies)
                    fuse_segments(function, bodies, SMALL)
                    updates.place()
                else:
                    fuse_arguments(function, bodies, SMALL_ON_GPU)
                    fuse_segments(function, bodies, SMALL_ON_GPU)
                    fuse_scatters(function, self.target, SMALL_ON_GPU)
                    generate_small_batches(function, bodies, library)
                tell_apart(function, bodies)
                if is_small:
                    generate_products(function, bodies, small.is_small_product)
                    fuse_horizontally(op, function, bodies, self.target)
        drop_unread_bodies(op)


def always(_: object) -> bool:
    return True


def never(_: object) -> bool:
    return False


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
    named = {symbol for op in launches for symbol in op.bodies}
    for op in list(module.ops):
        if isinstance(op, BodyOp) and op.symbol not in named:
            Rewriter.erase_op(op)
