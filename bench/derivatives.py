"""Steps with derivatives in their loss under Adam, beside torch and JAX: Burgers' equation, and a potential with forces.

`python bench/derivatives.py [--device cuda]` prints microseconds a step, best of several runs in turn, the loss of the last one,
and the launches of ours. JAX takes part in Burgers' equation where it is installed: a call for each step, and 100 steps in one
`lax.scan`; its derivatives are those of a point, mapped over all. On a GPU torch's step is also replayed as a CUDA graph.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from contender import Contender, repeat, timed
from jax_peer import adam_steps, weights_of
from torch import nn
from torch_peers import graph_of, step_of

from aicf_mlir import compile_train_step, default_device

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
import potential
from pinn_burgers import VISCOSITY, Batch, slope

SIZES = ((1024, 32, 4), (8192, 64, 5))
"""Points, width, layers."""
CLUSTERS = (32, 1024)
"""Clusters of atoms in a batch."""
STARTS = 256
"""Points of the start, where the solution is known."""
SCANNED = 100


def network(width: int, layers: int) -> nn.Module:
    parts: list[nn.Module] = [nn.Linear(2, width), nn.Tanh()]
    for _ in range(layers - 2):
        parts += [nn.Linear(width, width), nn.Tanh()]
    return nn.Sequential(*parts, nn.Linear(width, 1))


def points(count: int) -> Batch:
    draw = torch.Generator().manual_seed(0)
    x, t = 2 * torch.rand(2, count, 1, generator=draw) - 1, torch.rand(count, 1, generator=draw)
    return {"x": x[0], "t": t, "start": x[1, :STARTS]}


def loss_of(model: nn.Module, batch: Batch) -> torch.Tensor:
    """How far the equation and the start are missed."""
    x, t, start = batch["x"].requires_grad_(), batch["t"].requires_grad_(), batch["start"]
    u = model(torch.cat([x, t], 1))
    u_x = slope(u, x)
    residual = slope(u, t) + u * u_x - VISCOSITY * slope(u_x, x)
    begun = model(torch.cat([start, torch.zeros_like(start)], 1)) + torch.sin(math.pi * start)
    return residual.square().mean() + begun.square().mean()


@dataclass(frozen=True)
class Problem:
    """A train step: what it is called, its model, a batch on the host, its loss, and its twin in JAX."""

    name: str
    model: Callable[[], nn.Module]
    batch: Batch
    loss_of: Callable[[Any, Batch], Any]
    of_jax: Callable[[nn.Module, Batch], Iterator[Contender]] | None = None


def of_torch(problem: Problem, model: nn.Module, batch: Batch, device: str) -> Iterator[Contender]:
    """Eager, and as a graph where there are graphs."""
    on_gpu = device == "cuda"
    adam = torch.optim.Adam(model.parameters(), fused=True, capturable=on_gpu)

    def loss(given: Batch) -> torch.Tensor:
        found = problem.loss_of(model, {name: tensor.detach() for name, tensor in given.items()})
        return found[0] if isinstance(found, tuple) else found

    step = step_of(loss, batch, adam, adam.step)
    yield Contender("torch", lambda n: repeat(step, n))
    if on_gpu:
        replayed = graph_of(step, model, adam)
        yield Contender("torch's graph", lambda n: repeat(replayed, n))


def burgers_in_jax(model: nn.Module, batch: Batch) -> Iterator[Contender]:
    """Each point by itself, as one writes it there."""
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_default_matmul_precision", "highest")
    given = [jnp.asarray(batch[name].numpy())[:, 0] for name in ("x", "t", "start")]
    weights = weights_of(model)
    layers = len(weights) // 2

    def u(w, x, t):
        h = jnp.stack([x, t])
        for i in range(layers):
            h = h @ w[f"{2 * i}.weight"] + w[f"{2 * i}.bias"]
            h = jnp.tanh(h) if i < layers - 1 else h
        return h[0]

    def residual(w, x, t):
        u_x = jax.grad(u, 1)
        u_xx = jax.grad(u_x, 1)
        return jax.grad(u, 2)(w, x, t) + u(w, x, t) * u_x(w, x, t) - VISCOSITY * u_xx(w, x, t)

    def loss(w, given):
        x, t, start = given
        missed = jax.vmap(residual, (None, 0, 0))(w, x, t)
        begun = jax.vmap(u, (None, 0, None))(w, start, 0.0) + jnp.sin(math.pi * start)
        return (missed**2).mean() + (begun**2).mean()

    for scanned in (1, SCANNED):
        yield Contender(
            f"JAX{', scan' * (scanned > 1)}", adam_steps(loss, weights, given, scanned), stride=scanned
        )


def problems() -> Iterator[Problem]:
    for count, width, layers in SIZES:
        name = f"{count} points, {layers} layers of {width}"
        yield Problem(name, partial(network, width, layers), points(count), loss_of, burgers_in_jax)
    for count in CLUSTERS:
        torch.manual_seed(0)
        batch = potential.clusters(count, torch.device("cpu"))
        yield Problem(f"forces in {count} clusters of 6 atoms", potential.Potential, batch, potential.loss_of)


def contenders(problem: Problem, device: str, *, certify: bool) -> Iterator[Contender]:
    torch.manual_seed(0)
    model = problem.model()
    on_device = {name: tensor.to(device) for name, tensor in problem.batch.items()}

    def copy() -> nn.Module:
        made = problem.model().to(device)
        made.load_state_dict(model.state_dict())
        return made

    ours = copy()
    adam = torch.optim.Adam(ours.parameters())
    step = compile_train_step(ours, adam, loss_fn=problem.loss_of, example=on_device, device=device)
    step.warmup(on_device)
    if certify:
        print(step.capture(on_device, verify="bitwise"))
    else:
        step.capture(on_device)

    yield Contender(f"AICF, {len(step.planned_kernels())} launches", lambda n: float(step.replay(n)))
    yield from of_torch(problem, copy(), on_device, device)
    if problem.of_jax is not None:
        try:
            yield from problem.of_jax(model, problem.batch)
        except ImportError:
            print("JAX is not installed", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default=default_device())
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--certify", action="store_true", help="ours against plan, eager and model, once captured"
    )
    options = parser.parse_args()
    for problem in problems():
        rows = [*contenders(problem, options.device, certify=options.certify)]
        losses = {row.name: row.run(SCANNED) for row in rows}
        times: dict[str, list[float]] = {row.name: [] for row in rows}
        counts = {
            row.name: max(row.stride, int(2e5 / timed(row, row.stride) / row.stride) * row.stride)
            for row in rows
        }
        for _ in range(options.rounds):
            for row in rows:
                times[row.name].append(timed(row, counts[row.name]))
        print(f"{problem.name}, {options.device}")
        for name, each in times.items():
            ratio = min(each) / min(times[rows[0].name])
            print(f"  {name:22}{min(each):10.1f} us {ratio:6.2f}   loss after {SCANNED}: {losses[name]:.6f}")


if __name__ == "__main__":
    main()
