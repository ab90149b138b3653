"""Ops of torch at special operands: what our trace of one means, and what torch's own step computes there.

The samples are those of `opinfo`, their numbers replaced: ties, zeros of both signs, NaN, infinities, numbers far from 1, and
cotangents that are NaN, infinite or 0. The trace is differentiated and run by the interpreter, in the type of the sample.
"""

from __future__ import annotations

import copy
import math
import random
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from opinfo import Applied, Draws, infos, loss, samples
from programs import run_by_name, run_pipeline

from aicf_mlir.errors import AicfError
from aicf_mlir.frontend import trace
from aicf_mlir.interpreters.numerics import NUMPY_TYPES, Array

NAN, INF = math.nan, math.inf


@dataclass(frozen=True)
class Special:
    """Numbers that operands are drawn from, one of them or all, and those of the cotangents."""

    operands: Sequence[float]
    cotangents: Sequence[float] = ()
    one_by_one: bool = False


USUAL = (0.0, 1.0, -1.0, 0.5, 1.0)
PATTERNS = {
    "ties": Special((0.0, -0.0, 1.0, -1.0, 0.5, 1.0)),
    "equal": Special((1.0,)),
    "zeros": Special((0.0, -0.0)),
    "nan": Special((1.0, NAN, 0.0, -1.0, 1.0, 0.5), one_by_one=True),
    "inf": Special((1.0, INF, 0.0, -INF, 0.5, INF), one_by_one=True),
    "far": Special((1e5, -1e5, 1e-5, -1e-40, 1.0, -0.0)),
    "cotangents": Special((0.25, 1.0, 2.0, -0.5, -3.0, 0.5, 0.0), (1.0, 0.0, NAN, INF, -INF, 2.0)),
    "of probabilities": Special((0.25, 0.5, 0.75), (1.0, 0.0, NAN, INF, -INF, 2.0)),
}


def of_finished(matrices: torch.Tensor, **options: Any) -> tuple[torch.Tensor, ...]:
    """Where a factorization stops, and all of those that do not: of one that does, torch leaves what it has reached."""
    stops = torch.linalg.cholesky_ex(matrices.detach(), **options).info
    usual = torch.eye(matrices.shape[-1], dtype=matrices.dtype)
    finished = torch.where((stops == 0)[..., None, None], matrices, usual)
    return stops, *torch.linalg.cholesky_ex(finished, **options)


def values_of(op: Callable[..., Any]) -> Callable[..., torch.Tensor]:
    """The sorted values: which of equal ones is where, and gets the gradient, is left open."""

    def alone(*given: Any, **options: Any) -> torch.Tensor:
        found = op(*given, **options)
        return (found if isinstance(found, torch.Tensor) else found.values).detach()

    return alone


IN_PART: Mapping[str, Callable[..., Any]] = {
    "linalg.cholesky_ex": of_finished,
    **{
        name: values_of(getattr(torch, name))
        for name in ("kthvalue", "median", "msort", "nanmedian", "sort", "topk")
    },
}
"""What is judged of ops of which torch leaves a part open."""

TOLERANCES = {torch.float64: 1e-6, torch.float32: 1e-3, torch.bfloat16: 6e-2, torch.float16: 2e-2}


@dataclass(frozen=True)
class Fault:
    """An element that is not torch's."""

    pattern: str
    what: str
    text: str


