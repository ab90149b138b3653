"""What a comparison of a drawn number is known to say, whatever is drawn: layers that are skipped with probability 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from aicf_mlir import TraceError, compile_train_step

NODES, WIDTH = 8, 4


class Skipping(nn.Module):
    """As layers of transformers are skipped at random."""

    def __init__(self, skip: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.skip = skip

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            if not self.skip(torch.rand(())):
                x = layer(x)
        return x


NEVER: dict[str, Callable[[Tensor], Any]] = {
    "below nothing": lambda drawn: drawn < 0.0,
    "one or more": lambda drawn: torch.ge(drawn, 1.0),
    "above all, of a rank": lambda drawn: drawn.gt(torch.tensor(1.5)),
    "not below one": lambda drawn: ~(drawn < 1),
}
SOMETIMES: dict[str, Callable[[Tensor], Any]] = {
    "below a tenth": lambda drawn: drawn < 0.1,
    "zero, which may be drawn": lambda drawn: drawn <= 0.0,
    "written to before": lambda drawn: drawn.mul_(2) > 1.0,
    "against another draw": lambda drawn: drawn < torch.rand(()) - 1.0,
}


@pytest.mark.parametrize("skip", NEVER.values(), ids=NEVER)
def test_what_a_draw_cannot_be_is_known(skip: Callable[[Tensor], Any]) -> None:
    torch.manual_seed(0)
    model = Skipping(skip)
    batch = {"x": torch.randn(NODES, WIDTH)}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = compile_train_step(
        model, optimizer, loss_fn=lambda m, b: m(b["x"]).square().mean(), example=batch, device="cpu"
    )
    found = step.check(batch, steps=2)
    assert found.equal, str(found)


@pytest.mark.parametrize("skip", SOMETIMES.values(), ids=SOMETIMES)
def test_what_a_draw_may_be_is_refused(skip: Callable[[Tensor], Any]) -> None:
    model = Skipping(skip)
    with pytest.raises(TraceError, match="branches on the value of a tensor"):
        compile_train_step(
            model,
            torch.optim.SGD(model.parameters(), lr=0.1),
            loss_fn=lambda m, b: m(b["x"]).square().mean(),
            example={"x": torch.randn(NODES, WIDTH)},
            device="cpu",
        )
