"""Fewer launches that compute the same: epilogues of products, chains of loops, and one launch for all tensors of an update.

`RULES` has the rules in their order. Each is a pass with a flag of its own, is legal by itself, and never loses a value that
something else uses. Every f16 and bf16 that another op reads is rounded to its own type first (rounding.py), so that a fused
function has the bits of its ops.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from aicf_mlir.dialects.scalar import Bodies
from aicf_mlir.passes.fuse.activations import FuseActivationsPass
from aicf_mlir.passes.fuse.after_columns import FuseAfterColumnsPass
from aicf_mlir.passes.fuse.aligned_products import FuseAlignedProductsPass
from aicf_mlir.passes.fuse.arguments import FuseArgumentsPass
from aicf_mlir.passes.fuse.back_to_back import FuseBackToBackPass
from aicf_mlir.passes.fuse.checks import FuseChecksPass
from aicf_mlir.passes.fuse.epilogues import FuseEpiloguesPass
from aicf_mlir.passes.fuse.gradients import FuseGradientsPass
from aicf_mlir.passes.fuse.horizontal import FuseHorizontalPass
from aicf_mlir.passes.fuse.lookups import FuseLookupsPass
from aicf_mlir.passes.fuse.loops import FuseLoopsPass, tell_apart
from aicf_mlir.passes.fuse.losses import FuseLossesPass
from aicf_mlir.passes.fuse.narrow_products import FuseNarrowProductsPass
from aicf_mlir.passes.fuse.optimizer import FuseOptimizerPass
from aicf_mlir.passes.fuse.placed_updates import FusePlacedUpdatesPass
from aicf_mlir.passes.fuse.rule import FusionRule, defined, drop_unread_bodies
from aicf_mlir.passes.fuse.scatters import FuseScattersPass
from aicf_mlir.passes.fuse.segments import FuseSegmentsPass
from aicf_mlir.passes.fuse.short_rows import FuseShortRowsPass
from aicf_mlir.passes.fuse.small_batches import FuseSmallBatchesPass
from aicf_mlir.passes.fuse.sums_of_results import FuseSumsOfResultsPass
from aicf_mlir.passes.fuse.tall_products import FuseTallProductsPass
from aicf_mlir.passes.fuse.totals import FuseTotalsPass
from aicf_mlir.passes.fuse.updates import FuseUpdatesPass
from aicf_mlir.passes.target import TargetPass

RULES: tuple[FusionRule, ...] = (
    FuseGradientsPass(),
    FuseLookupsPass(),
    FuseUpdatesPass(),
    FuseLossesPass(),
    FuseBackToBackPass(),
    FuseNarrowProductsPass(),
    FuseAlignedProductsPass(),
    FuseTallProductsPass(),
    FuseActivationsPass(early=True),
    FuseEpiloguesPass(early=True),
    FuseLoopsPass(early=True),
    FuseActivationsPass(),  # one launch reads a product now, two did before
    FuseEpiloguesPass(),
    FuseLoopsPass(),
    FuseTotalsPass(),
    FuseSumsOfResultsPass(),
    FuseAfterColumnsPass(),
    FuseOptimizerPass(),
    FuseChecksPass(),
    FuseShortRowsPass(),
    FuseArgumentsPass(),
    FuseSegmentsPass(),
    FusePlacedUpdatesPass(),
    FuseScattersPass(),
    FuseSmallBatchesPass(),
    FuseHorizontalPass(),
)
"""The rules in the order in which `fuse` applies them."""


@dataclass(frozen=True)
class FusePass(TargetPass):
    """Apply all rules of fusion in their order.

    Options:
      target: "cpu" (the default), or a compute capability such as "sm_90", with "+" and each library that it may use
      back-to-back-rows: the option `rows` of `fuse-back-to-back`. Losses are loops then on a CPU too, and no update becomes an
        epilogue: successive products take both.
      without: the rules that are left out, by flag
    """

    name = "fuse"

    back_to_back_rows: int | None = None
    without: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        known = sorted({rule.name for rule in RULES})
        if unknown := [name for name in self.without if name not in known]:
            raise ValueError(f"without: there is no rule '{unknown[0]}'; the rules are {', '.join(known)}")

    @property
    def rules(self) -> Iterator[FusionRule]:
        """The rules that pay on the target, with its options."""
        for rule in RULES:
            given = replace(rule, target=self.target)
            if self.back_to_back_rows is None:
                wanted = given.pays
            else:
                wanted = isinstance(rule, FuseLossesPass) or (
                    given.pays and not isinstance(rule, FuseUpdatesPass)
                )
                if isinstance(given, FuseBackToBackPass):
                    given = replace(given, rows=self.back_to_back_rows)
            if wanted and rule.name not in self.without:
                yield given

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        bodies, rules = Bodies(op), list(self.rules)
        for function in defined(op):
            for rule in rules:
                rule.fuse(function, bodies)
            tell_apart(function, bodies)
        drop_unread_bodies(op)
