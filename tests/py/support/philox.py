"""Philox4x32-10 in NumPy, for the tests of what compiled steps draw."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

WORD = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)
Words = npt.NDArray[np.uint64]


def words_of(seed: int, step: int, site: int, shape: Sequence[int]) -> tuple[Words, Words, Words, Words]:
    """The four words of each element."""
    return words_at(seed, step, site, np.arange(int(np.prod(shape)), dtype=np.uint64).reshape(shape))


def words_at(seed: int, step: int, site: int, element: Words) -> tuple[Words, Words, Words, Words]:
    """The four words of some elements."""
    key = seed & 0xFFFFFFFFFFFFFFFF
    left, right = np.uint64(key & 0xFFFFFFFF), np.uint64(key >> 32)
    a, b = element & WORD, element >> HALF
    c, d = np.full_like(a, site), np.full_like(a, step)
    for _ in range(10):
        first, second = a * np.uint64(0xD2511F53), c * np.uint64(0xCD9E8D57)
        a, b, c, d = (second >> HALF) ^ b ^ left, second & WORD, (first >> HALF) ^ d ^ right, first & WORD
        left, right = (left + np.uint64(0x9E3779B9)) & WORD, (right + np.uint64(0xBB67AE85)) & WORD
    return a, b, c, d


def kept(seed: int, step: int, site: int, shape: Sequence[int], p: float) -> npt.NDArray[np.float64]:
    """Where dropout keeps an element: 1, elsewhere 0. Four neighbours have the words of one draw."""
    count = int(np.prod(shape))
    drawn = words_of(seed, step, site, [-(-count // 4)])
    chosen = np.stack(drawn, -1).reshape(-1)[:count].reshape(shape)
    return np.asarray(chosen >= np.uint64(round(p * 2**32)), np.float64)


def kept_in_tiles(seed: int, step: int, site: int, shape: Sequence[int], p: float) -> npt.NDArray[np.float64]:
    """The same for the weights of attention: the numbers of `halves_in_tiles` decide."""
    return np.asarray(halves_in_tiles(seed, step, site, shape) >= np.uint64(round(p * 2**16)), np.float64)


def halves_in_tiles(seed: int, step: int, site: int, shape: Sequence[int]) -> Words:
    """The 16 bits of each weight of attention: in a tile of 16 x 16 two neighbours in a row have the halves of a word, and the
    pairs 8 rows or columns apart share a draw.
    """
    *outer, rows, columns = shape
    tiles = [-(-size // 16) for size in (rows, columns)]
    words = words_of(seed, step, site, [*outer, tiles[0], 8, tiles[1], 4])
    pairs = [np.stack([word & np.uint64(0xFFFF), word >> np.uint64(16)], -1) for word in words]
    drawn = [pair.reshape(*pair.shape[:-2], 8) for pair in pairs]
    halves = [np.concatenate(drawn[first : first + 2], -1) for first in (0, 2)]  # [.., tile, 8, tile, 16]
    whole = np.concatenate(halves, -3).reshape(*outer, 16 * tiles[0], 16 * tiles[1])
    return np.asarray(whole[..., :rows, :columns])
