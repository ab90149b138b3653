"""A step of many layers: what grows with their number shows in its text."""

from __future__ import annotations

from functools import cache

import torch

from aicf_mlir.frontend import Traced, trace
from aicf_mlir.stages import Snapshots, run_stages
from aicf_mlir.text.parsing import make_context

LAYERS = 40


@cache
def traced(layers: int = LAYERS) -> Traced:
    """As many linear layers with a relu each, under Adam with two param groups."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        *(layer for _ in range(layers) for layer in (torch.nn.Linear(8, 8), torch.nn.ReLU()))
    )
    parameters = list(model.parameters())
    groups = [{"params": parameters[:1]}, {"params": parameters[1:], "lr": 1e-4}]
    batch = {"x": torch.randn(4, 8), "t": torch.randn(4, 8)}
    return trace(model, None, batch, optimizer=torch.optim.Adam(groups))


@cache
def stages(layers: int = LAYERS) -> Snapshots:
    """The step at every stage, for the CPU."""
    snapshots = Snapshots()
    run_stages(traced(layers).module.clone(), make_context(), after_each=snapshots)
    return snapshots
