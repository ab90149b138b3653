"""What the first call of a model changes for good."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from state_cases import Layer, square

from aicf_mlir.errors import TraceError
from aicf_mlir.frontend import trace

BATCH = {"x": torch.ones(4, 4), "t": torch.zeros(4, 3)}


def test_what_only_the_first_call_changes_says_to_call_the_model_once() -> None:
    def first(module: Any) -> float:
        is_first, module.is_new = module.is_new, False
        return 2.0 if is_first else 1.0

    model = Layer(first, is_new=True)
    with pytest.raises(
        TraceError, match=r"changes model\.is_new.*call the model once, with such a batch, before"
    ):
        trace(model, square, BATCH)
    square(model, BATCH)
    trace(model, square, BATCH)
