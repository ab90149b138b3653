"""Random functions of nn ops with a loss, from one seed; see `random_ops` for what they are made of."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from random_graph import Graph, Rejected, Value, gradients_of
from random_operands import one, typed
from random_ops import draw
from xdsl.dialects.builtin import ModuleOp

from aicf_mlir.dialects import nn
from aicf_mlir.interpreters.numerics import Array
from aicf_mlir.ir.signature import Key, Label

ELEMENTS = ("f32",) * 5 + ("f64",) * 3 + ("f16",) * 2 + ("bf16",) * 2
"""Of most floats of a program, the likelier the more often it stands here."""

SPECIAL = 0.1
"""How often there are NaN and infinities."""

MOST_OPS = 6
ATTEMPTS = 60

Exact = dict[Key, torch.Tensor]


@dataclass(frozen=True)
class NNProgram:
    """A function, its arguments, and what torch computes from them in float64."""

    seed: int
    element: str
    """Of most floats."""
    compute: str
    """The narrowest type that anything is computed in."""
    special: bool
    module: ModuleOp
    values: Mapping[Key, Array]
    expected: Exact
    """Outputs, the loss among them, and gradients."""
    drifts: Exact
    """Of outputs: how far rounding may carry them; of the loss only where planted operands are rounded that far."""
    ops: tuple[str, ...]
    """What was drawn, without the ops that bring operands into their shape."""

    def expecting(self, other: Mapping[Key, torch.Tensor]) -> NNProgram:
        """The same with other expectations."""
        return replace(self, expected={**self.expected, **other})


def nn_program(seed: int, ops: int | None = None) -> NNProgram:
    """The program of a seed: the same in every process. With fewer `ops`, its beginning."""
    rng = np.random.default_rng(seed)
    element = str(rng.choice(ELEMENTS))
    graph = Graph(rng, element, special=bool(rng.random() < SPECIAL))
    wanted = int(rng.integers(2, MOST_OPS + 1))
    shape = (int(rng.choice([3, 5, 17])), int(rng.choice([4, 7, 16])))
    graph.argument(rng.standard_normal(shape), element, trained=True)
    drawn: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch's, about variances of one element
        for _ in range(ATTEMPTS):
            if len(drawn) == min(wanted, ops or wanted):
                break
            try:
                drawn.append(draw(graph))
            except Rejected:
                continue
    outputs = [(value, Label("output", f"y{number}")) for number, value in enumerate(ends(graph))]
    loss = total(graph)
    module = graph.finish([(loss, Label("loss", "loss")), *outputs])
    drifts = {("output", label.name): value.drift for value, label in outputs}
    if graph.plants_halves:
        drifts["output", "loss"] = loss.drift
    return NNProgram(
        seed,
        element,
        "f64" if {value.element for value in graph.values if value.is_float} == {"f64"} else "f32",
        graph.special,
        module,
        {(label.role, label.name): array for label, array in graph.arguments},
        {
            **{("output", label.name): value.exact.detach() for value, label in outputs},
            **gradients(graph, loss),
        },
        drifts,
        tuple(drawn),
    )


def gradients(graph: Graph, loss: Value) -> Exact:
    """The loss, and its gradients with respect to the parameters that it depends on."""
    params = [
        (label, value)
        for (label, _), value in zip(graph.arguments, graph.leaves, strict=True)
        if value.trained
    ]
    found = gradients_of([loss.exact], [value.exact for _, value in params])
    named = {
        ("grad", label.name): each for (label, _), each in zip(params, found, strict=True) if each is not None
    }
    return {("output", "loss"): loss.exact.detach(), **named}


def ends(graph: Graph) -> list[Value]:
    """Results that nothing reads and that the loss does not depend on, and now and then another."""
    made = [value for value in graph.values if isinstance(value.ssa.owner, nn.NNOp)]
    return [value for value in made if graph.rng.random() < 0.05 or not (value.used or value.trained)]


def total(graph: Graph) -> Value:
    """The loss: every trained result that nothing reads, each element by another weight."""
    trained = [value for value in graph.values if value.trained]
    compute = "f64" if graph.element == "f64" else "f32"
    loss: Value | None = None
    drift = torch.zeros((), dtype=torch.float64)
    for value in [value for value in trained if not value.used] or trained[:1]:
        wide = typed(graph, value, compute, last=True)
        weights = graph.argument(graph.rng.uniform(0.5, 1.5, value.shape), compute)
        drift += (value.drift * weights.exact).sum()
        product = one(graph, nn.MulOp, torch.mul, wide, weights, last=True)
        part = one(graph, nn.SumOp, torch.sum, product, last=True) if value.shape else product
        loss = part if loss is None else one(graph, nn.AddOp, torch.add, loss, part, last=True)
    if loss is None:
        raise ValueError("the first argument is a parameter")
    return replace(loss, drift=drift)
