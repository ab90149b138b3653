"""Chains with operands for which nearly all of their arithmetic is exact: small integers, and few of them in a row of weights."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import starmap
from typing import NamedTuple

import numpy as np
from chain_builder import ChainBuilder
from drawn_chains import added_once, divided, drawn_chain, turns
from generated_cases import Array, GeneratedCase, dense, fill, span, view, wide

from aicf_mlir.interpreters.body import evaluate
from aicf_mlir.interpreters.numerics import NUMPY_TYPES
from aicf_mlir.ir import formula as F
from aicf_mlir.kernels.back_to_back import BackToBackKernel
from aicf_mlir.kernels.kernel import Tensor

STEP, WIDEST = 16, 128
DIVIDED = (
    (1001, [128] * 5, (3,)),
    (1, [128] * 5, (3,)),
    (17050, [128] * 5, (3,)),
    (16896, [128] * 3, (0,)),
    (640, [80, 128, 112], (1,)),
    (2000, [128, 96, 48], (0,)),
)
"""Rows, widths, and the layers whose weights' gradients are more sums than a warpgroup holds."""


def trained(
    target: str,
    rows: int,
    widths: Sequence[int],
    element: str,
    target_element: str = "f32",
    a_element: str = "",
    weights: Collection[int] = (),
) -> BackToBackKernel:
    """A step of layers with relu and a squared error: forward, its gradient, and that of all but the first layer's input.

    `weights` are the layers whose weights' gradients the chain gives; what only those take is not written.
    """
    chain = ChainBuilder(target, rows, widths[0], element)
    chain.a = dense(a_element or element, rows, widths[0])
    hidden: list[int] = []
    last = len(widths) - 1

    def written(layer: int) -> str:
        return "" if layer in weights else "w"

    for layer, n in enumerate(widths[1:-1], 1):
        bias = chain.vector(n, element)
        uses = [(element, written(layer) + "n")]
        hidden.append(chain.link(n, [bias], lambda z, b: F.maximum(z + b, 0.0), uses))

    def loss(z: F.Scalar, b: F.Scalar, t: F.Scalar) -> tuple[F.Scalar, F.Scalar]:
        off = (z + b).rounded(element) - t
        return off * off, off * 0.25

    taken = [chain.vector(widths[-1], "f32"), chain.whole(widths[-1], target_element)]
    uses = [("f32", "s"), (element, written(last - 1) + ("sn" if last > 1 else "s"))]
    gradients = {last - 1: chain.link(widths[-1], taken, loss, uses) + 1}
    for layer in range(last - 1, 0, -1):
        gradients[layer - 1] = chain.link(
            widths[layer],
            [("y", hidden[layer - 1])],
            lambda z, h: F.select(h > 0.0, z, 0.0),
            [(element, written(layer - 1) + ("sn" if layer > 1 else "s"))],
            layer,
            False,
        )
    outers = [(gradients[layer], hidden[layer - 1] if layer else None) for layer in sorted(weights)]
    return chain.finish(chain.a.element != element and 0 not in weights, outers)


def with_tanh(target: str, rows: int, widths: Sequence[int], element: str) -> BackToBackKernel:
    """Layers with tanh, whose derivative needs the value itself, and f32 results."""
    chain = ChainBuilder(target, rows, widths[0], element)
    hidden: list[int] = []
    for n in widths[1:]:
        scale = chain.x(Tensor("f32", (rows, n), (0, 0)))
        made = chain.link(n, [scale], lambda z, s: (F.tanh(z * s), z), [(element, "wn"), ("f32", "w")])
        hidden.append(made)
    for layer in range(len(widths) - 1, 0, -1):
        rest = layer > 1
        columns = widths[layer - 1] if rest else widths[0]
        takes = [("y", hidden[layer - 2])] if rest else [chain.x(Tensor("f32", (rows, columns), (1, rows)))]
        chain.link(
            columns, takes, lambda z, h: z - z * h * h, [(element, "wn" if rest else "w")], layer - 1, False
        )
    return chain.finish()


def mixed(target: str, rows: int, element: str) -> BackToBackKernel:
    """Operands and results of every kind: kept and not written, summed and not written, by columns, one number."""
    chain = ChainBuilder(target, rows, 32, element)
    first = chain.link(
        48,
        [chain.x(Tensor(element, (rows, 48), (1, rows))), chain.vector(48, "f32", 2)],
        lambda z, x, v: (z + x, z * v),
        [(element, "n"), ("f32", "")],
        trans_b=False,
    )
    chain.link(
        48,
        [("y", first), ("y", first + 1), chain.whole(48, "f32"), chain.whole(48, element)],
        lambda z, h, k, t, u: (z + h, k - t, z - u, F.select(k > t, z, h)),
        [(element, "ns"), ("f32", "ws"), (element, "s"), (element, "ws")],
    )
    chain.link(
        16,
        [chain.x(Tensor("f32", (rows, 16), (1, 0)))],
        lambda z, r: z * r,
        [("bf16" if element == "f16" else "f16", "ws")],
    )
    return chain.finish()


def random_chain(rng: np.random.Generator, target: str) -> BackToBackKernel:
    """A trained step of two to five layers, of any widths."""
    layers = int(rng.integers(1, 5))
    weights = [layer for layer in range(layers) if rng.random() < 0.5]
    most = WIDEST // STEP // (2 if weights else 1)
    widths = [STEP * int(rng.integers(1, most + 1)) for _ in range(layers + 1)]
    element = ("f16", "bf16")[int(rng.integers(2))]
    rows = int(rng.choice([64, 1000, 4096, 4133]))
    of_target, of_a = (("f32", element)[int(rng.integers(2))] for _ in range(2))
    return trained(target, rows, widths, element, of_target, of_a, weights)


