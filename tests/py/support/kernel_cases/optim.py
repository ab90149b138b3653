"""advance, sgd_step and adam_step over several tensors in several groups, each at a step of its own."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from aicf_mlir.interpreters.numerics import NUMPY_TYPES
from aicf_mlir.ir.registry import Counts, schemas
from kernel_cases.case import Array, Case, Generator, Maker, Spec

TENSORS = [(1,), (), (17, 33), (0, 3), (64, 65), (8,), (3,)]
GROUPS = [0, 1, 0, 0, 1, 2, 0]
INDICES = [2, 0, 0, 3, 1, 4, 1]
"""The element of each tensor in the vectors of its group, which have five."""
SCALARS = ("beta1", "beta2", "bc1_pin", "bc2_pin")
NARROW = {"f16": ("f16",), "bf16": ("bf16",), "f16, bf16 and f32": ("bf16", "f16", "f32")}
"""The types of gradients beside parameters of f32, one after the other."""
NARROW_SPIKES = [math.nan, math.inf, -math.inf, 0.0, -0.0, 6e-8, -1e-40, 65504.0, -3e-5]
"""Subnormal numbers of f16 and of bf16 among them."""
SPIKES = [0.0, -0.0, 1e-12, -1e-6, 1e-3, 1.0, -30.0, 200.0]


def advance(make: Maker) -> Iterator[Case]:
    del make
    mixed = [float(i * i % 100) for i in range(300)]  # more than a block of threads
    counters = ([0.0], [1.0, 1.0, 1.0], [999.0] * 257, [16777216.0], [0.0, 7.0, 7.0, 3.0, 0.0], mixed)
    for steps, count in itertools.product(counters, (1, 5)):
        step = np.array(steps, np.float32)
        outputs: list[Spec] = [("f32", step.shape)] + [("f64", step.shape)] * (2 if count == 5 else 0)
        for pins in ((math.nan, math.nan), (0.5, math.nan), (math.nan, 7.0)) if count == 5 else ((),):
            scalars = [np.array(x) for x in (0.9, 0.999, *pins)] if count == 5 else []
            names = SCALARS if count == 5 else ()
            counts = schemas()["advance"].counts(
                {"step": 1, **dict.fromkeys(names, 1)},
                dict.fromkeys(("bc1_inv", "bc2_inv"), 1) if count == 5 else {},
            )
            yield Case(
                f"{len(steps)} from {steps[0]} {pins}", [step, *scalars], outputs, {}, counts, each=True
            )


def narrow(make: Maker, shapes: Sequence[tuple[int, ...]], label: str) -> list[Array]:
    """Gradients of types that are not that of their parameter, with a few spikes."""
    types = [NUMPY_TYPES[name] for name in NARROW[label]]
    found: list[Array] = []
    for i, shape in enumerate(shapes):
        values = make.random.standard_normal(shape)
        spikes = make.random.choice(NARROW_SPIKES, shape)
        values = np.where(make.random.random(shape) < 0.2, spikes, values)
        with np.errstate(all="ignore"):
            found.append(values.astype(types[i % len(types)]))
    return found


def _labels(make: Maker, *labels: str) -> tuple[str, ...]:
    """Of gradients: with those of other types where these may stand beside the parameter."""
    return (*labels, *(NARROW if make.dtype == "f32" else ()))


def _gradients(make: Maker, label: str) -> list[Array]:
    if label in NARROW:
        return narrow(make, TENSORS, label)
    if label == "normal":
        return [make.normal(*shape) for shape in TENSORS]
    return [make.cast(make.random.choice(SPIKES, shape)) for shape in TENSORS]


def _by_index(group: int, chosen: tuple[int, ...], value: float, other: float, dtype: Any) -> Array:
    """The vector of a group: `value` for the tensors in `chosen`, `other` for the rest, NaN where none reads."""
    vector = np.full(5, np.nan, dtype)
    for tensor, index in enumerate(INDICES):
        if GROUPS[tensor] == group:
            vector[index] = value if tensor in chosen else other
    return vector


def _counts(op: str, states: tuple[str, ...], scalars: tuple[str, ...]) -> Counts:
    given = {**dict.fromkeys(states, len(TENSORS)), **dict.fromkeys(scalars, 1 + max(GROUPS))}
    return schemas()[op].counts(given)


def sgd_step(make: Maker) -> Iterator[Case]:
    flags = itertools.product((False, True), repeat=3)
    firsts = ((), tuple(range(len(TENSORS))), (0, 4))  # the tensors that take their first step
    for (momentum, nesterov, maximize), grads, first in itertools.product(
        flags, _labels(make, "normal", "spikes"), firsts
    ):
        if (nesterov or first) and not momentum:
            continue
        inputs = [make.normal(*shape) for shape in TENSORS] + _gradients(make, grads)
        if momentum:  # the buffer of a first step is poison: it must not be read into the result
            inputs += [
                make.cast(np.full(shape, np.nan)) if i in first else make.normal(*shape)
                for i, shape in enumerate(TENSORS)
            ]
        scalars = ((0.1, 0.0, 0.9, 0.0), (0.01, 0.1, 0.5, 0.3), (0.0, 0.0, 0.0, 1.0))
        names = ("lr", "weight_decay", "momentum", "dampening")[: 4 if momentum else 2]
        for of_name, _ in zip(zip(*scalars, strict=True), names, strict=False):
            inputs += [np.array(value) for value in of_name]
        if momentum:
            inputs += [_by_index(group, first, 1.0, 5.0, np.float32) for group in range(3)]
        attrs: dict[str, Any] = {"groups": GROUPS, "nesterov": nesterov, "maximize": maximize}
        if momentum:
            attrs["indices"] = INDICES
        states = ("p", "g", "buf") if momentum else ("p", "g")
        counts = _counts("sgd_step", states, (*names, "step") if momentum else names)
        outputs = [make.out(*shape) for shape in TENSORS] * (2 if momentum else 1)
        label = f"{grads} {momentum} {attrs} first={first}"
        yield Case(label, inputs, outputs, attrs, counts, scale=1.0, each=grads in NARROW)


def adam_step(make: Maker) -> Iterator[Case]:
    flags = itertools.product((False, True), repeat=3)
    for (amsgrad, decoupled, maximize), grads in itertools.product(
        flags, _labels(make, "normal", "spikes", "first", "not finite", "after a spike")
    ):
        p, g = (
            [make.normal(*shape) for shape in TENSORS],
            _gradients(make, grads if grads == "spikes" or grads in NARROW else "normal"),
        )
        m = [make.cast(0.1 * make.normal(*shape).astype(np.float64)) for shape in TENSORS]
        v, vmax = (
            [make.cast(0.01 * make.normal(*s).astype(np.float64) ** 2) for s in TENSORS] for _ in range(2)
        )
        if grads == "first":
            m, v, vmax = ([make.cast(np.zeros(shape)) for shape in TENSORS] for _ in range(3))
        if grads == "not finite":
            for state in (p, g, m, v, vmax):
                place = make.random.integers(0, 33)
                state[2][place % 17, place] = np.nan
                state[4][place % 64, place] = np.inf
        if grads == "after a spike":  # what is left of m must not hide a gradient beside it
            g = [make.cast(1e-5 * make.normal(*shape).astype(np.float64)) for shape in TENSORS]
            m = [make.cast(3e3 * make.normal(*shape).astype(np.float64)) for shape in TENSORS]
        inputs = [*p, *g, *m, *v, *(vmax if amsgrad else [])]
        late = (2, 4)  # tensors at a later step than the others of their groups
        groups = (
            (1e-3, 0.9, 0.999, 1e-8, 0.0, 10.0, 1000.0),
            (0.1, 0.5, 0.9, 1e-3, 0.1, 2.0, 1.5),
            (0.0, 0.0, 0.5, 1e-6, 0.5, 1.0, 2.0),
        )
        *scalars, inverses1, inverses2 = zip(*groups, strict=True)
        inputs += [np.array(value) for of_name in scalars for value in of_name]
        for inverses in (inverses1, inverses2):
            inputs += [_by_index(g, late, 1.25, value, np.float64) for g, value in enumerate(inverses)]
        attrs: dict[str, Any] = {"groups": GROUPS, "indices": INDICES}
        attrs |= {"decoupled": decoupled, "maximize": maximize}
        states = ("p", "g", "m", "v", *(("vmax",) if amsgrad else ()))
        names = ("lr", "beta1", "beta2", "eps", "weight_decay", "bc1_inv", "bc2_inv")
        outputs = [make.out(*shape) for shape in TENSORS] * (4 if amsgrad else 3)
        label = f"{grads} {amsgrad} {attrs}"
        counts = _counts("adam_step", states, names)
        yield Case(label, inputs, outputs, attrs, counts, each=grads != "normal")


CASES: dict[str, Generator] = {"advance": advance, "sgd_step": sgd_step, "adam_step": adam_step}
