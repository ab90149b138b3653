"""Torch with the random numbers of a compiled step: each drawing op of torch gets the numbers that the trace draws in
its place.

A compiled step draws at sites, numbered in the order in which the forward meets them; torch draws in the same order. So the n-th
draw of torch gets the numbers of the n-th site, of the step at hand, and dropout keeps the same elements in both. A draw from a
state of torch's generator that there was before is that draw again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from aicf_mlir.dialects.nn.randomness import DropoutOp, RandomizedOp, RandomOp
from aicf_mlir.errors import UncomparedError
from aicf_mlir.interpreters.generated import generated
from aicf_mlir.interpreters.numerics import Array, widen


@contextmanager
def drawn_as(ops: Sequence[RandomizedOp], random: torch.Tensor | None) -> Generator[Callable[[], None]]:
    """Run a step of torch that draws the numbers of `ops`. The block calls the yielded function between two micro-batches."""
    if not ops or random is None:
        yield lambda: None
        return
    draws = Draws(sorted(ops, key=lambda op: op.place), random.cpu().numpy().copy())
    with draws:
        yield draws.next_step
    draws.expect_end()


class Draws(TorchDispatchMode):
    """While active, ops that draw take the numbers of `ops`, in order; `random` is [seed, steps taken]."""

    def __init__(self, ops: Sequence[RandomizedOp], random: Array):
        super().__init__()  # pyright: ignore[reportUnknownMemberType]
        self._ops = ops
        self._random = random
        self._next = 0
        self._taken: dict[bytes, RandomizedOp] = {}
        """The draws by the state of torch's generator: a checkpoint restores it before it computes again."""

    def next_step(self) -> None:
        """Continue with the next micro-batch: the same sites of a further step."""
        self.expect_end()
        self._random = self._random + np.array([0, 1])
        self._next = 0
        self._taken.clear()

    def expect_end(self) -> None:
        """Raise UncomparedError unless torch has drawn at all sites."""
        if self._next != len(self._ops):
            raise UncomparedError(f"torch draws {self._next} times, the compiled step {len(self._ops)} times")

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = dict(kwargs or {})
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **given)
        schema: Any = func._schema
        named = {a.name: a.default_value for a in schema.arguments if a.has_default_value()}
        named |= {a.name: value for a, value in zip(schema.arguments, args, strict=False)} | given
        if not _draws(named):
            return func(*args, **given)
        name = schema.name.removeprefix("aten::")
        if (rule := RULES.get(name)) is None:
            raise UncomparedError(f"torch draws by aten.{name}")
        if name in OF_NO_TENSOR:  # its result, with other values
            return self._filled(rule, func(*args, **given), named)
        return rule(self, named)

    def _filled(
        self, rule: Callable[..., Any], result: torch.Tensor, named: Mapping[str, Any]
    ) -> torch.Tensor:
        return rule(self, {**named, "self": result})

    def kept(self, shape: Sequence[int], p: float) -> torch.Tensor:
        """Return 1 for kept elements and 0 for elements that are dropped with the probability `p`."""
        op = self._take()
        if isinstance(op, DropoutOp):
            if not math.isclose(op.p.value.data, p, rel_tol=1e-6, abs_tol=1e-6):
                raise UncomparedError(
                    f"torch drops with probability {p}, the compiled step with {op.p.value.data}"
                )
            ones = np.ones(op.domain)
            return torch.asarray((self._value(op, [ones]) != 0).astype(np.float64), device="cpu").reshape(
                tuple(shape)
            )
        return (self._of(op, "uniform", shape) < 1 - p).double()

    def law(self, law: str, shape: Sequence[int]) -> torch.Tensor:
        """Return numbers of a law of `nn.random`, in f64."""
        return self._of(self._take(), law, shape)

    def _of(self, op: RandomizedOp, law: str, shape: Sequence[int]) -> torch.Tensor:
        if not isinstance(op, RandomOp) or op.law.data != law or math.prod(op.domain) != math.prod(shape):
            raise UncomparedError(
                f"torch draws {law} numbers of {list(shape)}, the compiled step {op.name} of {op.domain}"
            )
        return torch.asarray(self._value(op, []), device="cpu").reshape(tuple(shape))

    def _take(self) -> RandomizedOp:
        """Return the op of this draw, and advance torch's generator."""
        state = torch.get_rng_state().numpy().tobytes()
        if state not in self._taken:
            if self._next == len(self._ops):
                raise UncomparedError(
                    f"torch draws more often than the compiled step, {len(self._ops)} times"
                )
            self._taken[state] = self._ops[self._next]
            self._next += 1
        torch.rand((), device="cpu")
        return self._taken[state]

    def _value(self, op: RandomizedOp, operands: Sequence[Array]) -> Array:
        (value,) = generated(op, [*operands, self._random])
        return np.array(widen(value), np.float64)


