"""torch_geometric: convolutions of graphs whose edges come with the batch."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric import nn as gnn

from tests.real.case import Batch, Make, trained

NODES, EDGES, WIDTH = 8, 20, 6


def graph() -> Batch:
    return {
        "x": torch.randn(NODES, WIDTH),
        "edges": torch.randint(NODES, (2, EDGES)),
        "weights": torch.rand(EDGES),
        "t": torch.randint(3, (NODES,)),
    }


def two_graphs() -> Batch:
    """Nodes of two graphs, in order, with a label for each graph."""
    return graph() | {"of": torch.tensor([0] * 5 + [1] * 3), "t": torch.randint(3, (2,))}


class Net(nn.Module):
    """Two convolutions, as every example of the package has them."""

    def __init__(self, first: nn.Module, second: nn.Module):
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x: torch.Tensor, edges: torch.Tensor, *more: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x, edges, *more).relu(), edges, *more)


def net(cls: Any, *more: str, **options: Any) -> Make:
    return lambda: trained(
        Net(cls(WIDTH, 8, **options), cls(8, 3, **options)),
        graph,
        lambda m, b: F.cross_entropy(m(b["x"], b["edges"], *(b[name] for name in more)), b["t"]),
    )


def fixed(cls: Any, *more: str, **options: Any) -> Make:
    """One graph for all of training, as of citations: the loss function holds its edges."""

    def make() -> Any:
        whole = graph()
        held = [whole["edges"], *(whole[name] for name in more)]
        return trained(
            Net(cls(WIDTH, 8, **options), cls(8, 3, **options)),
            lambda: {name: value for name, value in graph().items() if name in ("x", "t")},
            lambda m, b: F.cross_entropy(m(b["x"], *held), b["t"]),
        )

    return make


def mlp(first: int, last: int) -> nn.Module:
    return nn.Sequential(nn.Linear(first, 8), nn.ReLU(), nn.Linear(8, last))


class Pooled(nn.Module):
    """A graph's label from the mean, sum and maximum of its nodes; the number of graphs is said."""

    def __init__(self):
        super().__init__()
        self.conv, self.out = gnn.GraphConv(WIDTH, 8), nn.Linear(24, 3)

    def forward(self, x: torch.Tensor, edges: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
        x = self.conv(x, edges).relu()
        pools = gnn.global_mean_pool, gnn.global_add_pool, gnn.global_max_pool
        return self.out(torch.cat([pool(x, of, size=2) for pool in pools], -1))


CASES: dict[str, Make] = {
    "SAGE": net(gnn.SAGEConv),
    "SAGE, max": net(gnn.SAGEConv, aggr="max"),
    "SAGE, softmax": net(gnn.SAGEConv, aggr="softmax"),
    "GraphConv": net(gnn.GraphConv, "weights"),
    "GCN": net(gnn.GCNConv, "weights"),
    "GCN, no self loops": net(gnn.GCNConv, add_self_loops=False),
    "GCN of one graph": fixed(gnn.GCNConv, "weights"),
    "GCN of one graph, kept": fixed(gnn.GCNConv, cached=True),
    "GAT": net(gnn.GATConv),
    "GAT of one graph": fixed(gnn.GATConv),
    "GATv2, no self loops": net(gnn.GATv2Conv, add_self_loops=False),
    "Transformer": net(gnn.TransformerConv),
    "Chebyshev": net(gnn.ChebConv, K=3),
    "Chebyshev of one graph": fixed(gnn.ChebConv, K=3),
    "TAG": net(gnn.TAGConv, K=2),
    "gated residual": net(gnn.ResGatedGraphConv),
    "cluster": net(gnn.ClusterGCNConv),
    "cluster of one graph": fixed(gnn.ClusterGCNConv),
    "GIN": lambda: trained(
        Net(gnn.GINConv(mlp(WIDTH, 8), train_eps=True), gnn.GINConv(mlp(8, 3))),
        graph,
        lambda m, b: F.cross_entropy(m(b["x"], b["edges"]), b["t"]),
    ),
    "edge convolution": lambda: trained(
        Net(gnn.EdgeConv(mlp(2 * WIDTH, 8)), gnn.EdgeConv(mlp(16, 3))),
        graph,
        lambda m, b: F.cross_entropy(m(b["x"], b["edges"]), b["t"]),
    ),
    "gated": lambda: trained(
        gnn.GatedGraphConv(WIDTH, num_layers=2),
        graph,
        lambda m, b: F.cross_entropy(m(b["x"], b["edges"]), b["t"]),
    ),
    "graph labels": lambda: trained(
        Pooled(), two_graphs, lambda m, b: F.cross_entropy(m(b["x"], b["edges"], b["of"]), b["t"])
    ),
    "GraphNorm": lambda: trained(
        nn.ModuleDict({"conv": gnn.GraphConv(WIDTH, 8), "norm": gnn.GraphNorm(8), "out": nn.Linear(8, 3)}),
        graph,
        lambda m, b: F.cross_entropy(m["out"](m["norm"](m["conv"](b["x"], b["edges"]))), b["t"]),
    ),
}
