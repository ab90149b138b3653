"""Attention in NumPy, with the whole matrix of scores.

Of query [B, H, Tq, D], key [B, Hkv, Tk, D] and value [B, Hkv, Tk, Dv]; the mask is of booleans, or added to the scores.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from aicf_mlir.interpreters.numerics import Array


@dataclass(frozen=True)
class Scores:
    """The scores of every query with every key."""

    query: Array
    key: Array
    mask: Array | None
    causal: bool
    scale: float

    @property
    def group(self) -> int:
        """How many heads of queries share one of keys."""
        return self.query.shape[1] // self.key.shape[1]

    def spread(self, heads: Array) -> Array:
        """Keys or values, a head for each of the queries."""
        return np.repeat(heads, self.group, axis=1)

    def gathered(self, heads: Array) -> Array:
        """The reverse: summed over the heads that share one."""
        batch, count, rows, size = heads.shape
        return heads.reshape(batch, count // self.group, self.group, rows, size).sum(axis=2)

    def hidden(self) -> Array:
        """Keys behind the query, where it does not see them."""
        pairs = np.ones((self.query.shape[2], self.key.shape[2]), bool)
        return np.triu(pairs, 1) if self.causal else ~pairs

    def values(self) -> Array:
        """-infinity where a query does not see a key."""
        scores = self.scale * np.matmul(self.query, np.swapaxes(self.spread(self.key), -1, -2))
        if self.mask is not None and self.mask.dtype == np.bool_:
            scores = np.where(self.mask, scores, -np.inf)
        elif self.mask is not None:
            scores = scores + self.mask
        return np.where(self.hidden(), -np.inf, scores)


def attention(scores: Scores, value: Array) -> list[Array]:
    """The sums of values by weight, and the logsumexp of each row of scores."""
    values = scores.values()
    largest: Array = values.max(axis=-1, keepdims=True, initial=-np.inf)
    base = np.where(np.isneginf(largest), 0.0, largest)
    terms = np.exp(values - base)
    total = terms.sum(axis=-1, keepdims=True)
    sums = np.matmul(terms, scores.spread(value))
    return [np.where(total == 0, 0.0, sums / total), (base + np.log(total))[..., 0]]


def attention_grad(scores: Scores, value: Array, dout: Array, out: Array, lse: Array) -> list[Array]:
    """The gradient of query, key and value."""
    seen = ~scores.hidden() & ~np.isneginf(lse[..., None])
    weights = np.where(seen, np.exp(scores.values() - lse[..., None]), 0.0)
    delta = (dout * out).sum(axis=-1, keepdims=True)
    slopes = weights * (np.matmul(dout, np.swapaxes(scores.spread(value), -1, -2)) - delta)
    slopes = np.where(scores.hidden(), 0.0, slopes)
    dquery = scores.scale * np.matmul(slopes, scores.spread(scores.key))
    dkey = scores.scale * np.matmul(np.swapaxes(slopes, -1, -2), scores.query)
    dvalue = np.matmul(np.swapaxes(weights, -1, -2), dout)
    return [dquery, scores.gathered(dkey), scores.gathered(dvalue)]
