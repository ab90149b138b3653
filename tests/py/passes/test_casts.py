"""A cast from f16 or bf16 sees what such a tensor holds, whoever has computed it: fusion lets no unrounded value through."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from aicf_mlir import compile_eval_step

ROWS, COLUMNS = 24, 40
SUMS = 1e-5
"""What another order of summation may differ by; a rounding to bf16 that is left out differs by 1e-3."""

Chain = Callable[[torch.Tensor, torch.Tensor, torch.dtype], torch.Tensor]

CHAINS: dict[str, Chain] = {
    "a norm divides": lambda x, w, low: (x.to(low) / x.to(low).norm()).float(),
    "rows are divided": lambda x, w, low: (x.to(low) / x.to(low).sum(1, keepdim=True)).float(),
    "a quotient is cast": lambda x, w, low: (x.to(low) / w.to(low)).float() * 3.0,
    "a product is cast": lambda x, w, low: (x.to(low) @ w.to(low).T).float() * 3.0,
    "a product and a bias": lambda x, w, low: torch.nn.functional.linear(
        x.to(low), w.to(low), w[:, 0].to(low)
    ).float(),
    "a scaled sum of products": lambda x, w, low: torch.addmm(
        w[:, :ROWS].to(low), x.to(low), x.to(low).T, beta=0.7, alpha=1.3
    ).float(),
}


class Weight(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.rand(ROWS, COLUMNS) + 0.5)


@pytest.mark.parametrize("low", [torch.bfloat16, torch.float16], ids=["bf16", "f16"])
@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS.keys())
def test_casts_round(chain: Chain, low: torch.dtype, device: str) -> None:
    torch.manual_seed(0)
    model, batch = Weight().to(device), {"x": torch.rand(ROWS, COLUMNS, device=device) + 0.5}
    weights = torch.rand(ROWS, COLUMNS, device=device)

    def loss(model: Weight, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        result = chain(batch["x"], model.w, low)
        return (result * weights[:, : result.shape[1]]).sum()

    step = compile_eval_step(model, loss_fn=loss, example=batch, device=device)
    torch.testing.assert_close(step.eval_step(batch), loss(model, batch).detach(), rtol=SUMS, atol=0.0)
