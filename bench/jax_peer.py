"""JAX's jit of the same step: the same weights, loss and optimizer, with donated state."""

from __future__ import annotations

from collections.abc import Callable

import torch
from contender import Contender
from torch import nn
from workloads import AUTOCAST, Batch, Workload

MATMUL = {"f32": "highest", "tf32": "tensorfloat32"}
"""What products compute in, by precision; else in the type of their operands."""


def jax_peer(workload: Workload, batch: Batch, scanned: int = 1) -> Contender:
    """One step a call, or that many in one `lax.scan`. Raises ImportError where JAX is not installed."""
    import jax
    import jax.numpy as jnp
    import jax_models

    jax.config.update("jax_default_matmul_precision", MATMUL.get(workload.precision))
    torch.manual_seed(0)
    forward, loss_of = jax_models.FORWARD[workload.forward]
    decay = 1e-3 * 1e-2 if workload.adamw else 0.0

    def computed_in(values):
        """Numbers in the type that a low precision computes in, by a cast that gradients go back through."""
        kind = {"bf16": jnp.bfloat16, "f16": jnp.float16}[workload.precision]
        return jax.tree.map(lambda value: value.astype(kind), values)

    def loss_at(weights, x, t):
        if workload.precision not in AUTOCAST:
            return loss_of(forward(weights, x), t)
        return loss_of(forward(computed_in(weights), computed_in(x)).astype(jnp.float32), t)

    x, t = jnp.asarray(batch["x"].numpy()), jnp.asarray(batch["t"].numpy())
    weights = weights_of(workload.model())
    run = adam_steps(lambda weights, batch: loss_at(weights, *batch), weights, (x, t), scanned, decay)
    return Contender("JAX jit", run, stride=scanned)


def adam_steps(loss_at, weights, batch, scanned: int = 1, decay: float = 0.0) -> Callable[[int], float]:
    """Run so many steps of Adam, of a rate of 1e-3, on `loss_at(weights, batch)`: one a call, or `scanned` of them."""
    import jax
    import jax.numpy as jnp

    def step(state, batch):
        weights, m, v, count = state
        loss, g = jax.value_and_grad(loss_at)(weights, batch)
        count = count + 1
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
        v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, g)
        scale, root = 1e-3 / (1 - 0.9**count), jax.lax.rsqrt(1 - 0.999**count)
        weights = jax.tree.map(
            lambda p, m, v: p * (1 - decay) - scale * m / (jnp.sqrt(v) * root + 1e-8), weights, m, v
        )
        return (weights, m, v, count), loss

    def steps(state, batch):
        state, losses = jax.lax.scan(lambda state, _: step(state, batch), state, length=scanned)
        return state, losses[-1]

    jitted = jax.jit(step if scanned == 1 else steps, donate_argnums=0)
    moments = [{name: jnp.zeros_like(value) for name, value in weights.items()} for _ in "mv"]
    state = (jax.tree.map(jnp.copy, weights), *moments, jnp.float32(0))

    def run(n: int) -> float:
        nonlocal state
        loss = None
        for _ in range(n // scanned):
            state, loss = jitted(state, batch)
        jax.block_until_ready(state)
        return float(loss)

    return run


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
