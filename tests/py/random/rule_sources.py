"""Programs for each rule of fusion: functions on which it applies alone, and functions with what several rules take."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import drafts_of_products as products
import drafts_of_updates as updates
import numpy as np
from drafts import Draft, Program
from xdsl.dialects.builtin import ModuleOp
from xdsl.transforms.dead_code_elimination import DeadCodeElimination

from aicf_mlir.ir.verify import verify_module
from aicf_mlir.passes.fuse import RULES
from aicf_mlir.passes.fuse.back_to_back import FuseBackToBackPass
from aicf_mlir.passes.fuse.rule import FusionRule, defined, drop_unread_bodies
from aicf_mlir.text.parsing import make_context

TARGETS = ("cpu", "sm_80", "sm_90", "sm_90+cublaslt+cudnn", "sm_100")
GPUS = TARGETS[1:]
OWN = ("cpu", "sm_80", "sm_90", "sm_100")
"""The targets without a library that multiplies."""
CHAIN_ROWS = 64
"""The rows from which on a chain is written here: interpreting 2^15 rows would take too long."""


@dataclass(frozen=True)
class Source:
    """The programs on which a rule applies."""

    draw: Callable[[Draft], None]
    targets: Sequence[str] = TARGETS
    after: tuple[str, ...] = ()
    """The rules without which it has nothing to do, by flag."""


SOURCES: Mapping[str, Source] = {
    "fuse-gradients": Source(updates.gradients),
    "fuse-lookups": Source(updates.lookups),
    "fuse-updates": Source(updates.updates),
    "fuse-losses": Source(products.losses, GPUS),
    "fuse-back-to-back": Source(products.chains, ("cpu", "sm_90")),  # those with code for chains
    "fuse-narrow-products": Source(products.narrow_products, GPUS),
    "fuse-aligned-products": Source(products.aligned_products, GPUS),
    "fuse-tall-products": Source(products.tall_products, GPUS),
    "fuse-activations": Source(products.activations, OWN),
    "fuse-epilogues": Source(products.epilogues, OWN),
    "fuse-loops": Source(products.loops),
    "fuse-totals": Source(products.totals, GPUS),
    "fuse-sums-of-results": Source(products.sums_of_results, GPUS),
    "fuse-after-columns": Source(products.after_columns, GPUS),
    "fuse-optimizer": Source(updates.optimizer),
    "fuse-checks": Source(updates.checks),
    "fuse-short-rows": Source(products.short_rows, ("cpu",)),
    "fuse-arguments": Source(updates.arguments, GPUS),
    "fuse-segments": Source(updates.segments),
    "fuse-placed-updates": Source(updates.placed_updates, ("cpu",)),
    "fuse-scatters": Source(updates.scatters, GPUS),
    "fuse-small-batches": Source(products.small_batches, OWN[1:]),
    # it takes small steps only, and fuse-updates is what marks them
    "fuse-horizontal": Source(updates.horizontal, GPUS, ("fuse-updates",)),
}
"""By flag. A product with an epilogue or a launch with a body, which other rules make too, stands in the programs as it is."""


def program_of(number: int, seed: int) -> tuple[Program, str]:
    """A program on which the rule of this number in RULES applies, after those that it needs, and the target."""
    source = SOURCES[RULES[number].name]
    target = source.targets[seed % len(source.targets)]
    draft = Draft(np.random.default_rng([number, seed]), target)
    source.draw(draft)
    return draft.finish(), target


def mixed_program(rng: np.random.Generator, target: str) -> Program:
    """A program with what one to four rules take, and with values that several of these read; some with empty tensors."""
    draft = Draft(rng, target)
    draft.reuse = float(rng.choice((0.0, 0.3, 0.6)))
    draft.empty = float(rng.choice((0.0, 0.0, 0.1)))
    known = [source for source in SOURCES.values() if target in source.targets]
    for number in rng.integers(len(known), size=int(rng.integers(1, 5))):
        known[number].draw(draft)
    return draft.finish()


def on(rule: FusionRule, target: str) -> FusionRule:
    """The rule for a target."""
    given = replace(rule, target=target)
    return replace(given, rows=CHAIN_ROWS) if isinstance(given, FuseBackToBackPass) else given


def apply(module: ModuleOp, rule: FusionRule) -> None:
    """Apply a rule and verify."""
    rule.apply(make_context(), module)
    verify_module(module)


def text_of(module: ModuleOp) -> str:
    """The text with constants first and without what nothing reads: rules leave it so where they find nothing to do."""
    copy = module.clone()
    list(defined(copy))
    DeadCodeElimination().apply(make_context(), copy)
    drop_unread_bodies(copy)
    return str(copy)
