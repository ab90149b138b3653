"""How random graphs come by their operands: values of any shape and type, as views, parts and joins of others.

What an op asks for (a type, and where it is defined, by the values of its sample) is taken from an earlier value: cast,
transposed, sliced, repeated or joined until its shape is right, and bent into the range.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from random_graph import Graph, Rejected, Value
from samples.sample import Fill, classes, normal
from xdsl.dialects.builtin import TensorType

from aicf_mlir.dialects import nn
from aicf_mlir.interpreters.numerics import FLOATS
from aicf_mlir.ir.dtypes import ELEMENT_TYPES


def torch_type(element: str) -> torch.dtype:
    """What torch has in the place of an element type."""
    return torch.float64 if element in FLOATS else torch.bool if element == "i1" else torch.int64


UNREAD = 0.7
"""How often a part that is cut off is read by nothing."""

FRESH = 0.25
"""How often an operand is a new argument."""


def operand(graph: Graph, shape: tuple[int, ...], element: str, fill: Fill | None = None) -> Value:
    """A value of this type, defined where `fill` is; raises `Rejected` where there is none."""
    rng = graph.rng
    known = [value for value in graph.values if value.is_float == (element in FLOATS)]
    if element == "i1":
        known = [value for value in known if value.element == "i1"]
    indices = element not in FLOATS and fill is not None and not is_class(fill)
    if indices or not known or rng.random() < FRESH:
        return fresh(graph, shape, element, fill)
    latest = [value for value in known if not value.used]
    value = pick(rng, latest if latest and rng.random() < 0.7 else known)
    value = shaped(graph, value, shape)
    return ranged(graph, typed(graph, value, element), fill)


def pick(rng: np.random.Generator, values: Sequence[Value]) -> Value:
    """One of them, the later the likelier."""
    return values[int(len(values) * rng.random() ** 0.6)]


def is_class(fill: Fill) -> bool:
    """Whether it fills in indices of which each may be any other."""
    return fill.__qualname__.startswith(classes.__name__ + ".")


def filled(graph: Graph, shape: tuple[int, ...], element: str, fill: Fill | None) -> np.ndarray:
    """Values as a sample has them."""
    default = normal if element in FLOATS else classes(2 if element == "i1" else 9)
    return np.asarray((fill or default)(graph.rng, shape))


def fresh(graph: Graph, shape: tuple[int, ...], element: str, fill: Fill | None = None) -> Value:
    """A new argument, half of the time a parameter if it is a float."""
    array = filled(graph, shape, element, fill)
    trained = element in FLOATS and graph.rng.random() < 0.6
    return laid_out(graph, array, element, trained)


def laid_out(graph: Graph, array: np.ndarray, element: str, trained: bool = False) -> Value:
    """An argument from which `array` is taken: as it is, transposed, a slice, or repeated."""
    rng, rank = graph.rng, array.ndim
    kind = rng.choice(["plain", "plain", "turned", "sliced"])
    if kind == "turned" and rank > 1:
        perm = [int(dim) for dim in rng.permutation(rank)]
        stored = graph.argument(np.transpose(array, np.argsort(perm)), element, trained)
        return transposed(graph, stored, perm)
    if kind == "sliced" and rank:
        dim = int(rng.integers(rank))
        before, after = int(rng.integers(0, 3)), int(rng.integers(0, 3))
        edge = np.take(array, np.zeros(1, int), dim) if array.shape[dim] else array
        parts = [*[edge] * before, array, *[edge] * after]
        stored = graph.argument(np.concatenate(parts, dim), element, trained)
        return sliced(graph, stored, dim, before if array.shape[dim] else 0, array.shape[dim])
    return graph.argument(array, element, trained)


def transposed(graph: Graph, value: Value, perm: Sequence[int]) -> Value:
    """Dimensions in another order."""
    return one(graph, lambda x: nn.TransposeOp(x, perm), lambda x: x.permute(*perm), value)


def reshaped(graph: Graph, value: Value, shape: Sequence[int]) -> Value:
    """The same elements in another shape."""
    if value.shape == tuple(shape):
        return value
    return one(graph, lambda x: nn.ReshapeOp(x, shape), lambda x: x.reshape(tuple(shape)), value)


def sliced(graph: Graph, value: Value, dim: int, start: int, size: int) -> Value:
    """A part along one dimension."""
    sizes = [start, size, value.shape[dim] - start - size]
    position = 1 if start else 0
    kept = [each for number, each in enumerate(sizes) if each or number == 1]
    if len(kept) == 1:
        return value
    parts = graph.emit(lambda x: nn.SplitOp(x, dim, kept), lambda x: torch.split(x, kept, dim), [value])
    for part in parts:
        part.used = graph.rng.random() < UNREAD
    return parts[position]


def one(
    graph: Graph,
    build: Callable[..., nn.NNOp],
    reference: Callable[..., torch.Tensor],
    *operands: Value,
    last: bool = False,
) -> Value:
    """The one result of an op."""
    return graph.emit(build, reference, operands, last=last)[0]


def shaped(graph: Graph, value: Value, shape: tuple[int, ...]) -> Value:
    """Elements of `value` in this shape: expanded where it broadcasts, cut or joined where their number differs."""
    rng = graph.rng
    if value.shape == shape:
        return value
    if value.shape and broadcasts(value.shape, shape):
        return one(graph, lambda x: nn.BroadcastToOp(x, shape), lambda x: x.expand(shape), value)
    have, want = math.prod(value.shape), math.prod(shape)
    if have == 0:
        raise Rejected("nothing to take elements of")
    if have < want:
        flat = reshaped(graph, value, (have,))
        times = -(-want // have)
        if rng.random() < 0.5 and times <= 4:
            value = one(graph, lambda *x: nn.ConcatOp(x, 0), lambda *x: torch.cat(x), *([flat] * times))
        else:
            value = one(
                graph, lambda x: nn.BroadcastToOp(x, [times, have]), lambda x: x.expand(times, have), flat
            )
        have *= times
    if have > want:
        value = cut(graph, value, shape, have, want)
        if value.shape == shape:
            return value
    if len(shape) > 1 and rng.random() < 0.4:
        perm = [int(dim) for dim in rng.permutation(len(shape))]
        turned = [shape[dim] for dim in np.argsort(perm)]
        value = reshaped(graph, value, turned)
        return transposed(graph, value, [int(dim) for dim in perm]) if value.shape == tuple(turned) else value
    return reshaped(graph, value, shape)


def cut(graph: Graph, value: Value, shape: tuple[int, ...], have: int, want: int) -> Value:
    """`want` of `have` elements: columns of longer rows, or one behind the other."""
    rng = graph.rng
    if shape and want and (width := have * shape[-1] // want) > shape[-1] and rng.random() < 0.6:
        rows = want // shape[-1]
        used = rows * width
        flat = reshaped(graph, value, (have,))
        flat = sliced(graph, flat, 0, int(rng.integers(have - used + 1)), used)
        grid = reshaped(graph, flat, (*shape[:-1], width))
        return sliced(graph, grid, len(shape) - 1, int(rng.integers(width - shape[-1] + 1)), shape[-1])
    flat = reshaped(graph, value, (have,))
    return sliced(graph, flat, 0, int(rng.integers(have - want + 1)), want)


def broadcasts(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """By NumPy's rules."""
    if len(shape) > len(wanted):
        return False
    return all(have in (1, want) for have, want in zip(reversed(shape), reversed(wanted), strict=False))


