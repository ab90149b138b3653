"""Philox4x32-10 in integers of 64 bits, which hold the product of two words: four random words of each element."""

from __future__ import annotations

from aicf_mlir.ir.formula import Scalar

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
WORD = (1 << 32) - 1


def philox(
    seed: Scalar, step: Scalar, site: Scalar, element: Scalar
) -> tuple[Scalar, Scalar, Scalar, Scalar]:
    """All four words; `scalar.philox` is one of them."""
    a, b, c, d = element & WORD, _high(element), site & WORD, step & WORD
    left, right = seed & WORD, _high(seed)
    for number in range(ROUNDS):
        if number:
            left, right = (left + WEYL[0]) & WORD, (right + WEYL[1]) & WORD
        first, second = a * MULTIPLIERS[0], c * MULTIPLIERS[1]
        a, b, c, d = _high(second) ^ b ^ left, second & WORD, _high(first) ^ d ^ right, first & WORD
    return a, b, c, d


def _high(x: Scalar) -> Scalar:
    """The upper of two words."""
    return x.apply("arith.shrui", 32)