def faults(name: str, count: int, dtype: torch.dtype) -> Iterator[Fault]:
    """Of `count` samples of an op, for each pattern; nothing of those that torch or AICF refuses, or that draw."""
    for info in infos()[name]:
        if not info.supports_autograd or dtype not in info.supported_dtypes("cpu"):
            continue
        found = [sample for sample, _ in zip(samples(info, torch.float64), range(60), strict=False)]
        for sample in found[:: max(1, len(found) // count)][:count]:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                yield from of_sample(IN_PART.get(name, info.op), sample, dtype)


def of_sample(op: Any, sample: Any, dtype: torch.dtype) -> Iterator[Fault]:
    """Each pattern, in all of its operands and in each of them alone."""
    try:
        model = Applied(op, sample).of_type(dtype)
        with Draws() as draws:
            in_torch(model)
    except (RuntimeError, ValueError, TypeError, IndexError):
        return
    if draws.seen:
        return
    try:
        traced = trace(model, loss, model.batch, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    except AicfError:
        return
    module = run_pipeline(traced.module, "canonicalize,cse,dce,autodiff")
    for pattern, special in PATTERNS.items():
        if pattern == "far" and dtype != torch.float64:
            continue  # the interpreter computes in float64, where the squares of small numbers are not 0
        alone = range(len(places(model))) if special.one_by_one else ()
        for only in (None, *alone):
            moved = replaced(model, special, only)
            try:
                value, expected = in_torch(moved)
            except (RuntimeError, ValueError, TypeError, IndexError):
                continue
            tensors = {**dict(moved.named_parameters()), **traced.buffers, **moved.batch}
            values = {each: numbers(tensor) for each, tensor in tensors.items()}
            ran = run_by_name(module, {"failed": np.zeros(3, np.int64), **values})
            pairs = {each: (ran.get(("grad", each)), theirs) for each, theirs in expected.items()}
            if not special.cotangents and pattern != "far":  # the order of a sum decides its last digits
                pairs["loss"] = (ran["loss", "loss"], value)
            for each, (ours, theirs) in pairs.items():
                large = np.nan_to_num(np.abs(theirs.astype(np.float64)), nan=0.0, posinf=0.0)
                scale = max(1.0, float(large.max(initial=0.0))) if pattern == "far" else 1.0
                if text := difference(ours, theirs, TOLERANCES[dtype], scale):
                    yield Fault(pattern, each, text)


def in_torch(model: Applied) -> tuple[Array, dict[str, Array]]:
    """The loss, and the gradient of each parameter but the factor of the loss: 0 where torch has none."""
    model.zero_grad()
    value = loss(model, model.batch)
    if value.requires_grad:
        value.backward()
    parameters = {name: each for name, each in model.named_parameters() if name != "scale"}
    return numbers(value), {
        name: numbers(torch.zeros_like(each) if each.grad is None else each.grad)
        for name, each in parameters.items()
    }


def numbers(tensor: torch.Tensor) -> Array:
    """The values, in the type that the interpreter takes for it."""
    tensor = tensor.detach()
    if tensor.dtype is torch.bfloat16:
        return tensor.float().numpy().astype(NUMPY_TYPES["bf16"])
    return tensor.numpy().copy()


def places(model: Applied) -> list[torch.Tensor]:
    """The floats that the op reads."""
    trained = [each for name, each in model.named_parameters() if name != "scale"]
    read = [(name, each) for name, each in model.batch.items() if not name.startswith("projection")]
    return [*trained, *(each for _, each in read if each.is_floating_point())]


def replaced(model: Applied, special: Special, only: int | None) -> Applied:
    """The same with other numbers; with usual ones in all operands but `only`."""
    rng, other = random.Random(3 + 7 * (only or 0)), copy.deepcopy(model)
    with torch.no_grad():
        for number, tensor in enumerate(places(other)):
            fill(tensor, special.operands if only in (None, number) else USUAL, rng)
        if special.cotangents:
            for name, tensor in other.batch.items():
                if name.startswith("projection"):
                    fill(tensor, special.cotangents, rng)
    return other


def fill(tensor: torch.Tensor, pool: Sequence[float], rng: random.Random) -> None:
    """Numbers of the pool."""
    drawn = [rng.choice(pool) for _ in range(tensor.numel())]
    tensor.copy_(torch.tensor(drawn, dtype=torch.float64).reshape(tensor.shape))


def difference(ours: Array | None, theirs: Array, tolerance: float, scale: float = 1.0) -> str:
    """The first element that is not torch's. Of two that are no numbers, either is: an infinity minus another is a NaN."""
    theirs = theirs.astype(np.float64)
    mine = np.zeros_like(theirs) if ours is None else ours.astype(np.float64)
    same = np.abs(mine - theirs) <= tolerance * np.maximum(scale, np.abs(theirs))
    same |= (mine == theirs) | (~np.isfinite(mine) & ~np.isfinite(theirs))
    wrong = np.argwhere(~same)
    if not len(wrong):
        return ""
    at = tuple(wrong[0])
    return f"{[int(each) for each in at]}: {mine[at]}, torch {theirs[at]}; {len(wrong)} of {theirs.size}"
