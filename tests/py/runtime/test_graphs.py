"""Sums over the edges of a graph: rows are read where they are, an index is sorted once, what the batch alone makes is kept."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
import torch
from models import to_device
from oracle import assert_same_bits
from torch import nn
from torch.nn import functional

from aicf_mlir import CompiledTrainStep, compile_train_step, trace
from aicf_mlir.stages import Snapshots, make_context, run_stages

Batch = dict[str, torch.Tensor]
FEW, MANY = 300, 6000
"""Edges; from 4096 on a GPU sorts them."""


class GraphSage(nn.Module):
    """Two layers that average over neighbours."""

    def __init__(self, width: int = 24, classes: int = 5) -> None:
        super().__init__()
        self.own = nn.ModuleList([nn.Linear(width, width), nn.Linear(width, classes)])
        self.others = nn.ModuleList([nn.Linear(width, width), nn.Linear(width, classes)])

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        source, target = edges[0], edges[1]
        degree = (
            torch.zeros_like(x[:, 0])
            .index_add(0, target, torch.ones_like(target, dtype=x.dtype))
            .clamp(min=1)
        )
        for number, (own, others) in enumerate(zip(self.own, self.others, strict=True)):
            messages = torch.zeros_like(x).index_add(0, target, x[source])
            y = own(x) + others(messages / degree[:, None])
            x = y if number else y.tanh()
        return x


def graph(edges: int, seed: int = 0, nodes: int = 200, width: int = 24) -> Batch:
    """Nodes of which the last ones have no edge; edges, of which many meet in a few nodes, by numbers from the end too."""
    draw = torch.Generator().manual_seed(seed)
    ends = torch.rand(2, edges, generator=draw).pow(2) * (nodes - 10)
    ends = ends.long() - nodes * torch.randint(2, (2, edges), generator=draw)
    ends[1] %= nodes
    return {
        "x": torch.randn(nodes, width, generator=draw),
        "edges": ends,
        "t": torch.randint(5, (nodes,), generator=draw),
    }


def loss_of(model: nn.Module, batch: Batch) -> torch.Tensor:
    return functional.cross_entropy(model(batch["x"], batch["edges"]), batch["t"])


def compiled(model: nn.Module, batch: Batch, device: str) -> CompiledTrainStep:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    return compile_train_step(model, optimizer, loss_fn=loss_of, example=batch, device=device)


def in_f64(model: nn.Module, batches: list[Batch]) -> nn.Module:
    """The model after a step of torch for each batch."""
    wide = copy.deepcopy(model).cpu().double()
    optimizer = torch.optim.SGD(wide.parameters(), lr=0.3)
    for batch in batches:
        optimizer.zero_grad()
        loss_of(wide, {**batch, "x": batch["x"].double()}).backward()
        optimizer.step()
    return wide


def assert_near(model: nn.Module, wide: nn.Module) -> None:
    for own, other in zip(model.parameters(), wide.parameters(), strict=True):
        torch.testing.assert_close(own.detach().cpu().double(), other.detach(), rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize("edges", [FEW, MANY])
def test_trains_as_torch(edges: int, device: str) -> None:
    """Step by step and replayed, over graphs that change between calls, also where their memory is written by hand."""
    torch.manual_seed(0)
    model = GraphSage().to(device)
    graphs = [graph(edges, seed) for seed in range(3)]
    wide = in_f64(model, [graphs[0], *[graphs[1]] * 4, *[graphs[2]] * 3])
    step = compiled(model, to_device(graphs[0], device), device)
    step.train_step(to_device(graphs[0], device))
    step.warmup(to_device(graphs[1], device))
    step.capture(to_device(graphs[1], device))
    step.replay(4)
    for name, tensor in step.inputs.items():
        tensor.copy_(graphs[2][name])
    step.replay(3)
    assert_near(model, wide)


def test_replays_have_the_bits_of_steps(device: str) -> None:
    batch = to_device(graph(MANY), device)
    values: list[dict[str, torch.Tensor]] = []
    for replayed in (True, False):
        torch.manual_seed(0)
        model = GraphSage().to(device)
        step = compiled(model, batch, device)
        step.warmup(batch)
        step.capture(batch)
        if replayed:
            step.replay(5)
        else:
            for _ in range(5):
                step.train_step(batch)
        values.append({name: value.detach().clone() for name, value in model.named_parameters()})
    assert_same_bits(*values)


def plan_of(target: str, edges: int = MANY) -> tuple[str, str]:
    """The texts of the stages kernel and plan."""
    model, snapshots = GraphSage(), Snapshots()
    batch = graph(edges)
    module: Any = trace(model, loss_of, batch, optimizer=torch.optim.SGD(model.parameters(), lr=0.3)).module
    run_stages(module, make_context(), target=target, after_each=snapshots)
    return str(snapshots["kernel"]), str(snapshots["plan"])


@pytest.mark.parametrize(
    ("target", "edges", "sorts"), [("sm_90", MANY, 3), ("sm_90", FEW, 0), ("cpu", MANY, 0)]
)
def test_the_launches_of_a_graph(target: str, edges: int, sorts: int) -> None:
    """No message is written, and of three sums of forward and one of backward each pair of ends is sorted once."""
    kernels, plan = plan_of(target, edges)
    assert kernels.count("kernel.sort_rows") == sorts
    in_place = target == "cpu" or edges == MANY
    assert (f"tensor<{edges}x24xf32>" in kernels) != in_place
    copies = set(re.findall(r"plan\.slot @(\w+) .* copy", plan))
    kept = {name for name in copies if name.startswith("scatter_add")}
    assert kept == {
        "scatter_add",
        "scatter_add1",
    }  # the degrees, and the sums of what is given, not those of a layer