def typed(graph: Graph, value: Value, element: str, last: bool = False) -> Value:
    """The value in another element type."""
    if value.element == element:
        return value
    return one(
        graph,
        lambda x: nn.CastOp(x, ELEMENT_TYPES[element]),
        lambda x: x.to(torch_type(element)),
        value,
        last=last,
    )


def ranged(graph: Graph, value: Value, fill: Fill | None) -> Value:
    """The value where `fill` is: as it is if it lies there, else bent into the range."""
    if value.element == "i1" or not value.exact.numel():
        return value
    low, high = extremes(value.shape, fill or normal)
    if not value.is_float:
        return within(graph, value, max(int(low), 0), int(high))
    known = value.exact.detach()[value.exact.isfinite()]
    if not known.numel() or (float(known.min()) >= low and float(known.max()) <= high):
        return value
    scale = constant(graph, (high - low) * 0.45, value.element)
    bent = one(graph, nn.MulOp, torch.mul, one(graph, nn.TanhOp, torch.tanh, value), scale)
    if low + high == 0.0:
        return bent
    return one(graph, nn.AddOp, torch.add, bent, constant(graph, (high + low) / 2, value.element))


def extremes(shape: tuple[int, ...], fill: Fill) -> tuple[float, float]:
    """What `fill` fills in at least and at most: by many of its numbers where it fills any shape."""
    rng = np.random.default_rng(0)
    try:
        drawn = np.asarray(fill(rng, (256,)))
    except (ValueError, IndexError):
        drawn = np.asarray(fill(rng, shape))
    return float(drawn.min()), float(drawn.max())


def within(graph: Graph, value: Value, low: int, high: int) -> Value:
    """Integers from `low` to `high`, those outside as the nearest of them."""
    for number, op, reference in ((low, nn.MaximumOp, torch.maximum), (high, nn.MinimumOp, torch.minimum)):
        value = one(graph, op, reference, value, constant(graph, number, value.element))
    return value


def constant(graph: Graph, number: float, element: str) -> Value:
    """A number as a 0-d tensor."""
    return one(
        graph,
        lambda: nn.ConstantOp(float(number), TensorType(ELEMENT_TYPES[element], [])),
        lambda: torch.tensor(number, dtype=torch_type(element)),
    )