def few(rng: np.random.Generator, tensor: Tensor) -> Array:
    """Weights, of which some three of a row are 1 or -1, and the others 0."""
    rows, columns = tensor.shape
    signs = rng.choice([-1.0, 1.0], (rows, columns))
    return (signs * (rng.random((rows, columns)) < 3 / columns)).astype(NUMPY_TYPES[tensor.element]).ravel()


class Chain(NamedTuple):
    """A chain without operands."""

    name: str
    kernel: BackToBackKernel
    seed: int
    divisors: tuple[int, ...] = ()


def chain_case(
    name: str, kernel: BackToBackKernel, seed: int = 0, divisors: Collection[int] = ()
) -> GeneratedCase:
    """The kernel with small integers, and halves of them; of the x that are `divisors` with powers of two."""
    rng = np.random.default_rng(seed)
    first_x = 1 + len(kernel.bs)
    blocks: list[Array] = []
    for number, tensor in enumerate(kernel.operands):
        if 0 < number < first_x:
            blocks.append(few(rng, tensor))
        elif number - first_x in divisors:
            block = rng.choice([-2.0, -1.0, -0.5, 0.5, 1.0, 2.0], span(tensor))
            blocks.append(block.astype(NUMPY_TYPES[tensor.element]))
        else:
            block = fill(rng, tensor)
            scaled = np.round(block.astype(np.float64) * (2 if number else 1)) / (2 if number else 1)
            blocks.append(scaled.astype(block.dtype))
    return GeneratedCase(name, kernel, tuple(blocks), tuple(meaning(kernel, blocks)))


def meaning(kernel: BackToBackKernel, blocks: Sequence[Array]) -> list[Array]:
    """What a chain computes, in float64; values are rounded where the kernel says so."""
    tensors = list(zip(blocks, kernel.operands, strict=True))
    a = wide(*tensors[0]).astype(NUMPY_TYPES[kernel.element]).astype(np.float64)
    first = a
    bs = [wide(*pair) for pair in tensors[1 : 1 + len(kernel.bs)]]
    xs = [wide(*pair) for pair in tensors[1 + len(kernel.bs) :]]
    values: list[Array] = []
    results: list[Array] = []
    for link in kernel.links:
        b = bs[link.b_number]
        z = a @ (b.T if link.trans_b else b)
        given = [xs[number] if kind == "x" else values[number] for kind, number in link.takes]
        made = evaluate(link.body, [z, *given], z.shape, [], [z.shape] * len(link.yields))
        for value, use in zip(made, link.yields, strict=True):
            rounded = np.array(value).astype(NUMPY_TYPES[use.element]).astype(np.float64)
            values.append(rounded)
            results += [rounded] if use.wide is not None else []
            results += [rounded.sum(axis=0)] if use.column_sum is not None else []
            a = rounded if use.chained else a
    results += [first] if kernel.a_rounded is not None else []
    for outer in kernel.outers:
        results.append(values[outer.left].T @ (first if outer.right is None else values[outer.right]))
    return results


def chain_cases(seed: int = 0, count: int = 8, target: str = "sm_90") -> Iterator[GeneratedCase]:
    """The chains with operands and results, which take longer than their texts."""
    return starmap(chain_case, chains(seed, count, target))


def chains(seed: int = 0, count: int = 8, target: str = "sm_90") -> Iterator[Chain]:
    """Every width, every kind of operand and result, and random ones."""
    for element in ("f16", "bf16"):
        for n in range(STEP, WIDEST + 1, STEP):
            yield Chain(f"chain of width {n} {element}", trained(target, 200, [n] * 4, element), n)
        yield Chain(f"many tiles {element}", trained(target, 40000, [16] * 3, element), 1)
        yield Chain(f"wide chain {element}", trained(target, 4133, [128] * 5, element), 2)
        yield Chain(f"one link {element}", trained(target, 320, [96, 112], element), 3)
        for width, weights in ((64, range(4)), (64, (1,)), (32, range(4)), (48, (0, 2)), (16, (0,))):
            kernel = trained(target, 1001, [width] * 5, element, "f32", "f32", weights)
            yield Chain(f"gradients {width} {len(weights)} {element}", kernel, width)
        apart = trained(target, 9000, [16, 64, 32], element, "f32", "f32", (0, 1))
        yield Chain(f"gradients of many tiles {element}", apart, 6)
        yield Chain(f"f32 rounded {element}", trained(target, 500, [80, 128, 16], element, "f32", "f32"), 7)
        for rows, widths, weights in DIVIDED:
            kernel = trained(target, rows, widths, element, "f32", element, weights)
            yield Chain(f"warpgroups divide sums {rows} {widths} {element}", kernel, rows)
        yield Chain(f"tanh {element}", with_tanh(target, 777, [16, 64, 32], element), 4)
        yield Chain(f"mixed {element}", mixed(target, 1001, element), 5)
        for width in (64, 96):
            yield Chain(f"taking turns {width} {element}", turns(target, 1001, width, element), 8)
        yield Chain(f"added once {element}", added_once(target, 1001, element), 9)
        yield Chain(f"divided {element}", divided(target, 130, element), 10, (0,))
    for number in range(count):
        rng = np.random.default_rng((seed, number))
        yield Chain(f"random chain {seed}.{number}", random_chain(rng, target), number)
    for number in range(4 * count):
        rng = np.random.default_rng((seed, number, 1))
        yield Chain(f"drawn chain {seed}.{number}", drawn_chain(rng, target), number)


__all__ = [
    "Chain",
    "ChainBuilder",
    "chain_case",
    "chain_cases",
    "chains",
    "meaning",
    "mixed",
    "trained",
    "view",
    "with_tanh",
]
