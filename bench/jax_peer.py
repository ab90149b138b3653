"""JAX's jit of the same step: the same weights, loss and optimizer, with donated state."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from contender import Contender
from torch import nn
from workloads import Batch, Workload


def jax_peer(workload: Workload, batch: Batch) -> Iterator[Contender]:
    """Nothing where JAX is not installed."""
    try:
        import jax
        import jax.numpy as jnp
    except ImportError:
        return
    import jax_models

    torch.manual_seed(0)
    forward, loss_of = jax_models.FORWARD[workload.forward]
    decay = 1e-3 * 1e-2 if workload.adamw else 0.0

    def step(weights, m, v, count, x, t):
        loss, g = jax.value_and_grad(lambda weights: loss_of(forward(weights, x), t))(weights)
        count = count + 1
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
        v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, g)
        scale, root = 1e-3 / (1 - 0.9**count), jax.lax.rsqrt(1 - 0.999**count)
        weights = jax.tree.map(
            lambda p, m, v: p * (1 - decay) - scale * m / (jnp.sqrt(v) * root + 1e-8), weights, m, v
        )
        return weights, m, v, count, loss

    jitted = jax.jit(step, donate_argnums=(0, 1, 2, 3))
    weights = weights_of(workload.model())
    zeros = {name: jnp.zeros_like(value) for name, value in weights.items()}
    state = [weights, zeros, {name: jnp.zeros_like(value) for name, value in weights.items()}, jnp.float32(0)]
    x, t = jnp.asarray(batch["x"].numpy()), jnp.asarray(batch["t"].numpy())

    def run(n: int) -> float:
        loss = None
        for _ in range(n):
            *state[:], loss = jitted(*state, x, t)
        jax.block_until_ready(state)
        return float(loss)

    yield Contender("JAX jit", run)


def weights_of(model: nn.Module) -> dict:
    """By torch's names; the matrix of a Linear is turned to [in, out], the order of JAX's own layers."""
    import jax.numpy as jnp

    found = {}
    for path, module in model.named_modules():
        for name, value in module.named_parameters(recurse=False):
            matrix = isinstance(module, nn.Linear) and value.ndim == 2
            array = value.detach().t().contiguous() if matrix else value.detach()
            found[f"{path}.{name}" if path else name] = jnp.array(array.numpy())
    return found
