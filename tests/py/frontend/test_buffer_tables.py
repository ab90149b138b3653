"""Buffers that a model fills in at its first call: a table that each call computes alike is no state."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from aicf_mlir import TraceError, compile_train_step


class Biased(nn.Module):
    """A bias by distance, kept as position encodings keep theirs; `of` is what it is made of."""

    def __init__(self, empty: torch.Tensor | None, of: str, persistent: bool = False):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(5, 5)
        self.table: torch.Tensor | None
        self.register_buffer("slopes", torch.tensor([0.5]))
        self.register_buffer("table", empty, persistent=persistent)
        self.of = of

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.table is None or not self.table.numel():
            slope: Any = {"buffer": self.slopes, "parameter": self.layer.bias[0], "batch": x[0, 0]}[self.of]
            self.table = -torch.arange(5.0) * slope
        return self.layer(x) + self.table


def step_of(model: nn.Module) -> Any:
    return compile_train_step(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        loss_fn=lambda m, b: m(b["x"]).square().mean(),
        example={"x": torch.randn(4, 5)},
        device="cpu",
    )


@pytest.mark.parametrize("empty", [None, torch.zeros(0)], ids=["none", "no elements"])
def test_a_table_is_computed_in_each_step(empty: torch.Tensor | None) -> None:
    model = Biased(empty, "buffer")
    step = step_of(model)
    assert model.table is empty
    for _ in range(2):
        found = step.check({"x": torch.randn(4, 5)}, steps=2)
        assert found.equal, str(found)
        step.train_step({"x": torch.randn(4, 5)})
    assert model.table is empty


@pytest.mark.parametrize("of, persistent", [("parameter", False), ("batch", False), ("buffer", True)])
def test_what_the_next_call_or_a_checkpoint_would_find_is_refused(of: str, persistent: bool) -> None:
    with pytest.raises(
        TraceError, match=r"assigns to the buffer 'table' a tensor float32.5., where there was None"
    ):
        step_of(Biased(None, of, persistent))
