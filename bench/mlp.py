"""Time of one whole train step of an MLP (forward, MSE, backward, Adam): AICF beside its peers, in one run on one machine.

    python bench/mlp.py                    # CPU rows: torch eager, JAX jit, AICF
    python bench/mlp.py --device cuda      # GPU rows: torch eager, torch whole-step CUDA graph, AICF

Median over rounds. On the CPU every round runs one window of each contender, so that a drifting machine drifts for all.
On a GPU each contender runs its rounds in a row, eager torch last: interleaved with eager torch, a replayed graph of
torch was seen to take 109 µs in place of 78. A window is at least 0.1 s of steps, synchronised at both ends. Prints
microseconds a step and the ratio of AICF to the fastest peer.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from aicf_mlir import compile_train_step

ROWS = {
    "cpu": [(64, 8, 2), (64, 256, 2), (256, 512, 4)],
    "cuda": [(64, 256, 2), (1024, 1024, 4)],
}
ROUNDS = 7
WINDOW_S = 0.1
EAGER = "torch eager"


@dataclass(frozen=True)
class Contender:
    """One way of running the step: `run(n)` runs n steps and waits for them."""

    name: str
    run: Callable[[int], None]


def mlp(width: int, layers: int, device: str) -> nn.Sequential:
    """`layers` square Linear layers with ReLU between."""
    torch.manual_seed(0)
    parts: list[nn.Module] = []
    for i in range(layers):
        parts += [nn.Linear(width, width)] + ([nn.ReLU()] if i < layers - 1 else [])
    return nn.Sequential(*parts).to(device)


def synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def torch_contenders(batch: int, width: int, layers: int, device: str) -> list[Contender]:
    """Eager torch with its fused Adam; on CUDA also the whole step in one CUDA graph."""
    x, t = torch.randn(batch, width, device=device), torch.randn(batch, width, device=device)

    def make(capturable: bool) -> Callable[[], None]:
        model = mlp(width, layers, device)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True, capturable=capturable)

        def step() -> None:
            optimizer.zero_grad(set_to_none=True)
            functional.mse_loss(model(x), t).backward()
            optimizer.step()

        return step

    eager = make(capturable=False)
    contenders = [Contender(EAGER, lambda n: repeat(eager, n, device))]
    if device == "cuda":
        step = make(capturable=True)
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(5):
                step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        contenders.append(Contender("torch graph", lambda n: repeat(graph.replay, n, device)))
    return contenders


def repeat(step: Callable[[], object], n: int, device: str) -> None:
    for _ in range(n):
        step()
    synchronize(device)


def jax_contender(batch: int, width: int, layers: int) -> list[Contender]:
    """JAX's jit of the same step with donated state; nothing where JAX is not installed."""
    try:
        import jax
        import jax.numpy as jnp
    except ImportError:
        return []
    key = jax.random.PRNGKey(0)
    parameters = []
    for _ in range(layers):
        key, sub = jax.random.split(key)
        parameters.append((jax.random.normal(sub, (width, width)) / width**0.5, jnp.zeros(width)))

    def loss(parameters, x, t):
        for i, (w, b) in enumerate(parameters):
            x = x @ w + b
            x = jax.nn.relu(x) if i < layers - 1 else x
        return jnp.mean((x - t) ** 2)

    def step(parameters, m, v, count, x, t):
        value, g = jax.value_and_grad(loss)(parameters, x, t)
        count = count + 1
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
        v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, g)
        c1, c2 = 1 - 0.9**count, 1 - 0.999**count
        parameters = jax.tree.map(
            lambda p, m, v: p - 1e-3 * (m / c1) / (jnp.sqrt(v / c2) + 1e-8), parameters, m, v
        )
        return parameters, m, v, count, value

    jitted = jax.jit(step, donate_argnums=(0, 1, 2))
    x, t = jax.random.normal(key, (batch, width)), jax.random.normal(key, (batch, width))
    zeros = jax.tree.map(jnp.zeros_like, parameters)
    state = [parameters, zeros, jax.tree.map(jnp.zeros_like, parameters), jnp.float32(0)]

    def run(n: int) -> None:
        for _ in range(n):
            state[:] = jitted(*state, x, t)[:4]
        jax.block_until_ready(state)

    return [Contender("JAX jit", run)]


def aicf_contenders(batch: int, width: int, layers: int, device: str) -> list[Contender]:
    """One Python call a step, and many steps in one call."""
    model = mlp(width, layers, device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    step = compile_train_step(model, optimizer, B=batch, D=width, device=device, name="bench")
    data = {"x": torch.randn(batch, width, device=device), "t": torch.randn(batch, width, device=device)}
    step.train_step(data)
    step.capture(data)

    def many(n: int) -> None:
        step.replay(n)
        synchronize(device)

    return [
        Contender("AICF replay()", lambda n: repeat(step.replay, n, device)),
        Contender("AICF replay(n)", many),
    ]


def measure(contenders: list[Contender]) -> dict[str, float]:
    """Microseconds a step by contender: median over rounds, in each of which every contender runs one window."""
    counts: dict[str, int] = {}
    for contender in contenders:
        contender.run(10)
        started = time.perf_counter()
        contender.run(10)
        counts[contender.name] = max(10, int(WINDOW_S / ((time.perf_counter() - started) / 10)))
    samples: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    for contender in contenders * ROUNDS:
        n = counts[contender.name]
        started = time.perf_counter()
        contender.run(n)
        samples[contender.name].append((time.perf_counter() - started) / n * 1e6)
    return {name: statistics.median(values) for name, values in samples.items()}


def describe_machine(device: str) -> str:
    versions = f"Python {platform.python_version()}, torch {torch.__version__}"
    if device == "cuda":
        return f"{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}, {versions}"
    return f"CPU, {torch.get_num_threads()} threads, {versions}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=list(ROWS), default="cpu")
    device: str = parser.parse_args().device
    print(describe_machine(device))
    for batch, width, layers in ROWS[device]:
        contenders = torch_contenders(batch, width, layers, device)
        if device == "cpu":
            contenders += jax_contender(batch, width, layers)
        contenders += aicf_contenders(batch, width, layers, device)
        contenders.sort(key=lambda contender: contender.name == EAGER)
        together = [contenders] if device == "cpu" else [[contender] for contender in contenders]
        times = {name: value for group in together for name, value in measure(group).items()}
        peers = {name: value for name, value in times.items() if not name.startswith("AICF")}
        fastest = min(peers, key=lambda name: peers[name])
        row = "  ".join(f"{name} {value:9.1f}" for name, value in times.items())
        ratio = times["AICF replay()"] / peers[fastest]
        print(
            f"{batch} × {width} × {layers} f32, µs a step:  {row}  | replay() / {fastest} {ratio:.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
