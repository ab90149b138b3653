"""Random numbers that Python draws in a step: torch trains by them, a compiled step would repeat the first.

They are refused by name, and generators are as they were before.
"""
# ruff: noqa: NPY002 - users draw from the generator that all share

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from aicf_mlir.errors import TraceError
from aicf_mlir.frontend import trace

Loss = Callable[[Any, Any], torch.Tensor]

OWN, PYTHONS = np.random.default_rng(3), random.Random(3)


def square(model: Any, batch: Any) -> torch.Tensor:
    return F.mse_loss(model(batch["x"]), batch["t"])


def mixed(model: Any, batch: Any) -> torch.Tensor:
    share = np.random.beta(0.4, 0.4)
    x = share * batch["x"] + (1 - share) * batch["x"].flip(0).exp()
    return F.mse_loss(model(x), batch["t"])


def now_and_then(model: Any, batch: Any) -> torch.Tensor:
    return square(model, batch) * (2.0 if random.random() < 0.5 else 1.0)


DRAWN: dict[str, tuple[Loss, str]] = {
    "mixup by NumPy": (mixed, r"draws random numbers of numpy\.random"),
    "a branch by Python's random": (now_and_then, r"draws random numbers of Python's random"),
    "both": (
        lambda m, b: square(m, b) * random.random() * np.random.rand(),
        r"of Python's random and numpy\.random; .*draw with torch",
    ),
    "a permutation of NumPy": (
        lambda m, b: F.mse_loss(m(b["x"]), b["t"][np.random.permutation(2)]),
        r"numpy\.random",
    ),
    "a generator of NumPy": (
        lambda m, b: square(m, b) * OWN.random(),
        r"reads 'OWN', a random generator \(Generator\)",
    ),
    "a generator of Python": (
        lambda m, b: square(m, b) * PYTHONS.random(),
        r"reads 'PYTHONS', a random generator \(Random\)",
    ),
    "a generator of torch": (
        lambda m, b: square(m, b) + torch.randn(3, generator=torch.Generator().manual_seed(1)).sum(),
        r"draws from a torch\.Generator \(`.*`\), .*leave generator= out",
    ),
}


def state() -> object:
    arrays = np.random.get_state()
    return random.getstate(), [np.asarray(part).tolist() for part in arrays]


@pytest.mark.parametrize("name", DRAWN)
def test_random_numbers_of_python_are_refused(name: str) -> None:
    loss, pattern = DRAWN[name]
    before = state()
    with pytest.raises(TraceError, match=pattern) as caught:
        trace(nn.Linear(4, 3), loss, {"x": torch.ones(2, 4), "t": torch.zeros(2, 3)})
    assert str(caught.value).startswith(f"{__file__}:")
    assert state() == before
