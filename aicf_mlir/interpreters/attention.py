"""Attention by its definition, in NumPy: the softmax of the whole matrix of scores, and its Jacobian.

The shapes are query [B, H, Tq, D], key [B, Hkv, Tk, D] and value [B, Hkv, Tk, Dv]; the mask is of booleans, or added to the
scores. The gradient uses nothing that a kernel has kept: neither the result nor the two numbers of each row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aicf_mlir.interpreters.arithmetic import Arithmetic
from aicf_mlir.interpreters.body import philox
from aicf_mlir.interpreters.numerics import Array


@dataclass(frozen=True)
class Scores:
    """The scores of every query with every key."""

    query: Array
    key: Array
    mask: Array | None
    causal: bool
    scale: float
    element: np.dtype[Any]
    """The element type of the scores: with a mask of 1e9 products are lost in float32, and are not in float64."""
    factor_type: np.dtype[Any]
    """The element type of the operands: kernels multiply weights, and the gradient of scores, in it."""
    arithmetic: Arithmetic
    kept: Array | None = None
    """What dropout multiplies each weight by, 0 or 1 / (1 - p)."""

    @property
    def group(self) -> int:
        """The number of heads of queries that share one of keys."""
        return self.query.shape[1] // self.key.shape[1]

    def spread(self, heads: Array) -> Array:
        """Keys or values, a head for each of the queries."""
        return np.repeat(heads, self.group, axis=1)

    def gathered(self, heads: Array) -> Array:
        """The reverse: summed over the heads that share one."""
        batch, count, rows, size = heads.shape
        return heads.reshape(batch, count // self.group, self.group, rows, size).sum(axis=2)

    def values(self) -> Array:
        """The scores: the products, plus -infinity if a query does not see a key."""
        scores = self.scale * np.matmul(self.query, np.swapaxes(self.spread(self.key), -1, -2))
        scores = self.rounded(self.inner(scores))
        if self.mask is not None and self.mask.dtype == np.bool_:
            scores = scores + np.where(self.mask, 0.0, -np.inf)
        elif self.mask is not None:
            scores = self.rounded(scores + self.mask)
        if self.causal:
            scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
        return scores

    def rounded(self, values: Array) -> Array:
        """The values in the type of the scores."""
        return values.astype(self.element).astype(np.float64)

    def inner(self, values: Array) -> Array:
        """The values as the arithmetic takes what is computed in between."""
        return self.arithmetic.inner(values, self.element)

    def factor(self, values: Array) -> Array:
        """The values as the arithmetic multiplies them by an operand."""
        return self.arithmetic.narrow_factor(values, self.factor_type)

    def exponentials(self) -> tuple[Array, Array, Array]:
        """The exponentials of the scores less the largest of their row, the largest and the total; 0, 0 and 1 if all are
        -infinity.
        """
        values = self.values()
        largest: Array = values.max(axis=-1, keepdims=True, initial=-np.inf)
        nothing = np.isneginf(largest)
        largest = np.where(nothing, 0.0, largest)
        terms = np.exp(values - largest)
        total = np.where(nothing, 1.0, terms.sum(axis=-1, keepdims=True))
        return terms, np.where(np.isnan(total), np.nan, largest), total

    def dropped(self, weights: Array) -> Array:
        """The weights after dropout; in the gradient the same of what reaches them."""
        return weights if self.kept is None else self.inner(weights * self.kept)

    def weights(self) -> Array:
        """The softmax of each row; 0 if all of it is -infinity."""
        terms, _, total = self.exponentials()
        return self.inner(terms / total)


def kept(random: Array, shape: Sequence[int], p: float, site: int, element: np.dtype[Any]) -> Array:
    """What dropout multiplies the weights [B, H, Tq, Tk] by; in tiles of 16 x 16 each draw decides eight of them.

    These are the draws of `nn.dropout` with `tiled`.
    """
    *outer, rows, columns = shape
    i, j = np.arange(rows)[:, None], np.arange(columns)[None, :]
    tiles = [-(-size // 16) for size in (rows, columns)]
    matrix = np.arange(math.prod(outer)).reshape(*outer, 1, 1)
    draw = (matrix * 8 * tiles[0] + i // 16 * 8 + i % 8) * 4 * tiles[1] + j // 16 * 4 + j % 8 // 2
    seed, step = random[0], random[1]
    words = [philox(word, seed, step, np.asarray(site), draw) for word in range(4)]
    which = np.broadcast_to(i // 8 % 2 * 2 + j // 8 % 2, draw.shape)
    halves = np.choose(which, words) >> j % 2 * 16 & 0xFFFF
    factor = np.asarray(1.0 / (1.0 - p)).astype(element).astype(np.float64)
    return np.where(halves >= round(p * 2**16), factor, 0.0)


def attention(scores: Scores, value: Array) -> list[Array]:
    """The sums of values by weight, and of each row of scores the largest and the sum of exp(score - largest)."""
    terms, largest, total = scores.exponentials()
    weights = scores.dropped(scores.inner(terms / total))
    return [np.matmul(scores.factor(weights), scores.spread(value)), largest[..., 0], total[..., 0]]


def slopes(scores: Scores, value: Array, dout: Array) -> Array:
    """The gradient of the scores [B, H, Tq, Tk], by the chain rule: values, softmax."""
    weights = scores.weights()
    dweights = scores.dropped(scores.inner(np.matmul(dout, np.swapaxes(scores.spread(value), -1, -2))))
    total = (weights * dweights).sum(axis=-1, keepdims=True)
    out = np.matmul(scores.dropped(weights), scores.spread(value))
    if (rounded := scores.factor(out)) is not out:  # kernels have the product of dout with the rounded result
        total = total + (dout * (rounded - out)).sum(axis=-1, keepdims=True)
    return weights * (dweights - total)


def attention_grad(scores: Scores, value: Array, dout: Array) -> list[Array]:
    """The gradient of query, key and value."""
    dscores = scores.factor(slopes(scores, value, dout))
    dquery = scores.scale * np.matmul(dscores, scores.spread(scores.key))
    dkey = scores.scale * np.matmul(np.swapaxes(dscores, -1, -2), scores.query)
    dvalue = np.matmul(np.swapaxes(scores.factor(scores.dropped(scores.weights())), -1, -2), dout)
    return [dquery, scores.gathered(dkey), scores.gathered(dvalue)]


def attention_mask_grad(scores: Scores, value: Array, dout: Array) -> list[Array]:
    """The gradient of a mask that is added: that of the scores, summed over images and heads where the mask has one."""
    assert scores.mask is not None, "the op has a mask"
    dscores = slopes(scores, value, dout)
    repeated = tuple(d for d in (0, 1) if scores.mask.shape[d] == 1)
    return [dscores.sum(axis=repeated, keepdims=True)]
