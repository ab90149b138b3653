"""The models of `workloads.py` in JAX. Weights come by torch's names, the matrices of Linear layers as [in, out]."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def linear(w, name, x):
    return x @ w[f"{name}.weight"] + w[f"{name}.bias"]


def layer_norm(w, name, x):
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * w[f"{name}.weight"] + w[f"{name}.bias"]


def count_of(w, ending):
    return sum(name.endswith(ending) for name in w)


def mlp(w, x):
    layers = count_of(w, ".bias")
    for i in range(layers):
        x = linear(w, str(2 * i), x)
        x = jax.nn.relu(x) if i < layers - 1 else x
    return x


def residual(w, x):
    for i in range(count_of(w, "norm.bias")):
        x = x + linear(w, f"{i}.out", jax.nn.gelu(linear(w, f"{i}.fc", layer_norm(w, f"{i}.norm", x)), False))
    return x


def gpt(w, x):
    x = w["token.weight"][x] + w["position.weight"]
    batch, time, width = x.shape
    for i in range(count_of(w, "norm1.bias")):
        name = f"blocks.{i}"
        parts = jnp.split(linear(w, f"{name}.qkv", layer_norm(w, f"{name}.norm1", x)), 3, -1)
        q, k, v = (part.reshape(batch, time, 4, -1) for part in parts)
        mixed = jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(batch, time, width)
        x = x + linear(w, f"{name}.proj", mixed)
        hidden = jax.nn.gelu(linear(w, f"{name}.fc", layer_norm(w, f"{name}.norm2", x)), True)
        x = x + linear(w, f"{name}.out", hidden)
    return layer_norm(w, "norm", x) @ w["head.weight"]


def mse(found, target):
    return ((found - target) ** 2).mean()


def cross_entropy(logits, target):
    chosen = jnp.take_along_axis(logits, target[..., None], -1)[..., 0]
    return (jax.nn.logsumexp(logits, -1) - chosen).mean()


FORWARD = {"mlp": (mlp, mse), "residual": (residual, mse), "gpt": (gpt, cross_entropy)}