def _draws(named: Mapping[str, Any]) -> bool:
    """True if a call draws at all: attention that drops nothing does not, nor dropout in evaluation mode."""
    return (
        named.get("dropout_p") != 0.0
        and named.get("train") is not False
        and named.get("training") is not False
    )


def _native_dropout(draws: Draws, named: Mapping[str, Any]) -> Any:
    x, p = named["input"], float(named["p"])
    kept = draws.kept(x.shape, p).to(x.device)
    scale = 1 / (1 - p) if p < 1 else 0.0
    return (x * kept.to(x.dtype)) * scale, kept.bool()


def _bernoulli(draws: Draws, named: Mapping[str, Any]) -> torch.Tensor:
    x, p = named["self"], named.get("p")
    if p is None or isinstance(p, torch.Tensor):
        limit = x if p is None else p
        value = draws.law("uniform", x.shape).to(x.device) < limit.to(torch.float32)
    else:
        value = draws.kept(x.shape, 1 - float(p))
    return value.to(x.device, x.dtype)


def _into(
    rule: Callable[[Draws, Mapping[str, Any]], torch.Tensor],
) -> Callable[[Draws, Mapping[str, Any]], Any]:
    """Return a rule whose numbers go to the first operand."""
    return lambda draws, named: named["self"].copy_(rule(draws, named).to(named["self"].device))


def _uniform(draws: Draws, named: Mapping[str, Any]) -> torch.Tensor:
    low, high = float(named.get("from", 0.0)), float(named.get("to", 1.0))
    return draws.law("uniform", named["self"].shape) * (high - low) + low


def _normal(draws: Draws, named: Mapping[str, Any]) -> torch.Tensor:
    return draws.law("normal", named["self"].shape) * float(named.get("std", 1.0)) + float(
        named.get("mean", 0.0)
    )


def _exponential(draws: Draws, named: Mapping[str, Any]) -> torch.Tensor:
    return draws.law("exponential", named["self"].shape) / float(named.get("lambd", 1.0))


def _randint(draws: Draws, named: Mapping[str, Any]) -> torch.Tensor:
    low, high = int(named.get("low", 0)), int(named["high"])
    return draws.law("word", named["self"].shape) % (high - low) + low


def _randperm(draws: Draws, named: Mapping[str, Any]) -> torch.Tensor:
    x = named["self"]
    return draws.law("word", x.shape).argsort(stable=True) if x.numel() else x  # of none a step draws nothing


def _rrelu(draws: Draws, named: Mapping[str, Any]) -> torch.Tensor:
    x, low, high = named["self"], float(named["lower"]), float(named["upper"])
    slope = draws.law("uniform", x.shape).to(x.device, x.dtype) * (high - low) + low
    noise = named["noise"].copy_(torch.where(x < 0, slope, 1.0))  # the gradient multiplies by it
    return x * noise


RULES: Mapping[str, Callable[[Draws, Mapping[str, Any]], Any]] = {
    "native_dropout": _native_dropout,
    "bernoulli": _bernoulli,
    "bernoulli_": _into(_bernoulli),
    "uniform_": _into(_uniform),
    "rand": _into(_uniform),
    "rand_like": _into(_uniform),
    "normal_": _into(_normal),
    "randn": _into(_normal),
    "randn_like": _into(_normal),
    "exponential_": _into(_exponential),
    "randint": _into(_randint),
    "randint_like": _into(_randint),
    "randperm": _into(_randperm),
    "rrelu_with_noise": _rrelu,
}
"""The result of each op that draws, by its name. Any other op is refused, and the step is not compared."""

OF_NO_TENSOR = frozenset({"rand", "rand_like", "randn", "randn_like", "randint", "randint_like", "randperm"})
"""The ops that make the tensor that they fill."""
