"""Gradients of torch's ops at special operands and cotangents: those of torch's own step, whatever rule traces the op."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from special_surface import faults
from test_opinfo import NAMES, UNDEFINED

IN_LANES = "at a NaN torch's CPU kernels differ between what fills a vector register and the rest; ours is as the rest"
OF_OTHERS = (
    "torch has three formulas, by how many zeros the whole tensor has; ours is the product of all others"
)
INFINITE = "torch factors a matrix with an infinite pivot, here the factorization stops there"
ATTENTION = "what a mask hides is left out here, where torch multiplies it by 0"
PADDED = "what a padding of zeros meets is left out here, where some of torch's kernels multiply it by 0"
RESIZED = "a resize is a product with a matrix here, where 0 · inf is a NaN; torch reads the neighbours alone"
OF_GRIDS = "of a place that is a NaN torch makes a whole number, which its CPU kernels do in several ways"
SCALED = "torch multiplies gradients that are 0 by the cotangent"
NEGATIVE = "torch's gradient takes the absolute value to be above 0; ours is the derivative"

OTHERWISE: Mapping[str, tuple[str, frozenset[str]]] = {
    **{
        f"nn.functional.{name}": (IN_LANES, frozenset({"nan"}))
        for name in ("celu", "elu", "selu", "hardshrink", "softshrink", "hardswish", "hardtanh", "relu6")
    },
    **{f"nn.functional.conv_transpose{rank}d": (PADDED, frozenset({"nan", "inf"})) for rank in (1, 2, 3)},
    **{
        name: (RESIZED, frozenset({"nan", "inf", "cotangents", "of probabilities"}))
        for name in (
            "_upsample_bilinear2d_aa",
            "nn.functional.interpolate",
            "nn.functional.upsample_bilinear",
        )
    },
    **{
        name: (OF_GRIDS, frozenset({"nan", "inf"}))
        for name in ("grid_sampler_2d", "grid_sampler_3d", "nn.functional.grid_sample")
    },
    **{
        f"nn.functional.{name}_loss": (SCALED, frozenset({"cotangents", "of probabilities"}))
        for name in ("multi_margin", "multilabel_margin")
    },
    "polar": (NEGATIVE, frozenset({"ties", "zeros", "nan", "inf", "far"})),
    "linalg.cholesky_ex": (INFINITE, frozenset({"inf"})),
    "logit": (IN_LANES, frozenset({"nan"})),
    "prod": (OF_OTHERS, frozenset({"nan", "inf", "cotangents"})),
    "masked.prod": (OF_OTHERS, frozenset({"nan", "inf", "cotangents"})),
    "nn.functional.scaled_dot_product_attention": (ATTENTION, frozenset({"nan", "inf", "far", "cotangents"})),
}
"""Ops that are otherwise than torch, why, and in which patterns; `special_surface.IN_PART` has what is judged of some."""

OPS = sorted(set(NAMES) - set(UNDEFINED))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=["f64", "bf16"])
@pytest.mark.parametrize("name", OPS)
def test_gradients_are_torchs(name: str, dtype: torch.dtype, request: pytest.FixtureRequest) -> None:
    count = 6 if request.config.getoption("--campaign") else 1
    _, where = OTHERWISE.get(name, ("", frozenset[str]()))
    found = [fault for fault in faults(name, count, dtype) if fault.pattern not in where]
    assert not found, "\n".join(map(str, found))
