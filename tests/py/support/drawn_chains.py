"""Chains that are drawn: any operands, uses and products over rows that CUDA has code for; and ones that were wrong there."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from chain_builder import ChainBuilder

from aicf_mlir.codegen.cuda.back_to_back import reason
from aicf_mlir.ir import formula as F
from aicf_mlir.kernels.back_to_back import BackToBackKernel
from aicf_mlir.kernels.kernel import Tensor

WIDTHS = (16, 32, 48, 64, 80, 128)
ROWS = (1, 15, 63, 64, 130, 1001)


def drawn_chain(rng: np.random.Generator, target: str) -> BackToBackKernel:
    """One to five links, drawn until registers and shared memory hold them."""
    drawn = (_draw(rng, target) for _ in range(100))
    return next(kernel for kernel in drawn if not reason(kernel))


def _draw(rng: np.random.Generator, target: str) -> BackToBackKernel:
    element, other = rng.permutation(["f16", "bf16"]).tolist()
    most = int(rng.choice([3, 4, 6]))
    chain = ChainBuilder(target, int(rng.choice(ROWS)), int(rng.choice(WIDTHS[:most])), element)
    count = int(rng.integers(1, 6))
    made: list[tuple[int, str]] = []  # columns and element of each value
    needed: list[int] = []
    for number in range(count):
        old = [n for n, b in enumerate(chain.bs) if chain.width in b.shape]
        b = int(rng.choice(old)) if old and rng.random() < 0.6 else None
        if b is None:
            trans, n = bool(rng.random() < 0.5), int(rng.choice(WIDTHS[:most]))
        else:
            trans = chain.bs[b].shape[1] == chain.width
            n = chain.bs[b].shape[0 if trans else 1]
        takes = [_operand(rng, chain, n) for _ in range(int(rng.integers(0, 4)))]
        takes += [("y", y) for y, (width, _) in enumerate(made) if width == n and rng.random() < 0.4]
        uses: list[tuple[str, str]] = []
        for place in range(int(rng.integers(1, 4))):
            chained = number < count - 1 and place == 0
            type_ = element if chained or rng.random() < 0.6 else str(rng.choice([other, "f32"]))
            letters = "n" * chained + "w" * (rng.random() < 0.4) + "s" * (rng.random() < 0.5)
            if not letters and type_ == element and rng.random() < 0.5:
                needed.append(len(made))
            elif not letters:
                letters = "w"
            made.append((n, type_))
            uses.append((type_, letters))
        chain.link(n, takes, _formula(int(rng.integers(4)), len(uses)), uses, b, trans)
    lefts = [y for y, (_, type_) in enumerate(made) if type_ == element]
    rights: list[int | None] = [None, *lefts]
    outers = [(left, rights[int(rng.integers(len(rights)))]) for left in needed]
    if lefts and rng.random() < 0.6:
        count = int(rng.integers(1, 4))
        outers += [(int(rng.choice(lefts)), rights[int(rng.integers(len(rights)))]) for _ in range(count)]
    if rng.random() < 0.3:
        chain.a = Tensor("f32", chain.a.shape, chain.a.strides, chain.a.alignment)
    rounded = chain.a.element == "f32" and bool(rng.random() < 0.5)
    return chain.finish(rounded, list(dict.fromkeys(outers)))


def _operand(rng: np.random.Generator, chain: ChainBuilder, n: int) -> tuple[str, int]:
    """Whole, mostly; or one of all rows, of all columns, of all elements; or by columns."""
    type_ = str(rng.choice(["f32", "f16", "bf16"]))
    strides = [(n, 1), (0, 1), (1, 0), (0, 0), (1, chain.rows)]
    which = int(rng.choice(5, p=(0.6, 0.1, 0.1, 0.1, 0.1)))
    return chain.x(Tensor(type_, (chain.rows, n), strides[which]))


def _formula(kind: int, results: int) -> Callable[..., list[F.Scalar]]:
    """A body of any number of operands, exact for small integers and quarters."""

    def body(z: F.Scalar, *others: F.Scalar) -> list[F.Scalar]:
        total, last = z * 0.5, z
        for number, last in enumerate(others):
            total = total + last * (0.5 if number % 2 else -0.25)
        made = (total, F.maximum(total, 0.0), F.select(last <= 0.0, 0.0, z), z - last)
        return [made[(kind + number) % len(made)] for number in range(results)]

    return body


def turns(target: str, rows: int, width: int, element: str) -> BackToBackKernel:
    """Links that take tiles of two operands each, more of them than shared memory holds at once."""
    chain = ChainBuilder(target, rows, width, element)
    for number in range(4):
        takes = [chain.whole(width, element), chain.whole(width, "f32")]
        chain.link(
            width,
            takes,
            lambda z, x, t: z * 0.5 + x - t * 0.25,
            [(element, "wn" if number < 3 else "ws")],
            None if number == 0 else 0,
        )
    return chain.finish()


def added_once(target: str, rows: int, element: str) -> BackToBackKernel:
    """A value with a column sum that is the left of products over rows behind two links."""
    chain = ChainBuilder(target, rows, 32, element)
    bias = chain.vector(32, "f32")
    first = chain.link(32, [bias], lambda z, b: z + b, [(element, "ns")])
    second = chain.link(32, [], lambda z: F.maximum(z, 0.0), [(element, "ns")], trans_b=False)
    last = chain.link(48, [], lambda z: z * 0.5, [(element, "w")])
    return chain.finish(False, [(first, last), (second, second), (first, first), (second, last)])


def divided(target: str, rows: int, element: str) -> BackToBackKernel:
    """A quotient, which of rows that are not there would be no number, on the right of a product over rows."""
    chain = ChainBuilder(target, rows, 32, element)
    by = chain.whole(48, "f32")
    made = chain.link(48, [by], lambda z, x: (z * 0.5, z / x), [(element, "n"), (element, "")])
    chain.link(16, [], lambda z: z, [(element, "w")])
    return chain.finish(False, [(made, made + 1)])
