"""
The passes in the order of the pipeline, loaded on first use.

A pass has one name in four spellings: the flag `--select-kernels`, the file `select_kernels.py`, the class
`SelectKernelsPass` and the test `tests/lit/passes/select-kernels.mlir`. The rules of `fuse` are in its folder: the flag
`--fuse-loops` is of `fuse/loops`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable

from xdsl.passes import ModulePass

FLAGS = (
    "merge-products",
    "autodiff",
    "accumulate",
    "sum-ranks",
    "average-ranks",
    "divide-gradients",
    "check-finite",
    "scale-loss",
    "clip-gradients",
    "vote-ranks",
    "divide-updates",
    "apply-optimizer",
    "skip-overflow",
    "gather-updates",
    "average-weights",
    "join-products",
    "verify-host-scalars",
    "keep-scores",
    "convolutions",
    "decompose",
    "lower",
    "fuse",
    "fuse-gradients",
    "fuse-lookups",
    "fuse-updates",
    "fuse-losses",
    "fuse-back-to-back",
    "fuse-narrow-products",
    "fuse-aligned-products",
    "fuse-tall-products",
    "fuse-activations",
    "fuse-epilogues",
    "fuse-loops",
    "fuse-totals",
    "fuse-sums-of-results",
    "fuse-after-columns",
    "fuse-optimizer",
    "fuse-checks",
    "fuse-short-rows",
    "fuse-arguments",
    "fuse-segments",
    "fuse-placed-updates",
    "fuse-scatters",
    "fuse-small-batches",
    "fuse-horizontal",
    "recompute",
    "large-constants",
    "split-dimensions",
    "elide-copies",
    "straighten-rows",
    "merge-copies",
    "keep-parts",
    "select-kernels",
    "bufferize",
    "persistent-weights",
    "free-early",
    "multi-stream",
    "prefetch",
    "plan-memory",
)


def load_pass(flag: str) -> type[ModulePass]:
    """Return the pass class named `flag`."""
    name = flag.replace("-", "_").replace("fuse_", "fuse.", 1)
    module = importlib.import_module(f"{__name__}.{name}")
    return getattr(module, flag.title().replace("-", "") + "Pass")


def get_all_passes() -> dict[str, Callable[[], type[ModulePass]]]:
    """Loaders of every AICF pass by flag."""

    def loader(flag: str) -> Callable[[], type[ModulePass]]:
        return lambda: load_pass(flag)

    return {flag: loader(flag) for flag in FLAGS}
